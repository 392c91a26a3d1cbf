"""The git commit of a program's folder, read from git's files: no program is started."""

from __future__ import annotations

import os
import re
from typing import Dict, Iterable, List, Optional, Union

from .._base.digest import sha1

_INDEX_MOST = (
    8 << 20
)  # bytes: of a checkout of 100,000 files, which would take long to look through
_TREE = re.compile(rb"TREE.{4}\0(-?)\d+ \d+\n", re.DOTALL)  # the cached tree, behind the entries


def commit_of(folder: str, files: Iterable[str]) -> Dict[str, Union[str, List[str]]]:
    """``{"commit", "dirty"}``: the commit that is checked out, and what differs from it: those of the
    files that git has otherwise or not at all, and ``staged changes`` if there are any.

    Empty where the folder is in no checkout. ``dirty`` is missing where git's index has a form
    that isn't read here.
    """
    top = os.path.realpath(folder)
    while not os.path.exists(os.path.join(top, ".git")):
        top, below = os.path.dirname(top), top
        if top == below:
            return {}
    try:
        git = _git_folder(top)
        commit = _head(git)
        with open(os.path.join(git, "index"), "rb") as stream:
            index = stream.read(_INDEX_MOST)
    except (OSError, UnicodeDecodeError):
        return {}
    if commit is None:
        return {}
    found: Dict[str, Union[str, List[str]]] = {"commit": commit}
    if index[:4] == b"DIRC" and index[7] in (2, 3) and len(commit) == 40:
        found["dirty"] = _changed(index, top, files)
        if _has_staged(index):
            found["dirty"] = [*found["dirty"], "staged changes"]
    return found


def _git_folder(top: str) -> str:
    """``.git``, or the folder that it names (of a further worktree, or of a submodule)."""
    path = os.path.join(top, ".git")
    if os.path.isdir(path):
        return path
    return os.path.join(top, _text(path).partition("gitdir:")[2].strip())


def _head(git: str) -> Optional[str]:
    head = _text(os.path.join(git, "HEAD"))
    if not head.startswith("ref:"):
        return _hex(head)
    name = head[4:].strip()
    common = git
    if os.path.isfile(os.path.join(git, "commondir")):
        common = os.path.join(git, _text(os.path.join(git, "commondir")))
    for place in (git, common):
        path = os.path.join(place, name)
        if os.path.isfile(path):
            return _hex(_text(path))
    for line in _text(os.path.join(common, "packed-refs")).splitlines():
        commit, _, ref = line.partition(" ")
        if ref == name:
            return _hex(commit)
    return None


def _text(path: str) -> str:
    with open(path, encoding="utf-8") as stream:
        return stream.read().strip()


def _hex(text: str) -> Optional[str]:
    return text if len(text) in (40, 64) and not set(text) - set("0123456789abcdef") else None


def _changed(index: bytes, top: str, files: Iterable[str]) -> List[str]:
    """The files whose content isn't that of their entry in the index."""
    named = [(os.path.relpath(os.path.realpath(path), top).encode(), path) for path in files]
    found: List[str] = []
    at = 0
    for name, path in sorted(named):  # as the entries are, so that the index is read through once
        entry = _entry(index, name, at)
        at = max(at, entry)
        with open(path, "rb") as stream:
            data = stream.read()
        digest = sha1(b"blob %d\0" % len(data) + data).digest()
        if entry < 0 or digest != index[entry + 40 : entry + 60]:
            found.append(path)
    return sorted(found)


def _has_staged(index: bytes) -> bool:
    """Whether the cached tree isn't that of the entries: since the last commit some were added."""
    at = index.rfind(b"TREE")
    while at >= 0:
        tree = _TREE.match(index, at)
        if tree is not None:
            return tree.group(1) == b"-"
        at = index.rfind(b"TREE", 0, at)
    return False


def _entry(index: bytes, name: bytes, after: int) -> int:
    """Where the entry of a path begins: 62 or, with further flags, 64 bytes before its name; -1:
    there is none."""
    at = index.find(name + b"\0", after)
    while at >= 0:
        for head in (62, 64):
            flags = int.from_bytes(index[at - head + 60 : at - head + 62], "big")
            is_long = bool(flags & 0x4000)
            if flags & 0xFFF == min(len(name), 0xFFF) and is_long == (head == 64):
                return at - head
        at = index.find(name + b"\0", at + 1)
    return -1
