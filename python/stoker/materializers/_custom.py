"""The user's materializers: their table, and their calls.

:mod:`stoker.materializers` fills the table. A stored artifact names its materializer
(``meta["materializer"] = "module:qualname"``), so that any process can import it.
"""

from __future__ import annotations

import os

from ._errors import LoadError, SerializeError
from ._json import find_class, need
from ._saved import Saved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional, Tuple


FORMAT = "custom"
VISUALS = ("html", "markdown", "csv", "json", "image")

by_type: Dict[type, Any] = {}  # type → BaseMaterializer subclass or Pair


class Pair:
    """A saver and a loader, from ``register``."""

    def __init__(
        self, kind: type, saver: Callable[[Any, str], Any], loader: Callable[..., Any]
    ) -> None:
        self.kind = kind
        self.saver = saver
        self.loader = loader

    @property
    def path(self) -> str:
        return f"{self.saver.__module__}:{self.kind.__module__}.{self.kind.__qualname__}"


def find(value: Any) -> Optional[Any]:
    """The materializer registered for the nearest base class of the value."""
    if not by_type:
        return None
    for kind in type(value).__mro__:
        if kind in by_type:
            return by_type[kind]
    return None


def choose(wanted: Any, value: Any) -> Optional[Any]:
    """The materializer that a step names for an output: a class, its source path, or one of
    several."""
    if isinstance(wanted, str):
        module, _, name = wanted.replace(":", ".").rpartition(".")
        return find_class(f"{module}:{name}")
    if isinstance(wanted, (list, tuple)):
        for one in wanted:
            if any(isinstance(value, kind) for kind in one.ASSOCIATED_TYPES):
                return one
        return None
    return wanted


def save(
    materializer: Any,
    value: Any,
    path: str,
    warnings: Optional[List[str]] = None,
    with_visuals: bool = True,
) -> Saved:
    """Call the materializer to write at ``path``; its exceptions become one sentence.

    What it tells of the value besides never fails a step: then ``warnings`` gets the sentence.
    """
    one = None
    is_pair = isinstance(materializer, Pair)
    name = materializer.path if is_pair else _class_name(materializer)
    try:
        if is_pair:
            info = materializer.saver(value, path)
        else:
            os.makedirs(path)
            one = materializer(path)
            one.save(value)
            info = None
    except Exception as exc:
        kind = type(value)
        raise SerializeError(
            f"the materializer '{name}' failed for a {kind.__module__}.{kind.__qualname__} "
            f"({type(exc).__name__}: {exc})"
        ) from exc
    if not os.path.lexists(path) or (not is_pair and not os.listdir(path)):
        raise SerializeError(f"the materializer '{name}' wrote nothing at '{path}'")
    meta: Dict[str, Any] = {"materializer": name}
    if one is not None:
        kind = materializer.ASSOCIATED_ARTIFACT_TYPE
        if kind != "data":
            meta["artifact_type"] = str(getattr(kind, "value", kind))
        said: List[str] = [] if warnings is None else warnings
        visuals = _told(one, "save_visualizations", value, name, said) if with_visuals else {}
        kept = _kept_visuals(visuals, path, name, said)
        if kept:
            meta["visualizations"] = kept
        info = _told(one, "extract_metadata", value, name, said)
    return Saved(FORMAT, meta, info if isinstance(info, dict) else {})


def _told(one: Any, method: str, value: Any, name: str, warnings: List[str]) -> Dict[Any, Any]:
    """The mapping that a method of the materializer returns; none if it fails."""
    try:
        found = getattr(one, method)(value) if hasattr(one, method) else None
    except Exception as exc:
        warnings.append(f"{method}() of the materializer '{name}': {type(exc).__name__}: {exc}")
        return {}
    return found if isinstance(found, dict) else {}


def _kept_visuals(
    visuals: Dict[Any, Any], path: str, name: str, warnings: List[str]
) -> List[List[str]]:
    """``[path below the artifact's folder, kind]`` of each visualization that the folder has."""
    kept = []
    for place, kind in visuals.items():
        below = os.path.relpath(str(place), path)
        kind = str(getattr(kind, "value", kind)).lower()
        if kind in VISUALS and not below.startswith("..") and os.path.isfile(str(place)):
            kept.append([below, kind])
        else:
            warnings.append(
                f"the materializer '{name}' names a visualization '{place}' of kind '{kind}', which "
                f"is left out: it must be a file below self.uri, of {', '.join(VISUALS)}"
            )
    return kept


def _class_name(materializer: Any) -> str:
    module = materializer.__module__
    return f"{'__main__' if module == '__mp_main__' else module}:{materializer.__qualname__}"


def load(path: str, meta: Dict[str, Any], type_: Any) -> Any:
    """Read a value with the materializer that wrote it.

    Raises:
        LoadError: the materializer can't be found, or fails.
    """
    name = meta.get("materializer", "")
    materializer, kind = _locate(name)
    try:
        if isinstance(materializer, Pair):
            return materializer.loader(path)
        return materializer(path).load(type_ if isinstance(type_, type) else kind)
    except Exception as exc:
        raise LoadError(
            f"the materializer '{name}' failed for '{path}' ({type(exc).__name__}: {exc})"
        ) from exc


def _locate(name: str) -> Tuple[Any, Any]:
    module, _, qualname = name.partition(":")
    for kind, one in by_type.items():
        if isinstance(one, Pair) and one.path == name:
            return one, kind
    import sys

    if module not in sys.modules:
        need(module)
        for kind, one in by_type.items():
            if isinstance(one, Pair) and one.path == name:
                return one, kind
    try:
        found = find_class(name)
    except LoadError as exc:
        raise LoadError(
            f"its materializer '{qualname}' isn't in module '{module}' here; "
            "import the module that registers it"
        ) from exc
    kinds: List[Any] = list(getattr(found, "ASSOCIATED_TYPES", ()))
    return found, (kinds[0] if kinds else object)
