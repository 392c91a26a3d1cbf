"""The only way in which tests wait for another process."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, Callable

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


def open_gate(gate: Path) -> None:
    """Let the run go on that reads this pipe."""

    def look() -> bool:
        try:
            os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    wait_for(look)
