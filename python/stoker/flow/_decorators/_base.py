"""The base of decorators: a name, attributes with defaults, and hooks."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional

from .._parameters import Config, DelayEvaluator, resolve
from ..exception import InvalidDecoratorAttribute


class Decorator:
    """A decorator of a step or a flow.

    Attributes:
        name: as written in the source. defaults: attribute → its default.
        attributes: the given values over the defaults; given: the names that were given.
        statically_defined: it is in the source, not added by ``--with``.
    """

    name = ""
    defaults: Dict[str, Any] = {}
    allow_multiple = False

    def __init__(
        self, attributes: Optional[Dict[str, Any]] = None, statically_defined: bool = False
    ) -> None:
        self.statically_defined = statically_defined
        self.said = dict(attributes or {})
        for key in self.said:
            if key not in self.defaults and not str(key).startswith("_unpacked_delayed_"):
                raise InvalidDecoratorAttribute(self.name, key, self.defaults)
        self._bound: Any = None

    @property
    def attributes(self) -> Dict[str, Any]:
        """All attributes; expressions of configurations aren't computed before :meth:`bound`."""
        return {**self.defaults, **self.said}

    @property
    def given(self) -> Dict[str, Any]:
        """Attributes that were given and aren't None."""
        return {key: value for key, value in self.said.items() if value is not None}

    def bound(self) -> Any:
        """The decorator itself, with all expressions computed and all attributes checked."""
        if self._bound is None:
            self._bound = self if not _is_delayed(self.said) else type(self)(resolve(self.said))
            self._bound._bound = self._bound
            self._bound.init()
        return self._bound

    def init(self) -> None:
        """Check the attributes, once they are known. Raises MetaflowException."""

    def __repr__(self) -> str:
        said = ", ".join(f"{key}={value!r}" for key, value in self.said.items())
        return f"@{self.name}({said})"


def _is_delayed(value: Any) -> bool:
    if isinstance(value, (DelayEvaluator, Config)):
        return True
    if isinstance(value, dict):
        return any(_is_delayed(one) for pair in value.items() for one in pair) or any(
            str(key).startswith("_unpacked_delayed_") for key in value
        )
    return isinstance(value, (list, tuple, set)) and any(_is_delayed(one) for one in value)


class StepDecorator(Decorator):
    """A decorator of steps: its part of the step's document, and its actions around the task."""

    IS_PARALLEL = False
    ENDS_LATE = False  # its task_end sees what the other decorators' leave

    def check(self, node: Any, graph: Any) -> None:
        """Check that it suits this step of this graph. Raises MetaflowException."""

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        """Keys for the step's document (docs/formats/spec.md); ``decorators`` are all those of the
        step."""
        return {}

    def note(self) -> Optional[str]:
        """One sentence where it has no effect here."""
        return None

    def task_begin(self, running: Any) -> None:
        """Called before the step's method; ``running`` is a :class:`stoker.flow._task.Running`."""

    def task_decorate(self, func: Callable[..., Any], running: Any) -> Callable[..., Any]:
        """The method to call instead."""
        return func

    def task_end(self, running: Any) -> None:
        """Called after the method, before its artifacts are stored."""

    def task_failed(self, running: Any, error: Exception) -> bool:
        """Called after an exception. True: it is handled, and the flow continues."""
        return False


def decorated(one: StepDecorator, func: Callable[..., Any], running: Any) -> Callable[..., Any]:
    """The method that the decorator calls instead of ``func``."""
    return (
        one.decorate_as(func, running)
        if hasattr(one, "decorate_as")
        else one.task_decorate(func, running)
    )


class FlowDecorator(Decorator):
    """A decorator of flows: its part of the document."""

    def settings(self, flow: Any, options: Dict[str, Any]) -> Dict[str, Any]:
        """Keys for the document; ``options`` are those of the command line."""
        return {}

    def note(self) -> Optional[str]:
        """One sentence where it has no effect here."""
        return None


def to_pod(value: Any) -> Any:
    """A decorator's attribute as plain data; other objects become their text."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, dict):
        return {to_pod(key): to_pod(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [to_pod(one) for one in value]
    return str(value)
