"""Runs a program as on Linux 4.18, the oldest that Stoker needs: python old_kernel.py PROGRAM ARGUMENTS…

A filter of system calls answers "no such call" (ENOSYS) for every number above 423: pidfd_open, clone3, openat2,
close_range and whatever is newer. Linux 4.18 ignores the flag of clone(2) that asks for a pidfd; a filter can't
take a flag away, so it answers EINVAL, as sandboxes do.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

FIRST_NEW, PIDFD_FLAG = 424, 0x1000
CLONE = {"x86_64": 56, "aarch64": 220}
ENOSYS, EINVAL = 38, 22
LOAD, AT_LEAST, EQUAL, HAS_BITS, RETURN = 0x20, 0x35, 0x15, 0x45, 0x06  # of the filter's machine
ERROR, ALLOW = 0x00050000, 0x7FFF0000
NR, ARG0 = 0, 16  # in struct seccomp_data
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2


class Program(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def become_old() -> None:
    """From here on this process and its children live on the older kernel. OSError: it can't be."""
    code = [
        (LOAD, 0, 0, NR),
        (AT_LEAST, 0, 1, FIRST_NEW),
        (RETURN, 0, 0, ERROR | ENOSYS),
        (EQUAL, 0, 3, CLONE[platform.machine()]),
        (LOAD, 0, 0, ARG0),
        (HAS_BITS, 0, 1, PIDFD_FLAG),
        (RETURN, 0, 0, ERROR | EINVAL),
        (RETURN, 0, 0, ALLOW),
    ]
    program = Program(len(code), b"".join(struct.pack("=HBBI", *each) for each in code))
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_ulong(n) for n in (1, 0, 0, 0)]
    if libc.prctl(PR_SET_NO_NEW_PRIVS, *words) or libc.prctl(
        PR_SET_SECCOMP, ctypes.c_ulong(FILTER), ctypes.byref(program)
    ):
        raise OSError(ctypes.get_errno(), "no filter of system calls")


if __name__ == "__main__":
    become_old()
    os.execvp(sys.argv[1], sys.argv[1:])
