"""Converts literals to the types of a step's parameters."""

from __future__ import annotations

import enum
from typing import Any, Tuple, Union


def fit(value: Any, annotation: Any) -> Any:
    """Convert a literal to its annotated type; literals of unknown types stay unchanged.

    Knows pydantic models, dataclasses, enums, ``Path``, ``UUID``, dates, tuples, sets, and these
    within ``Optional``, ``List`` and ``Dict``. An int becomes a float if the type is float.
    """
    if annotation in (None, Any) or isinstance(annotation, (str, type(None))):
        return value
    origin = getattr(annotation, "__origin__", None)
    args = getattr(annotation, "__args__", ())
    if origin is Union or type(annotation).__name__ == "UnionType":
        return _fit_union(value, args)
    if origin is not None and hasattr(annotation, "__metadata__"):
        return fit(value, origin)
    if isinstance(origin, type):
        return _fit_generic(value, origin, args)
    if isinstance(annotation, type):
        return _fit_class(value, annotation)
    return value


_PLAIN = (int, float, complex, str, bytes, bool, list, tuple, dict, set, frozenset)
_ALSO = {float: (int,), complex: (int, float), list: (tuple,), set: (frozenset,)}


def is_wrong(value: Any, annotation: Any) -> bool:
    """Whether a returned value surely isn't of its annotated type.

    Judges values of built-in types and None only: an array's scalar, say, passes for a float.
    """
    if annotation is None or annotation is type(None):
        return value is not None and type(value) in _PLAIN
    origin = getattr(annotation, "__origin__", None)
    if origin is not None and hasattr(annotation, "__metadata__"):
        return is_wrong(value, origin)
    if origin is Union or type(annotation).__name__ == "UnionType":
        return all(is_wrong(value, choice) for choice in annotation.__args__)
    if not isinstance(origin or annotation, type):
        return False
    wanted: Any = origin or annotation
    if wanted is object or wanted is Any or getattr(wanted, "_is_protocol", False):
        return False
    if value is None:
        return True
    if wanted not in _PLAIN or type(value) not in _PLAIN:
        return False
    return not isinstance(value, (wanted, *_ALSO.get(wanted, ())))


def _fit_union(value: Any, choices: Tuple[Any, ...]) -> Any:
    if value is None:
        return None
    if all(is_wrong(value, choice) for choice in choices):
        raise TypeError(f"{value!r} is none of these")
    for choice in choices:  # an exact match first: Union[int, str] keeps its int
        if isinstance(choice, type) and type(value) is choice:
            return value
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return fit(value, choice)
        except (TypeError, ValueError):
            continue
    return value


def _fit_generic(value: Any, origin: type, args: Tuple[Any, ...]) -> Any:
    if isinstance(value, tuple) and not issubclass(origin, tuple):
        value = list(value)
    if not isinstance(value, (list, dict)):
        return value
    if issubclass(origin, dict) and isinstance(value, dict) and len(args) == 2:
        return {k: fit(v, args[1]) for k, v in value.items()}
    if not isinstance(value, list):
        return value
    if issubclass(origin, tuple):
        if len(args) == 2 and args[1] is Ellipsis:
            return tuple(fit(v, args[0]) for v in value)
        if len(args) == len(value):
            return tuple(fit(v, a) for v, a in zip(value, args))
        return tuple(value)
    items = [fit(v, args[0]) for v in value] if args else value
    if issubclass(origin, (set, frozenset)):
        return origin(items)
    return items


def _fit_class(value: Any, cls: type) -> Any:
    if isinstance(value, cls):
        return value
    if cls is float and isinstance(value, int):
        return float(value)
    if cls is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if cls is list and isinstance(value, tuple):
        return list(value)
    if isinstance(value, dict):
        if hasattr(cls, "model_validate"):
            return cls.model_validate(value)
        fields = getattr(cls, "__dataclass_fields__", None)
        if fields is not None:
            from typing import get_type_hints

            hints = get_type_hints(cls)
            return cls(**{k: fit(v, hints.get(k, Any)) for k, v in value.items()})
    if isinstance(value, list) and cls in (tuple, set, frozenset):
        return cls(value)
    if isinstance(value, (str, int, float)) and issubclass(cls, enum.Enum):
        return cls(value)
    if isinstance(value, str):
        return _fit_text(value, cls)
    return value


def _fit_text(value: str, cls: type) -> Any:
    module = cls.__module__.split(".")[0]
    if module == "pathlib" or cls.__name__ == "UUID":
        return cls(value)
    if module == "datetime" and hasattr(cls, "fromisoformat"):
        return cls.fromisoformat(value)
    return value
