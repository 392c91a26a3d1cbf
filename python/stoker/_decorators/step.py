"""Steps: ``@step`` and what it makes of a function."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Callable, Dict, NoReturn, Optional, Tuple, Union, overload

from .._base.errors import NotYetError
from .._definition.graph import StepArtifact, StepOutputs, active_graph
from .._definition.jsonable import NotJsonError, to_json
from .._definition.step import StepDefinition
from .._definition.types import ExternalArtifact
from .._worker.context import in_task
from .pipeline import Pipeline, refuse_in_worker

if TYPE_CHECKING:
    from typing import Generic, TypeVar

    from typing_extensions import ParamSpec, Unpack

    from .._definition.layers import StepOptions

    P = ParamSpec("P")
    R = TypeVar("R")
else:
    from .pipeline import Generic

    P = R = None

__all__ = ["Step", "StepArtifact", "StepOutputs", "step"]


class Step(StepDefinition, Generic[P, R]):
    """A function that is run as a task of its own.

    In a pipeline's body a call adds the step to the graph; inside of another step it is a plain call;
    elsewhere it runs a pipeline of this one step and returns its value.

    Example::

        loss = train(load(), lr=0.2, id="first")
    """

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __call__(self, *args: Any, id: str, after: Any = None, **kwargs: Any) -> R: ...

    @overload
    def __call__(self, *args: Any, after: Any, **kwargs: Any) -> R: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the step (see the class).

        Args:
            id: name of this call in the pipeline; else ``name``, ``name_2`` …
            after: steps to wait for without using what they give: names, outputs, or lists of them.
        """
        id = kwargs.pop("id", None)
        after = [kwargs.pop("after", None), kwargs.pop("start_after", None)]
        graph = active_graph()
        if graph is not None:
            return graph.add(self, args, kwargs, id, after)
        if in_task() or _plain_calls():
            return self.entrypoint(*args, **kwargs)
        return run_alone(self, args, kwargs)

    def submit(self, *_: Any, **__: Any) -> NoReturn:
        """Only in dynamic pipelines."""
        raise RuntimeError("Submitting a step is only possible within a dynamic pipeline.")

    def map(self, *_: Any, **__: Any) -> NoReturn:
        """Only in dynamic pipelines."""
        raise RuntimeError("Mapping over step inputs is only possible within a dynamic pipeline.")

    product = map

    def replay(self, *_: Any, **__: Any) -> NoReturn:
        """Not there yet."""
        raise NotYetError(
            f"step '{self.name}': replay comes with a later version of Stoker; run the pipeline again, "
            "finished steps are reused"
        )

    def __get__(self, instance: Any, owner: Any = None) -> Step[P, R]:
        """Binds nothing. ``help`` takes an object with this method for a function."""
        return self

    def __reduce__(self) -> str:
        return self.__qualname__  # pickled by reference, as a function is

    def __repr__(self) -> str:
        return f"<step '{self.name}' of {self.reference()}>"


def run_alone(
    step: Step[..., Any], args: Tuple[Any, ...], kwargs: Dict[str, Any], name: Optional[str] = None
) -> Any:
    """Run a step that was called outside of a pipeline; returns its value, or a tuple of its values.

    ``name`` is its pipeline's; None: the step's.
    """
    refuse_in_worker(f"step '{step.name}'")

    def body() -> Any:
        return step(*map(_wrapped, args), **{k: _wrapped(v) for k, v in kwargs.items()})

    single: Pipeline[...] = Pipeline(body, {"name": name or step.name})
    run = single()
    assert run is not None
    outputs = run.steps[step.name].outputs
    values = tuple(outputs[key][0].load() for key in step.outputs)
    if not values:
        return None
    return values[0] if len(values) == 1 else values


def _wrapped(value: Any) -> Any:
    """Values that JSON can't carry travel as artifacts."""
    if isinstance(value, (StepArtifact, StepOutputs, ExternalArtifact)) or hasattr(
        value, "artifact_digest"
    ):
        return value
    try:
        to_json(value)
    except NotJsonError:
        return ExternalArtifact(value=value)
    return value


def _plain_calls() -> bool:
    names = ("STOKER_RUN_SINGLE_STEPS_WITHOUT_STACK", "ZENML_RUN_SINGLE_STEPS_WITHOUT_STACK")
    return any(os.environ.get(n, "").lower() in ("1", "true", "yes", "y", "on") for n in names)


@overload
def step(_func: Callable[P, R]) -> Step[P, R]: ...


@overload
def step(
    _func: None = None, **options: Unpack[StepOptions]
) -> Callable[[Callable[P, R]], Step[P, R]]: ...


def step(
    _func: Optional[Callable[..., Any]] = None, **options: Any
) -> Union[Step[..., Any], Callable[[Callable[..., Any]], Step[..., Any]]]:
    """Make a step of a function; use it bare or with keywords.

    Args:
        name: the step's name; else the function's.
        enable_cache: reuse the outputs of an equal earlier call (default: as the pipeline says, else yes).
        cache_policy: what counts as equal, a :class:`CachePolicy`.
        settings: ``{"resources": ResourceSettings(...), "docker": DockerSettings(...), ...}``.
        retry: a :class:`StepRetryConfig`.
        timeout: seconds, or text such as ``"10m"``, after which an attempt is ended.
        grace: seconds between the request to end and the kill.
        timeout_notice: so long before the timeout the step is told (SIGTERM), for its last checkpoint.
        keep_checkpoints: True: they aren't removed after the step succeeded.
        on_oom: what the next attempt asks for when memory ran out: an :class:`OnOOM`, its fields, or True.
        xid: what an Xid of the driver means for the step and its device: ``{109: "restart"}``.
        sample: seconds between two samples of the step and its devices, 0.01 or more.
        gpu_profile: True, or the arguments of :func:`stoker.gpu_profile`.
        gang: how many processes the step is, as :func:`stoker.torchrun` says it: a number, ``"gpus"``, ``"2:4"`` (4, and a restart may leave out 2), or a mapping
            of ``ranks``, ``restarts``, ``min_ranks``, ``port`` and ``hang``.
        isolation: ``"fork"`` (default) or ``"spawn"``, a fresh interpreter for the step.
        environment: environment variables of the task.
        secrets: names of secrets.
        parameters: values for parameters that the call doesn't give.
        output_materializers: a materializer class, or a mapping from output names.
        on_start, on_success, on_failure, on_end: hooks, functions or ``"module.function"``.
        extra, tags, model, description, substitutions: kept with the run's record.
        step_operator: the backend that runs the step, such as ``"docker"`` ("Places" in docs/formats/spec.md).
        experiment_tracker, group, runtime: kept, no effect.
        enable_artifact_metadata, enable_artifact_visualization, enable_step_logs: the same.
        heartbeat_healthy_threshold: the same.

    Raises:
        SettingsError: an unknown keyword or a value out of range.
        StepInterfaceError: a function that can't be a step.

    Example::

        @step(retry=StepRetryConfig(max_retries=2), settings={"resources": ResourceSettings(gpu_count=1)})
        def train(data: str, lr: float = 0.1) -> float:
            return fit(data, lr)
    """
    if _func is not None:
        return Step(_func, options)
    return lambda func: Step(func, options)
