"""Reads from the store: an artifact's content, after the engine has checked it, and a run's
spec."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Mapping, Optional, Tuple

from .._base.binary import json_of
from .._base.errors import EngineError
from ..materializers._errors import LoadError

_SEEN: Dict[str, Tuple[Any, ...]] = {}
"""Path of a file that the engine has looked at → what its file system said of it then."""


def stored(path: Optional[str], digest: str, store: Optional[str]) -> str:
    """Path of an artifact in the store, after a check of its content.

    Args:
        path: its path if known; the file may be missing.
        digest: of its content.
        store: the store's folder; None: the current one.

    Raises:
        LoadError: it is damaged (and in quarantine), or missing.
        EngineError: the engine couldn't check it.
    """
    if path is not None and path in _SEEN and _SEEN[path] == _look(path):
        return path
    try:
        found = str(json_of(["artifact", "get", digest], store)["path"])
    except EngineError as error:
        raise LoadError(str(error)) from None
    if not os.path.isdir(found):  # a folder's content may change without the folder
        _SEEN[found] = _look(found)
    return found


def _look(path: str) -> Tuple[Any, ...]:
    try:
        now = os.stat(path)
    except OSError:
        return ()
    return (now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)


def stored_spec(store: Optional[str], run: str) -> Mapping[str, Any]:
    """The spec of a run; empty if it can't be read."""
    if not store:
        return {}
    try:
        with open(os.path.join(store, "runs", run, "spec.json"), encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
