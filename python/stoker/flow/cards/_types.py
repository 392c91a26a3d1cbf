"""Types of cards: the built-in ones, and users' classes."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Type

from .._extensions import load_cards


class MetaflowCard:
    """A type of card. Users' types derive from it, set ``type`` and define :meth:`render`.

    Stoker finds a class by its ``type`` if the flow's file defines or imports it, or in an
    installed package ``metaflow_extensions.NAME.plugins.cards.…``.

    Attributes:
        type: the name for ``@card(type=…)``.
        ALLOW_USER_COMPONENTS: ``current.card.append`` may add to it; RUNTIME_UPDATABLE:
            :meth:`render_runtime` renders it while the step runs.

    Args:
        options: from ``@card(options=…)``. components: the appended components, as JSON.
        graph: the flow's graph as plain data. flow: the object that is the step's ``self``.
    """

    RELOAD_POLICY_NEVER = "never"
    RELOAD_POLICY_ALWAYS = "always"
    RELOAD_POLICY_ONCHANGE = "onchange"
    RELOAD_POLICY_TOKEN = "[METAFLOW_RELOAD_TOKEN]"

    type: Any = None
    ALLOW_USER_COMPONENTS = False
    RUNTIME_UPDATABLE = False
    RELOAD_POLICY = RELOAD_POLICY_NEVER
    scope = "task"
    runtime_data: Any = None

    def __init__(
        self, options: Any = None, components: Any = None, graph: Any = None, flow: Any = None
    ) -> None:
        pass

    def render(self, task: Any) -> str:
        """The page as HTML; ``task`` is the client's object."""
        raise NotImplementedError(f"{type(self).__qualname__} has no render()")

    def render_runtime(self, task: Any, data: Any) -> str:
        """The page while the step runs; ``data``: the argument of ``refresh``."""
        raise NotImplementedError(f"{type(self).__qualname__} has no render_runtime()")

    def refresh(self, task: Any, data: Any) -> Any:
        """Data for a displayed page. Stoker doesn't use it: it renders pages again."""
        raise NotImplementedError(f"{type(self).__qualname__} has no refresh()")

    def reload_content_token(self, task: Any, data: Any) -> str:
        """A token that changes if a page must be reloaded. Stoker doesn't use it."""
        return "content-token"


class DefaultCard(MetaflowCard):
    """``@card``: the appended components, then the engine's facts about the task."""

    type = "default"
    ALLOW_USER_COMPONENTS = True
    RUNTIME_UPDATABLE = True


class BlankCard(DefaultCard):
    """``@card(type="blank")``: only the appended components."""

    type = "blank"


class ErrorCard(MetaflowCard):
    """Replaces a card whose rendering failed."""

    type = "error"


def _all(cls: Type[MetaflowCard]) -> Iterator[Type[MetaflowCard]]:
    for one in cls.__subclasses__():
        if one.__module__ in sys.modules:  # else its module's import failed
            yield one
        yield from _all(one)


def _samples() -> None:
    import importlib

    importlib.import_module(f"{__package__}._samples")


def find(name: str) -> Type[MetaflowCard]:
    """The class of a type.

    Raises:
        LookupError: there is none.
    """
    for look in (None, _samples, load_cards):
        if look is not None:
            look()
        found = [one for one in _all(MetaflowCard) if one.__dict__.get("type") == name]
        if found:
            return found[-1]
    known = sorted({str(one.type) for one in _all(MetaflowCard) if one.type})
    raise LookupError(
        f"there is no card of type '{name}'; known are {', '.join(known)}. A class of your own derives from "
        "MetaflowCard, has `type` and is imported by the flow's file"
    )


def renders_html(cls: Type[MetaflowCard]) -> bool:
    """Whether the class renders its page itself."""
    return cls.render is not MetaflowCard.render


def build(cls: Type[MetaflowCard], given: Dict[str, Any]) -> MetaflowCard:
    """An object of the class, made with those of ``options, components, graph, flow`` that it
    takes."""
    takes = inspect.signature(cls.__init__).parameters
    every = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    return cls(**{key: value for key, value in given.items() if every or key in takes})


class TaskNow:
    """A running task with the client's interface; the attributes set so far count as its
    artifacts."""

    finished = successful = True
    exception = None

    def __init__(
        self,
        values: Dict[str, Any],
        names: Set[str],
        load: Callable[[str], Any],
        pathspec: Optional[str],
    ) -> None:
        self._values, self._names, self._load = values, names, load
        self._pathspec = str(pathspec)
        self._task: Optional[Any] = None

    @property
    def pathspec(self) -> str:
        """FLOW/RUN/STEP/TASK."""
        return self._pathspec

    @property
    def id(self) -> str:
        """The task's id."""
        return self.pathspec.rsplit("/", 1)[-1]

    @property
    def data(self) -> Any:
        """Values of its artifacts, as attributes."""
        return _Values(self)

    @property
    def artifacts(self) -> Any:
        """Its artifacts, as attributes."""
        return _Values(self, _Value)

    def _value(self, name: str) -> Any:
        if name in self._values:
            return self._values[name]
        if name not in self._names:
            raise KeyError(name)
        return self._load(name)

    def _all_names(self) -> List[str]:
        return sorted({*self._names, *self._values})

    def __getitem__(self, name: str) -> Any:
        return _Value(name, self._value(name))

    def __contains__(self, name: str) -> bool:
        return name in self._all_names()

    def __iter__(self) -> Iterator[Any]:
        return (self[name] for name in self._all_names())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._task is None:
            from ..client import Task

            self._task = Task(self.pathspec, _namespace_check=False)
        return getattr(self._task, name)


class _Value:
    def __init__(self, name: str, data: Any) -> None:
        self.id, self.data = name, data


class _Values:
    def __init__(self, task: TaskNow, make: Any = None) -> None:
        self.__dict__.update(_stoker_task=task, _stoker_make=make)

    def __getattr__(self, name: str) -> Any:
        try:
            value = self._stoker_task._value(name)
        except KeyError:
            raise AttributeError(name) from None
        return value if self._stoker_make is None else self._stoker_make(name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._stoker_task

    def __dir__(self) -> List[str]:
        return list(self._stoker_task._all_names())

    def __iter__(self) -> Iterator[Any]:
        return iter(self._stoker_task)
