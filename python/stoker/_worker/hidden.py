"""Stars in place of secrets in what a step shows: its error, its warnings, its cards; and long texts cut.

Logs are the engine's (``src/host/runner/runner_mask.h``), which hides the same: each value, of one with several lines
each line as well, and both as JSON writes them. Data that the step makes stays as it is.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List

_SHORTEST, _SHORTEST_LINE = 4, 8
MESSAGE_BYTES = 15 << 10  # of an error; the engine keeps 16 KiB
TRACE_BYTES = 200 << 10  # it keeps 256 KiB
_values: List[str] = []


def begin(names: Iterable[str]) -> None:
    """Hide the values that these variables have now."""
    found: Dict[str, None] = {}
    for name in names:
        value = os.environ.get(name, "").strip(" \t\r\n")
        lines = [line.strip(" \t\r") for line in value.split("\n")] if "\n" in value else []
        for text in (value, json.dumps(value, ensure_ascii=False)[1:-1], json.dumps(value)[1:-1]):
            if len(text.encode("utf-8", "surrogateescape")) >= _SHORTEST:
                found[text] = None
        found.update({line: None for line in lines if len(line) >= _SHORTEST_LINE})
    _values[:] = found


def hide(text: str) -> str:
    """``text`` with as many stars as a value has bytes in place of it."""
    if not any(value in text for value in _values):
        return text
    import re

    marks = bytearray(len(text))
    for value in _values:
        at = text.find(value)
        while at >= 0:
            marks[at : at + len(value)] = b"\1" * len(value)
            at = text.find(value, at + 1)
    shown, done = [], 0
    for found in re.finditer(b"\1+", marks):
        hidden = text[found.start() : found.end()]
        stars = "*" * len(hidden.encode("utf-8", "surrogatepass"))
        shown += [text[done : found.start()], stars]
        done = found.end()
    return "".join([*shown, text[done:]])


def in_error(error: Dict[str, Any]) -> Dict[str, Any]:
    """A result's ``error`` without secrets, and no longer than the engine keeps it."""
    shown = {k: hide(v) if isinstance(v, str) else v for k, v in error.items()}
    for key, most in (("message", MESSAGE_BYTES), ("traceback", TRACE_BYTES)):
        if isinstance(shown.get(key), str):
            shown[key] = clip(shown[key], most)
    return shown


def clip(text: str, most: int) -> str:
    """Its beginning where it has more than ``most`` bytes, and of a traceback its end, too."""
    if len(text) <= most // 4 or len(text.encode("utf-8", "surrogatepass")) <= most:
        return text
    note = f" … ({len(text)} characters in all; the step's log has them) "
    half = most // 2 if most > MESSAGE_BYTES else most - 200
    head = text[:half].encode("utf-8", "surrogatepass")[:half].decode("utf-8", "ignore")
    tail = text[-half:].encode("utf-8", "surrogatepass")[-half + 200 :].decode("utf-8", "ignore")
    return head + note + (tail if most > MESSAGE_BYTES else "")
