"""Pipelines: ``@pipeline``, its options, and the call that runs it."""

from __future__ import annotations

import inspect
import sys
import time
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Mapping,
    NoReturn,
    Optional,
    Sequence,
    Tuple,
    Union,
    cast,
    overload,
)

from .._base import registry
from .._base.binary import run_options
from .._base.errors import (
    InWorkerError,
    NotYetError,
    PipelineInterfaceError,
    did_you_mean,
    say,
    warn,
)
from .._definition.graph import Graph, active_graph
from .._definition.jsonable import NotJsonError, to_json
from .._definition.layers import HOOKS, RunConfig
from .._definition.pipeline import PipelineDefinition, all_parameters
from .._definition.types import Model
from .._engine.client import PipelineRun
from .._engine.compiled import Compiled
from .._engine.emit import compile_graph
from .._worker.context import in_task, may_start_runs

if TYPE_CHECKING:
    from typing import Generic

    from typing_extensions import ParamSpec, Unpack

    from .._definition.layers import PipelineOptions

    P = ParamSpec("P")
else:  # type parameters cost a start nothing
    P = None

    class Generic:
        def __class_getitem__(cls, _):
            return cls


class Pipeline(PipelineDefinition, Generic[P]):
    """A function whose body builds a graph of steps; calling it runs the graph.

    Example::

        run = digits.with_options(enable_cache=False)(lr=0.2)
    """

    def compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """Run the body once and write the spec; nothing is executed or stored.

        Raises:
            PipelineInterfaceError: arguments that don't fit.
            StepInterfaceError: step calls that don't fit.
            RuntimeError: a parameter that code and run configuration give differently.
        """
        layer, run = self.folded()
        arguments = self._arguments(args, kwargs, run)
        with Graph(self) as graph:
            self._body(arguments)
        return compile_graph(graph, run, _literals(arguments), layer)

    def spec(self, *args: Any, **kwargs: Any) -> Dict[str, Any]:
        """The spec of a call with these arguments (docs/formats/spec.md)."""
        return self.compile(*args, **kwargs).spec

    def _body(self, arguments: Dict[str, Any]) -> Any:
        bound = self.signature.bind_partial()
        bound.arguments.update(arguments)
        return self.entrypoint(*bound.args, **bound.kwargs)

    def _arguments(
        self, args: Tuple[Any, ...], kwargs: Dict[str, Any], run: RunConfig
    ) -> Dict[str, Any]:
        """Arguments of the body: code, then run configuration, then the command line, then defaults."""
        known = self.signature.parameters
        try:
            given = dict(self.signature.bind_partial(*args, **kwargs).arguments)
        except TypeError as bad:
            wrong = next((k for k in kwargs if k not in known), None)
            hint = did_you_mean(wrong, known) if wrong else ""
            raise PipelineInterfaceError(
                f"Wrong arguments when calling pipeline '{self.name}': {bad}{hint}"
            ) from None
        coded = set(given)
        for key, value in run.parameters.items():
            self._check_parameter("run configuration", key)
            if key in coded and given[key] != value:
                raise RuntimeError(
                    f"Configured parameter '{key}' of pipeline '{self.name}' conflicts with the one passed in "
                    f"code: {value!r} is not {given[key]!r}; give it in one place"
                )
            given.setdefault(key, value)
        for key, text in self._command_line().items():
            if key not in known and key in all_parameters:
                continue  # another pipeline's
            self._check_parameter("--param", key)
            value = _parsed(text, known[key])
            if key in given and given[key] != value:
                where = "code" if key in coded else "run configuration"
                say(f"--param {key}={text} has no effect: the {where} gives {given[key]!r}")
            given.setdefault(key, value)
        for key, value in self._recorded().items():
            given.setdefault(key, value)
        for key, parameter in known.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) or key in given:
                continue
            if parameter.default is parameter.empty:
                raise PipelineInterfaceError(
                    f"pipeline '{self.name}' needs the parameter '{key}'; pass it in the call, in the run "
                    f"configuration's parameters, or by --param {key}=VALUE"
                )
            given[key] = parameter.default
        return {k: given[k] for k in known if k in given}

    def _command_line(self) -> Mapping[str, Any]:
        if active_graph() is not None:
            return {}
        return run_options().get("params") or {}

    def _recorded(self) -> Mapping[str, Any]:
        """Arguments of the run that ``stoker resume`` wants taken up, if it is one of this pipeline."""
        from .._engine.launch import resuming

        run = resuming(self.name) if active_graph() is None else None
        return PipelineRun("", None, run).config.parameters if run is not None else {}

    def _check_parameter(self, where: str, key: str) -> None:
        if key not in self.signature.parameters:
            hint = did_you_mean(key, self.signature.parameters)
            raise PipelineInterfaceError(
                f"{where}: pipeline '{self.name}' has no parameter '{key}'{hint}"
            )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> PipelineRun:
        """Run the pipeline and return the finished run; inside of another pipeline, add its steps to that.

        Raises:
            PipelineFailed: the run failed; ``.run`` is its record.
            PipelineInterfaceError, StepInterfaceError: nothing was started.
        """
        outer = active_graph()
        if outer is not None:
            return cast("PipelineRun", self._inline(outer, args, kwargs))
        refuse_in_worker(f"pipeline '{self.name}'")
        registry.called = True
        compiled = self.compile(*args, **kwargs)
        if not compiled.spec["steps"]:
            warn(f"pipeline '{self.name}' has no steps, so there is nothing to run")
            return cast("PipelineRun", None)
        return self.launch(_named(compiled))

    def launch(
        self,
        compiled: Compiled,
        on_run: Optional[Callable[[str], None]] = None,
        arguments: Sequence[str] = (),
    ) -> PipelineRun:
        """Run a compiled document; see :func:`stoker._engine.launch.launch`."""
        from .._engine.launch import launch

        return launch(compiled, on_run, arguments)

    def _inline(self, outer: Graph, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        _, run = self.folded()
        arguments = self._arguments(args, kwargs, run)
        before = outer.scope
        outer.scope = (*before, self)
        try:
            return self._body(arguments)
        finally:
            outer.scope = before

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Build the graph and check it, without running anything."""
        self.compile(*args, **kwargs)

    def _later(self, what: str) -> NoReturn:
        raise NotYetError(f"pipeline '{self.name}': {what}")

    def build(self, *_: Any, **__: Any) -> NoReturn:
        """Not there yet."""
        self._later("building images comes with the container backends")

    def deploy(self, *_: Any, **__: Any) -> NoReturn:
        """Not there."""
        self._later("Stoker runs no service, so there is nothing to deploy to")

    def register(self, *_: Any, **__: Any) -> NoReturn:
        """Not there."""
        self._later("there is no server to register with; a run records its pipeline by itself")

    def replay(self, *_: Any, **__: Any) -> NoReturn:
        """Not there yet."""
        self._later("replay comes later; call the pipeline again, finished steps are reused")

    create_run_template = create_snapshot = register

    def __get__(self, instance: Any, owner: Any = None) -> Pipeline[P]:
        """Binds nothing. ``help`` takes an object with this method for a function."""
        return self

    def __reduce__(self) -> str:
        return self.__qualname__

    def __repr__(self) -> str:
        return f"<pipeline '{self.name}' of {self.__module__}:{self.__qualname__}>"


def _literals(arguments: Mapping[str, Any]) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for key, value in arguments.items():
        try:
            found[key] = to_json(value)
        except NotJsonError:
            continue
    return found


def _parsed(text: Any, parameter: inspect.Parameter) -> Any:
    """A ``--param`` text as the type that the parameter's annotation or default asks for."""
    import json

    wanted: Any = parameter.annotation
    if wanted is parameter.empty and parameter.default is not parameter.empty:
        wanted = type(parameter.default)
    if wanted in (str, "str"):
        return text if isinstance(text, str) else json.dumps(text)
    value = text
    if isinstance(text, str):
        try:
            value = json.loads(text)
        except ValueError:
            value = {"True": True, "False": False, "None": None}.get(text, text)
    if wanted in (float, "float") and type(value) is int:
        return float(value)
    for kind in (int, float, bool):
        if wanted in (kind, kind.__name__) and type(value) is not kind:
            raise PipelineInterfaceError(
                f"--param {parameter.name}={text}: the parameter takes {kind.__name__}"
            )
    return value


def refuse_in_worker(what: str) -> None:
    """Pipelines are called by programs, not by steps; raises InWorkerError."""
    if not may_start_runs():
        raise InWorkerError(
            f"{what} is called inside of a running step; call it inside of a pipeline's body instead, "
            "where its steps become part of that pipeline"
        )
    main = sys.modules.get("__mp_main__")
    if main is not None and main.__name__ == "__mp_main__":
        raise InWorkerError(
            f"{what} is called while a worker imports this file, so it would start itself again and again; "
            'put the call under `if __name__ == "__main__":`'
        )


def _named(compiled: Compiled) -> Compiled:
    """The document with the run's name filled in."""
    name = compiled.run_name
    if name is not None:
        now = time.time()
        stamp = time.strftime("%H_%M_%S", time.gmtime(now)) + f"_{int(now * 1e6) % 1000000:06d}"
        name = name.replace("{date}", time.strftime("%Y_%m_%d", time.gmtime(now)))
        name = name.replace("{time}", stamp)
        compiled = compiled._replace(run_name=name)
    return compiled


class PipelineContext:
    """The pipeline whose body is running: its name and configuration."""

    def __init__(self, pipeline: PipelineDefinition) -> None:
        layer, _ = pipeline.folded()
        self.name = pipeline.name
        self.enable_cache: Optional[bool] = (layer.get("cache") or {}).get("enabled")
        extra = dict(layer.get("extra") or {})
        given: Optional[Dict[str, Any]] = extra.pop("model", None)
        self.model = Model(**given) if given else None
        kept: Mapping[str, Any] = extra.pop("zenml", {})
        self.enable_step_logs: Optional[bool] = kept.get("enable_step_logs")
        self.enable_artifact_metadata: Optional[bool] = kept.get("enable_artifact_metadata")
        self.settings = {k: layer[k] for k in ("resources", "docker", "backend") if k in layer}
        self.hooks = {k: (layer.get("hooks") or {}).get(k) for k in HOOKS}
        self.extra = extra


def get_pipeline_context() -> PipelineContext:
    """The context of the pipeline whose body is running.

    Raises:
        RuntimeError: no pipeline is being built.

    Example::

        @pipeline
        def digits():
            print(get_pipeline_context().name)
    """
    graph = active_graph()
    if graph is None:
        if in_task():
            raise RuntimeError("Inside a step use get_step_context() instead of the pipeline's.")
        raise RuntimeError(
            "No active pipeline context: get_pipeline_context() works in the body of a pipeline"
        )
    return PipelineContext(graph.pipeline)


@overload
def pipeline(_func: Callable[P, Any]) -> Pipeline[P]: ...


@overload
def pipeline(
    _func: None = None, **options: Unpack[PipelineOptions]
) -> Callable[[Callable[P, Any]], Pipeline[P]]: ...


def pipeline(
    _func: Optional[Callable[..., Any]] = None, **options: Any
) -> Union[Pipeline[...], Callable[[Callable[..., Any]], Pipeline[...]]]:
    """Make a pipeline of a function; use it bare or with keywords.

    Args:
        name: the pipeline's name; else the function's.
        execution_mode: :class:`ExecutionMode`: what happens to the rest when a step fails
            (default ``continue_on_failure``: steps that don't need the failed one still run).
        enable_cache, cache_policy, settings, retry, timeout, grace: defaults for every step, see
            :func:`stoker.step`.
        timeout_notice, keep_checkpoints, isolation, environment, secrets: the same.
        on_start, on_success, on_failure, on_end: the same.
        tags, extra, model, description, substitutions: kept with the run's record.
        dynamic: not yet; True is an error that says so.

    A program that seeds ``random``, ``numpy.random`` or torch before it calls the pipeline draws the same numbers in
    each step at every run; each step has a stream of its own, and a retry draws what the first attempt drew.

    Raises:
        SettingsError: an unknown keyword or a value out of range.

    Example::

        @pipeline
        def digits(lr: float = 0.1):
            train(load(), lr=lr)

        run = digits(lr=0.2)
    """
    if _func is not None:
        return Pipeline(_func, options)
    return lambda func: Pipeline(func, options)
