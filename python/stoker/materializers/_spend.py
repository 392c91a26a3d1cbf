"""Values that nobody will look at again: their memory goes back while they are written.

What a step leaves is written when the step has ended, and mostly nobody else has hold of it then. Written page
by page, and each given back as soon as it is in the page cache, a large array takes its own memory once, not
twice; and the page cache gets pages that were in use a moment ago, where fresh ones cost a virtual machine
whose host has taken its free memory back several times the copy.
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
    """Whether ``holder[0]`` is a large numpy array that is reached through ``holder`` and by no other way.

    The caller takes it out of wherever it stood. An array that somebody else refers to, of which there is a
    view, or whose memory is another object's, isn't.
    """
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or type(holder[0]) is not numpy.ndarray:
        return False
    if holder[0].nbytes < SPEND_FROM or holder[0].dtype.hasobject:
        return False
    fresh = [object()]  # what is counted of an object that nobody else has is Python's own affair
    alone = sys.getrefcount(fresh[0])
    if sys.getrefcount(holder[0]) != alone or getweakrefcount(holder[0]):
        return False
    array = holder[0]
    while array.base is not None:  # what it is a view of, which may be nobody else's either
        if type(array.base) is not numpy.ndarray or sys.getrefcount(array.base) != alone:
            return False
        array = array.base
        if getweakrefcount(array):
            return False
    return bool(array.flags.owndata)


class Spender:
    """Gives back the pages of a buffer at ``address`` that goes into a file behind ``before`` other bytes."""

    def __init__(self, address: int, before: int) -> None:
        import ctypes

        self.begin = address - before
        self.done = -(-address // _PAGE) * _PAGE  # only pages that are wholly the buffer's
        self.libc: Any = ctypes.CDLL(None)
        self.libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

    def up_to(self, n: int) -> None:
        """The file's first ``n`` bytes are written. What can't be given back (locked memory, say) stays."""
        end = (self.begin + n) // _PAGE * _PAGE
        if end > self.done:
            self.libc.madvise(self.done, end - self.done, _MADV_DONTNEED)
            self.done = end


def spender(address: int, before: int) -> Any:
    """A :class:`Spender`, or None where Python was built without ctypes."""
    try:
        return Spender(address, before)
    except ImportError:
        return None
