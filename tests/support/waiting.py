"""The only way in which tests wait for another process."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import IO, Any, Callable

WAIT_S = 120.0  # far above what anything here takes, also on a busy machine


def wait_for(what: Callable[[], Any], timeout_s: float = WAIT_S, why: Any = "") -> Any:
    """What `what` returns once that is true; an AssertionError that names `why` when it never is.

    `why` may be a function, which is asked for its text only then.
    """
    end = time.monotonic() + timeout_s
    while not (found := what()):
        if time.monotonic() >= end:
            text = why() if callable(why) else why
            raise AssertionError(f"not within {timeout_s:g} s: {text or what}")
        time.sleep(0.02)
    return found


def held(gate: Path, reader: subprocess.Popen[Any] | None = None) -> IO[str]:
    """This pipe for writing, once somebody reads it; an AssertionError if `reader` ends before."""

    def look() -> int | None:
        ended = reader is not None and reader.poll() is not None
        try:
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            assert not ended, f"nobody reads {gate}: its reader has ended"
            return None

    return os.fdopen(wait_for(look), "w")


def open_gate(gate: Path) -> None:
    """Let the run go on that reads this pipe."""
    held(gate).close()
