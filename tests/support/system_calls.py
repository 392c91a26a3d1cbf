"""Runs a program with other system calls: python system_calls.py old|offline PROGRAM ARGUMENTS…

old: as on Linux 4.18, the oldest that Stoker needs. Every number above 423 is "no such call" (ENOSYS): pidfd_open,
    clone3, openat2, close_range and whatever is newer. That kernel ignores the flag of clone(2) that asks for a pidfd;
    a filter can't take a flag away, so it answers EINVAL, as sandboxes do.
offline: whoever makes a socket for IPv4 or IPv6 is killed by SIGSYS, be it to look up a name or to talk to itself.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys

FIRST_NEW, PIDFD_FLAG, ENOSYS, EINVAL = 424, 0x1000, 38, 22
NUMBERS = {"x86_64": {"clone": 56, "socket": 41}, "aarch64": {"clone": 220, "socket": 198}}
AF_INET, AF_INET6 = 2, 10
LOAD, AT_LEAST, EQUAL, HAS_BITS, RETURN = 0x20, 0x35, 0x15, 0x45, 0x06  # of the filter's machine
ERROR, ALLOW, KILL = 0x00050000, 0x7FFF0000, 0x80000000
NR, ARG0 = 0, 16  # in struct seccomp_data
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
Code = list[tuple[int, int, int, int]]


class Program(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def old(numbers: dict[str, int]) -> Code:
    return [
        (LOAD, 0, 0, NR),
        (AT_LEAST, 0, 1, FIRST_NEW),
        (RETURN, 0, 0, ERROR | ENOSYS),
        (EQUAL, 0, 3, numbers["clone"]),
        (LOAD, 0, 0, ARG0),
        (HAS_BITS, 0, 1, PIDFD_FLAG),
        (RETURN, 0, 0, ERROR | EINVAL),
        (RETURN, 0, 0, ALLOW),
    ]


def offline(numbers: dict[str, int]) -> Code:
    return [
        (LOAD, 0, 0, NR),
        (EQUAL, 0, 4, numbers["socket"]),
        (LOAD, 0, 0, ARG0),
        (EQUAL, 1, 0, AF_INET),
        (EQUAL, 0, 1, AF_INET6),
        (RETURN, 0, 0, KILL),
        (RETURN, 0, 0, ALLOW),
    ]


def install(code: Code) -> None:
    """For this process and its children. OSError: this kernel takes no filter."""
    program = Program(len(code), b"".join(struct.pack("=HBBI", *each) for each in code))
    libc = ctypes.CDLL(None, use_errno=True)
    words = [ctypes.c_ulong(n) for n in (1, 0, 0, 0)]
    if libc.prctl(PR_SET_NO_NEW_PRIVS, *words) or libc.prctl(
        PR_SET_SECCOMP, ctypes.c_ulong(FILTER), ctypes.byref(program)
    ):
        raise OSError(ctypes.get_errno(), "no filter of system calls")


if __name__ == "__main__":
    kinds = {"old": old, "offline": offline}
    install(kinds[sys.argv[1]](NUMBERS[platform.machine()]))
    os.execvp(sys.argv[2], sys.argv[2:])
