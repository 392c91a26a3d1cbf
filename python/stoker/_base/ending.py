"""How a program under ``stoker run FILE`` ends: loaded by ``import stoker`` there, and only there."""

from __future__ import annotations

import atexit
import os
import re
import sys
from typing import Any, Type

from . import PACKAGE, registry
from .binary import run_options
from .errors import StokerError, say


def end_in_one_line(kind: Type[BaseException], error: BaseException, trace: Any) -> None:
    """``sys.excepthook`` under ``stoker run FILE``: our exceptions say what is to be done, a traceback hides it.

    How a run failed was said by the engine already. Raises SystemExit with the contract's exit status.
    """
    if not isinstance(error, StokerError):
        sys.__excepthook__(kind, error, trace)
        return
    if not getattr(error, "told", False):
        place, text = "", str(error)
        while trace is not None:
            code = trace.tb_frame.f_code
            if not code.co_filename.startswith((PACKAGE, "<frozen")):
                place = f"{os.path.relpath(code.co_filename)}:{trace.tb_lineno}: "
            trace = trace.tb_next
        named = re.match(r"\S+:[0-9]+: ", text)
        say(text if named else f"{place}{text}")
    raise SystemExit(error.exit_status)


def _say_if_nothing_was_planned() -> None:
    """``stoker plan FILE`` ends the program at its first pipeline call; who gets here made none."""
    pipelines = sys.modules.get("stoker._decorators.pipeline")
    if (
        not run_options().get("plan")
        or getattr(sys, "last_value", None) is not None  # it was said what went wrong
        or registry.called
    ):
        return
    file = sys.argv[0]
    kind = getattr(pipelines, "Pipeline", ())
    names = [k for k, v in vars(sys.modules["__main__"]).items() if kind and isinstance(v, kind)]
    one = names[0] if names else "PIPELINE"
    has = f" (it has: {', '.join(names)})" if names else ""
    say(
        f"{file} called no pipeline and no flow, so there is nothing to plan; "
        f"name one: stoker plan {file}:{one}{has}"
    )


if sys.excepthook is sys.__excepthook__:
    sys.excepthook = end_in_one_line
    atexit.register(_say_if_nothing_was_planned)
