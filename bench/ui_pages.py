"""What `stoker ui` costs with many runs: CPU and size of its pages, memory, CPU while nobody looks."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import many_runs

STEPS = {"fit": {"run": 'echo \'{"loss": 0.5}\' >> "$STOKER_METRICS"'}}
DOCUMENT = {
    "stoker": 1,
    "name": "p",
    "parameters": {"lr": {"type": "float", "default": 0.1}},
    "steps": STEPS,
}


def measure(
    folder: Path, stoker: str, env: dict[str, str], n: int, add: Callable[..., Any]
) -> None:
    """Adds the rows for a store of `n` runs, made in `folder`."""
    (folder / "p.json").write_text(json.dumps(DOCUMENT))
    subprocess.run([stoker, "run", "-q", "p.json"], cwd=folder, env=env, check=True)
    many_runs.copy_runs(folder / ".stoker", n)
    words = [stoker, "ui", "--json"]
    with subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        base, _, token = json.loads(server.stdout.readline())["url"].partition("?token=")

        def cpu_ms() -> float:
            tasks = Path(f"/proc/{server.pid}/task").glob("*/schedstat")
            return sum(int(one.read_text().split()[0]) for one in tasks) / 1e6

        def ask(page: str) -> tuple[float, int]:
            before = cpu_ms()
            asked = urllib.request.Request(
                base + page, headers={"Authorization": f"Bearer {token}"}
            )
            size = len(urllib.request.urlopen(asked).read())
            return cpu_ms() - before, size

        try:
            ask("runs?sort=-lr")  # reads each run once
            for page, what in (
                ("runs", f"the newest of {n:,} runs"),
                ("runs?sort=-lr&where=lr%3E0.5", f"{n:,} runs filtered and sorted"),
            ):
                costs = [ask(page) for _ in range(5)]
                ms, size = min(costs)
                add(
                    "ui",
                    f"CPU of a page with {what}",
                    f"{ms:.1f} ms",
                    f"{size / 1e3:.0f} KB",
                    ms,
                    50,
                    "ms",
                )
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
