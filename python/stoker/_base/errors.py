"""What can go wrong in the front, and how it is said: exceptions, warnings, did-you-mean.

Unknown settings are errors in Stoker's own dialect and warnings in the compatibility shim, because the
peer ignores them silently; ``unknown_settings("warn")`` is the switch.
"""

from __future__ import annotations

import sys
import warnings
from typing import Iterable, Optional

from . import PACKAGE


class StokerError(Exception):
    """Base of every exception that the front raises on purpose."""

    exit_status = 2  # of a program that ends by it under `stoker run`
    told = False  # the engine has said it already


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
