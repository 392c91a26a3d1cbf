"""Errors of the front: exceptions, warnings, did-you-mean.

Unknown settings are errors in Stoker's own dialect. In the compatibility shim they are warnings,
because ZenML ignores them silently; the shim calls ``unknown_settings("warn")``.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any, Dict, Iterable, Optional, Set, Type

from . import PACKAGE


class StokerError(Exception):
    """Base of every exception that the front raises on purpose.

    Example::

        try:
            digits()
        except StokerError as exc:
            print(exc)
    """

    exit_status = 2  # of a program that this exception ends
    word: Optional[str] = None  # its class in JSON, if the engine told it
    hint = ""  # what the engine advises: the end of the text
    told = False  # the engine has already printed it


class SettingsError(StokerError, ValueError):
    """A setting has a wrong name or value; the text names the object, the value and the remedy.

    Example::

        try:
            ResourceSettings(gpu_cuont=1)
        except SettingsError as exc:
            print(exc)    # did you mean 'gpu_count'?
    """


class UnknownOptionError(SettingsError, TypeError):
    """A decorator, or what configures a step or pipeline, doesn't have this option."""


class StepInterfaceError(StokerError):
    """A step's declaration or call is wrong.

    Example::

        try:
            train(rate=0.1)
        except StepInterfaceError as exc:
            print(exc)    # it takes 'lr'
    """


class WrongInputError(StepInterfaceError, RuntimeError):
    """An argument of a step's call doesn't fit, or ``after=`` names a step that isn't there."""


class PipelineInterfaceError(StokerError, ValueError):
    """A pipeline's declaration or call is wrong.

    Example::

        try:
            digits(rate=0.1)
        except PipelineInterfaceError as exc:
            print(exc)
    """


class NotYetError(StokerError, NotImplementedError):
    """A feature of the dialect that Stoker lacks."""


class EngineError(StokerError, RuntimeError):
    """The ``stoker`` binary is missing, or it ended before it reported the run's end.

    ``exit_status`` is the engine's exit status if known: 2 for wrong usage, 3 for the environment.
    """

    def __init__(
        self, text: str, status: Optional[int] = None, word: Optional[str] = None, hint: str = ""
    ) -> None:
        super().__init__(text)
        self.exit_status = 2 if status == 2 else 3
        self.word, self.hint = word, hint


class InWorkerError(StokerError, RuntimeError):
    """A pipeline was called while a worker imports the file that defines it.

    A clean fork server catches exactly this exception and serves the functions that the file has
    defined so far.
    """


class StokerWarning(UserWarning):
    """A request has no effect here.

    Example::

        warnings.simplefilter("error", StokerWarning)
    """


_unknown = "error"


def unknown_settings(policy: str) -> str:
    """Make unknown settings an ``"error"`` or only ``"warn"``; returns the previous choice."""
    global _unknown
    if policy not in ("error", "warn"):
        raise ValueError(f"unknown_settings: {policy!r} is neither 'error' nor 'warn'")
    before, _unknown = _unknown, policy
    return before


def lenient() -> bool:
    """Whether unknown settings only warn (in the compatibility shim)."""
    return _unknown == "warn"


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """``"; did you mean 'x'?"`` for the first known name that begins with it ("gpus": gpu_count),
    else the nearest, or an empty string.

    Args:
        cutoff: how alike it must be, from 0 to 1.
    """
    import difflib

    known, name = list(known), str(name)
    begin = name[:-1] if name.endswith("s") and len(name) > 3 else name
    near = [one for one in known if len(begin) > 2 and str(one).startswith(begin)]
    near = near or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    return f"; did you mean '{near[0]}'?" if near else ""


def refuse_unknown(where: str, what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raise for names that are not known; in the shim, fields are only warned of, as in ZenML.

    Raises:
        UnknownOptionError: an option; SettingsError: anything else. One sentence with the object, the
            name and the nearest known name.
    """
    known = list(known)
    for name in names:
        if name in known:
            continue
        hint = did_you_mean(name, known)
        if not lenient() or what != "field":
            kind = UnknownOptionError if what == "option" else SettingsError
            raise kind(f"{where}: unknown {what} '{name}'{hint}")
        warn(f"{where}: unknown {what} '{name}' is ignored{hint}")


def warn(text: str) -> None:
    """Warn at the user's line: the nearest frame outside this package."""
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


def user_line() -> str:
    """ "file:line" of the nearest frame outside this package."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def say(text: str) -> None:
    """Print one line on standard error, in the form of the engine's notices."""
    print(f"stoker: {text}", file=sys.stderr, flush=True)


_CLASSES = {1: "failed", 2: "usage"}  # exit status → class of an error; others: environment


def tell(text: str, status: int, word: Optional[str] = None, hint: str = "") -> None:
    """With ``--json``, say why the program ends as the commands in C do; ``text`` may begin with
    "FILE:LINE: " and end with "; HINT". ``word`` is the error's class, if the engine told it."""
    import json
    import re

    from .options import asked

    try:
        options = asked()
    except ValueError:
        return  # which is the error that is told
    if not options.get("json") and options.get("plan") != "json":
        return
    if hint and text.endswith(f"; {hint}"):
        text = text[: -len(hint) - 2]
    word = word or _CLASSES.get(status, "environment")
    error: Dict[str, Any] = {"class": word, "text": text, "hint": hint}
    named = re.match(r"(\S+):([0-9]+): ", text)
    if named:
        error.update(text=text[named.end() :], file=named[1], line=int(named[2]))
    print(json.dumps({"error": error}, ensure_ascii=False), flush=True)


def refuse(text: str, status: int = 2, word: Optional[str] = None, hint: str = "") -> None:
    """Say why the program ends, on standard error and with ``--json`` as JSON, too (:func:`tell`)."""
    tell(text, status, word, hint)
    say(text)


def _is_ours(trace: Any) -> bool:
    """Whether this package raised the exception."""
    while trace.tb_next is not None:
        trace = trace.tb_next
    return bool(trace.tb_frame.f_code.co_filename.startswith(PACKAGE))


def _is_program(frame: Any) -> bool:
    """Whether the frame is the program's own file, run or imported by ``_runfile``."""
    by_name = sys.modules.get("stoker._runfile")
    file = getattr(by_name, "file", None)
    return bool(frame.f_globals.get("__name__") == "__main__" or frame.f_code.co_filename == file)


def _users_part(trace: Any) -> Any:
    """The traceback without this package's frames above those of the user's."""
    first = part = _behind_ours(trace)
    while part is not None:
        users = _behind_ours(part.tb_next)
        if users is not None:  # else it ends in ours
            part.tb_next = users
        part = users
    return first or trace


def _behind_ours(trace: Any) -> Any:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((PACKAGE, "<frozen")):
        trace = trace.tb_next
    return trace


def say_import(error: ImportError, trace: Any) -> None:
    """One line for an import that fails in the program's own file, else Python's traceback and that line."""
    import os

    own = trace
    while own.tb_next is not None and not _is_program(own.tb_frame):
        own = own.tb_next
    inner = own.tb_next
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith((PACKAGE, "<frozen")):
        inner = inner.tb_next  # a stand-in of ours says what it lacks
    if not _is_program(own.tb_frame) or inner is not None:
        sys.__excepthook__(type(error), error, trace)
    path = own.tb_frame.f_code.co_filename
    text = str(error)
    if "relative import" in text:
        name = os.path.basename(path)
        text = (
            f"a relative import doesn't work here, because {name} runs as a program and not as part of a "
            "package: leave out the dots ('from utils import x' finds utils.py beside it)"
        )
    elif error.name and text.startswith("No module named"):
        top, _, rest = error.name.partition(".")
        names = {one.partition(".")[0] for one in sys.modules} | _installed()
        if rest and top in names:
            text = f"package '{top}' has no module '{error.name}' in {sys.executable}"
        else:
            how = f"to install it: {sys.executable} -m pip install {top}"
            if top == "stoker":
                how = "install Stoker's wheel there, or name another Python: stoker run --python"
            near = did_you_mean(top, names - {"stoker", top}, 0.75)
            text = f"module '{error.name}' is not installed in {sys.executable}{near} ({how})"
    refuse(f"{os.path.relpath(path)}:{own.tb_lineno}: {text}", 1)


def _installed() -> Set[str]:
    import pkgutil

    return {module.name for module in pkgutil.iter_modules()}


def _last_place(trace: Any) -> str:
    """ "FILE:LINE: " of the innermost frame of the user's, or nothing."""
    import os

    place = ""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not path.startswith((PACKAGE, "<frozen")):
            place = f"{os.path.relpath(path)}:{trace.tb_lineno}: "
        trace = trace.tb_next
    return place


def end_in_one_line(
    kind: Type[BaseException], error: BaseException, trace: Any, place: str = ""
) -> None:
    """``sys.excepthook`` of programs: prints an exception of this package as one line, without a
    traceback.

    ``place``, "FILE:LINE: ", is named where no line of the user's is on the way to the error.
    Prints nothing if the engine has reported how the run ended, or for Ctrl-C during a run. Raises
    SystemExit with the error's exit status. Interactive sessions, and other exceptions, get
    Python's traceback.
    """
    if sys.flags.interactive or hasattr(sys, "ps1"):
        sys.__excepthook__(kind, error, trace)
        return
    trace = _users_part(trace)
    error.__traceback__ = trace
    if isinstance(error, KeyboardInterrupt) and _is_ours(trace):
        return  # Python ends by SIGINT
    if isinstance(error, ImportError) and trace is not None:
        say_import(error, trace)
        return
    if not isinstance(error, StokerError):
        sys.__excepthook__(kind, error, trace)
        if trace is not None:
            tell(f"{_last_place(trace)}{kind.__name__}: {error}", 1)
        return
    if not error.told:
        import re

        text = str(error)
        if not re.match(r"\S+:[0-9]+: ", text):
            text = f"{_last_place(trace) or place}{text}"
        refuse(text, error.exit_status, error.word, error.hint)
    raise SystemExit(error.exit_status)


if sys.excepthook is sys.__excepthook__ or hasattr(sys.excepthook, "is_stokers"):
    sys.excepthook = end_in_one_line
