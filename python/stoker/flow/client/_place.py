"""Where runs are looked for, and whose: the store and the namespace in use."""

from __future__ import annotations

import os
from typing import Any, Optional

from .. import _records
from .._current import username
from ..exception import MetaflowException, MetaflowNotFound

_UNSET = object()
_namespace: Any = _UNSET
_metadata: Optional[str] = None


def default_namespace() -> str:
    """Look at your own runs (``user:NAME``) and return that namespace."""
    return str(namespace(f"user:{username()}"))


def namespace(ns: Optional[str]) -> Optional[str]:
    """Look only at runs that carry this tag; None: at all of them. Returns it."""
    global _namespace
    _namespace = ns
    return ns


def get_namespace() -> Optional[str]:
    """The namespace in use: the last given one, ``STOKER_NAMESPACE``, else your own."""
    if _namespace is not _UNSET:
        return _namespace  # type: ignore[no-any-return]
    given = os.environ.get("STOKER_NAMESPACE")
    return f"user:{username()}" if given is None else given or None


def metadata(ms: str) -> str:
    """Look into another store: ``local@FOLDER`` or just FOLDER (the store, or the folder that has it)."""
    global _metadata
    provider, at, place = ms.rpartition("@")
    if at and provider != "local":
        raise MetaflowNotFound(
            f"metadata provider '{provider}' isn't there: Stoker's runs are in a store on disk; give local@FOLDER"
        )
    _metadata = store_of(place)
    return get_metadata()


def get_metadata() -> str:
    """The store that is looked into, as ``local@FOLDER``."""
    return f"local@{store() or os.path.join(os.getcwd(), '.stoker')}"


def default_metadata() -> str:
    """Look into the store of this folder again (``STOKER_STORE``, else ``.stoker`` here or above)."""
    global _metadata
    _metadata = None
    return get_metadata()


def store() -> Optional[str]:
    return _metadata or _records.store_path()


def store_of(place: str) -> str:
    below = os.path.join(os.path.abspath(place), ".stoker")
    return below if os.path.isdir(below) else os.path.abspath(place)


def inspect_spin(datastore_root: str = ".") -> None:
    """Spun tasks belong to no run here.

    Raises:
        MetaflowException: always; says where a spun task is to be had.
    """
    raise MetaflowException(
        "inspect_spin: a spun task belongs to no run; `Runner(FILE).spin(STEP).task` is what it left"
    )
