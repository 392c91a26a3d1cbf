"""Writes artifacts: bytes straight from memory. The engine computes their digests later, when they
can't change.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Sequence

_MAP_FROM = 1 << 20  # bytes; smaller files are read
_PIECE = 4 << 20  # bytes; written as a piece, then freed if the buffer may be lost


def write_parts(path: str, parts: Sequence[Any], spend: int = 0) -> int:
    """Write buffers one after the other into a new file; returns its size in bytes.

    Args:
        parts: objects with a contiguous buffer.
        spend: address of the last part's buffer if no code needs it any more (see :mod:`._spend`):
            its content is lost.

    Raises:
        OSError: the file exists, or the disk is full.
    """
    views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    size = sum(view.nbytes for view in views)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        spender = None
        if spend and views:
            from . import _spend

            spender = _spend.spender(spend, size - views[-1].nbytes)
        offset = 0
        for view in views:
            for begin in range(0, view.nbytes, _PIECE):
                offset += _write_all(fd, view[begin : begin + _PIECE])
                if spender is not None:
                    spender.up_to(offset)
        return size
    finally:
        os.close(fd)


def _write_all(fd: int, view: memoryview) -> int:
    done = 0
    while done < view.nbytes:
        done += os.write(fd, view[done:])
    return done


def copy_file(source: str, path: str) -> int:
    """Copy a file through a mapping, like :func:`write_parts`; returns its size."""
    size = os.stat(source).st_size
    if size < _MAP_FROM:
        with open(source, "rb") as stream:
            return write_parts(path, [stream.read()])
    import mmap

    with open(source, "rb") as stream:
        mapped = mmap.mmap(stream.fileno(), size, access=mmap.ACCESS_READ)
    with mapped, memoryview(mapped) as view:
        return write_parts(path, [view])


def map_private(path: str) -> memoryview:
    """The file's bytes, mapped private and writable: changes stay in this process."""
    import mmap

    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        if size == 0:
            return memoryview(bytearray())
        return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_COPY))
    finally:
        os.close(fd)
