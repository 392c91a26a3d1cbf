"""Types of cards: the given ones, and classes of one's own."""

from __future__ import annotations

import inspect
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Type


class MetaflowCard:
    """A type of card. One's own derive from it, set ``type`` and write :meth:`render`.

    A class is found by its ``type`` where it was defined or imported by the flow's file, or in a package
    ``metaflow_extensions.NAME.plugins.cards.…`` that is installed.

    Attributes:
        type: what ``@card(type=…)`` says.
        ALLOW_USER_COMPONENTS: ``current.card.append`` is for it too; RUNTIME_UPDATABLE: it is made while the
            step runs, by :meth:`render_runtime`.

    Args:
        options: what ``@card(options=…)`` says. components: what was appended, as it is written.
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
        """The page as HTML; ``task`` is the task as the client sees it."""
        raise NotImplementedError(f"{type(self).__qualname__} has no render()")

    def render_runtime(self, task: Any, data: Any) -> str:
        """The page while the step runs; ``data``: what ``refresh`` was given."""
        raise NotImplementedError(f"{type(self).__qualname__} has no render_runtime()")

    def refresh(self, task: Any, data: Any) -> Any:
        """Data for a page that is there; not used by Stoker, whose pages are made anew."""
        raise NotImplementedError(f"{type(self).__qualname__} has no refresh()")

    def reload_content_token(self, task: Any, data: Any) -> str:
        """What changes where a page is to be loaded anew; not used by Stoker."""
        return "content-token"


class DefaultCard(MetaflowCard):
    """``@card``: what was appended, then what the engine knows of the task."""

    type = "default"
    ALLOW_USER_COMPONENTS = True
    RUNTIME_UPDATABLE = True


class BlankCard(DefaultCard):
    """``@card(type="blank")``: only what was appended."""

    type = "blank"


class ErrorCard(MetaflowCard):
    """What stands for a card that could not be made."""

    type = "error"


def _all(cls: Type[MetaflowCard]) -> Iterator[Type[MetaflowCard]]:
    for one in cls.__subclasses__():
        yield one
        yield from _all(one)


def _extensions() -> None:
    """Import the cards of installed extensions."""
    import importlib
    import pkgutil

    try:
        root = importlib.import_module("metaflow_extensions")
    except ImportError:
        return
    for name in (m.name for m in pkgutil.iter_modules(root.__path__)):
        try:
            cards = importlib.import_module(f"metaflow_extensions.{name}.plugins.cards")
        except ImportError:
            continue
        for module in pkgutil.walk_packages(cards.__path__, f"{cards.__name__}."):
            importlib.import_module(module.name)


def find(name: str) -> Type[MetaflowCard]:
    """The class of a type.

    Raises:
        LookupError: there is none.
    """
    for look in (None, _extensions):
        if look is not None:
            look()
        found = [one for one in _all(MetaflowCard) if one.__dict__.get("type") == name]
        if found:
            return found[-1]
    known = sorted({str(one.type) for one in _all(MetaflowCard) if one.type})
    raise LookupError(
        f"there is no card of type '{name}'; known are {', '.join(known)}. A class of one's own derives from "
        "MetaflowCard, has `type` and is imported by the flow's file"
    )


def renders_html(cls: Type[MetaflowCard]) -> bool:
    """The class makes its page itself."""
    return cls.render is not MetaflowCard.render


def build(cls: Type[MetaflowCard], given: Dict[str, Any]) -> MetaflowCard:
    """An object of the class, given of ``options, components, graph, flow`` what it takes."""
    takes = inspect.signature(cls.__init__).parameters
    every = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    return cls(**{key: value for key, value in given.items() if every or key in takes})


class TaskNow:
    """A task as the client sees it, while it runs: what it has set counts as its artifacts already."""

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
