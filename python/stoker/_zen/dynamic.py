"""Dynamic pipelines: the body runs in this process, and its calls of steps run at once.

Each call is a run of the engine of its own (those of one ``map`` are one run), so the body can use
what earlier steps gave. The client shows them as one run (``whole.py``).
"""

from __future__ import annotations

import itertools
import os
import re
import signal
from typing import (
    Any,
    Dict,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from .._base import registry
from .._base.binary import find, run_options
from .._base.errors import SettingsError, StepInterfaceError, warn
from .._decorators import pipeline as front
from .._definition import graph as graphs
from .._definition.graph import Graph, Invocation, active_graph, bind, check_interface, literal
from .._definition.jsonable import NotJsonError
from .._definition.layers import RunConfig
from .._definition.outputs import interface_of
from .._definition.types import ExecutionMode, ExternalArtifact
from .._engine import launch as engine
from .._engine.client import PipelineRun
from .._engine.compiled import with_seeds
from .._engine.emit import compile_graph
from .._engine.failures import PipelineFailed
from . import errors, lifetime, secrets, whole
from .futures import (
    KEY,
    ArtifactFuture,
    Call,
    MapResultsFuture,
    OutputArtifact,
    PipelineFuture,
    StepFuture,
    Unmapped,
)
from .models import settle
from .stacks import chosen_place
from .templates import run_name

Futures = (StepFuture, ArtifactFuture)


def running_body() -> Optional[Body]:
    """The body of a dynamic pipeline that is running in this process, or None."""
    graph = active_graph()
    return graph if isinstance(graph, Body) else None


class Failure(NamedTuple):
    """Why a dynamic run fails although its body goes on."""

    shown: str
    error: BaseException
    began: bool


class Part:
    """Calls that one run of the engine makes."""

    def __init__(self, body: Body, calls: List[Call], needs: Set[Part], alone: bool) -> None:
        self.body, self.calls, self.alone = body, calls, alone
        self.ended: bool = False
        self.needs: Set[Part] = {one for one in needs if not one.ended}
        self.pid: Optional[int] = None
        self.reader = -1
        self.watch: Any = None
        for call in calls:
            call.part = self


class Body(Graph):
    """The running body of a dynamic pipeline."""

    def __init__(self, pipeline: Any, run: RunConfig, arguments: Dict[str, Any]) -> None:
        super().__init__(pipeline)
        self.pipeline: Any = pipeline
        self.layer, _ = pipeline.folded()
        self.run_config = run
        self.arguments = arguments
        self.head: Optional[str] = None
        self.waiting: List[Part] = []
        self.live: List[Part] = []
        self.failed: Optional[Failure] = None  # the first that was submitted
        self.models: Dict[str, Any] = {}
        self.of_steps: Dict[str, List[str]] = {}
        self._maps: Dict[str, int] = {}
        self._calls: Dict[str, Call] = {}
        self._last: Set[str] = set()  # the last call whose end the body waited for
        given = run_options().get("max_workers")
        self.most = int(given) if given else max(2, os.cpu_count() or 2)

    # ------------------------------------------------------------------ calls

    def add(
        self,
        step: Any,
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        id: Optional[str],
        after: Any,
    ) -> Any:
        """Run a step and return its output, a tuple of its outputs, or None."""
        future = self.submit(step, args, kwargs, id, after, alone=False)
        result = future.result()
        self._last = {future.invocation_id}
        return result

    def submit(
        self,
        step: Any,
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
        id: Optional[str],
        after: Any,
        alone: bool = True,
    ) -> StepFuture:
        """Begin a step as soon as what it takes is there."""
        check_interface(step)
        given = _bound(step, args, kwargs)
        self._refuse_missing(step, given)
        name = self._name(step, id)
        self.invocations[name] = Invocation(name, step, {}, [], ())
        call = self._called(Call(name, id or name, step, given), after)
        part = Part(self, [call], self._needs([*given.values(), after]), alone)
        self._begin(part)
        return StepFuture(call)

    def map(
        self, step: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], after: Any, product: bool
    ) -> MapResultsFuture:
        """Begin a step once for each item of what it takes."""
        check_interface(step)
        given = _bound(step, args, kwargs)
        base = self._map_name(step.name)
        try:
            self._settle([*given.values(), after])
            rows = _rows({k: _awaited(v) for k, v in given.items()}, product)
        except Exception as bad:  # raised where the results are asked for, and at the end
            return MapResultsFuture(f"map:{base}", [], self._not_begun(base, bad))
        calls = []
        for i, row in enumerate(rows):
            self._refuse_missing(step, row)
            name = self._free(f"map_{base}_{i}")
            self.invocations[name] = Invocation(name, step, {}, [], ())
            calls.append(self._called(Call(name, f"map:{base}:{i}", step, row), after))
        self._begin(Part(self, calls, set(), alone=True))
        return MapResultsFuture(f"map:{base}", [StepFuture(call) for call in calls])

    def _called(self, call: Call, after: Any) -> Call:
        """Note a call, and which ones come before it besides those of which it takes outputs."""
        self._calls[call.name] = call
        call.after = {one.shown for one in _calls([after])}
        call.implied = self._last
        return call

    def _before(self, call: Call, came: Mapping[str, Any]) -> List[str]:
        """What ``spec.upstream_steps`` names besides the inputs' steps: also the last one before it,
        unless one of the others came after that."""
        makers = [self._calls[place[1]] for some in came.values() for place in some]
        named = [one for one in self._calls.values() if one.shown in call.after]
        known = {name for one in (*makers, *named) if one.part.alone for name in one.implied}
        return sorted(call.after | (call.implied - known))

    def _not_begun(self, shown: str, error: BaseException) -> BaseException:
        if self.failed is None:
            self.failed = Failure(shown, error, began=False)
        return error

    def _map_name(self, name: str) -> str:
        number = self._maps[name] = self._maps.get(name, 0) + 1
        return name if number == 1 else f"{name}_{number}"

    def _free(self, name: str) -> str:
        name = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        while name in self.invocations:
            name += "_"
        return name

    def _refuse_missing(self, step: Any, given: Mapping[str, Any]) -> None:
        known = {**step.parameters, **given}
        for key, parameter in step.signature.parameters.items():
            if key not in known and parameter.default is parameter.empty:
                raise StepInterfaceError(
                    f"step '{step.name}' is called without its input '{key}'; give it: "
                    f"{step.name}({key}=...)"
                )

    def child(self, pipeline: Any, args: Any, kwargs: Any) -> PipelineFuture:
        """Run another dynamic pipeline to its end as a run of its own."""
        self._settle([*args, *kwargs.values()])
        args = [_awaited(one) for one in args]
        kwargs = {k: _awaited(v) for k, v in kwargs.items()}
        try:
            with outside():
                run = pipeline(*args, **kwargs)
        except Exception as bad:
            return PipelineFuture(pipeline.name, None, bad)
        return PipelineFuture(pipeline.name, run, None)

    def settle(self, after: Any) -> None:
        """Wait for futures."""
        self._settle([after])

    # ------------------------------------------------------------------ parts

    def _needs(self, values: Sequence[Any]) -> Set[Part]:
        return {call.part for call in _calls(values) if call.part is not None}

    def _settle(self, values: Sequence[Any]) -> None:
        for call in _calls(values):
            _as_input(call)

    def _begin(self, part: Part) -> None:
        if part.alone and self.failed is not None and self._stops():
            stopped = errors.__getattr__("RunStoppedException")
            for call in part.calls:
                call.error = stopped(
                    f"step '{call.shown}' isn't started, because step '{self.failed.shown}' failed"
                )
            part.ended = True
            return
        self.waiting.append(part)
        if part.alone:
            self.look()
        else:
            self.finish(part)

    def _stops(self) -> bool:
        mode = str(self.layer.get("mode") or ExecutionMode.STOP_ON_FAILURE)
        return mode != "continue_on_failure"

    def look(self) -> None:
        """Take in parts that have ended, and start those that may."""
        for part in list(self.live):
            if engine.has_ended(part.reader):
                self._take_in(part)
        self._start_more()

    def _start_more(self) -> None:
        for part in list(self.waiting):
            part.needs = {one for one in part.needs if not one.ended}
            if part in self.waiting and not part.needs and len(self.live) < self.most:
                self._start(part)

    def finish(self, part: Part) -> None:
        """Return when a part has ended."""
        self.look()
        while not part.ended:
            if part in self.waiting:
                blocked = next(iter(part.needs), None)
                if blocked is not None:
                    self.finish(blocked)
                elif self.live:
                    self._take_in(self.live[0])
                self._start_more()
            else:
                self._take_in(part)
        self._start_more()

    def finish_all(self) -> None:
        """Return when all parts have ended."""
        while self.waiting or self.live:
            self.finish((self.live or self.waiting)[0])

    def give_up(self, error: BaseException) -> None:
        """Let what runs end, and keep why the body did."""
        self.waiting.clear()
        for part in list(self.live):
            if not isinstance(error, Exception) and part.pid is not None:
                engine._signal(part.pid, signal.SIGTERM)
            try:
                self._take_in(part)
            except Exception as other:
                warn(f"a step that was running: {other}")
        if self.head is not None:
            if self.models:
                settle(self.head)
            ended = "failed" if isinstance(error, Exception) else "cancelled"
            whole.end(self.head, ended, {}, f"{type(error).__name__}: {error}")

    def _start(self, part: Part) -> None:
        self.waiting.remove(part)
        try:
            compiled = self._compile(part)
        except BaseException as bad:
            part.ended = True
            for call in part.calls:
                call.error = bad
            self._note_failures(part)
            return
        part.watch = engine.Watch(lambda run: self._begun(part, run))
        options = {k: v for k, v in run_options().items() if k != "run_name"}
        place = [] if options.get("with") else chosen_place()
        arguments = [*engine.engine_arguments(compiled, options), *place]
        compiled = with_seeds(compiled)
        engine.store_externals(compiled.externals)
        with secrets.lending(secrets.lend(compiled.spec)), outside():
            part.reader, part.pid = engine._start(find(), arguments, compiled)
        self.live.append(part)
        if self.head is None:
            part.watch.read_until_run(part.reader)

    def _begun(self, part: Part, run: str) -> None:
        """The engine has told the id of a part's run."""
        if self.head is None:
            self.head = run
            kept = {"name": self.pipeline.told_name(run), "pipeline": self.pipeline.name}
            whole.begin(run, {**kept, "parameters": front._literals(self.arguments)})
        whole.add(self.head, run)
        for version, steps in self._links(part):
            version.link_run(self.head, steps)

    def _take_in(self, part: Part) -> None:
        """Wait for the end of a part and keep what its steps gave."""
        assert part.pid is not None
        with engine._passing_on_sigterm(part.pid) as told:
            try:
                part.watch.read(part.reader, part.pid)
            finally:
                os.close(part.reader)
                status = engine._reap(part.pid)
                self.live.remove(part)
                part.ended = True
        if told:
            raise SystemExit(128 + signal.SIGTERM)
        failed: Optional[PipelineFailed] = None
        try:
            run = part.watch.result(status)
        except PipelineFailed as bad:
            if bad.run is None or type(bad) is not PipelineFailed:
                raise
            failed, run = bad, bad.run
        self._keep(part, run, failed)
        self._note_failures(part)

    def _keep(self, part: Part, run: PipelineRun, failed: Optional[PipelineFailed]) -> None:
        for call in part.calls:
            step = run.body["steps"].get(call.name) or {}
            given = step.get("outputs") or {}
            if step.get("status") not in ("succeeded", "cached"):
                call.error = exception_of(step.get("error") or {}, failed)
                continue
            maker = str(step.get("cached_from") or run.id)
            call.outputs = [
                OutputArtifact(call.shown, key, (maker, call.name, key), given[key])
                for key in call.output_names
            ]

    def _note_failures(self, part: Part) -> None:
        if part.alone and self.failed is None:
            bad = [(call.shown, call.error) for call in part.calls if call.error is not None]
            self.failed = next((Failure(name, error, True) for name, error in bad), None)

    # ------------------------------------------------------------------ documents

    def _compile(self, part: Part) -> Any:
        graph = Graph(self.pipeline)
        for call in part.calls:
            inputs = {k: self._given(call, k, v) for k, v in call.given.items()}
            graph.invocations[call.name] = Invocation(call.name, call.step, inputs, [], ())
        names = {call.name: call.shown for call in part.calls}
        run = _only(self.run_config, names)
        run.run_name = self.pipeline.told_name(None) if self.head is None else None
        compiled = compile_graph(graph, run, front._literals(self.arguments), self.layer)
        self.pipeline.complete(compiled.spec, graph.invocations)
        self._tell(compiled.spec, part)
        return compiled

    def _given(self, call: Call, key: str, value: Any) -> Any:
        """An argument as the document has it."""
        if isinstance(value, MapResultsFuture):
            value = value.futures
        if isinstance(value, PipelineFuture):
            value = value.result()
        if isinstance(value, Futures):
            value = _only_output(call, key, value)
        if isinstance(value, (list, tuple)) and any(map(_is_output, value)):
            return {"value": {KEY: {"list": [self._item(call, key, one) for one in value]}}}
        if isinstance(value, OutputArtifact):
            if value.chunk_index is not None:
                return {"value": value.late_literal()}
            return graphs.stored_input(value._stored)
        if isinstance(value, ExternalArtifact):
            return value
        if hasattr(value, "late_literal"):
            return {"value": value.late_literal()}
        if hasattr(value, "artifact_digest"):
            return graphs.stored_input(getattr(value, "row", value.body))
        try:
            return {"value": literal(call.step, key, value)}
        except StepInterfaceError as bad:
            if isinstance(bad.__cause__, NotJsonError) or "JSON serializable" in str(bad):
                return ExternalArtifact(value=value)
            raise

    def _item(self, call: Call, key: str, value: Any) -> Dict[str, Any]:
        if isinstance(value, PipelineFuture):
            value = value.result()
        if isinstance(value, Futures):
            value = _only_output(call, key, value)
        if not isinstance(value, OutputArtifact):
            raise StepInterfaceError(
                f"step '{call.step.name}': argument '{key}' mixes outputs of steps with a "
                f"{type(value).__name__}; pass a list of outputs only"
            )
        return value.plain

    def _tell(self, spec: Dict[str, Any], part: Part) -> None:
        """Write into a document which run it is a part of, and what its steps are called."""
        told: Dict[str, Any] = {}
        if self.head is not None:
            told = {"part_of": self.head, "run_name": self.pipeline.told_name(self.head)}
        top = spec.get("extra") or {}
        if told:
            spec["extra"] = {**top, "zenml": {**(top.get("zenml") or {}), **told}}
        for call in part.calls:
            step = spec["steps"][call.name]
            extra = step.get("extra") or {}
            came = {k: v for k, v in ((k, _origins(v)) for k, v in call.given.items()) if v}
            more: Dict[str, Any] = {"came": came, "before": self._before(call, came), **told}
            kept = {**(extra.get("zenml") or {}), **more}
            if call.shown != call.name:
                kept["shown"] = call.shown
            step["extra"] = {**extra, "zenml": kept}
        self.pipeline.bind_models(spec, self.models)

    def _links(self, part: Part) -> List[Tuple[Any, Optional[List[str]]]]:
        """The versions of models to which a part's steps belong."""
        links: List[Tuple[Any, Optional[List[str]]]] = []
        given = (self.layer.get("extra") or {}).get("model")
        if given:
            links.append((self.models[repr(sorted(given.items(), key=str))], None))
        for call in part.calls:
            own = (call.step.layer.get("extra") or {}).get("model")
            if own and own != given:
                key = repr(sorted(own.items(), key=str))
                names = self.of_steps.setdefault(key, [])
                names += [call.name, call.shown]
                links.append((self.models[key], names))
        return links


def runs_dynamic(pipeline: Any, args: Any, kwargs: Dict[str, Any]) -> Any:
    """Run a dynamic pipeline's body to its end and return the run.

    Raises:
        Exception: what the body raised.
        StepExecutionException: the body went on, but a step that was submitted failed.
        SettingsError: the command line asks for a plan, or for an earlier run to be resumed.
    """
    from .runs import run_of

    _refuse_options(pipeline)
    front.refuse_in_worker(f"pipeline '{pipeline.name}'")
    registry.called = True
    _, run = pipeline.folded()
    arguments = pipeline._arguments(args, kwargs, run)
    pipeline._told_name = _run_name(pipeline.name, run)
    body = Body(pipeline, run, arguments)
    returned: Any = None
    variables = body.layer.get("environment") or {}
    try:
        with lifetime.living(pipeline.name, pipeline.hooks, variables), body:
            returned = pipeline._body(arguments)
            body.finish_all()
        if body.failed is not None and not body.failed.began:
            raise body.failed.error
        if body.failed is not None:
            failed = errors.__getattr__("StepExecutionException")
            raise failed(
                f"step '{body.failed.shown}' failed: {body.failed.error}"
            ) from body.failed.error
    except BaseException as bad:
        body.give_up(bad)
        raise
    if body.head is None:
        warn(f"pipeline '{pipeline.name}' called no step, so there is no record of its run")
        return None
    if body.models:
        settle(body.head)
    whole.end(body.head, "succeeded", _returned(pipeline, returned), None)
    return run_of(body.head)


def _refuse_options(pipeline: Any) -> None:
    options = run_options()
    if options.get("plan"):
        pipeline.compile()  # raises
    if options.get("resume"):
        raise SettingsError(
            f"pipeline '{pipeline.name}' is dynamic, and a dynamic run can't be resumed: start the "
            "program again; the results of finished steps are reused"
        )


def _run_name(pipeline: str, run: RunConfig) -> str:
    known = dict(((run.layer.get("extra") or {}).get("zenml") or {}).get("substitutions") or {})
    return run_name(run.run_name or run_options().get("run_name"), pipeline, known)


def _returned(pipeline: Any, value: Any) -> Dict[str, Any]:
    """Name → run, step and output of the artifacts that the body returned."""
    if value is None:
        return {}
    some = [_awaited(one) for one in (value if isinstance(value, tuple) else (value,))]
    some = [one for item in some for one in (item if isinstance(item, tuple) else (item,))]
    names = list(interface_of(pipeline.entrypoint, pipeline.name).outputs)
    if len(names) != len(some):
        names = ["output"] if len(some) == 1 else [f"output_{i}" for i in range(len(some))]
    places = {k: v for k, v in zip(names, some) if isinstance(v, OutputArtifact)}
    return {k: [*v.place, v.step_name] for k, v in places.items()}


class outside:
    """While it is entered no pipeline's body is active: steps that begin must not see this one's."""

    def __enter__(self) -> None:
        self._token = graphs._active.set(None)

    def __exit__(self, *_: Any) -> None:
        graphs._active.reset(self._token)


def _bound(step: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
    try:
        return dict(bind(step, args, kwargs))
    except StepInterfaceError as bad:
        raise WrongArguments(str(bad)) from None


class WrongArguments(StepInterfaceError, TypeError):
    """A step is called with arguments that it doesn't have."""


def _is_output(value: Any) -> bool:
    return isinstance(value, (OutputArtifact, PipelineFuture, *Futures))


def _calls(values: Any) -> List[Call]:
    """The calls that futures among the values, and in lists of them, wait for."""
    found: List[Call] = []
    ahead = list(values)
    while ahead:
        one = ahead.pop()
        if isinstance(one, Futures):
            found.append(one._call)
        elif isinstance(one, MapResultsFuture):
            ahead += one.futures
        elif isinstance(one, Unmapped):
            ahead.append(one.value)
        elif isinstance(one, (list, tuple)):
            ahead += one
    return found


def _as_input(call: Call) -> List[OutputArtifact]:
    """A call's outputs for another step."""
    try:
        return call.wait()
    except Exception as bad:
        failed = errors.__getattr__("StepExecutionException")
        raise failed(f"step '{call.shown}' failed: {bad}") from bad


def _only_output(call: Call, key: str, value: Any) -> OutputArtifact:
    found = _as_input(value._call)
    if isinstance(value, ArtifactFuture):
        return found[value._index]
    if len(found) != 1:
        raise RuntimeError(
            f"step '{call.step.name}': argument '{key}' is a future of {len(found)} outputs; "
            "choose one of them"
        )
    return found[0]


def _awaited(value: Any) -> Any:
    """A future's output; other values as they are."""
    if isinstance(value, MapResultsFuture):
        value = list(value.futures)
    if isinstance(value, PipelineFuture):
        return value.result()
    if isinstance(value, Futures):
        found = _as_input(value._call)
        return found[value._index] if isinstance(value, ArtifactFuture) else value.result()
    if isinstance(value, (list, tuple)) and value and all(map(_is_output, value)):
        return [_awaited(one) for one in value]
    return value


def _rows(given: Dict[str, Any], product: bool) -> List[Dict[str, Any]]:
    """The arguments of each call that ``map`` or ``product`` makes.

    Raises:
        RuntimeError: nothing has items, or they don't fit each other.
    """
    mapped: Dict[str, List[Any]] = {}
    for key, value in given.items():
        if isinstance(value, OutputArtifact) and value.chunk_index is None:
            count = value.item_count
            if count == 0:
                raise RuntimeError(
                    f"argument '{key}' has no items, so there is nothing to map over; "
                    "unmapped(…) passes it whole"
                )
            if count is not None:
                mapped[key] = [value.chunk(i) for i in range(count)]
        elif (
            isinstance(value, list) and value and all(isinstance(v, OutputArtifact) for v in value)
        ):
            mapped[key] = value
        elif isinstance(value, (list, tuple)):
            warn(
                f"argument '{key}' is a {type(value).__name__} and no output of a step, so every "
                "call gets it whole; unmapped(…) says that this is meant"
            )
    if not mapped:
        raise RuntimeError(
            "there is nothing to map over: pass at least one output of a step that has items"
        )
    counts = {key: len(items) for key, items in mapped.items()}
    if not product and len(set(counts.values())) > 1:
        told = ", ".join(f"'{k}' has {n}" for k, n in counts.items())
        raise RuntimeError(
            f"all that is mapped over needs the same number of items, but {told}; "
            "unmapped(…) passes one of them whole"
        )
    rest = {
        k: v.value if isinstance(v, Unmapped) else v for k, v in given.items() if k not in mapped
    }
    choices = itertools.product(*mapped.values()) if product else zip(*mapped.values())
    return [{**rest, **dict(zip(mapped, row))} for row in choices]


def _origins(value: Any) -> List[List[str]]:
    """The outputs that an argument consists of: run, step and output of each."""
    if isinstance(value, MapResultsFuture):
        value = value.futures
    some = value if isinstance(value, (list, tuple)) else [value]
    found = []
    for one in some:
        if isinstance(one, StepFuture) and one._call.outputs is not None:
            found += [list(out.place) for out in one._call.outputs]
        elif isinstance(one, ArtifactFuture) and one._call.outputs is not None:
            found.append(list(one.result().place))
        elif isinstance(one, OutputArtifact):
            found.append(list(one.place))
    return found


def _only(run: RunConfig, names: Mapping[str, str]) -> RunConfig:
    """The part of a run configuration that concerns some steps."""
    made = RunConfig("", {})
    made.run_name, made.parameters, made.layer = run.run_name, run.parameters, run.layer
    made.steps = {k: v for k, v in run.steps.items() if k in names}
    return made


def exception_of(error: Mapping[str, Any], failed: Optional[PipelineFailed]) -> BaseException:
    """The exception of a step's process, made again if its class is at hand."""
    import builtins
    import sys

    whole_name, _, text = str(error.get("cause") or "").partition(": ")
    if error.get("where"):
        text = text.replace(f" ({error['where']})", "")
    text = text or str(error.get("text") or failed or "the step failed")
    module, _, name = whole_name.rpartition(".")
    module = "__main__" if module == "__mp_main__" else module
    home = sys.modules.get(module) if module else builtins
    kind = getattr(home, name, None) if name else None
    made: Optional[BaseException] = None
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            made = kind(text)
        except Exception:
            made = None
    if made is None:
        made = errors.__getattr__("StepExecutionException")(text)
    made.__cause__ = failed
    return made


# ---------------------------------------------------------------------------- wait, hooks


def wait(
    schema: Any = None,
    type: Any = None,
    timeout: int = 600,
    poll_interval: int = 5,
    question: Optional[str] = None,
    metadata: Optional[Dict[str, Any]] = None,
    after: Any = None,
    name: Optional[str] = None,
) -> Any:
    """Ask the person at the terminal and return the answer: JSON, or else the text.

    Args:
        schema: the class that the answer must have, or a model of pydantic; None: any.
        question: the text that is shown.
        after: futures that must have ended before.

    Raises:
        RuntimeError: no dynamic pipeline's body is running, or there is no terminal.
    """
    body = running_body()
    if body is None:
        raise RuntimeError("wait() works in the body of a dynamic pipeline only")
    body.settle(after)
    return _ask(question or name or "The pipeline waits for a value", schema)


def _ask(question: str, schema: Any) -> Any:
    import json
    import sys

    if not sys.stdin or not sys.stdin.isatty():
        raise RuntimeError(
            f"wait(): nobody can answer '{question}', because the program has no terminal; "
            "start it in one, or pass the value as a parameter of the pipeline"
        )
    while True:
        text = input(f"{question}: ")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        try:
            return _fitting(value, text, schema)
        except (TypeError, ValueError) as bad:
            print(f"that is no answer: {bad}")


def _fitting(value: Any, text: str, schema: Any) -> Any:
    if schema is None or schema is Any:
        return value
    if hasattr(schema, "model_validate"):
        return schema.model_validate(value)
    if schema is str:
        return text if not isinstance(value, str) else value
    if schema is float and isinstance(value, int):
        return float(value)
    if isinstance(schema, type) and not (isinstance(value, schema) and value is not None):
        raise TypeError(f"it takes {schema.__name__}, not {value!r}")
    return value
