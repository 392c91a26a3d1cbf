"""Loading a pickle runs code. So only files of this user are loaded, and they stay open from the
check to the load."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import Iterator, Optional, Tuple

from .._base.binary import find
from .._base.errors import EngineError
from ._errors import LoadError

_Found = Optional[Tuple[str, str]]  # the file that isn't this user's, and why


def _why_not(path: str, found: os.stat_result) -> _Found:
    """Why a file isn't trusted, by the rules of src/sys/trust.c except for groups, which only the
    engine knows."""
    me = os.geteuid()
    if found.st_uid not in (me, 0):
        return path, f"belongs to user {found.st_uid}, not to you (user {me})"
    if found.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not stat.S_ISLNK(found.st_mode):
        return path, "can be written by others"
    return None


def _look_below(folder: int, path: str) -> _Found:
    """The first file in an open folder that isn't this user's."""
    for name in os.listdir(folder):
        one = os.path.join(path, name)
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        bad = _why_not(one, found)
        if bad is None and stat.S_ISDIR(found.st_mode):
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            try:
                bad = _look_below(below, one)
            finally:
                os.close(below)
        if bad is not None:
            return bad
    return None


def _engine_trusts(path: str) -> bool:
    """Whether `stoker trust` names a folder above it, or only the user's own group may write it."""
    import subprocess

    try:
        words = [find(), "trust", "--check", path]
    except EngineError:
        return False
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return done.returncode == 0


@contextlib.contextmanager
def held(path: str) -> Iterator[str]:
    """A name of the checked file, to load it by: another user may replace `path` meanwhile.

    Raises:
        LoadError: the file is another user's, and not trusted.
        OSError: the file can't be opened.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(fd)
        bad = _why_not(path, found)
        if bad is None and stat.S_ISDIR(found.st_mode):
            bad = _look_below(fd, path)
        trusted = bad is None or os.environ.get("STOKER_TRUST_STORE") == "1"
        if bad is not None and not trusted and not _engine_trusts(bad[0]):
            raise LoadError(
                f"'{bad[0]}' {bad[1]}, and loading a pickle runs code; if you trust all who may write there, name "
                "the folder by `stoker trust FOLDER`, or set STOKER_TRUST_STORE=1"
            )
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)
