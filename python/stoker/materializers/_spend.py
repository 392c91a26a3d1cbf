"""Values that no code will use again: frees their memory while they are written.

A step's outputs are written after the step has ended; mostly no other reference exists then. Each
page is freed as soon as it is in the page cache, so a large array needs its memory once, not twice.
The page cache also reuses these pages. Fresh ones would cost several times the copy on a virtual
machine whose host has reclaimed free memory.
"""

from __future__ import annotations

import os
import sys
from weakref import getweakrefcount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List

SPEND_FROM = 64 << 20  # bytes
_MADV_DONTNEED = 4
_PAGE = os.sysconf("SC_PAGESIZE")


def is_last(holder: List[Any]) -> bool:
    """Whether ``holder[0]`` is a large numpy array with no other reference than ``holder``.

    The caller first removes it from its place. False if another object refers to the array, if it
    has a view, or if its memory belongs to another object.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(holder[0]) is not numpy.ndarray:
        return False
    if holder[0].nbytes < SPEND_FROM or holder[0].dtype.hasobject:
        return False
    fresh = [object()]  # the reference count of an unshared object depends on Python
    alone = sys.getrefcount(fresh[0])
    if sys.getrefcount(holder[0]) != alone or getweakrefcount(holder[0]):
        return False
    array = holder[0]
    while array.base is not None:  # the array that it is a view of, which may be unshared too
        if type(array.base) is not numpy.ndarray or sys.getrefcount(array.base) != alone:
            return False
        array = array.base
        if getweakrefcount(array):
            return False
    return bool(array.flags.owndata)


class Spender:
    """Frees the pages of a buffer at ``address`` that is written to a file behind ``before`` other
    bytes."""

    def __init__(self, address: int, before: int) -> None:
        import ctypes

        self.begin = address - before
        self.done = -(-address // _PAGE) * _PAGE  # only pages that belong to the buffer completely
        self.libc: Any = ctypes.CDLL(None)
        self.libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def up_to(self, n: int) -> None:
        """Free what the file's first ``n`` bytes contain. Pages that can't be freed (locked memory,
        say) stay."""
        end = (self.begin + n) // _PAGE * _PAGE
        if end > self.done:
            self.libc.madvise(self.done, end - self.done, _MADV_DONTNEED)
            self.done = end


def spender(address: int, before: int) -> Any:
    """A :class:`Spender`, or None if Python was built without ctypes."""
    try:
        return Spender(address, before)
    except ImportError:
        return None
