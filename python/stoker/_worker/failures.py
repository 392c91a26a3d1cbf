"""How a failed attempt is described: class, message, the user's line and traceback."""

from __future__ import annotations

import os
import sys

from . import frameworks
from .seen import _STDLIB, is_ours, is_users

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


class Stopped(Exception):
    """The step called ``sys.exit``; the sentence has its argument."""


def describe(exc: BaseException, entry: Any = None) -> Dict[str, Any]:
    """``result.json``'s ``error``: class, one sentence, the user's part of the traceback."""
    full = frameworks.device_oom_of(exc)
    kind = type(exc) if full is None else type(full)
    module = kind.__module__
    name = kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
    if isinstance(exc, Stopped):
        name = "SystemExit"
    if is_preempted(exc):
        return {"class": "preempted", "type": name, "message": str(exc)}
    error: Dict[str, Any] = {"class": "exception", "type": name, "message": _message(full or exc)}
    raw = frameworks.text_of(full or exc)
    if raw and raw != error["message"]:
        error["raw"] = raw
    ours = module.startswith("stoker.") and module != "stoker.flow.exception"
    if ours and kind.__name__ == "SerializeError":
        error.update({"class": "serialize", "output": getattr(exc, "output", "")})
    elif ours and kind.__name__ == "LoadError":
        error["class"] = "load"
    elif ours and kind.__name__ == "DeviceUnusable":
        error["class"] = "resources"
    elif ours and not isinstance(exc, Stopped):
        error["class"] = "usage"
    elif isinstance(exc, ImportError):
        error["class"] = "import"
        told = hasattr(exc, "_stoker_told")  # by a stand-in: nothing can be installed
        if isinstance(exc, ModuleNotFoundError) and exc.name and not told:
            error["module"] = exc.name  # else the module exists, but something in it is missing
    elif full is not None:
        error["class"] = "device_oom"
    where = _user_line(exc) or _defined_at(entry)
    if where:
        error["where"] = where
    if not ours or isinstance(exc, Stopped):
        error["traceback"] = traceback_of(exc)
    return error


def is_preempted(exc: BaseException) -> bool:
    preemption: Any = sys.modules.get("stoker._worker.preemption")
    return preemption is not None and isinstance(exc, preemption.Preempted)


def _message(exc: BaseException) -> str:
    text = frameworks.text_of(exc)
    if isinstance(exc, KeyError) and len(exc.args) == 1:
        return f"key {exc.args[0]!r} not found"
    if isinstance(exc, MemoryError) and not text:
        return "the process could not get more memory (MemoryError)"
    if isinstance(exc, EOFError) and text == "EOF when reading a line":  # by input()
        return f"{text}: nobody answers a step that asks; give it the answer as a parameter"
    if isinstance(exc, FileNotFoundError) and isinstance(exc.filename, str):
        return text + _missing_file(exc.filename)
    return text or type(exc).__name__


def _missing_file(name: str) -> str:
    """Where a relative name was looked for, and the nearest name there."""
    import difflib

    folder = os.path.dirname(os.path.abspath(name))
    while not os.path.isdir(folder):
        folder, name = os.path.dirname(folder), folder
    near = difflib.get_close_matches(os.path.basename(name), os.listdir(folder), 1, 0.6)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    if not hint and not os.path.isabs(name):
        hint = "; a relative path counts from the folder in which the program was started"
    return f" (looked for in {folder}){hint}"


def traceback_of(exc: BaseException) -> str:
    """The traceback without frames of this package, and of the import of the step's code, at its top."""
    import traceback

    trace = exc.__traceback__
    while trace is not None and _leads_to_user(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    stack = traceback.extract_tb(trace)
    if isinstance(exc, OSError) and exc.filename is not None and exc.__cause__ is None:
        return _short_traceback(exc, stack)
    stopped = isinstance(exc, Stopped)
    is_said = stopped or (exc.__cause__ is None and _is_sentence(exc))
    if is_said and any(not is_ours(f[0]) for f in stack):
        while is_ours(stack[-1][0]):  # frames of this package that lead to the message
            stack.pop()
        said = [f"{exc}\n"] if stopped else traceback.format_exception_only(type(exc), exc)
        lines = ["Traceback (most recent call last):\n", *stack.format(), *said]
    else:
        lines = traceback.format_exception(type(exc), exc, trace)
    return "".join(lines).rstrip()


def _leads_to_user(path: str) -> bool:
    return is_ours(path) or path.startswith(("<frozen importlib", _STDLIB + "importlib"))


def _short_traceback(exc: OSError, stack: Any) -> str:
    """Of a file that can't be opened: down to the user's own line, not into the library that tried."""
    import traceback

    last = max((i for i, frame in enumerate(stack) if is_users(frame[0])), default=len(stack) - 1)
    left_out = len(stack) - last - 1
    shown = traceback.StackSummary.from_list(stack[: last + 1])
    lines = ["Traceback (most recent call last):\n", *shown.format()]
    if left_out:
        lines.append(f"  … {left_out} calls inside of the library that it called\n")
    return "".join([*lines, *traceback.format_exception_only(type(exc), exc)]).rstrip()


def _is_sentence(exc: BaseException) -> bool:
    """Whether the exception is a message for the flow's author, so that frames of this package
    don't help."""
    kind = type(exc)
    told = kind.__module__ == "stoker.flow.exception" or kind is AttributeError
    return told or "_stoker_renamed" in vars(kind) or hasattr(exc, "_stoker_told")


def _user_line(exc: BaseException) -> str:
    """``file:line`` of the innermost frame in the user's own code."""
    trace, where = exc.__traceback__, ""
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if is_users(filename):
            where = f"{short_path(filename)}:{trace.tb_lineno}"
        trace = trace.tb_next
    if isinstance(exc, SyntaxError) and exc.filename and is_users(exc.filename):
        where = f"{short_path(exc.filename)}:{exc.lineno}"
    return where


def _defined_at(entry: Any) -> str:
    code = getattr(getattr(entry, "func", None), "__code__", None)
    return f"{short_path(code.co_filename)}:{code.co_firstlineno}" if code is not None else ""


def short_path(filename: str) -> str:
    """The path relative to the working directory, if it is below that."""
    base = os.getcwd() + os.sep
    return filename[len(base) :] if filename.startswith(base) else filename
