"""The part of a step that doesn't call it: its signature, its options, its entry."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping, Optional, Tuple, TypeVar

from .._base.errors import SettingsError, StepInterfaceError, did_you_mean
from .entry import Entry
from .layers import STEP_KEYS, checked_options, make_layer, merge
from .outputs import Output, interface_of

if TYPE_CHECKING:
    from weakref import WeakKeyDictionary

    from typing_extensions import Unpack

    from .entry import Launch
    from .layers import StepOptions

_S = TypeVar("_S", bound="StepDefinition")


class StepDefinition:
    """A step for graphs, specs, cache keys and workers; :class:`stoker.Step` adds the call."""

    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    def __init__(self, func: Callable[..., Any], options: Mapping[str, Any]) -> None:
        if not callable(func) or isinstance(func, type):
            raise StepInterfaceError(f"@step decorates a function, not {func!r}")
        name = options.get("name") or getattr(func, "__name__", type(func).__name__)
        where = f"step '{name}'"
        functools.update_wrapper(self, func, updated=())  # type: ignore[arg-type]
        self.entrypoint = func
        self.name: str = str(name)
        interface = interface_of(func, self.name)
        self.signature: inspect.Signature = interface.signature
        self.annotations: Dict[str, Any] = interface.annotations
        self.outputs: Dict[str, Output] = interface.outputs
        # whether the names above are checked; the first call in a pipeline does it
        self.checked = False
        self.parameters: Dict[str, Any] = {}
        self.materializers: Dict[str, Any] = {}
        self.layer: Dict[str, Any] = {}
        self.launch: Optional[Launch] = None
        marked = marked_profile(func)
        if marked is not None:
            self.layer["gpu_profile"] = marked
        self._apply(checked_options(where, options, STEP_KEYS), merging=True)

    def _apply(self, options: Mapping[str, Any], merging: bool) -> None:
        where = f"step '{self.name}'"
        if options.get("name"):
            self.name = str(options["name"])
        made = make_layer(where, options)
        self.layer = merge(self.layer, made) if merging else {**self.layer, **made}
        parameters = options.get("parameters")
        if parameters is not None:
            self._check_parameters(where, parameters)
            self.parameters = {**(self.parameters if merging else {}), **parameters}
        materializers = options.get("output_materializers")
        if materializers is not None:
            named = self._materializers(where, materializers)
            self.materializers = {**(self.materializers if merging else {}), **named}

    def _check_parameters(self, where: str, parameters: Mapping[str, Any]) -> None:
        for key in parameters:
            if key not in self.signature.parameters:
                hint = did_you_mean(key, self.signature.parameters)
                raise StepInterfaceError(f"{where}: it has no parameter '{key}'{hint}")

    def _materializers(self, where: str, value: Any) -> Dict[str, Any]:
        if not isinstance(value, Mapping):
            return {"*": _materializer(where, value)}
        for key in value:
            if key not in self.outputs:
                hint = did_you_mean(key, self.outputs)
                raise StepInterfaceError(
                    f"{where}: output_materializers names '{key}', no output{hint}"
                )
        return {key: _materializer(where, item) for key, item in value.items()}

    def copy(self: _S) -> _S:
        """An independent copy."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.parameters = dict(self.parameters)
        made.materializers = dict(self.materializers)
        made.layer = merge(self.layer, {})
        return made

    def configure(self: _S, merge: bool = True, **options: Unpack[StepOptions]) -> _S:
        """Change this step in place; with ``merge=False`` the given options replace earlier
        ones."""
        self._apply(checked_options(f"step '{self.name}'", options, STEP_KEYS), merging=merge)
        return self

    def with_options(self: _S, **options: Unpack[StepOptions]) -> _S:
        """A copy with other options."""
        return self.copy().configure(**options)

    def entry(self, hooks: Optional[Mapping[str, Any]] = None) -> Entry:
        """The entry for processes that execute this step; ``hooks`` are those of all layers."""
        chosen = self.layer.get("hooks") or {} if hooks is None else hooks
        return Entry(
            func=self.entrypoint,
            output_names=list(self.outputs),
            output_types=[o.type for o in self.outputs.values()],
            materializers=dict(self.materializers),
            hooks={k: v for k, v in chosen.items() if callable(v)},
            importable=self._importable(),
            annotations=dict(self.annotations),
            is_async=inspect.iscoroutinefunction(self.entrypoint),
            output_configs={k: o.config for k, o in self.outputs.items() if o.config},
            launch=self.launch,
        )

    def reference(self) -> str:
        """``module:qualname``, as in the spec."""
        return f"{self.__module__}:{self.__qualname__}"

    def _importable(self) -> Any:
        """(module, qualname) if a fresh import of the module gives this step's function, else
        None."""
        module = sys.modules.get(self.__module__)
        if self.__module__ == "__main__" and self._guarded():
            return None
        if module is None or "<" in self.__qualname__ or not getattr(module, "__file__", None):
            return None
        found: Any = module
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if not isinstance(found, StepDefinition):
            plain = found is self.entrypoint and self.launch is None
            return (self.__module__, self.__qualname__) if plain else None
        same = found.entrypoint is self.entrypoint and found.materializers == self.materializers
        same = same and found.launch == self.launch
        return (self.__module__, self.__qualname__) if same else None

    def _guarded(self) -> bool:
        """Whether it is defined under ``if __name__ == "__main__":``, which a fresh import
        skips."""
        code = getattr(inspect.unwrap(self.entrypoint), "__code__", None)
        return code is not None and any(
            first <= code.co_firstlineno <= last for first, last in guarded_lines(code.co_filename)
        )


@functools.lru_cache(maxsize=8)
def guarded_lines(path: str) -> Tuple[Tuple[int, int], ...]:
    """(first line, last line) of a file's top-level ``if __name__ == …:`` blocks."""
    try:
        with open(path, encoding="utf-8-sig") as stream:
            text = stream.read()
    except (OSError, UnicodeDecodeError):
        return ()
    found = []
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if not _GUARD.match(line):
            continue
        last = i + 1
        while last < len(lines) and (not lines[last].strip() or lines[last][0] in " \t#)]}"):
            last += 1
        found.append((i + 1, last))
    return tuple(found)


_GUARD = re.compile(r"if\b.*__name__")


def _materializer(where: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        if not value:
            raise SettingsError(
                f"{where}: output_materializers is empty; name a materializer class"
            )
        value = value[0]
    if isinstance(value, str):
        from importlib import import_module

        module, _, name = value.replace(":", ".").rpartition(".")
        try:
            value = getattr(import_module(module), name)
        except (ImportError, AttributeError, ValueError) as bad:
            raise SettingsError(f"{where}: materializer {value!r} can't be loaded: {bad}") from None
    if not isinstance(value, type):
        raise SettingsError(f"{where}: a materializer is a class, not {value!r}")
    if not (hasattr(value, "load") and hasattr(value, "save")):
        raise StepInterfaceError(
            f"{where}: {value.__name__} is no materializer: it has no methods 'load' and 'save'"
        )
    return value


def entry_of(func: Callable[..., Any]) -> Entry:
    """The entry of a plain function, like that of a function under a bare ``@step``."""
    return StepDefinition(func, {}).entry()


# ---------------------------------------------------------------------------- @gpu_profile below
# @step

_marks: Optional[WeakKeyDictionary[Any, Dict[str, Any]]] = None  # function → its setting


def mark_profile(function: Any, setting: Dict[str, Any]) -> Any:
    """Keep the setting outside the function, whose attributes are part of its cache key."""
    global _marks
    if not callable(function):
        raise SettingsError(f"@gpu_profile decorates a step or its function, not {function!r}")
    if _marks is None:
        import weakref

        _marks = weakref.WeakKeyDictionary()
    _marks[function] = setting
    return function


def marked_profile(function: Any) -> Optional[Dict[str, Any]]:
    """The setting of a ``@gpu_profile`` below ``@step``, even under other decorators."""
    while _marks and function is not None:
        try:
            if function in _marks:
                return dict(_marks[function])
        except TypeError:  # an unhashable callable has no mark
            pass
        function = getattr(function, "__wrapped__", None)
    return None
