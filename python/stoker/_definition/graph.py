"""The graph that a static pipeline's body builds: step calls become invocations.

The body runs once. Each step call adds one :class:`Invocation` and returns placeholders for outputs
that don't exist yet. Nothing here recurses over the graph, and the cost of a call doesn't grow with
the number of calls.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NoReturn,
    Optional,
    Tuple,
)

from .._base.errors import (
    StepInterfaceError,
    WrongInputError,
    did_you_mean,
    lenient,
    user_line,
    warn,
)
from .jsonable import NotJsonError, to_json
from .names import NAME, check_name, plain_name
from .types import ExternalArtifact

if TYPE_CHECKING:
    from .pipeline import PipelineDefinition
    from .step import StepDefinition

_active: ContextVar[Optional[Graph]] = ContextVar("stoker_graph", default=None)


def active_graph() -> Optional[Graph]:
    """The graph that the running pipeline body builds, or None."""
    return _active.get()


class StepArtifact:
    """An output of a step while the pipeline is built; its value exists after the run.

    Example::

        data = load()    # a StepArtifact in a pipeline's body
        train(data)      # the step gets the value
    """

    __slots__ = ("_graph", "annotation", "invocation_id", "output_name")

    def __init__(self, graph: Graph, invocation_id: str, output_name: str, annotation: Any) -> None:
        self._graph = graph
        self.invocation_id = invocation_id
        self.output_name = output_name
        self.annotation = annotation

    @property
    def pipeline(self) -> PipelineDefinition:
        """The pipeline that is being built."""
        return self._graph.pipeline

    def __iter__(self) -> Iterator[NoReturn]:
        raise StepInterfaceError(
            f"Unable to unpack output '{self.output_name}' of step '{self.invocation_id}': it is one output. "
            "To get several, annotate the step with Tuple[Annotated[...], ...]"
        )

    def load(self, *_: Any, **__: Any) -> NoReturn:
        """Always raises: the output has no value yet."""
        raise StepInterfaceError(
            f"output '{self.output_name}' of step '{self.invocation_id}' doesn't exist yet: a pipeline's body "
            "only builds the graph. Use the value inside of a step, or load it from the finished run"
        )

    def __bool__(self) -> bool:
        text = (
            f"output '{self.output_name}' of step '{self.invocation_id}' is used as a condition, but it has no "
            "value yet: a pipeline's body only builds the graph. Decide inside of a step instead"
        )
        if not lenient():
            raise StepInterfaceError(text)
        warn(f"{text}; here it counts as true")
        return True

    def __format__(self, spec: str) -> str:
        warn(
            f"output '{self.output_name}' of step '{self.invocation_id}' is put into a text, but it has no value "
            "yet: a pipeline's body only builds the graph. Make the text inside of a step"
        )
        return repr(self)

    def __repr__(self) -> str:
        return f"StepArtifact({self.invocation_id}.{self.output_name})"


class NoValueError(StepInterfaceError, TypeError, AttributeError):
    """The body of a pipeline uses an output as a value while it builds the graph."""


def _refuse(use: str) -> Callable[..., NoReturn]:
    def refuse(self: StepArtifact, *_: Any) -> NoReturn:
        raise NoValueError(
            f"output '{self.output_name}' of step '{self.invocation_id}' is {use}, but it has no value yet: "
            "a pipeline's body only builds the graph. Do this inside of a step that takes it as input"
        )

    return refuse


_USES = {
    "compared": "lt le gt ge",
    "calculated with": "add radd sub rsub mul rmul matmul truediv rtruediv floordiv rfloordiv mod rmod "
    "pow rpow neg pos abs int float complex index round",
    "taken apart": "getitem len contains",
    "called": "call",
}
for _use, _names in _USES.items():
    for _name in _names.split():
        setattr(StepArtifact, f"__{_name}__", _refuse(_use))


class StepOutputs(Tuple[StepArtifact, ...]):
    """The outputs of a step with none or several; ``after=`` accepts the whole."""

    invocation_id: str

    @classmethod
    def of(cls, invocation_id: str, outputs: List[StepArtifact]) -> StepOutputs:
        """Bundle the outputs of one invocation."""
        made = cls(outputs)
        made.invocation_id = invocation_id
        return made


def stored_input(body: Mapping[str, Any]) -> Dict[str, Any]:
    """The spec's input for an artifact that the store has already."""
    about = {key: body[key] for key in ("format", "type", "meta") if body.get(key)}
    return {"artifact": str(body["digest"]), **about}


class Invocation:
    """One call of a step in a pipeline.

    ``inputs`` has the spec's inputs, or an :class:`ExternalArtifact` that must be stored first.
    ``line`` is "file:line" of the call.
    """

    __slots__ = ("after", "id", "inputs", "line", "scope", "step")

    def __init__(
        self,
        id: str,
        step: StepDefinition,
        inputs: Dict[str, Any],
        after: List[str],
        scope: Tuple[PipelineDefinition, ...],
    ) -> None:
        self.id = id
        self.step = step
        self.inputs = inputs
        self.after = after
        self.scope = scope
        self.line = user_line()


class DuplicateStepError(StepInterfaceError, RuntimeError):
    """Two calls of steps in a pipeline have the same id."""


class Graph:
    """The invocations of one pipeline call, in the order of the calls."""

    def __init__(self, pipeline: PipelineDefinition) -> None:
        self.pipeline = pipeline
        self.invocations: Dict[str, Invocation] = {}
        self.scope: Tuple[PipelineDefinition, ...] = ()
        self._next: Dict[str, int] = {}
        self._token: Any = None

    def __enter__(self) -> Graph:
        self._token = _active.set(self)
        return self

    def __exit__(self, *_: Any) -> None:
        _active.reset(self._token)

    def add(
        self,
        step: StepDefinition,
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        id: Optional[str],
        after: Any,
    ) -> Any:
        """Record a call; returns its output, or a tuple of its outputs.

        Raises:
            StepInterfaceError: the arguments don't fit the step.
        """
        check_interface(step)
        given = bind(step, args, kwargs)
        name = self._name(step, id)
        inputs = {key: self._input(step, key, value) for key, value in given.items()}
        waits = self._after(step, after)
        self.invocations[name] = Invocation(name, step, inputs, waits, self.scope)
        outputs = [StepArtifact(self, name, key, out.type) for key, out in step.outputs.items()]
        return outputs[0] if len(outputs) == 1 else StepOutputs.of(name, outputs)

    def _name(self, step: StepDefinition, id: Optional[str]) -> str:
        if id is not None:
            check_name(id, f"id of step '{step.name}'")
            if id in self.invocations:
                raise DuplicateStepError(
                    f"Duplicate step id '{id}' in pipeline '{self.pipeline.name}'; give each call its own"
                )
            return id
        name = plain_name(step.name) if lenient() else step.name
        check_name(name, "step name")
        if name not in self.invocations and name not in self._next:
            self._next[name] = 2
            return name
        n = self._next.get(name, 2)
        while f"{name}_{n}" in self.invocations:
            n += 1
        self._next[name] = n + 1
        return f"{name}_{n}"

    def _input(self, step: StepDefinition, key: str, value: Any) -> Any:
        if isinstance(value, StepArtifact):
            return {"from": self._reference(step, key, value)}
        if isinstance(value, (list, tuple)) and any(isinstance(v, StepArtifact) for v in value):
            return {"from": [self._reference(step, key, v) for v in value]}
        if isinstance(value, StepOutputs):
            raise StepInterfaceError(
                f"step '{step.name}': argument '{key}' is step '{value.invocation_id}', which has no output; "
                "use after= to wait for it"
            )
        if isinstance(value, ExternalArtifact):
            return value
        if hasattr(value, "artifact_digest"):
            return stored_input(getattr(value, "native", value).body)
        if hasattr(value, "late_literal"):
            return {"value": value.late_literal()}
        if hasattr(value, "entrypoint"):
            raise StepInterfaceError(
                f"step '{step.name}': argument '{key}' is {value!r} itself; call it, "
                f"{value.name}(...), to pass its output"
            )
        return {"value": literal(step, key, value)}

    def _reference(self, step: StepDefinition, key: str, value: Any) -> str:
        if not isinstance(value, StepArtifact):
            raise StepInterfaceError(
                f"step '{step.name}': argument '{key}' mixes step outputs with a {type(value).__name__}; "
                "pass a list of step outputs only, and the other values as arguments of their own"
            )
        if value._graph is not self:
            raise StepInterfaceError(
                f"step '{step.name}': argument '{key}' is an output of step '{value.invocation_id}' in "
                f"another call of pipeline '{value.pipeline.name}'; load it from that run instead"
            )
        return f"{value.invocation_id}.{value.output_name}"

    def _after(self, step: StepDefinition, after: Any) -> List[str]:
        found: Dict[str, None] = {}
        work = [after]
        while work:
            item = work.pop()
            if item is None:
                continue
            name = getattr(item, "invocation_id", None) or (item if isinstance(item, str) else None)
            if name is not None:
                found[name] = None
            elif isinstance(item, (list, tuple, set)):
                work.extend(reversed(list(item)))
            else:
                raise StepInterfaceError(
                    f"step '{step.name}': after= takes step names and step outputs, not {type(item).__name__}"
                )
        return list(found)

    def check_after(self) -> None:
        """Check that every ``after`` names a step of this pipeline.

        Raises:
            StepInterfaceError: one doesn't; has the nearest name.
        """
        for invocation in self.invocations.values():
            for name in invocation.after:
                if name not in self.invocations:
                    raise WrongInputError(
                        f"{os.path.relpath(invocation.line)}: step '{invocation.id}': after= names step "
                        f"'{name}', which pipeline "
                        f"'{self.pipeline.name}' doesn't have{did_you_mean(name, self.invocations)}"
                    )


def bind(step: StepDefinition, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
    """Arguments of a call by name; missing ones may come from a run configuration."""
    if not args and kwargs.keys() <= step.signature.parameters.keys():
        return kwargs
    try:
        return dict(step.signature.bind_partial(*args, **kwargs).arguments)
    except TypeError as bad:
        known = list(step.signature.parameters)
        wrong = next((k for k in kwargs if k not in known), None)
        hint = did_you_mean(wrong, known) if wrong else ""
        raise StepInterfaceError(
            f"Wrong arguments when calling step '{step.name}': {bad}{hint}; it takes {listed(known)}"
        ) from None


def listed(names: Iterable[str]) -> str:
    """``'a', 'b'``, or "none"."""
    return ", ".join(f"'{name}'" for name in names) or "none"


def literal(step: StepDefinition, key: str, value: Any) -> Any:
    """A literal argument as JSON.

    Raises:
        StepInterfaceError: it isn't JSON-able, or doesn't fit the annotation.
    """
    try:
        data = to_json(value)
    except NotJsonError as bad:
        raise StepInterfaceError(
            f"Argument type (`{type(value).__name__}`) for argument '{key}' of step '{step.name}' is not "
            f"JSON serializable ({bad}); wrap it as ExternalArtifact(value=...) or make it in a step"
        ) from None
    wanted: Any = step.annotations.get(key)
    if str(getattr(wanted, "__origin__", "")) == "typing.Literal" and value not in wanted.__args__:
        raise WrongInputError(
            f"Wrong arguments when calling step '{step.name}': argument '{key}' is {value!r}, "
            f"but the step takes {' or '.join(map(repr, wanted.__args__))}"
        )
    if wanted in _SCALARS and not _fits(value, wanted):
        lax = _converted(value, wanted) if lenient() else None
        if lax is not None:
            return lax
        raise WrongInputError(
            f"Wrong arguments when calling step '{step.name}': argument '{key}' is {value!r}, "
            f"but the step takes {wanted.__name__}"
        )
    return data


_SCALARS = (int, float, str, bool, dict, list)


def _fits(value: Any, wanted: Any) -> bool:
    if type(value).__module__ == "numpy":
        return True
    if wanted is float:
        return isinstance(value, (int, float))
    if wanted is int:
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if wanted is list:
        return isinstance(value, (list, tuple))
    return isinstance(value, wanted)


def _converted(value: Any, wanted: type) -> Any:
    """A text or number as the scalar that ZenML makes of it, or None."""
    if wanted is bool:
        return _WORDS.get(str(value).lower())
    if wanted in (int, float) and isinstance(value, (str, bool)):
        try:
            return wanted(value)
        except ValueError:
            return None
    return None


_WORDS = {
    **dict.fromkeys(("1", "1.0", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "0.0", "false", "f", "no", "n", "off"), False),
}


def check_interface(step: StepDefinition) -> None:
    """Check that the names of arguments and outputs are valid in the spec.

    Raises:
        StepInterfaceError: one isn't.
    """
    if step.checked:
        return
    for what, names in (("argument", step.signature.parameters), ("output", step.outputs)):
        for name in names:
            if not NAME.fullmatch(name):
                raise StepInterfaceError(
                    f"step '{step.name}': {what} '{name}' may hold letters, digits, '_', '-' and '.' only "
                    "(128 at most); rename it"
                )
    step.checked = True
