"""Records what a Python process reads that a step starts, or has the program of ``stoker run FILE`` end
as one that has imported stoker; then loads the sitecustomize that it hides."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict


def _is_worker() -> bool:
    """A fresh worker begins itself, once it has loaded the step's code."""
    with open("/proc/self/cmdline", "rb") as words:
        return b"\0stoker._worker\0" in words.read()


def _record() -> None:
    path = os.environ.get("STOKER_READS")
    if not path or _is_worker():
        return
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    space: Dict[str, Any] = {
        "__name__": "_stoker_reads",
        "__file__": os.path.join(folder, "reads.py"),
    }
    with open(space["__file__"]) as source:
        exec(compile(source.read(), space["__file__"], "exec"), space)
    left_out = [one for one in os.environ.get("STOKER_READS_LEFT_OUT", "").split(":") if one]
    space["begin"](path, False, left_out)


def _end_in_one_line(kind: Any, error: Any, trace: Any) -> None:
    """An import that fails above ``import stoker`` is told as one below it."""
    sys.excepthook = tell = sys.__excepthook__
    sys.path.append(os.path.abspath(__file__).rpartition("/stoker/")[0])
    try:
        from stoker._base.errors import end_in_one_line as tell
    except Exception:
        pass
    tell(kind, error, trace)


def _begin_program() -> None:
    before = os.environ.pop("STOKER_PYTHONPATH", None)  # PYTHONPATH as it was, after a "="
    if before is None:
        return
    del os.environ["PYTHONPATH"]
    if before:
        os.environ["PYTHONPATH"] = before[1:]
    _end_in_one_line.is_stokers = True  # type: ignore[attr-defined]
    sys.excepthook = _end_in_one_line


def _go_on() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [one for one in sys.path if os.path.abspath(one) != here]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError:  # the usual case: there is no other one
        if ours is not None:
            sys.modules["sitecustomize"] = ours


try:
    _begin_program()
    _record()
except Exception:
    pass
_go_on()
