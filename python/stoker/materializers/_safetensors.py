"""A small writer and reader of the safetensors format.

Layout (https://github.com/huggingface/safetensors, "Format"): 8 bytes little-endian length N of the
header, N bytes of JSON ``{name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__":
{}}``, then the data without holes. Spaces pad the header so that the data starts at a multiple of
64 bytes; padding entries named ``__pad_N`` align other entries.
"""

from __future__ import annotations

import json
import os

from ._errors import LoadError
from ._files import map_private, write_parts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence

ALIGN = 64
_MAX_HEADER = 100_000_000  # as in the reference implementation


class Tensor:
    """One entry to write: ``data`` is any contiguous buffer of ``nbytes`` bytes."""

    __slots__ = ("align", "data", "dtype", "name", "nbytes", "shape")

    def __init__(
        self, name: str, dtype: str, shape: Sequence[int], data: Any, align: int = 1
    ) -> None:
        self.name = name
        self.dtype = dtype
        self.shape = list(shape)
        self.data = data
        self.nbytes = memoryview(data).nbytes
        self.align = align


def write(
    path: str,
    tensors: Sequence[Tensor],
    metadata: Optional[Dict[str, str]] = None,
) -> int:
    """Write the tensors, those of the widest alignment first; returns the size."""
    header: Dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    parts: List[Any] = []
    offset = 0
    for one in sorted(tensors, key=lambda tensor: -tensor.align):
        gap = -offset % one.align
        if gap:
            header[f"__pad_{offset}"] = {
                "dtype": "U8",
                "shape": [gap],
                "data_offsets": [offset, offset + gap],
            }
            parts.append(bytes(gap))
            offset += gap
        header[one.name] = {
            "dtype": one.dtype,
            "shape": one.shape,
            "data_offsets": [offset, offset + one.nbytes],
        }
        parts.append(one.data)
        offset += one.nbytes
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-(8 + len(text)) % ALIGN)
    head = len(text).to_bytes(8, "little") + text
    return write_parts(path, [head, *parts])


class Reader:
    """The entries of a file, mapped private and writable.

    Raises:
        LoadError: the file is truncated, or its header is damaged.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        size = os.stat(path).st_size
        if size < 8:
            raise LoadError(
                f"'{path}' is truncated: {size} bytes, a safetensors file has at least 8"
            )
        self._view = map_private(path)
        length = int.from_bytes(self._view[:8], "little")
        if length > min(size - 8, _MAX_HEADER):
            raise LoadError(
                f"'{path}' is truncated, or not a safetensors file: header of {length} bytes"
            )
        self._begin = 8 + length
        try:
            header = json.loads(bytes(self._view[8 : self._begin]).decode("utf-8"))
            self.metadata = header.pop("__metadata__", {})
            self.entries: Dict[str, Dict[str, Any]] = header
            end = max([entry["data_offsets"][1] for entry in header.values()], default=0)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as exc:
            raise LoadError(f"'{path}' has no safetensors header: {exc}") from exc
        if self._begin + end > size:
            raise LoadError(f"'{path}' is truncated: {size} bytes of {self._begin + end}")

    def data(self, name: str) -> memoryview:
        """The bytes of one entry: writable, valid as long as the view lives."""
        try:
            begin, end = self.entries[name]["data_offsets"]
        except KeyError:
            raise LoadError(f"'{self.path}' has no tensor '{name}'") from None
        if not 0 <= begin <= end:
            raise LoadError(f"'{self.path}': tensor '{name}' has offsets {begin}, {end}")
        return self._view[self._begin + begin : self._begin + end]
