"""What the hooks of extensions get for Metaflow's datastore: in a task a folder of its attempt, which
the nodes of a gang on one host share."""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

from .. import _config
from ..exception import MetaflowException

_HERE = "127.0.0.1"  # the address of a gang whose nodes are all on one host


class Listed(NamedTuple):
    """An entry of :meth:`Storage.list_content`."""

    path: str
    is_file: bool


class Datastore:
    """Metaflow's ``FlowDataStore``, as far as it moves bytes; anything else is an error that says so.

    Args:
        decorator: whose hooks get it. running: the task; None: before the run, where there is none.
    """

    def __init__(self, decorator: Any, running: Any = None) -> None:
        self._decorator = decorator
        if running is not None:
            self.flow_name = running.cls.__name__
            self._storage_impl = Storage(decorator, running)

    def __getattr__(self, name: str) -> Any:
        raise _missing(self._decorator, name)


class Storage:
    """Metaflow's ``DataStoreStorage``: files below a folder, by the paths that S3 would have.

    Extensions know clouds only, so this one says that it is S3, and the setting
    ``DATASTORE_SYSROOT_S3`` is the folder, if the user hasn't set it.
    """

    TYPE = "s3"

    def __init__(self, decorator: Any, running: Any) -> None:
        self._decorator = decorator
        self._root = os.path.join(running.attempt.directory, "extensions")
        self._apart = os.environ.get("MF_PARALLEL_MAIN_IP", _HERE) != _HERE
        _config.given.setdefault("DATASTORE_SYSROOT_S3", self._root)

    def _path(self, key: str) -> str:
        if self._apart:
            raise _missing(self._decorator, "nodes on several hosts")
        return os.path.join(self._root, *str(key).split("/"))

    def save_bytes(
        self, paths_and_bytes: Iterable[Tuple[str, Any]], overwrite: bool = False, len_hint: int = 0
    ) -> None:
        """Write files, each at once; one that is there stays, but for ``overwrite``."""
        for key, data in paths_and_bytes:
            path = self._path(key)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if overwrite or not os.path.exists(path):
                half = f"{path}.half-{os.getpid()}"
                with open(half, "wb") as file:
                    file.write((data[0] if isinstance(data, tuple) else data).read())
                os.replace(half, path)

    @contextlib.contextmanager
    def load_bytes(
        self, keys: List[str]
    ) -> Iterator[List[Tuple[str, Optional[str], Optional[Dict[str, Any]]]]]:
        """(key, file or None, None) of each key."""
        paths = [(key, self._path(key)) for key in keys]
        yield [(key, path if os.path.isfile(path) else None, None) for key, path in paths]

    def is_file(self, paths: List[str]) -> List[bool]:
        """Whether there are such files."""
        return [os.path.isfile(self._path(one)) for one in paths]

    def list_content(self, paths: List[str]) -> List[Listed]:
        """What is directly below each path."""
        found: List[Listed] = []
        for one in paths:
            place = self._path(one)
            names = sorted(os.listdir(place)) if os.path.isdir(place) else []
            names = [name for name in names if ".half-" not in name]
            found += [
                Listed(f"{one}/{name}", os.path.isfile(os.path.join(place, name))) for name in names
            ]
        return found

    def __getattr__(self, name: str) -> Any:
        raise _missing(self._decorator, name)


def _missing(decorator: Any, name: str) -> Exception:
    if name.startswith("__"):
        return AttributeError(name)
    return MetaflowException(
        f"@{decorator.name} of {type(decorator).__module__} asks Metaflow's datastore for {name}, which Stoker doesn't "
        "have: keep files by S3, current.checkpoint or artifacts"
    )
