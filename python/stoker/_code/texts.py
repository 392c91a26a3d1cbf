"""The text of the code that counts in a step's cache key, for people to read and compare.

Digests use byte code; a text is what the file, or the notebook's cell, has for it. Code without
such a text (``python -c``) has none here.
"""

from __future__ import annotations

import dis
import linecache
import os
import re
import sys
import types
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from .masks import masked

_TEXT_MOST = 256 << 10  # characters of one piece
_ALL_MOST = 4 << 20  # of all of a run
_CLOSERS = tuple(")]}")


class Piece(NamedTuple):
    """A part of a step's code: its name as in the cache key, its file (None: a notebook's cell)
    and its text."""

    name: str
    file: Optional[str]
    text: str


class Record:
    """The texts of a run's steps, each once, without literals that look like secrets."""

    def __init__(self) -> None:
        self._index: Dict[Piece, int] = {}
        self._parts: List[Piece] = []
        self._steps: Dict[str, List[int]] = {}
        self._size = 0

    def add(self, step: str, pieces: Iterable[Piece]) -> None:
        """Add what a step is made of; texts that are too long are left out."""
        found = self._steps.setdefault(step, [])
        for piece in pieces:
            at = self._index.get(piece)
            if at is None:
                if len(piece.text) > _TEXT_MOST or self._size + len(piece.text) > _ALL_MOST:
                    continue
                self._size += len(piece.text)
                at = self._index[piece] = len(self._parts)
                self._parts.append(piece._replace(text=masked(piece.text)))
            if at not in found:
                found.append(at)

    def document(self) -> Dict[str, Any]:
        """``{"stoker": 1, "parts": [{"name", "file", "text"}], "steps": {NAME: [PART]}}``."""
        parts = [{k: v for k, v in p._asdict().items() if v is not None} for p in self._parts]
        return {"stoker": 1, "parts": parts, "steps": self._steps}


def pieces_at_home(objects: Dict[str, Any], known: Dict[str, File]) -> Iterator[Piece]:
    """The texts of functions, classes and constants (given by their names) of one module, in the
    order of its lines, each once; ``known`` has the files that were read before."""
    files: Dict[str, File] = {}
    placed: List[Tuple[int, int, int, str, File]] = []
    home: Optional[File] = None
    for label, one in objects.items():
        path = _path_of(one)
        if path is None and home is None:
            continue
        if path is not None and path not in known:
            known[path] = File(path)
        file = home if path is None else files.setdefault(path, known[path])
        assert file is not None
        home = home or file
        block = file.block_of(one)
        if block is not None:
            placed.append((list(files).index(file.path), block[0], -block[1], label, file))
    end: Tuple[int, int] = (-1, 0)
    for i_file, first, last, label, file in sorted(placed, key=lambda p: p[:3]):
        if i_file == end[0] and -last <= end[1]:
            continue  # a method of a class that is there
        end = (i_file, -last)
        yield Piece(label, file.shown, file.text(first, -last))


def module_piece(name: str, source: bytes) -> Piece:
    """The whole text of a project's module."""
    path = getattr(sys.modules.get(name), "__file__", None)
    text = source.decode("utf-8", "replace").replace("\r\n", "\n")
    return Piece(f"module {name}", _shown(path) if path else None, text)


class File:
    """A file of code, each of whose blocks is looked for once."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.shown = _shown(path)
        linecache.checkcache(path)
        self.lines = linecache.getlines(path)
        self._blocks: Dict[Any, Tuple[Any, Optional[Tuple[int, int]]]] = {}
        self._texts: Dict[Tuple[int, int], str] = {}

    def text(self, first: int, last: int) -> str:
        """The lines from the first to the last one, which count from 1."""
        return self._texts.setdefault((first, last), "".join(self.lines[first - 1 : last]))

    def block_of(self, one: Any) -> Optional[Tuple[int, int]]:
        """First and last line of a function, a class or a constant (its name)."""
        key = one if isinstance(one, str) else id(one)
        if key not in self._blocks:
            self._blocks[key] = (one, self._found(one))
        return self._blocks[key][1]

    def _found(self, one: Any) -> Optional[Tuple[int, int]]:
        if isinstance(one, types.FunctionType):
            first = one.__code__.co_firstlineno
            last = _last_line(one.__code__)
        else:
            found = self._class_line(one) if isinstance(one, type) else self._constant_line(one)
            if found is None:
                return None
            first = last = found
        if not 0 < first <= last <= len(self.lines):
            return None
        return first, self._end(first, last)

    def _end(self, first: int, last: int) -> int:
        """The last line of a block, with what byte code doesn't tell: closing brackets, comments,
        the body of a class."""
        indent = _indent(self.lines[first - 1])
        end = last
        for at in range(last, len(self.lines)):
            text = self.lines[at].lstrip()
            if text and _indent(self.lines[at]) <= indent and not text.startswith(_CLOSERS):
                break
            if text:
                end = at + 1
        return end

    def _class_line(self, cls: type) -> Optional[int]:
        first: Optional[int] = vars(cls).get("__firstlineno__")  # Python 3.13
        if first is None:
            first = self._line_of(rf"[ \t]*class {re.escape(cls.__name__)}\b")
        while first is not None and first > 1 and self.lines[first - 2].lstrip().startswith("@"):
            first -= 1
        return first

    def _constant_line(self, name: str) -> Optional[int]:
        return self._line_of(rf"{re.escape(name)}[ \t]*(?::[^=\n]+)?=(?!=)")

    def _line_of(self, pattern: str) -> Optional[int]:
        begins = re.compile(pattern)
        return next((i for i, line in enumerate(self.lines, 1) if begins.match(line)), None)


def _path_of(one: Any) -> Optional[str]:
    """The file of a function, or of a class by its methods; None: it isn't known."""
    if isinstance(one, types.FunctionType):
        return one.__code__.co_filename
    for value in vars(one).values() if isinstance(one, type) else ():
        code = getattr(getattr(value, "__func__", value), "__code__", None)
        if isinstance(code, types.CodeType) and not code.co_filename.startswith("<string"):
            return code.co_filename
    return None


def _last_line(code: types.CodeType) -> int:
    last = max((line or 0 for _, line in dis.findlinestarts(code)), default=0)
    inner = [_last_line(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return max([last, code.co_firstlineno, *inner])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _shown(path: str) -> Optional[str]:
    if not os.path.isabs(path) or not os.path.isfile(path):
        return None if path.startswith("<") or os.path.isabs(path) else path
    near = os.path.relpath(path)
    return path if near.startswith("..") else near
