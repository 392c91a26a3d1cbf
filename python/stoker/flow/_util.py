"""Small helpers that programs import from ``metaflow.util``."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from functools import cached_property as cached_property
from typing import Any, Dict, Iterable, Iterator, Optional
from urllib.parse import quote, unquote

from ._current import username as get_username
from ._decorators._base import to_pod as to_pod

__all__ = [
    *("TempDir", "all_equal", "cached_property", "get_username", "is_stringish"),
    *("resolve_identity", "resolve_identity_as_tuple", "to_bytes", "to_camelcase", "to_fileobj"),
    *("to_pascalcase", "to_pod", "to_unicode", "url_quote", "url_unquote", "which"),
]


@contextmanager
def profile(label: str, stats_dict: Optional[Dict[str, int]] = None) -> Iterator[None]:
    """Measure the block's time: printed, or added to ``stats_dict[label]`` in milliseconds."""
    if stats_dict is None:
        print(f"PROFILE: {label} starting")
    began = time.monotonic()
    yield
    took = int((time.monotonic() - began) * 1000)
    if stats_dict is None:
        print(f"PROFILE: {label} completed in {took}ms")
    else:
        stats_dict[label] = stats_dict.get(label, 0) + took


class TempDir:
    """A temporary folder, removed at the end of the context."""

    def __enter__(self) -> str:
        self.name = tempfile.mkdtemp()
        return self.name

    def __exit__(self, *_: Any) -> None:
        shutil.rmtree(self.name, ignore_errors=True)


def all_equal(it: Iterable[Any]) -> bool:
    """Whether all items are equal."""
    items = list(it)
    return all(one == items[0] for one in items)


def is_stringish(x: Any) -> bool:
    """Whether it is a text or bytes."""
    return isinstance(x, (str, bytes))


def to_unicode(x: Any) -> str:
    """A text as it is, bytes decoded, anything else as text."""
    return x.decode("utf-8") if isinstance(x, bytes) else str(x)


def to_bytes(x: Any) -> bytes:
    """Bytes as they are, anything else as text, encoded."""
    return x if isinstance(x, bytes) else str(x).encode("utf-8")


def to_fileobj(x: Any) -> io.BytesIO:
    """A text or bytes as a binary file."""
    return io.BytesIO(to_bytes(x))


def url_quote(url: Any) -> bytes:
    """The text for a part of a URL."""
    return quote(to_bytes(url), safe="/:").encode("utf-8")


def url_unquote(url_bytes: Any) -> str:
    """The inverse of :func:`url_quote`."""
    return unquote(to_unicode(url_bytes))


def resolve_identity_as_tuple() -> Any:
    """("user", who starts flows here), or ("production", token)."""
    token = os.environ.get("METAFLOW_PRODUCTION_TOKEN")
    return ("production", token) if token else ("user", get_username())


def resolve_identity() -> str:
    """``user:NAME`` or ``production:TOKEN``."""
    return ":".join(resolve_identity_as_tuple())


def which(cmd: str, mode: int = os.F_OK | os.X_OK, path: Optional[str] = None) -> Optional[str]:
    """A program's path."""
    return shutil.which(cmd, mode, path)


def to_camelcase(obj: Any) -> Any:
    """Keys of mappings as ``camelCase``, at all depths."""
    return _renamed(obj, lambda parts: parts[0] + "".join(map(_capital, parts[1:])))


def to_pascalcase(obj: Any) -> Any:
    """Keys of mappings as ``PascalCase``, at all depths."""
    return _renamed(obj, lambda parts: "".join(map(_capital, parts)))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _renamed(obj: Any, join: Any) -> Any:
    if isinstance(obj, dict):
        return {
            join(k.split("_")) if isinstance(k, str) else k: _renamed(v, join)
            for k, v in obj.items()
        }
    if isinstance(obj, (list, set, tuple)):
        return type(obj)(_renamed(one, join) for one in obj)
    return obj
