"""What the store keeps of a run: where an artifact's content is, once the engine has said that it is still what
was stored, and the spec."""

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
    """Path of an artifact in the store, checked.

    Args:
        path: where it is, if that is known; it may not be there, or not any more.
        digest: its identity.
        store: the store's folder; None: the current one.

    Raises:
        LoadError: it is damaged (and set aside), or there is none.
        EngineError: the engine can't be asked.
    """
    if path is not None and path in _SEEN and _SEEN[path] == _look(path):
        return path
    try:
        found = str(json_of(["artifact", "get", digest], store)["path"])
    except EngineError as error:
        raise LoadError(str(error)) from None
    if not os.path.isdir(found):  # what is in a folder may change without it
        _SEEN[found] = _look(found)
    return found


def _look(path: str) -> Tuple[Any, ...]:
    try:
        now = os.stat(path)
    except OSError:
        return ()
    return (now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns)


def stored_spec(store: Optional[str], run: str) -> Mapping[str, Any]:
    """The spec that a run was made of; empty where it can't be read any more."""
    if not store:
        return {}
    try:
        with open(os.path.join(store, "runs", run, "spec.json"), encoding="utf-8") as stream:
            found = json.load(stream)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
