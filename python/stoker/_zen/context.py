"""The contexts of steps and pipelines with ZenML's attributes."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Optional

from .._decorators import pipeline as front
from .._definition.graph import active_graph
from .._worker import context as worker
from . import errors, lifetime, models, records, runs
from . import model as declared
from .artifacts import ArtifactVersionResponse
from .configuration import in_json
from .materials import materializer_registry
from .responses import load


def _of_output(ask: Callable[..., Any], *args: Any, **given: Any) -> Any:
    """What a method of the step's context tells of an output; raises StepContextError."""
    try:
        return ask(*args, **given)
    except ValueError as bad:
        raise errors.StepContextError(str(bad)) from None


class StepContext:
    """The running step; what isn't here is as in :class:`stoker.StepContext`."""

    def __init__(self, native: worker.StepContext) -> None:
        self._native = native

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._native, name)
        return functools.partial(_of_output, found) if "_output_" in name else found

    @property
    def pipeline_state(self) -> Any:
        """What the pipeline's init hook returned, or None."""
        return lifetime.state()

    @property
    def pipeline(self) -> runs.PipelineResponse:
        """Its pipeline."""
        return runs.PipelineResponse(str(self._native._task.get("pipeline", "")))

    @property
    def pipeline_run(self) -> Run:
        """Its run."""
        return Run(self._native)

    @property
    def step_run(self) -> Step:
        """The step itself."""
        return Step(self._native)

    @property
    def model(self) -> declared.Model:
        """The version of its model.

        Raises:
            StepContextError: it has none.
        """
        given = self._native.extra.get("model")
        if not isinstance(given, dict):
            raise errors.StepContextError(
                f"step '{self._native.step_name}' has no model: give one to @step or @pipeline"
            )
        found = models.get_model_exactly(str(given["name"]))
        version = models.get_model_version(found, given.get("version_id") or given.get("version"))
        return declared.bound(version, given)

    @classmethod
    def get(cls) -> Optional[StepContext]:
        """The running step's context, or None."""
        return get_step_context() if cls.is_active() else None

    @staticmethod
    def is_active() -> bool:
        """Whether a step is running in this process."""
        return worker.in_task()

    @property
    def model_version(self) -> models.ModelVersionResponse:
        """The same, as the client shows it."""
        return self.model._get_model_version()

    def get_output_materializer(
        self,
        output_name: Optional[str] = None,
        custom_materializer_class: Any = None,
        data_type: Any = None,
    ) -> Any:
        """The materializer of an output, for the path where it will be stored."""
        uri = self.get_output_artifact_uri(output_name)
        made = custom_materializer_class or self._native.get_output_materializer(output_name)
        if made is None:
            made = materializer_registry[data_type or object]
        made = made[0] if isinstance(made, (list, tuple)) else made
        return load(made)(uri) if isinstance(made, str) else made(uri)

    def get_output_metadata(self, output_name: Optional[str] = None) -> Dict[str, Any]:
        """What metadata an output has so far."""
        output = _of_output(self._native._output, output_name)
        return dict(self._native._output_metadata.get(output) or {})

    def get_output_tags(self, output_name: Optional[str] = None) -> List[str]:
        """What tags an output has so far."""
        output = _of_output(self._native._output, output_name)
        return list(self._native._output_tags.get(output) or ())

    @property
    def inputs(self) -> Any:
        """Name → artifact, of the inputs that aren't parameters."""
        return runs.run_of(self._native.run_id).steps[self._native.step_name].regular_inputs


class UnmaterializedArtifact(ArtifactVersionResponse):
    """Annotation of a step's input that isn't loaded: the step gets the artifact's version."""

    @classmethod
    def of_input(cls, name: str) -> UnmaterializedArtifact:
        """The running step's input of this name."""
        return cls(get_step_context().inputs[name][0].row)


def _head(native: worker.StepContext) -> str:
    """The run; of a part of a dynamic run, its first part."""
    kept = native.extra.get("zenml") or {}
    return str(kept.get("part_of") or native.run_id)


class Run:
    """The run of the running step: its id and name at once, the rest from the store."""

    def __init__(self, native: worker.StepContext) -> None:
        self._run = _head(native)
        self.id = records.id_of("run", self._run)
        kept = native.extra.get("zenml") or {}  # of a part of a dynamic run
        self.name: str = kept.get("run_name") or native._task.get("run_name") or native.run_id
        self.pipeline = runs.PipelineResponse(str(native._task.get("pipeline", "")))

    def __getattr__(self, name: str) -> Any:
        return getattr(runs.run_of(self._run), name)


class Step:
    """The running step: its id, name and parameters at once, the rest from the store."""

    def __init__(self, native: worker.StepContext) -> None:
        self._native = native
        self.id = records.id_of("step", f"{_head(native)}/{native.step_name}")
        kept = native.extra.get("zenml") or {}
        self.name = str(kept.get("shown") or native.step_name)
        self.config = StepConfig(self)
        self.pipeline_run_id = records.id_of("run", _head(native))

    def __getattr__(self, name: str) -> Any:
        return getattr(runs.run_of(self._native.run_id).steps[self.name], name)


class StepConfig:
    """The running step's configuration: its name and parameters at once, the rest from the store."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self.name = step.name
        self.parameters = {k: in_json(v) for k, v in step._native.parameters.items()}

    def __getattr__(self, name: str) -> Any:
        return getattr(runs.run_of(self._step._native.run_id).steps[self.name].config, name)


def get_step_context() -> StepContext:
    """The running step's context.

    Raises:
        RuntimeError: no step is running in this process.
    """
    return StepContext(worker.get_step_context())


class PipelineContext(front.PipelineContext):
    """The pipeline whose body is running, with its model as ZenML has it."""

    @property
    def pipeline(self) -> PipelineContext:
        """Itself."""
        return self

    @property
    def pipeline_configuration(self) -> PipelineContext:
        """Itself."""
        return self

    configuration = pipeline_configuration


def get_pipeline_context() -> PipelineContext:
    """The context of the pipeline whose body is running.

    Raises:
        RuntimeError: no pipeline is being built.
    """
    graph = active_graph()
    if graph is None:
        front.get_pipeline_context()  # raises
        raise AssertionError
    made = PipelineContext(graph.pipeline)
    made.settings = graph.pipeline.configuration.settings  # type: ignore[attr-defined]
    given: Optional[Any] = made.model
    if given is not None:
        # one object for the whole body: the version that it makes is the run's
        made.model = vars(graph).setdefault("body_model", declared.Model(**given.given()))
    return made
