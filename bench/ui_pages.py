"""What `stoker ui` costs with many runs: CPU and size of its pages, memory, CPU while nobody looks.

ui_pages.py FOLDER [--stoker .venv/bin/stoker] [--runs 10000] [--steps 100] [--values 1]

FOLDER is new and keeps the store, about 3 KB a task. Without this, `bench.py --only ui` measures 10,000
runs of one step.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import many_runs

FIT = {
    "run": 'for i in $(seq VALUES); do echo "{\\"loss\\": 0.$i, \\"accuracy\\": 0.$i}"; done >> "$STOKER_METRICS"'
}


def document(n_steps: int, n_values: int) -> dict[str, Any]:
    """A pipeline with a step that logs metrics, and others."""
    return {
        "stoker": 1,
        "name": "p",
        "parameters": {"lr": {"type": "float", "default": 0.1}},
        "steps": {
            "fit": {"run": FIT["run"].replace("VALUES", str(n_values))},
            **{f"s{i}": {"run": "true", "after": ["fit"]} for i in range(1, n_steps)},
        },
    }


def measure(
    folder: Path,
    stoker: str,
    env: dict[str, str],
    n: int,
    add: Callable[..., Any],
    n_steps: int = 1,
    n_values: int = 1,
) -> None:
    """Adds the rows for a store of `n` runs of `n_steps` steps, made in `folder`."""
    (folder / "p.json").write_text(json.dumps(document(n_steps, n_values)))
    subprocess.run([stoker, "run", "-q", "p.json"], cwd=folder, env=env, check=True)
    many_runs.copy_runs(folder / ".stoker", n)
    words = [stoker, "ui", "--json"]
    with subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        base, _, token = json.loads(server.stdout.readline())["url"].partition("?token=")

        def cpu_ms() -> float:
            tasks = Path(f"/proc/{server.pid}/task").glob("*/schedstat")
            return sum(int(one.read_text().split()[0]) for one in tasks) / 1e6

        def ask(page: str) -> tuple[float, bytes]:
            before = cpu_ms()
            asked = urllib.request.Request(
                base + page, headers={"Authorization": f"Bearer {token}"}
            )
            text = urllib.request.urlopen(asked).read()
            return cpu_ms() - before, text

        words = [stoker, "runs", "--json", "-n", "2"]
        done = subprocess.run(words, cwd=folder, env=env, stdout=subprocess.PIPE, check=True)
        first, second = (one["run"] for one in json.loads(done.stdout))
        try:
            begin = cpu_ms()
            while b"still to be read" in ask("runs?sort=-lr")[1]:  # reads each run once
                pass
            each = (cpu_ms() - begin) / (n + 1)
            add("ui", f"CPU of a run of {n_steps} tasks, read once", f"{each:.2f} ms", "–", each, 0.5 * max(n_steps, 2), "ms")  # fmt: skip
            for page, what, most in (
                ("runs", f"the newest of {n:,} runs", 50),
                ("runs?sort=-lr&where=lr%3E0.5", f"{n:,} runs filtered and sorted", 50),
                (f"compare?run={first}&run={second}", "two runs side by side", 50),
                ("compare", "the newest 1,000 runs compared", 500),
                ("steps?step=fit", "a step over its newest 100 runs", 200),
                (f"run?run={first}", "a run", 50),
                (f"task?run={first}&task=fit", "a task", 50),
            ):
                ms, text = min(ask(page) for _ in range(5))
                add("ui", f"CPU of a page with {what}", f"{ms:.1f} ms", f"{len(text) / 1e3:.0f} KB", ms, most, "ms")  # fmt: skip
            before = -1.0
            while before != cpu_ms():  # it still reads what is new
                before = cpu_ms()
                time.sleep(1)
            time.sleep(5)
            idle = (cpu_ms() - before) / 5000 * 100
            add("ui", "CPU while nobody looks", f"{idle:.3f} %", "a CPU", idle, 0.1, "%")
            status = Path(f"/proc/{server.pid}/status").read_text()
            resident = int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1e3
            add("ui", f"memory with {n:,} runs", f"{resident:.0f} MB", "–", resident, 50, "MB")
        finally:
            server.terminate()


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stoker", type=Path, default=Path(".venv/bin/stoker"))
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--values", type=int, default=1, help="of each metric of a run")
    asked = parser.parse_args()
    asked.folder.mkdir()
    stoker = str(asked.stoker.resolve())

    def add(_group: str, what: str, ours: str, other: str, *_limit: object) -> None:
        print(f"| {what} | {ours} | {other} |", flush=True)

    measure(asked.folder, stoker, dict(os.environ), asked.runs, add, asked.steps, asked.values)


if __name__ == "__main__":
    main()
