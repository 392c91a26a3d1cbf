"""Replaces secrets by stars in a step's error, warnings and cards; and cuts long texts.

The engine masks logs (``src/host/runner/runner_mask.h``) by the same rules: each value, each longer
line of a multi-line value, and the value's JSON form. The step's data stays unchanged.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterable, List

_SHORTEST, _SHORTEST_LINE = 4, 8
MESSAGE_BYTES = 15 << 10  # of an error's message; the engine keeps 16 KiB
TRACE_BYTES = 200 << 10  # of a traceback; the engine keeps 256 KiB
_values: List[str] = []


def begin(names: Iterable[str]) -> None:
    """Hide the current values of these variables from now on."""
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
    """``text`` with a star for each byte of a value."""
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
    """A result's ``error`` without secrets, cut to the length that the engine keeps."""
    shown = {k: hide(v) if isinstance(v, str) else v for k, v in error.items()}
    for key, most in (
        ("message", MESSAGE_BYTES),
        ("raw", MESSAGE_BYTES),
        ("traceback", TRACE_BYTES),
    ):
        if isinstance(shown.get(key), str):
            shown[key] = clip(shown[key], most)
    return shown


def clip(text: str, most: int) -> str:
    """The text, cut to its beginning if it has more than ``most`` bytes; a traceback keeps its end
    too."""
    if len(text) <= most // 4 or len(text.encode("utf-8", "surrogatepass")) <= most:
        return text
    note = f" … ({len(text)} characters in all; the step's log has them) "
    half = most // 2 if most > MESSAGE_BYTES else most - 200
    head = text[:half].encode("utf-8", "surrogatepass")[:half].decode("utf-8", "ignore")
    tail = text[-half:].encode("utf-8", "surrogatepass")[-half + 200 :].decode("utf-8", "ignore")
    return head + note + (tail if most > MESSAGE_BYTES else "")
