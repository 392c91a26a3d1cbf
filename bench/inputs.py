"""The CPU time that a command step costs with inputs of each kind, in times of a step without one (docs/store.md).

    python bench/inputs.py [--stoker .venv/bin/stoker] [--steps 300] [--rounds 5]

Each row runs the same number of steps one after the other, `true` with one input; the least of the rounds counts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Optional

ROOT = Path(__file__).resolve().parents[1]
MAKES: Dict[str, Optional[str]] = {
    "no input": None,
    "a file of 1 KiB": "head -c 1024 /dev/zero > $STOKER_OUTPUT/out",
    "a file of 64 KiB": "head -c 65536 /dev/zero > $STOKER_OUTPUT/out",
    "a file of 100 MiB": "head -c 104857600 /dev/urandom > $STOKER_OUTPUT/out",
    "a folder of 10 files": "mkdir $STOKER_OUTPUT/out; cd $STOKER_OUTPUT/out; for i in $(seq 10); do echo $i > $i; done",
    "a folder of 10,000 files": "mkdir $STOKER_OUTPUT/out; cd $STOKER_OUTPUT/out; seq 10000 | split -l 1 -a 5 -",
}


def document(make: Optional[str], n: int) -> Dict[str, Any]:
    steps: Dict[str, Any] = {
        "make": {"run": ["sh", "-c", make or "true"], "outputs": ["out"] if make else []}
    }
    for i in range(n):
        steps[f"s{i}"] = {"run": ["true"], "cache": False, "after": [f"s{i - 1}" if i else "make"]}
        if make:
            steps[f"s{i}"]["inputs"] = {"x": {"from": "make.out"}}
    return {"stoker": 1, "name": "p", "steps": steps}


def run(stoker: str, folder: Path, env: Dict[str, str]) -> float:
    """Seconds of CPU time of the engine and its steps."""
    child = subprocess.Popen([stoker, "run", "-q", "p.json"], cwd=folder, env=env)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"the run ended with status {child.returncode}")
    return used.ru_utime + used.ru_stime


def cost(stoker: str, make: Optional[str], n: int, rounds: int) -> float:
    """Seconds a step, without the beginning and the end of a run."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {
            **os.environ,
            "STOKER_STORE": str(folder / ".stoker"),
            "STOKER_SYNC": "0",
            "STOKER_IDLE_READ": "0",
        }
        times = []
        for count in (0, n):
            (folder / "p.json").write_text(json.dumps(document(make, count)))
            run(stoker, folder, env)  # what it makes is stored
            times.append(min(run(stoker, folder, env) for _ in range(rounds)))
        return (times[1] - times[0]) / n


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stoker", default=str(ROOT / ".venv/bin/stoker"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    base = 0.0
    for name, make in MAKES.items():
        seconds = cost(args.stoker, make, args.steps, args.rounds)
        base = base or seconds
        print(f"{name:28} {seconds / base:6.2f} × ({seconds * 1000:.2f} ms a step)", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
