"""A step as the processes that execute it see it.

The front hands a registry ``{step name: Entry}`` to the fork server; a clean server and the worker
get the same by :func:`resolve` from the ``module:qualname`` that stands in ``task.json``.
"""

from __future__ import annotations

import enum
import importlib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Tuple, Union

if TYPE_CHECKING:
    from .ranks import Launch


@dataclass
class Entry:
    """What is needed to execute one step.

    Attributes:
        func: the user's function.
        output_names: names of the outputs, in order; none for ``-> None``.
        output_types: their annotations, ``typing.Any`` where there is none.
        materializers: output name → materializer class; ``"*"`` stands for every output.
        hooks: ``on_start``, ``on_success``, ``on_failure``, ``on_end`` → callable.
        importable: (module, qualified name) under which a fresh interpreter finds the same step, or
            None (closures, notebooks).
        annotations: parameter name → type, ``Annotated`` stripped.
        is_async: the function is a coroutine function.
        launch: how its processes are started, where it is a step of many.
        output_configs: output name → ``ArtifactConfig`` as a mapping
            (``name``, ``version``, ``tags``, ``run_metadata``, ``artifact_type``; only those given).
    """

    func: Callable[..., Any]
    output_names: List[str]
    output_types: List[Any]
    materializers: Dict[str, Any] = field(default_factory=dict)
    hooks: Dict[str, Callable[..., Any]] = field(default_factory=dict)
    importable: Optional[Tuple[str, str]] = None
    annotations: Dict[str, Any] = field(default_factory=dict)
    is_async: bool = False
    output_configs: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    launch: Optional[Launch] = None


def resolve(module: str, qualname: str) -> Entry:
    """The entry of ``module:qualname``, imported if need be.

    ``__main__`` means ``__mp_main__`` where the process imported the user's file under that name.

    Raises:
        ImportError: the module can't be imported.
        LookupError: it has no such function, or the name lies inside of another function.
    """
    found = resolve_callable(module, qualname)
    from .._decorators.step import Step, entry_of

    if isinstance(found, Step):
        return found.entry()
    if getattr(found, "is_step", False):
        from ..flow._task import find_entry

        of_flow = find_entry(module, qualname, found)
        if of_flow is not None:
            return of_flow
    return entry_of(found)


def resolve_callable(module: str, qualname: str) -> Any:
    """The object ``module:qualname`` (a step, a function, a hook); raises as :func:`resolve`."""
    if "<locals>" in qualname or "<lambda>" in qualname:
        raise LookupError(
            f"'{module}:{qualname}' is defined inside of another function, so a fresh interpreter "
            "can't find it; define it at the top level of its module"
        )
    name = "__mp_main__" if module == "__main__" and "__mp_main__" in sys.modules else module
    found: Any = sys.modules.get(name) or importlib.import_module(name)
    for part in qualname.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise LookupError(
                f"module '{module}' has no '{qualname}' when it is imported afresh; "
                "define it at the top level, outside of `if __name__ == '__main__':`"
            ) from None
    if not callable(found):
        raise LookupError(f"'{module}:{qualname}' is a {type(found).__name__}, not a function")
    return found


def fit(value: Any, annotation: Any) -> Any:
    """Turn a literal into its annotated type; unknown types pass unchanged.

    Knows pydantic models, dataclasses, enums, ``Path``, ``UUID``, dates, tuples, sets, and these inside
    of ``Optional``, ``List`` and ``Dict``; an int becomes a float where one is asked for.
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


def _fit_union(value: Any, choices: Tuple[Any, ...]) -> Any:
    if value is None:
        return None
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
