"""``@pipeline`` and ``@step`` as ZenML's programs see them: what a run returns, in which order its
steps run, and which versions of models they belong to."""

from __future__ import annotations

import contextlib
import inspect
import re
import time
from typing import Any, Callable, Collection, Dict, List, Mapping, Optional, Sequence, Union

from .._base import registry
from .._base.binary import run_options
from .._base.errors import SettingsError, StepInterfaceError, say
from .._decorators.pipeline import Pipeline
from .._decorators.step import Step
from .._definition.graph import active_graph
from .._definition.layers import PIPELINE_KEYS, STEP_KEYS
from .._dialect import Tag
from .._engine.client import PipelineRun
from .._engine.compiled import Compiled
from .._engine.config import RunConfiguration
from .._engine.failures import PipelineFailed
from . import (
    around,
    connected,
    errors,
    hooks,
    lazy,
    lifetime,
    models,
    replay,
    schedules,
    secrets,
    snapshots,
    tags,
    targets,
    whole,
)
from .configuration import PipelineConfiguration, StepConfiguration
from .dynamic import exception_of, running_body, runs_dynamic
from .order import in_order, one_by_one
from .responses import Source
from .runs import PipelineResponse, PipelineRunResponse, get_pipeline
from .stacks import active_name
from .targets import tagged
from .templates import filled, run_name
from .utilities import resolve

# What kinds of steps do with their part of a document: (pipeline, name, part).
to_finish: List[Callable[[Any, str, Dict[str, Any]], None]] = []


class ZenPipeline(Pipeline[...]):
    """A pipeline whose call returns what ZenML's does."""

    takes_schedules = True
    is_dynamic = False
    prepared: Any = ((), {})
    _replays: Optional[replay.Plan] = None
    _invocations: Mapping[str, Any] = {}
    _body_model: Any = None  # as the body had it: a version that the body made is the run's
    hooks: Mapping[str, Any] = {}  # around the run: on_init, on_init_kwargs, on_cleanup

    def _apply(self, options: Mapping[str, Any], merging: bool) -> None:
        super()._apply(self._without_hooks(options), merging)

    def with_options(self, *args: Any, **options: Any) -> Any:
        """As :class:`Pipeline` does."""
        made = super().with_options(*args, **self._without_hooks(options, keep=False))
        made._without_hooks(options)
        return made

    def _without_hooks(self, options: Mapping[str, Any], keep: bool = True) -> Dict[str, Any]:
        """The options without the hooks around the run, which the pipeline keeps itself."""
        named = {_LIFE_NAMES.get(key, key): value for key, value in options.items()}
        given = {k: named.pop(k) for k in lifetime.OPTIONS if k in named}
        if keep:
            _check_life(given)
            self.hooks = {**self.hooks, **{k: v for k, v in given.items() if v is not None}}
        return named

    def compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """As :class:`Pipeline` does, with ZenML's order, and with what artifacts are called."""
        made = super().compile(*args, **kwargs)
        if not made.spec["steps"]:
            raise SettingsError(
                f"Pipeline '{self.name}' cannot be compiled because it has no steps: call a step in it"
            )
        in_order(made.spec)
        self.complete(made.spec, self._invocations)
        return made

    def complete(self, spec: Dict[str, Any], invocations: Mapping[str, Any]) -> None:
        """Write into a document what its steps' artifacts are called, and what started it."""
        now = time.time()
        place = str(run_options().get("with") or active_name()).partition(":")[0]
        extra = spec.get("extra") or {}
        kept = {**(extra.get("zenml") or {}), "stack": place}
        if whole.started_by:
            kept["started_by"] = whole.started_by
        life = lifetime.told(self.hooks)
        kept.update(life)
        spec["extra"] = {**extra, "zenml": kept}
        parts = around.parts_of(place)
        for name, step in spec["steps"].items():
            called = invocations[name].step
            known = {**_substitutions(spec), **_substitutions(step)}
            templates: Dict[str, str] = getattr(called, "templates", {})
            names = {k: filled(v, known, now) for k, v in templates.items()}
            kept = {k: _kept(o.config) for k, o in called.outputs.items()}
            more: Dict[str, Any] = {"outputs": {k: v for k, v in kept.items() if v}, "names": names}
            more.update(life)
            if hasattr(called.entrypoint, "__self__"):
                more["doc"] = inspect.getdoc(called)  # of the class: its source is the method's
            if any(more.values()):
                extra = step.get("extra") or {}
                more = {k: v for k, v in more.items() if v}
                step["extra"] = {**extra, "zenml": {**(extra.get("zenml") or {}), **more}}
            connected.check(name, step)
            if parts:
                around.take(step, parts)
            for finish in to_finish:
                finish(self, name, step)
            _keep_result(step)
            if _waits(step):
                # what it gets is known when it starts, so a key made before says nothing
                step["cache"] = {"enabled": False}
        _keep_result(spec)

    def _body(self, arguments: Dict[str, Any]) -> Any:
        done = super()._body(arguments)
        graph = active_graph()
        if graph is not None and self._replays is not None:
            replay.change(graph, self._replays)
        self._invocations = {} if graph is None else graph.invocations
        self._body_model = None if graph is None else vars(graph).get("body_model")
        return done

    def replay(
        self,
        pipeline: Any = None,
        pipeline_run: Any = None,
        skip: Optional[Collection[str]] = None,
        skip_successful_steps: bool = False,
        input_overrides: Optional[Mapping[str, Any]] = None,
        step_input_overrides: Optional[replay.Overrides] = None,
        step_default_input_overrides: Optional[replay.Overrides] = None,
        debug: bool = False,
    ) -> Any:
        """Run it again with the parameters of an earlier run, the latest if none is named.

        Skipped steps don't run: the others get what these gave in that run.

        Args:
            pipeline, pipeline_run: whose latest run, or which one.
            skip: steps to skip; ``skip_successful_steps``: all that ended well.
            input_overrides: parameters of the pipeline.
            step_input_overrides: step of the run → input → value or artifact;
                ``step_default_input_overrides``: of all calls of a step.
            debug: refused where another stack than this machine is active.

        Raises:
            ValueError: there is no run to replay.
            StepInterfaceError: a step can't be skipped, or what is overridden isn't there.
            SettingsError: ``debug``, and another stack is active.
        """
        original = replay.original_run(pipeline or self.name, pipeline_run)
        plan = replay.plan_of(
            original,
            skip,
            skip_successful_steps,
            step_input_overrides,
            step_default_input_overrides,
        )
        if debug and active_name() != "default":
            raise SettingsError(
                f"replay(debug=True) runs on this machine, but stack '{active_name()}' is active; "
                "activate 'default' before it"
            )
        made = self.with_options()
        made._replays = plan
        given = {
            k: v for k, v in (original.config.parameters or {}).items() if k in self._missing()
        }
        return made(**{**given, **(input_overrides or {})})

    def _missing(self) -> List[str]:
        """Its parameters that neither a default nor a configuration gives."""
        _, run = self.folded()
        known = self.signature.parameters.values()
        return [p.name for p in known if p.default is p.empty and p.name not in run.parameters]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it and return the finished run; inside of another pipeline, add its steps to that."""
        if running_body() is not None:
            raise RuntimeError(
                f"pipeline '{self.name}' is called in the body of a dynamic pipeline, which can call "
                "dynamic ones only; give it dynamic=True"
            )
        if active_graph() is not None:
            return super().__call__(*args, **kwargs)
        if self._is_scheduled(args, kwargs):
            return None
        connected.prepare()
        run: Optional[PipelineRun] = super().__call__(*args, **kwargs)
        return None if run is None else PipelineRunResponse(run.refresh())

    def _is_scheduled(self, args: Any, kwargs: Any) -> bool:
        """Whether it has a schedule, which is written then."""
        whole.refuse_import(f"pipeline '{self.name}' is called")
        _, run = self.folded()
        if run.schedule is None or run_options().get("plan"):
            return False
        registry.called = True
        name = run.schedule.name or run_name(run.run_name, self.name, _substitutions(self.layer))
        for line in schedules.create(self, (args, kwargs), run.schedule, name):
            say(line)
        return True

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Check the arguments; :meth:`create_snapshot` keeps them."""
        super().prepare(*args, **kwargs)
        self.prepared = (args, kwargs)

    def create_snapshot(
        self,
        name: str,
        description: Optional[str] = None,
        replace: Optional[bool] = None,
        tags: Optional[List[Any]] = None,
    ) -> Any:
        """Keep it, with its code and configuration, under a name, from which
        ``Client().trigger_pipeline`` starts runs.

        Raises:
            EntityExistsError: the name is taken, and not to be replaced.
        """
        return snapshots.create(self, name, description, bool(replace), tags)

    def create_run_template(self, name: str, **given: Any) -> Any:
        """The same, as a run template; raises EntityExistsError."""
        made = snapshots.create(self, name, given.get("description"), False, given.get("tags"))
        return snapshots.RunTemplateResponse(made.record)

    def launch(
        self,
        compiled: Compiled,
        on_run: Optional[Callable[[str], None]] = None,
        arguments: Sequence[str] = (),
    ) -> PipelineRun:
        """Run the document; the versions of its models learn of the run when it begins."""
        options = run_options()
        if not options.get("plan") and not options.get("resume"):
            given = compiled.run_name or options.get("run_name")
            known = _substitutions(compiled.spec)
            compiled = compiled._replace(run_name=run_name(given, self.name, known))
        links = _bind_models(compiled.spec, self._body_model)
        _make_tags(compiled.spec)

        began: List[str] = []

        def begun(run: str) -> None:
            began.append(run)
            for version, steps in links:
                version.link_run(run, steps)
            tags.begin_run(run, compiled.spec.get("tags") or ())
            whole.begun(run)

        words = [*arguments, *one_by_one(compiled.spec)]
        try:
            with contextlib.ExitStack() as within:
                within.enter_context(secrets.lending(secrets.lend(compiled.spec)))
                if not options.get("plan"):
                    variables = compiled.spec.get("environment") or {}
                    within.enter_context(lifetime.living(self.name, self.hooks, variables))
                return super().launch(compiled, begun, words)
        except PipelineFailed as failed:
            if compiled.spec.get("mode") != "fail_fast" or failed.run is None:
                raise
            some = [s for s in failed.run.steps.values() if s.status == "failed"]
            if not some:
                raise
            raise exception_of(some[0].body.get("error") or {}, failed) from failed
        finally:
            for run in began:
                targets.settle(run)
                if links:
                    models.settle(run)

    @property
    def configuration(self) -> PipelineConfiguration:
        """Its options, with those of run configurations."""
        layer, run = self.folded()
        body = {"name": self.name, "parameters": run.parameters}
        return PipelineConfiguration(RunConfiguration(body, layer), self.name, {})

    @property
    def enable_cache(self) -> Optional[bool]:
        """Whether results of its steps are reused; None: not said."""
        given: Optional[bool] = self.configuration.enable_cache
        return given

    def write_run_configuration_template(self, path: str, stack: Any = None) -> None:
        """Write a run configuration whose lines are comments, with every key that it can have."""
        try:
            steps: List[str] = list(self.compile().spec["steps"])
        except ValueError:  # a parameter has no default
            steps = []
        lines = [f"# {key}:" for key in sorted({*PIPELINE_KEYS, "run_name", "parameters"})]
        lines += ["# steps:"] if steps else []
        for name in steps:
            lines += [f"#   {name}:", *(f"#     {key}:" for key in sorted(STEP_KEYS))]
        with open(path, "w", encoding="utf-8") as out:
            out.write("\n".join(lines) + "\n")

    @property
    def model(self) -> PipelineResponse:
        """What the client shows of it.

        Raises:
            RuntimeError: it has never run.
        """
        try:
            return get_pipeline(self.name)
        except KeyError:
            raise RuntimeError(f"pipeline '{self.name}' has never been run") from None

    @property
    def source_code(self) -> str:
        """The source of its function."""
        return inspect.getsource(self.entrypoint)

    def resolve(self) -> Source:
        """Where its function is."""
        return resolve(self.entrypoint)

    @property
    def invocations(self) -> Mapping[str, Any]:
        """Name → call of a step, as the body made them last."""
        return self._invocations

    @property
    def is_prepared(self) -> bool:
        """Whether :meth:`prepare` has been called."""
        return bool(self._invocations)

    def register(self, *_: Any, **__: Any) -> Any:
        """What the client shows of it; a run registers its pipeline by itself."""
        return PipelineResponse(self.name)


class DynamicPipeline(ZenPipeline):
    """A pipeline whose body runs with the values that its steps give."""

    is_dynamic = True

    def __init__(self, func: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.depends_on: List[Any] = list(options.get("depends_on") or ())
        left = {k: v for k, v in options.items() if k not in _DYNAMIC}
        super().__init__(func, left)

    def configure(self, merge: bool = True, **options: Any) -> DynamicPipeline:
        """As :class:`Pipeline` does."""
        given = {k: options.pop(k) for k in _DYNAMIC if k in options}
        if given.get("depends_on") is not None:
            self.depends_on = given["depends_on"]
        return super().configure(merge, **options)

    def compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """Refused: there is no document before the body has run.

        Raises:
            SettingsError: always.
        """
        raise SettingsError(
            f"pipeline '{self.name}' is dynamic: its steps are known only while it runs, so it has "
            "no plan and no document; run it"
        )

    def prepare(self, *args: Any, **kwargs: Any) -> None:
        """Check the arguments."""
        _, run = self.folded()
        self._arguments(args, kwargs, run)
        self.prepared = (args, kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the body and its steps, and return the finished run; in another dynamic pipeline's
        body, what it returned.

        Raises:
            Exception: what the body raised; a step's own exception where the body doesn't catch it.
        """
        outer = running_body()
        if outer is not None:
            return outer.child(self, args, kwargs).result()
        if active_graph() is not None:
            raise RuntimeError(
                f"pipeline '{self.name}' is dynamic, so another pipeline's body can call it only "
                "if that is dynamic too"
            )
        if self._is_scheduled(args, kwargs):
            return None
        connected.prepare()
        return runs_dynamic(self, args, kwargs)

    def submit(self, *args: Any, after: Any = None, start_after: Any = None, **kwargs: Any) -> Any:
        """Run it in another dynamic pipeline's body; returns a future, which has ended already.

        Raises:
            RuntimeError: no dynamic pipeline's body is running.
        """
        outer = running_body()
        if outer is None:
            raise RuntimeError(
                f"pipeline '{self.name}' can be submitted in the body of a dynamic pipeline only"
            )
        outer.settle([after, start_after])
        return outer.child(self, args, kwargs)

    def embed(self, *args: Any, **kwargs: Any) -> Any:
        """Run its steps as steps of the dynamic pipeline whose body is running; returns what its
        body returns.

        Raises:
            RuntimeError: no dynamic pipeline's body is running.
        """
        if running_body() is None:
            raise RuntimeError(
                f"pipeline '{self.name}' can be embedded in the body of a dynamic pipeline only"
            )
        return self.entrypoint(*args, **kwargs)

    def told_name(self, run: Optional[str]) -> Optional[str]:
        """The run's name with its placeholders filled in; without a name the given one."""
        return self._told_name or run

    def bind_models(self, spec: Dict[str, Any], known: Dict[str, Any]) -> None:
        """Write the versions of models into a document; ``known`` has those of earlier parts."""
        for part in [spec, *spec["steps"].values()]:
            given = (part.get("extra") or {}).get("model")
            if given:
                key = repr(sorted(given.items(), key=str))
                if key not in known:
                    words = {**_substitutions(spec), **_substitutions(part)}
                    known[key] = models.resolve(given, known=words)
                _tell(part, known[key])

    _told_name: Optional[str] = None


def _check_hooks(where: str, options: Mapping[str, Any]) -> None:
    """Raises HookValidationException if a hook needs arguments that it doesn't get."""
    for key, most in (("on_start", 0), ("on_success", 0), ("on_failure", 1), ("on_end", 1)):
        hook = options.get(key)
        if not callable(hook):
            continue
        known = inspect.signature(hook).parameters.values()
        needs = [p.name for p in known if p.default is p.empty and p.kind not in _ANY]
        if len(needs) > most:
            raise errors.__getattr__("HookValidationException")(
                f"{where}: Failed to validate hook arguments: {key} gets "
                f"{'no argument' if most == 0 else 'the exception or nothing'}, but "
                f"{getattr(hook, '__name__', hook)} needs {', '.join(needs)}"
            )


def _check_life(options: Mapping[str, Any]) -> None:
    """Raises HookValidationException if a hook around the run doesn't take what it gets."""
    for key, given in (("on_init", options.get("on_init_kwargs")), ("on_cleanup", None)):
        hook = options.get(key)
        try:
            if callable(hook):
                inspect.signature(hook).bind(**(given or {}))
        except TypeError as bad:
            raise errors.__getattr__("HookValidationException")(
                f"Failed to validate hook arguments for {key}: {bad}"
            ) from None


_ANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_DYNAMIC = ("dynamic", "depends_on")
_LIFE_NAMES = {"init_hook_source": "on_init", "cleanup_hook_source": "on_cleanup"}


class ZenStep(Step[..., Any]):
    """A step whose outputs may be called by templates, ``Annotated[int, "{date}_rows"]``, and have
    any characters in their names.

    A subclass with a method ``entrypoint`` is a step too; its objects take the options.

    Attributes:
        templates: output → the template of its artifact's name.
    """

    def __init__(
        self,
        func: Optional[Callable[..., Any]] = None,
        options: Optional[Mapping[str, Any]] = None,
        **more: Any,
    ) -> None:
        cls = type(self)
        given = {**(options or {}), **more}
        if func is None:
            written = vars(cls).get("entrypoint") or getattr(cls, "entrypoint", None)
            if written is None:
                raise StepInterfaceError(
                    f"{cls.__name__} is no step: it has no method 'entrypoint'"
                )
            func = written.__get__(self)
            given["name"] = given.get("name") or cls.__name__
        assert func is not None
        super().__init__(func, given)
        if hasattr(func, "__self__"):
            self.__name__, self.__qualname__, self.__doc__ = (
                cls.__name__,
                cls.__qualname__,
                cls.__doc__,
            )
        self.templates: Dict[str, str] = {}
        outputs = {}
        for name, output in self.outputs.items():
            key = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
            while key != name and (key in outputs or key in self.outputs):
                key += "_"
            if key != name:
                self.templates[key] = name
            outputs[key] = output
        self.outputs = outputs

    def _apply(self, options: Mapping[str, Any], merging: bool) -> None:
        _check_hooks(f"step '{self.name}'", options)
        super()._apply(options, merging)

    @property
    def configuration(self) -> StepConfiguration:
        """Its options."""
        native = RunConfiguration(
            {"name": self.name, "parameters": self.parameters}, {}, self.layer
        )
        return StepConfiguration(native, self.name, {})

    @property
    def source_object(self) -> Any:
        """Its function, or its class."""
        own = getattr(self.entrypoint, "__self__", None)
        return self.entrypoint if own is None else type(own)

    @property
    def source_code(self) -> str:
        """The source of its function."""
        return inspect.getsource(self.entrypoint)

    @property
    def docstring(self) -> Optional[str]:
        """The docstring of its function."""
        return self.entrypoint.__doc__

    def call_entrypoint(self, *args: Any, **kwargs: Any) -> Any:
        """Call its function."""
        return self.entrypoint(*args, **kwargs)

    def resolve(self) -> Source:
        """Where its function is."""
        return resolve(self.entrypoint)

    @property
    def enable_cache(self) -> Optional[bool]:
        """Whether its result is reused; None: not said."""
        given: Optional[bool] = self.configuration.enable_cache
        return given

    def replay(
        self,
        pipeline: Any = None,
        pipeline_run: Any = None,
        step_run_id: Any = None,
        invocation_id: Optional[str] = None,
        input_overrides: Optional[Mapping[str, Any]] = None,
        debug: bool = False,
    ) -> Any:
        """Run it alone with the inputs that it had in an earlier run; returns what it returns.

        Args:
            pipeline, pipeline_run, step_run_id: a pipeline's latest run, a run, or the step's.
            invocation_id: the step's name in the run.
            input_overrides: input → value instead.
            debug: has no effect: a step alone runs where it always does.

        Raises:
            ValueError: it isn't said which, or there is none.
        """
        return replay.replay_step(
            self, pipeline, pipeline_run, step_run_id, invocation_id, input_overrides
        )

    def submit(self, *args: Any, id: Optional[str] = None, **kwargs: Any) -> Any:
        """Begin the step in a dynamic pipeline's body; returns a :class:`StepFuture`.

        Raises:
            RuntimeError: no such body is running.
        """
        after = [kwargs.pop("after", None), kwargs.pop("start_after", None)]
        body = running_body()
        if body is None:
            return super().submit()
        return body.submit(self, args, kwargs, id, after)

    def map(self, *args: Any, **kwargs: Any) -> Any:
        """Begin it once for each item of what it takes; raises as :meth:`submit`."""
        return self._map(args, kwargs, product=False)

    def product(self, *args: Any, **kwargs: Any) -> Any:
        """Begin it once for each combination of items; raises as :meth:`submit`."""
        return self._map(args, kwargs, product=True)

    def _map(self, args: Any, kwargs: Dict[str, Any], product: bool) -> Any:
        after = [kwargs.pop("after", None), kwargs.pop("start_after", None)]
        body = running_body()
        if body is None:
            return super().map()
        return body.map(self, args, kwargs, after, product)


def pipeline(_func: Optional[Callable[..., Any]] = None, **options: Any) -> Any:
    """Make a pipeline of a function; see :func:`stoker.pipeline`."""
    kind = DynamicPipeline if options.get("dynamic") else ZenPipeline
    if _func is not None:
        return kind(_func, options)
    return lambda func: kind(func, options)


def step(_func: Optional[Callable[..., Any]] = None, **options: Any) -> Any:
    """Make a step of a function; see :func:`stoker.step`."""
    if _func is not None:
        return ZenStep(_func, options)
    return lambda func: ZenStep(func, options)


def _substitutions(part: Mapping[str, Any]) -> Dict[str, str]:
    kept = (part.get("extra") or {}).get("zenml") or {}
    return dict(kept.get("substitutions") or {})


def _keep_result(part: Dict[str, Any]) -> None:
    """Without ``enable_cache`` a step always runs, but later ones may reuse what it gave."""
    cache = part.get("cache") or {}
    if "enabled" in cache:
        part["cache"] = {**cache, "enabled": True, "reuse": cache["enabled"]}


def _waits(step: Mapping[str, Any]) -> bool:
    values = [v.get("value") for v in (step.get("inputs") or {}).values() if isinstance(v, dict)]
    return any(isinstance(v, dict) and lazy.MODEL_KEY in v for v in values)


def _kept(config: Mapping[str, Any]) -> Dict[str, Any]:
    kind = config.get("artifact_type")
    return {} if kind is None else {"artifact_type": str(getattr(kind, "value", kind))}


# ---------------------------------------------------------------------------- models


def _bind_models(spec: Dict[str, Any], of_body: Any = None) -> List[Any]:
    """Make the versions that a document's models mean, and write them into it; ``of_body`` is the
    pipeline's model in its body, which may have made its version already.

    Returns (version, the steps that belong to it; None: all).
    """
    links: List[Any] = []
    whole = (spec.get("extra") or {}).get("model")
    if whole:
        links.append((_bind(spec, spec, of_body), None))
    made: Dict[str, Any] = {}
    for name, step in spec["steps"].items():
        given = (step.get("extra") or {}).get("model")
        if not given or given == whole:
            continue
        key = repr(sorted(given.items(), key=str))
        if key not in made:
            made[key] = (_bind(step, spec), [])
            links.append(made[key])
        else:
            _tell(step, made[key][0])
        made[key][1].append(name)
    return links


def _bind(
    part: Dict[str, Any], spec: Dict[str, Any], of_body: Any = None
) -> models.ModelVersionResponse:
    known = {**_substitutions(spec), **_substitutions(part)}
    made: Optional[models.ModelVersionResponse] = vars(of_body).get("_made") if of_body else None
    version = made or models.resolve(part["extra"]["model"], known=known)
    _tell(part, version)
    return version


def _tell(part: Dict[str, Any], version: models.ModelVersionResponse) -> None:
    """Write the version into a document's part; what the definition holds stays as it is."""
    told = {"version": version.name, "version_id": str(version.id)}
    part["extra"] = {**part["extra"], "model": {**part["extra"]["model"], **told}}


# ---------------------------------------------------------------------------- tags


def _make_tags(spec: Mapping[str, Any]) -> None:
    """Make the tags of a document that say more than their names."""
    told = whole.kept_of(spec).get("tags") or {}
    if told:
        tags.make(Tag(name, **said) for name, said in told.items())


def add_tags(tags: Union[str, List[Any]], **target: Any) -> None:
    """Attach tags; see :func:`_change`."""
    _change("add_tags", tags, target, add=True)


def remove_tags(tags: Union[str, List[Any]], **target: Any) -> None:
    """Remove tags; see :func:`_change`."""
    _change("remove_tags", tags, target, add=False)


def _change(caller: str, given: Any, target: Dict[str, Any], add: bool) -> None:
    """Change the tags of what ``target`` names: ``pipeline``, ``run``, ``artifact``,
    ``artifact_version_id``, ``artifact_name`` with ``artifact_version``, ``infer_artifact``; with
    none of them, those of the running step's run.

    Raises:
        ValueError: it names nothing, and no step is running; it names several objects; a tag
            cascades, which only one of a pipeline does.
        KeyError: there is no such object.
    """
    several = [given] if isinstance(given, str) or hasattr(given, "name") else list(given or ())
    target = {k: v for k, v in target.items() if v not in (None, False)}
    named = {"artifact_name" if k in _OF_NAME else k for k in target}
    if len(named) > 1:
        raise ValueError(f"{caller}: {' and '.join(sorted(named))} name several objects; name one")
    if add:
        if any(getattr(one, "cascade", None) for one in several):
            raise ValueError(f"{caller}: a tag cascades only from @pipeline(tags=[…])")
        tags.make(several)
    tagged(caller, tags.named(several), target, add)


_OF_NAME = ("artifact_version", "infer_artifact")


registry.connected["experiment_tracker"] = connected.is_connected
registry.around.append(connected.tracked)
registry.hooked.append(hooks.of_step)
