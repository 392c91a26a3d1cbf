"""Python stacks in the step's log: shortly before its time is over, and when the process crashes."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

_where_at: Optional[float] = None  # on the monotonic clock: when stacks are written; None: never


def write_before(timeout: float) -> None:
    """Write the stacks into the step's log just before its time is over.

    A thread does it, which a forked process lacks but would wait for: none runs during a fork.
    """
    import faulthandler
    import time

    global _where_at
    _where_at = time.monotonic() + max(timeout - 0.1, timeout * 0.8)

    def arm() -> None:
        if _where_at is not None:
            left = max(_where_at - time.monotonic(), 0.01)
            faulthandler.dump_traceback_later(left, file=2)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=faulthandler.cancel_dump_traceback_later, after_in_parent=arm)
    arm()


def write_no_more() -> None:
    import faulthandler

    global _where_at
    if _where_at is not None:
        _where_at = None
        faulthandler.cancel_dump_traceback_later()


def write_at_crashes() -> None:
    """Make crashes in compiled code write Python's stack to the step's log; the engine's error
    quotes it."""
    import faulthandler

    if not faulthandler.is_enabled():
        faulthandler.enable(file=2)
