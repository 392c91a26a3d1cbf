"""The items of a foreach in one file, from which each task reads only its item (format ``items``).

Layout: each item is a part of JSON or pickle, followed by the pickle's large buffers (arrays), all
at multiples of 64 bytes; then the index of 8-byte little-endian numbers; then a tail of 32 bytes:
the index's offset, the number of items, ``list`` or ``tuple`` (0, 1), the magic.

::

    index, of each item:  kind (0 JSON, 1 pickle), number of buffers, offset of its row
    rows:                 offset and size of the first part, then of each buffer
"""

from __future__ import annotations

import json
import os
import pickle
import struct
from typing import Any, Dict, List, Sequence, Tuple

from . import _json
from ._errors import LoadError, SerializeError

FORMAT = "items"
_MAGIC = b"STKITEM1"
_TAIL = struct.Struct("<QQQ8s")
_ALIGN = 64
_MAP_FROM = 1 << 16  # smaller buffers are read
INLINE_MAX = 512  # bytes of JSON; a shorter list is written into each task's document
_compact = json.JSONEncoder(separators=(",", ":")).encode


def is_small(value: Any) -> bool:
    """Whether a list is too small to need a file."""
    if len(value) > INLINE_MAX:
        return False
    try:
        return len(_compact(_json.encode(value))) <= INLINE_MAX
    except (_json.NotJson, RecursionError):
        return False


def store(items: Sequence[Any], path: str, name: str) -> Dict[str, Any]:
    """Write a list or tuple; returns its entry for ``result.json``.

    Raises:
        SerializeError: an item can't be stored; names it.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    heads: List[int] = []
    rows: List[int] = []
    with open(path, "xb") as stream:
        at = 0
        for i, item in enumerate(items):
            kind, parts = _parts(item, i, name)
            heads += (kind, len(parts) - 1, len(rows))
            for part in parts:
                pad = -at % _ALIGN if kind else 0
                stream.write(b"\0" * pad)
                size = memoryview(part).nbytes
                rows += (at + pad, size)
                stream.write(part)
                at += pad + size
        pad = -at % 8
        stream.write(b"\0" * pad)
        stream.write(struct.pack(f"<{len(heads) + len(rows)}Q", *heads, *rows))
        stream.write(_TAIL.pack(at + pad, len(items), int(isinstance(items, tuple)), _MAGIC))
    kind_name = "tuple" if isinstance(items, tuple) else "list"
    return {
        "path": path,
        "format": FORMAT,
        "type": f"builtins.{kind_name}",
        "meta": {"n": len(items)},
    }


def _parts(item: Any, i: int, name: str) -> Tuple[int, List[Any]]:
    try:
        return 0, [_compact(_json.encode(item)).encode("ascii")]
    except (_json.NotJson, RecursionError):
        pass
    buffers: List[Any] = []
    try:
        text = pickle.dumps(item, 5, buffer_callback=buffers.append)
        return 1, [text, *(one.raw() for one in buffers)]
    except Exception as bad:
        from ._skeleton import explain

        raise SerializeError(f"item {i} of '{name}': {explain(item, bad)}") from bad


class _Reader:
    def __init__(self, path: str) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        size = os.fstat(self.fd).st_size
        tail = os.pread(self.fd, _TAIL.size, max(0, size - _TAIL.size))
        if len(tail) < _TAIL.size or tail[-8:] != _MAGIC:
            raise LoadError(
                f"'{path}' is not a complete file of items; `stoker store verify` lists what else is damaged"
            )
        self.index, self.n, self.is_tuple, _ = _TAIL.unpack(tail)

    def __enter__(self) -> _Reader:
        return self

    def __exit__(self, *_: Any) -> None:
        os.close(self.fd)

    def _numbers(self, place: int, n: int) -> Tuple[int, ...]:
        raw = os.pread(self.fd, 8 * n, self.index + 8 * place)
        return struct.unpack(f"<{n}Q", raw)

    def item(self, i: int) -> Any:
        kind, n_buffers, row = self._numbers(3 * i, 3)
        spans = self._numbers(3 * self.n + row, 2 * (1 + n_buffers))
        text = os.pread(self.fd, spans[1], spans[0])
        if kind == 0:
            return _json.decode(json.loads(text))
        buffers = [self._buffer(spans[k], spans[k + 1]) for k in range(2, len(spans), 2)]
        return pickle.loads(text, buffers=buffers)

    def _buffer(self, offset: int, size: int) -> Any:
        if size < _MAP_FROM:
            return bytearray(os.pread(self.fd, size, offset))
        import mmap

        page = offset - offset % mmap.ALLOCATIONGRANULARITY
        mapped = mmap.mmap(self.fd, offset - page + size, access=mmap.ACCESS_COPY, offset=page)
        return memoryview(mapped)[offset - page :]


def read(path: str, i: int) -> Any:
    """Read only item ``i``.

    Raises:
        LoadError: the file is damaged, or has no such item.
    """
    with _Reader(path) as reader:
        if not 0 <= i < reader.n:
            raise LoadError(f"'{path}' has {reader.n} items, there is no item {i}")
        return reader.item(i)


def load(path: str) -> Any:
    """Read all items, as the list or tuple that was stored."""
    with _Reader(path) as reader:
        items = [reader.item(i) for i in range(reader.n)]
        return tuple(items) if reader.is_tuple else items
