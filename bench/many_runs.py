"""Makes a store with many runs out of one real run, for figures of what lists them.

many_runs.py STORE N     STORE holds at least one ended run; its newest one is copied
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
from pathlib import Path


def copy_runs(store: Path, n: int) -> None:
    """Adds `n` copies of the newest run, each with its own parameters, times and tags. Their specs and
    metrics are links to the newest run's."""
    db = sqlite3.connect(store / "store.db")
    db.execute("PRAGMA synchronous=OFF")
    row, run, _name, pipeline, created, ended = db.execute(
        "SELECT id, run, name, pipeline, created_ms, ended_ms FROM runs ORDER BY id DESC LIMIT 1"
    ).fetchone()
    base = row << 32
    events = db.execute(
        "SELECT id - ?1, time_ms, kind, task, attempt, data FROM events WHERE id BETWEEN ?1 AND ?1 + 4294967295",
        (base,),
    ).fetchall()
    source = store / "runs" / run
    measured = [path.relative_to(source) for path in source.rglob("metrics.jsonl")]
    for i in range(n):
        shift = (i + 1) * 60_000
        new = f"{run[:8]}-{i // 3600 % 24:02}{i // 60 % 60:02}{i % 60:02}-{i:06x}"
        cursor = db.execute(
            "INSERT INTO runs(run, name, pipeline, status, created_ms, ended_ms, tags)"
            " VALUES(?, ?, ?, 'succeeded', ?, ?, ?)",
            (new, new, pipeline, created + shift, ended + shift, json.dumps([f"sweep-{i % 7}"])),
        )
        to = cursor.lastrowid << 32
        rate = random.Random(i).random()
        rows = []
        for number, time_ms, kind, task, attempt, data in events:
            if kind == "run_created" and data:
                told = json.loads(data)
                told["parameters"] = {key: rate for key in told.get("parameters", {})}
                data = json.dumps(told)
            rows.append((to + number, time_ms + shift, kind, task, attempt, data))
        db.executemany("INSERT INTO events VALUES(?, ?, ?, ?, ?, ?)", rows)
        folder = store / "runs" / new
        folder.mkdir()
        os.link(source / "spec.json", folder / "spec.json")
        (folder / "lock").touch()
        for path in measured:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            os.link(source / path, folder / path)
    db.commit()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("n", type=int)
    asked = parser.parse_args()
    copy_runs(asked.store, asked.n)
