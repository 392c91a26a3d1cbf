"""What values of an annotated type may hold, for cache keys."""

from __future__ import annotations

import sys
from typing import Any, Callable, Iterable, Iterator, Tuple, Union

# Types of these modules hold numbers and texts; their behaviour doesn't depend on the project's
# code.
_DATA = frozenset(
    [
        "builtins",
        "datetime",
        "decimal",
        "numpy",
        "pandas",
        "pathlib",
        "polars",
        "pyarrow",
        "scipy",
        "uuid",
    ]
)
_CONTAINERS = (dict, list, tuple, set, frozenset)
_OPEN = (object, type, *_CONTAINERS)


def is_data(annotation: Any) -> bool:
    """Whether all values of this type are plain data, without objects of the project's classes."""
    if annotation is None or annotation is Ellipsis:
        return True
    args = getattr(annotation, "__args__", ())
    origin = getattr(annotation, "__origin__", None)
    if isinstance(annotation, type) and not args:
        return annotation not in _OPEN and annotation.__module__.split(".")[0] in _DATA
    if origin is Union or type(annotation).__name__ == "UnionType" or origin in _CONTAINERS:
        return bool(args) and all(map(is_data, args))
    return isinstance(origin, type) and is_data(origin)  # numpy.ndarray[shape, dtype]


def registered_code(annotations: Iterable[Any]) -> Iterator[Tuple[str, Callable[..., Any]]]:
    """Code of the registered materializers that may write or read values of these types, each with
    the name of its type."""
    custom = sys.modules.get("stoker.materializers._custom")
    for kind, one in getattr(custom, "by_type", {}).items():
        if any(_may_hold(a, kind) for a in annotations):
            for function in [one] if isinstance(one, type) else [one.saver, one.loader]:
                yield kind.__qualname__, function


def _may_hold(annotation: Any, kind: type) -> bool:
    args = getattr(annotation, "__args__", ())
    if isinstance(annotation, type) and not args:
        if annotation in _OPEN:
            return True
        return issubclass(kind, annotation) or issubclass(annotation, kind)
    return not is_data(annotation) and (not args or any(_may_hold(a, kind) for a in args))
