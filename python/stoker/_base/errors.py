"""What can go wrong in the front, and how it is said: exceptions, warnings, did-you-mean.

Unknown settings are errors in Stoker's own dialect and warnings in the compatibility shim, because the
peer ignores them silently; ``unknown_settings("warn")`` is the switch.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any, Iterable, Optional, Type

from . import PACKAGE

if TYPE_CHECKING:
    from .._engine.client import PipelineRun


class StokerError(Exception):
    """Base of every exception that the front raises on purpose."""

    exit_status = 2  # of a program that ends by it under `stoker run`


class SettingsError(StokerError, ValueError):
    """A setting that can't be understood; names the object, the value and the way out."""


class StepInterfaceError(StokerError):
    """A step that is declared or called in a way that can't work."""


class PipelineInterfaceError(StokerError, ValueError):
    """A pipeline that is declared or called in a way that can't work."""


class NotYetError(StokerError, NotImplementedError):
    """Something that the dialect has and Stoker doesn't have yet."""


class EngineError(StokerError, RuntimeError):
    """The ``stoker`` binary is missing, or it ended before it could say how the run went.

    ``exit_status`` is the engine's where it had one to say: 2 for wrong usage, 3 for the environment.
    """

    def __init__(self, text: str, status: Optional[int] = None) -> None:
        super().__init__(text)
        self.exit_status = 2 if status == 2 else 3


class InWorkerError(StokerError, RuntimeError):
    """A pipeline was called while a worker imports the file that defines it.

    What the file had defined by then stands: a clean fork server catches exactly this exception
    and serves the functions that exist so far.
    """


class PipelineFailed(StokerError, RuntimeError):
    """The run ended in failure. ``run`` is its record, ``traceback`` the failing step's own."""

    exit_status = 1

    def __init__(
        self, text: str, run: Optional[PipelineRun] = None, traceback: Optional[str] = None
    ) -> None:
        super().__init__(text)
        self.run = run
        self.traceback = traceback


class PipelineCancelled(PipelineFailed):
    """The run was cancelled."""

    exit_status = 130


class StokerWarning(UserWarning):
    """A request that has no effect here, said aloud."""


_unknown = "error"


def unknown_settings(policy: str) -> str:
    """Set what an unknown setting is, ``"error"`` or ``"warn"``; returns what it was."""
    global _unknown
    if policy not in ("error", "warn"):
        raise ValueError(f"unknown_settings: {policy!r} is neither 'error' nor 'warn'")
    before, _unknown = _unknown, policy
    return before


def lenient() -> bool:
    """True where unknown settings only warn (the compatibility shim)."""
    return _unknown == "warn"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean 'x'?"`` for the nearest known name, or an empty string."""
    import difflib

    near = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else ""


def refuse_unknown(where: str, what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise (or warn, in the shim) for names that are not known.

    Raises:
        SettingsError: one sentence with the object, the name and the nearest known one.
    """
    known = list(known)
    for name in names:
        if name in known:
            continue
        hint = did_you_mean(name, known)
        if not lenient():
            raise SettingsError(f"{where}: unknown {what} '{name}'{hint}")
        warn(f"{where}: unknown {what} '{name}' is ignored{hint}")


def warn(text: str) -> None:
    """Warn at the user's own line: the nearest frame outside of this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    warnings.warn_explicit(
        text,
        StokerWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def say(text: str) -> None:
    """One plain line on standard error, as the engine's own notices."""
    print(f"stoker: {text}", file=sys.stderr, flush=True)


def end_in_one_line(kind: Type[BaseException], error: BaseException, trace: Any) -> None:
    """``sys.excepthook`` under ``stoker run FILE``: our exceptions say what is to be done, a traceback hides it.

    How a run failed was said by the engine already. Raises SystemExit with the contract's exit status.
    """
    if not isinstance(error, StokerError):
        sys.__excepthook__(kind, error, trace)
        return
    if not isinstance(error, PipelineFailed):
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
    from .binary import run_options

    pipelines = sys.modules.get("stoker._decorators.pipeline")
    if (
        not run_options().get("plan")
        or getattr(sys, "last_value", None) is not None  # it was said what went wrong
        or getattr(pipelines, "was_called", False)
        or "stoker.flow._cli"
        in sys.modules  # a flow was called, and has said what there was to say
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


if os.environ.get("STOKER_RUN_OPTIONS") and sys.excepthook is sys.__excepthook__:
    import atexit

    sys.excepthook = end_in_one_line
    atexit.register(_say_if_nothing_was_planned)
