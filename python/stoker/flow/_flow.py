"""FlowSpec, the base class of flows, and ``@step``."""

from __future__ import annotations

import os
import sys
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Tuple,
    overload,
)

from .._base import registry
from .._base.errors import InWorkerError
from ._next import say_next
from .exception import MetaflowException


@overload
def step(func: Callable[..., Any]) -> Callable[..., Any]: ...


@overload
def step(
    func: None = None, *, start: bool = False, end: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]: ...


def step(
    func: Optional[Callable[..., Any]] = None, *, start: bool = False, end: bool = False
) -> Any:
    """Make a method of a flow a step; other decorators go above this one.

    Args:
        start, end: the flow begins or ends with this step, instead of the steps named so.
    """
    if func is None:
        return lambda func: _marked(func, start, end)
    return _marked(func, start, end)


def _marked(func: Any, start: bool, end: bool) -> Any:
    func.is_step = True
    func.is_start_step, func.is_end_step = start, end
    func.decorators = []
    func.wrappers, func.config_decorators = [], []  # of one's own (_user.py)
    func.name = func.__name__
    return func


class _Graph:
    """The class's graph, read at its first use."""

    def __get__(self, flow: Any, cls: Any) -> Any:
        known = cls.__dict__.get("_stoker_graph")
        if known is None:
            from ._graph import FlowGraph

            known = FlowGraph(cls)
            cls._stoker_graph = known
        return known


class ForeachFrame(NamedTuple):
    """One open foreach: the step that it multiplies, its artifact, the number of items, and this task's item."""

    step: str
    var: Optional[str]
    num_splits: int
    index: int  # type: ignore[assignment]
    value: Any


class FlowSpec:
    """A flow: its ``@step`` methods run one after the other, as each names the next by
    ``self.next``.

    Attributes that a step sets on ``self`` are artifacts: Stoker stores them, and the following
    steps see them. ``MyFlow()`` runs the flow's command line.
    """

    _graph = _Graph()
    _NOT_CONSTANT = frozenset(["cmd", "foreach_stack", "index", "input", "script_name", "name"])

    def __init__(self, use_cli: bool = True) -> None:
        self.__dict__["name"] = type(self).__name__
        if use_cli:
            _refuse_in_worker(type(self).__name__)
            from . import _cli

            registry.called = True
            _cli.main(self)

    # ------------------------------------------------------------------ artifacts

    def __getattr__(self, name: str) -> Any:
        scope = self.__dict__.get("_stoker")
        if scope is None or name.startswith("__"):
            raise AttributeError(f"flow '{type(self).__name__}' has no attribute '{name}'")
        value = scope.load(name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        scope = self.__dict__.get("_stoker")
        if scope is not None and name in scope.constants:
            raise AttributeError(
                f"'{name}' is a parameter or attribute of the flow's class, which no step can change; use "
                "another name"
            )
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        scope = self.__dict__.get("_stoker")
        inherited = scope is not None and scope.drop(name)
        if name in self.__dict__ or not inherited:
            object.__delattr__(self, name)

    def __getstate__(self) -> Any:
        raise MetaflowException(
            "a flow can't be stored: was `self`, or one of the `inputs`, assigned to an attribute? Store what you "
            "need of it, such as inputs[0].x"
        )

    # ------------------------------------------------------------------ what a step knows

    @property
    def script_name(self) -> str:
        """The file of the flow's class, without its folder."""
        module = sys.modules.get(type(self).__module__)
        return os.path.basename(getattr(module, "__file__", None) or "")

    @property
    def _graph_info(self) -> Dict[str, Any]:
        """The flow's graph as plain data; programs written for Metaflow read it."""
        from ._compile import graph_info

        return graph_info(type(self))

    @property
    def _current_step(self) -> Optional[str]:
        scope = self.__dict__.get("_stoker")
        return scope.step if scope is not None else None

    @property
    def index(self) -> Optional[int]:
        """Index of this task's item in the innermost foreach, from 0; None outside a foreach."""
        scope = self.__dict__.get("_stoker")
        return scope.index() if scope is not None else None

    @property
    def input(self) -> Any:
        """This task's item of the innermost foreach; None outside a foreach."""
        scope = self.__dict__.get("_stoker")
        return scope.item(-1) if scope is not None else None

    @property
    def _foreach_stack(self) -> List[Any]:
        """The open foreaches, outermost first; programs written for Metaflow read it."""
        scope = self.__dict__.get("_stoker")
        frames = scope.frames if scope is not None else []
        graph = self._graph
        found = []
        for frame, (index, n, item) in zip(frames, self.foreach_stack()):
            node = graph[frame["step"]]
            found.append(ForeachFrame(node.out_funcs[0], node.foreach_param, n, index, item))
        return found

    def foreach_stack(self) -> List[Tuple[int, int, Any]]:
        """(index, number of items, item) of each open foreach, outermost first."""
        scope = self.__dict__.get("_stoker")
        return scope.stack() if scope is not None else []

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, node.name) for node in type(self)._graph])

    def __str__(self) -> str:
        scope = self.__dict__.get("_stoker")
        name = type(self).__name__
        if scope is None:
            return f"<flow {name}>"
        indices = ",".join(str(one[0]) for one in self.foreach_stack())
        if not indices:
            return f"<flow {name} step {scope.step}>"
        item = str(self.input)
        item = item if len(item) <= 20 else item[:20] + "..."
        return f"<flow {name} step {scope.step}[{indices}] (input: {item})>"

    # ------------------------------------------------------------------ what a step says

    def next(self, *dsts: Any, **kwargs: Any) -> None:
        """Name the next steps; the last statement of every step except the last one.

        ``self.next(self.a)``; ``self.next(self.a, self.b)``: both, side by side;
        ``self.next(self.a, foreach="items")``: once for each item of ``self.items``;
        ``self.next(self.a, num_parallel=4)``: four nodes as one; ``self.next({"yes": self.a, "no":
        self.b}, condition="verdict")``: by ``self.verdict``.

        Raises:
            InvalidNextException: the call has another form, or differs from the source.
            RuntimeError: the switch has no case for the value.
        """
        say_next(self, dsts, kwargs)

    def merge_artifacts(
        self,
        inputs: Iterable[Any],
        exclude: Optional[List[str]] = None,
        include: Optional[List[str]] = None,
    ) -> None:
        """In a join: take over the inputs' artifacts that this step hasn't set itself.

        Loads nothing: values are equal if their digests are.

        Args:
            exclude: names to skip. include: take only these names.

        Raises:
            UnhandledInMergeArtifactsException: branches have different values; nothing is taken
                over.
            MissingInMergeArtifactsException: no branch has a name in ``include``.
            MetaflowException: the step isn't a join, or both lists are given.
        """
        from ._scope import merge

        merge(self, inputs, list(exclude or ()), list(include or ()))


def _refuse_in_worker(name: str) -> None:
    from .._worker.context import in_task

    main = sys.modules.get("__mp_main__")
    if in_task() or (main is not None and main.__name__ == "__mp_main__"):
        raise InWorkerError(
            f"{name}() would run the flow again, because this step imports the file: write "
            f"`if __name__ == '__main__': {name}()`"
        )


def constants_of(cls: Any) -> Tuple[str, ...]:
    """Attributes of a flow's class that are values; every step sees them, and they are
    artifacts."""
    known = cls.__dict__.get("_stoker_constants")
    if known is None:
        from types import FunctionType, MethodType

        from ._parameters import Config, Parameter

        functions = (MethodType, FunctionType, property, staticmethod, classmethod)
        kinds = (*functions, type, Parameter, Config)
        known = tuple(
            name
            for name in dir(cls)
            if name[0] != "_"
            and name not in cls._NOT_CONSTANT
            and not hasattr(FlowSpec, name)
            and not isinstance(_static(cls, name), kinds)
        )
        cls._stoker_constants = known
    return known  # type: ignore[no-any-return]


def _static(cls: Any, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return None


# ---------------------------------------------------------------------------- what the front asks
# of flows


def _entry(module: str, qualname: str, found: Any) -> Any:
    if not getattr(found, "is_step", False):
        return None
    from ._task import find_entry

    return find_entry(module, qualname, found)


def _decorated(name: str, found: Any, options: Dict[str, Any]) -> Any:
    if not getattr(found, "is_step", False):
        return None
    from ._decorators import attach_to_step

    return attach_to_step(name, found, options)


def _runner(thing: Any) -> Any:
    if not isinstance(thing, type) or not issubclass(thing, FlowSpec) or thing is FlowSpec:
        return None

    def run(words: List[str]) -> int:
        from . import _cli

        registry.called = True
        named = words and not words[0].startswith("-")  # a command, as behind a file
        return _cli.run(thing, words if named else ["run", *words])

    return run


registry.entries.append(_entry)
registry.decorations.append(_decorated)
registry.runners.append(_runner)
