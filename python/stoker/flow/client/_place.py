"""The current store and namespace, in which the client finds runs."""

from __future__ import annotations

import os
from typing import Any, Optional

from .. import _records
from .._current import username
from ..exception import MetaflowNotFound

_UNSET = object()
_namespace: Any = _UNSET
_metadata: Optional[str] = None
_provider = "local"


def default_namespace() -> str:
    """Use your own namespace (``user:NAME``) and return it."""
    return str(namespace(f"user:{username()}"))


def namespace(ns: Optional[str]) -> Optional[str]:
    """Show only runs with this tag; None: all runs. Returns the namespace."""
    global _namespace
    _namespace = ns
    return ns


def get_namespace() -> Optional[str]:
    """The current namespace: the last one set, else ``STOKER_NAMESPACE``, else your own."""
    if _namespace is not _UNSET:
        return _namespace  # type: ignore[no-any-return]
    given = os.environ.get("STOKER_NAMESPACE")
    return f"user:{username()}" if given is None else given or None


def metadata(ms: str) -> str:
    """Use another store: ``local@FOLDER`` or FOLDER (the store, or the folder that contains it);
    ``spin@FOLDER``: ``Task(PATHSPEC)`` also finds the tasks that ``spin --persist`` left there."""
    global _metadata, _provider
    provider, at, place = ms.rpartition("@")
    if at and provider not in ("local", "spin"):
        raise MetaflowNotFound(
            f"metadata provider '{provider}' doesn't exist: Stoker's runs are in a store on disk; "
            "give local@FOLDER"
        )
    _metadata, _provider = store_of(place), provider or "local"
    return get_metadata()


def get_metadata() -> str:
    """The current store, as ``local@FOLDER`` or ``spin@FOLDER``."""
    return f"{_provider}@{store() or os.path.join(os.getcwd(), '.stoker')}"


def has_spins() -> bool:
    """Whether tasks of spins are found."""
    return _provider == "spin"


def default_metadata() -> str:
    """Use the store of this folder again (``STOKER_STORE``, else ``.stoker`` here or above)."""
    global _metadata, _provider
    _metadata, _provider = None, "local"
    return get_metadata()


def store() -> Optional[str]:
    return _metadata or _records.store_path()


def store_of(place: str) -> str:
    below = os.path.join(os.path.abspath(place), ".stoker")
    return below if os.path.isdir(below) else os.path.abspath(place)
