"""Variables that say how many threads to start: the worker's are among the engine's, a row each."""

from __future__ import annotations

import re
from pathlib import Path

from stoker._worker import attempt

TABLE = Path(__file__).resolve().parents[2] / "src/tbl/threads.def"


def test_the_workers_are_the_engines() -> None:
    engines = re.findall(r'^X\("(\w+)"\)$', TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert engines[0] == "OMP_NUM_THREADS"
    # Apple's library has none on the machines that a worker runs on.
    assert set(engines) - set(attempt._THREAD_VARIABLES) == {"VECLIB_MAXIMUM_THREADS"}
    assert set(attempt._THREAD_VARIABLES) <= set(engines)
