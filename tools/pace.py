"""Runs a command and its children at another pace. A test that passes then doesn't depend on time.

    pace.py [--sleeps FACTOR] [--frozen PARTS] -- COMMAND…

`--sleeps 0.33`: sleeps are shortened to a third (3: made three times as long), the machine is as fast as ever.
`--frozen 2`: for each 0.2 s that it runs, all of it stands still for 2 × 0.2 s, as on a machine three times as slow
(root, control groups v1 with a freezer). For instance, of the tests of `stoker launch`:

    tools/pace.py --frozen 2 -- .venv/bin/python -m pytest tests/launch
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FREEZER = Path("/sys/fs/cgroup/freezer")
RUNS_S = 0.2


def preloaded(folder: Path) -> Path:
    """Compiles pace.c."""
    library = folder / "pace.so"
    source = Path(__file__).with_name("pace.c")
    command = [os.environ.get("CC", "cc"), "-shared", "-fPIC", "-O1", "-o", library, source]
    subprocess.run(command, check=True)
    return library


def run_frozen(process: subprocess.Popen[bytes], group: Path, parts: float) -> None:
    """Stops and continues the process in turn until it has ended."""
    state = group / "freezer.state"
    try:
        while process.poll() is None:
            state.write_text("FROZEN")
            time.sleep(RUNS_S * parts)
            state.write_text("THAWED")
            time.sleep(RUNS_S)
    finally:
        state.write_text("THAWED")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sleeps", type=float, default=1.0, metavar="FACTOR")
    parser.add_argument("--frozen", type=float, default=0.0, metavar="PARTS")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(argv)
    env = dict(os.environ)
    group = FREEZER / f"stoker-pace-{os.getpid()}"

    def begin() -> None:
        if options.frozen > 0:
            (group / "cgroup.procs").write_text(str(os.getpid()))
        # A background job of a shell ignores it, and so would every program that the tests start.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with tempfile.TemporaryDirectory(prefix="stoker-pace-") as folder:
        if options.sleeps != 1.0:
            env |= {"LD_PRELOAD": str(preloaded(Path(folder))), "STK_PACE": str(options.sleeps)}
        if options.frozen > 0:
            group.mkdir()
        process = subprocess.Popen(options.command, env=env, preexec_fn=begin)
        if options.frozen > 0:
            run_frozen(process, group, options.frozen)
        status = process.wait()
    if options.frozen > 0:
        try:
            group.rmdir()
        except OSError:
            print(f"pace.py: something of it still runs in {group}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
