"""How a program under ``stoker run FILE`` ends; ``import stoker`` loads this module only in such
programs."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any, List, NoReturn

from . import registry
from .binary import run_options
from .errors import end_in_one_line, refuse

_left = False  # the program called sys.exit()
_sys_exit = sys.exit


def _exit(status: Any = None) -> NoReturn:
    global _left
    _left = True
    _sys_exit(status)


def _callable_names() -> List[str]:
    """Names of the pipelines and flows in the program's file."""
    pipelines = sys.modules.get("stoker._decorators.pipeline")
    kind = getattr(pipelines, "Pipeline", ())
    return [
        name
        for name, value in vars(sys.modules["__main__"]).items()
        if (kind and isinstance(value, kind)) or registry.first(registry.runners, value)
    ]


def _say_if_nothing_was_called() -> None:
    """Fail with a message if the program has a pipeline or flow and calls none.

    ``stoker plan FILE`` ends the program at its first pipeline call, so a plan that gets here made
    none.
    """
    # last_value: an exception ended the program, and its traceback was printed
    if _left or getattr(sys, "last_value", None) is not None or registry.called:
        return
    plan = bool(run_options().get("plan"))
    names = _callable_names()
    if not plan and not names:
        return  # a script that reads runs, for example
    file, word = sys.argv[0], "plan" if plan else "run"
    one = names[0] if names else "PIPELINE"
    has = f" (it has: {', '.join(names)})" if names else ""
    refuse(
        f"{file} called no pipeline and no flow, so there is nothing to {word}; "
        f"name one: stoker {word} {file}:{one}{has}"
    )
    if names:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(2)  # at exit, only this sets the exit status


if sys.excepthook is end_in_one_line:
    sys.exit = _exit
    atexit.register(_say_if_nothing_was_called)
