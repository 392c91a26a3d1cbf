"""Materializers: choose how values of your own types are stored.

Two functions are enough::

    stoker.materializers.register(Graph, save_graph, load_graph)   # save(value, path), load(path)

or a class, if state helps (ZenML's form)::

    class GraphMaterializer(BaseMaterializer):
        ASSOCIATED_TYPES = (Graph,)

        def save(self, data): ...        # below the folder self.uri
        def load(self, data_type): ...
"""

from __future__ import annotations

import os
from typing import IO, Any, Callable, ClassVar, Dict, List, Optional, Tuple

from . import _custom
from ._errors import LoadError, SerializeError
from ._plain import CSVString, HTMLString, JSONString, MarkdownString, Picture

__all__ = [
    "ArtifactStore",
    "BaseMaterializer",
    "CSVString",
    "HTMLString",
    "JSONString",
    "LoadError",
    "MarkdownString",
    "Materializer",
    "Picture",
    "SerializeError",
    "register",
    "register_materializer",
]


def register(type: type, saver: Callable[[Any, str], Any], loader: Callable[[str], Any]) -> None:
    """Store values of ``type`` (and of its subclasses) by ``saver`` and read them by ``loader``.

    Args:
        type: the class.
        saver: ``saver(value, path)`` writes a file or a directory at ``path``, which doesn't exist
            yet; a mapping that it returns becomes the output's metadata.
        loader: ``loader(path)`` returns the value. The process that loads the artifact imports the
            module that calls ``register``, so call it at the top level.

    Raises:
        TypeError: ``type`` isn't a class, or the others aren't callable.

    Example::

        register_materializer(Text, saver=save_text, loader=load_text)
    """
    if not isinstance(type, _Class):
        raise TypeError(f"register: {type!r} is not a class")
    for role, function in (("saver", saver), ("loader", loader)):
        if not callable(function):
            raise TypeError(
                f"register({type.__qualname__}): the {role} {function!r} can't be called"
            )
    _custom.by_type[type] = _custom.Pair(type, saver, loader)


_Class = type


class ArtifactStore:
    """The file operations that a materializer may use; paths are below ``uri``."""

    def open(self, path: str, mode: str = "r") -> IO[Any]:
        """Open a file, like the builtin."""
        return open(path, mode)

    def exists(self, path: str) -> bool:
        """Whether the path exists."""
        return os.path.exists(path)

    def isdir(self, path: str) -> bool:
        """Whether the path is a directory."""
        return os.path.isdir(path)

    def listdir(self, path: str) -> List[str]:
        """Names in a directory."""
        return os.listdir(path)

    def makedirs(self, path: str) -> None:
        """Make a directory and its parents, unless it exists."""
        os.makedirs(path, exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file."""
        os.remove(path)


class BaseMaterializer:
    """Writes and reads values of ``ASSOCIATED_TYPES`` as files below the folder ``self.uri``.

    Stoker uses a subclass for these types as soon as it is defined, unless ``SKIP_REGISTRATION``.

    Example::

        class Graphs(Materializer):
            ASSOCIATED_TYPES = (Graph,)

            def save(self, data):
                data.write(self.uri + "/graph")

            def load(self, data_type):
                return data_type.read(self.uri + "/graph")
    """

    ASSOCIATED_TYPES: ClassVar[Tuple[Any, ...]] = ()
    ASSOCIATED_ARTIFACT_TYPE: ClassVar[Any] = "data"
    SKIP_REGISTRATION: ClassVar[bool] = False

    def __init__(self, uri: str, artifact_store: Optional[ArtifactStore] = None) -> None:
        self.uri = uri
        self.artifact_store = artifact_store or ArtifactStore()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if cls.__dict__.get("SKIP_REGISTRATION", False):
            return
        for kind in cls.ASSOCIATED_TYPES:
            if not isinstance(kind, type):
                raise TypeError(f"{cls.__qualname__}.ASSOCIATED_TYPES: {kind!r} is not a class")
            _custom.by_type[kind] = cls

    def save(self, data: Any) -> None:
        """Write ``data`` below ``self.uri`` (an empty folder). Writing nothing is an error."""

    def load(self, data_type: Any) -> Any:
        """Read the value; ``data_type`` is the requested type. A subclass may call this first: it
        does nothing.

        Raises:
            NotImplementedError: the subclass has no ``load``.
        """
        if type(self).load is not BaseMaterializer.load:
            return None
        raise NotImplementedError(f"{type(self).__qualname__} has no load()")

    def save_visualizations(self, data: Any) -> Dict[str, Any]:
        """Write pages, texts or pictures of ``data`` below ``self.uri``; cards show the first.

        Returns:
            Path → "html", "markdown", "csv", "json" or "image" (or ZenML's ``VisualizationType``).
        """
        return {}

    def extract_metadata(self, data: Any) -> Dict[str, Any]:
        """JSON to show with the output."""
        return {}


Materializer = BaseMaterializer
register_materializer = register
