"""tools/pace.py: sleeps are longer or shorter, and all that a command starts stands still in between."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACE = ROOT / "tools/pace.py"
FREEZER = Path("/sys/fs/cgroup/freezer/cgroup.procs")
# A shell between: what is started is at that pace, too.
SAYS = """exec sh -c '"$0" -c "$1"; exit 3' "$0" "$1" """
SLEPT = "import time; t = time.monotonic(); time.sleep({s}); print(time.monotonic() - t)"  # sleeps: how long is the question


def run(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, PACE, *words], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 3, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("factor", "s", "least", "most"), [("0.01", 50, 0.5, 40), ("20", 0.1, 2, 999)]
)
def test_sleeps(factor: str, s: float, least: float, most: float) -> None:
    said = run("--sleeps", factor, "--", "sh", "-c", SAYS, sys.executable, SLEPT.format(s=s))
    assert least - 0.01 <= float(said) < most  # a clock's tick less


def test_frozen() -> None:
    """A loop that looks at the clock all the time sees the gaps."""
    try:
        (FREEZER.parent / "stoker-pace-try").mkdir()
        (FREEZER.parent / "stoker-pace-try").rmdir()
    except OSError:
        pytest.skip("no freezer of control groups v1 to be had here")
    code = (
        "import time; last = time.monotonic(); gaps = 0\n"
        "while gaps < 3:\n"
        "    now = time.monotonic(); gaps += now - last > 0.3; last = now\n"
        "print(gaps)"
    )
    assert run("--frozen", "2", "--", "sh", "-c", SAYS, sys.executable, code) == "3\n"
