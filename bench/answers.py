"""How long after a signal the engine has ended, while it sums a file of 1 GiB.

    python bench/answers.py [--stoker .venv/bin/stoker] [--rounds 20]

Each round starts a run whose step reads such a file, waits until a thread sums it, sends SIGINT and waits for the end
of the process: what is under way is given up, and the run is on record as cancelled.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GIB = 1 << 30


def reads_much(pid: int) -> bool:
    """It has read some of the file."""
    text = Path(f"/proc/{pid}/io").read_text()
    return int(text.split("rchar:")[1].split()[0]) > 64 << 20


def answer_ms(stoker: str, folder: Path, env: dict[str, str]) -> float:
    engine = subprocess.Popen(
        [stoker, "run", "-q", "p.json"], cwd=folder, env=env, stderr=subprocess.DEVNULL
    )
    while not reads_much(engine.pid):
        time.sleep(0.001)
    began = time.monotonic()
    engine.send_signal(signal.SIGINT)
    status = engine.wait()
    took = time.monotonic() - began
    if status != 130:
        raise SystemExit(f"the run ended with status {status}: it wasn't summing any more")
    return took * 1000


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stoker", default=str(ROOT / ".venv/bin/stoker"))
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open(folder / "data", "wb") as file:
            for _ in range(GIB >> 20):
                file.write(os.urandom(1 << 20))
        step = {"run": ["true"], "inputs": {"x": {"file": "data"}}}
        document = {"stoker": 1, "name": "p", "steps": {"a": step}}
        (folder / "p.json").write_text(json.dumps(document))
        env = {**os.environ, "STOKER_STORE": str(folder / ".stoker"), "STOKER_SYNC": "0"}
        times = [
            answer_ms(str(Path(args.stoker).resolve()), folder, env) for _ in range(args.rounds)
        ]
    print(
        f"end after a signal while 1 GiB is summed: median {statistics.median(times):.0f} ms, "
        f"max {max(times):.0f} ms of {len(times)}"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
