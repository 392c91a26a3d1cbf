"""Reports threads that still run after the step's code has ended."""

from __future__ import annotations

import sys
import threading

_PATIENCE_S = 5.0


def tell_of_threads() -> None:
    """After a while, log the threads that Python waits for at its end: those that aren't
    daemons."""
    timer = threading.Timer(_PATIENCE_S, _tell)
    timer.daemon = True
    timer.start()


def _tell() -> None:
    main = threading.main_thread()
    left = [repr(t.name) for t in threading.enumerate() if t is not main and not t.daemon]
    if left:
        what, it = ("thread", "it") if len(left) == 1 else ("threads", "them")
        print(
            f"stoker: the step's code has ended, but the task goes on until its {what} {', '.join(left)} "
            f"{'ends' if it == 'it' else 'end'}: join {it} in the step, or start {it} with daemon=True",
            file=sys.stderr,
            flush=True,
        )
