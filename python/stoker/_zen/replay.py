"""``step.replay`` and ``pipeline.replay``: what ran once runs again, with other inputs, or in part."""

from __future__ import annotations

from typing import Any, Collection, Dict, Mapping, NamedTuple, Optional, Set

from .._base.errors import StepInterfaceError, did_you_mean
from .._decorators.step import run_alone
from .._definition.graph import Graph, Invocation, literal, stored_input
from .._definition.types import ExternalArtifact
from .runs import PipelineRunResponse, get_pipeline, get_run, get_step
from .steps import StepRunResponse

Overrides = Mapping[str, Mapping[str, Any]]


class Plan(NamedTuple):
    """How a run differs from the one that it replays."""

    original: PipelineRunResponse
    skip: Set[str]
    by_id: Overrides
    by_step: Overrides


def original_run(pipeline: Any, run: Any) -> PipelineRunResponse:
    """The run that is meant: ``run``, else the latest of ``pipeline``.

    Raises:
        KeyError: there is no such run or pipeline.
        ValueError: the pipeline hasn't run.
    """
    if run:
        return get_run(run)
    found = get_pipeline(pipeline)
    latest = found.latest_run_id
    if latest is None:
        raise ValueError(f"no run of pipeline '{pipeline}' is there to be replayed")
    return get_run(latest)


def replay_step(
    step: Any,
    pipeline: Any,
    pipeline_run: Any,
    step_run_id: Any,
    invocation_id: Optional[str],
    input_overrides: Optional[Mapping[str, Any]],
) -> Any:
    """Run a step alone with the inputs that it had; returns what it returns.

    Raises:
        ValueError: it isn't said which step's run is meant, or there is none.
    """
    ran = _ran(invocation_id or step.name, pipeline, pipeline_run, step_run_id)
    given: Dict[str, Any] = dict(ran.config.parameters or {})
    for name, some in ran.inputs.items():
        # a list of outputs stays one
        several = isinstance((ran.native.body.get("inputs") or {}).get(name, {}).get("from"), list)
        given[name] = [one.load() for one in some] if several else some[0].load()
    known = step.signature.parameters
    given = {k: v for k, v in given.items() if k in known}
    return run_alone(step, (), {**given, **(input_overrides or {})}, f"{step.name}_replay")


def _ran(name: str, pipeline: Any, run: Any, step_run_id: Any) -> StepRunResponse:
    if step_run_id:
        return get_step(step_run_id)
    if not pipeline and not run:
        raise ValueError("No pipeline, pipeline run, or step run provided.")
    original = original_run(pipeline, run)
    if name not in original.steps:
        raise ValueError(
            f"run '{original.name}' has no step '{name}'{did_you_mean(name, original.steps)}"
        )
    return original.steps[name]


def plan_of(
    original: PipelineRunResponse,
    skip: Optional[Collection[str]],
    successful: bool,
    by_id: Optional[Overrides],
    by_step: Optional[Overrides],
) -> Plan:
    """What a replay leaves out and gives otherwise."""
    some = set(skip or ())
    if successful:
        some |= {
            name
            for name, step in original.steps.items()
            if str(step.status) in ("completed", "cached") and name not in (by_id or {})
        }
    return Plan(original, some, by_id or {}, by_step or {})


def change(graph: Graph, plan: Plan) -> None:
    """Take the skipped steps out of a pipeline's graph: the others get what these gave in the original
    run; and give inputs otherwise.

    Raises:
        StepInterfaceError: a step that waits for one that runs can't be skipped; a step or an input
            isn't there.
    """
    _check(graph, plan)
    for name in plan.skip:
        del graph.invocations[name]
    for name, one in graph.invocations.items():
        one.inputs = {k: _input(one, k, v, plan) for k, v in one.inputs.items()}
        one.after = [other for other in one.after if other not in plan.skip]
        given = {**plan.by_step.get(one.step.name, {}), **plan.by_id.get(name, {})}
        for key, value in given.items():
            if key not in one.step.signature.parameters:
                raise StepInterfaceError(
                    f"step '{name}' has no input '{key}' to override"
                    f"{did_you_mean(key, one.step.signature.parameters)}"
                )
            one.inputs[key] = _value(one, key, value)


def _check(graph: Graph, plan: Plan) -> None:
    steps = {one.step.name for one in graph.invocations.values()}
    for name, known in (
        *((n, graph.invocations) for n in (*plan.skip, *plan.by_id)),
        *((n, steps) for n in plan.by_step),
    ):
        if name not in known:
            raise StepInterfaceError(
                f"pipeline '{graph.pipeline.name}' has no step '{name}' to replay otherwise"
                f"{did_you_mean(name, known)}"
            )
    for name in plan.skip:
        before = {text.partition(".")[0] for text in _origins(graph.invocations[name])}
        if before - plan.skip:
            raise StepInterfaceError(
                f"step '{name}' can't be skipped, because step '{sorted(before - plan.skip)[0]}' "
                "before it runs"
            )
        if name not in plan.original.steps:
            raise StepInterfaceError(
                f"step '{name}' can't be skipped: run '{plan.original.name}' has no result of it"
            )


def _origins(one: Invocation) -> Set[str]:
    found: Set[str] = set(one.after)
    for given in one.inputs.values():
        texts = given.get("from", ()) if isinstance(given, dict) else ()
        found.update([texts] if isinstance(texts, str) else texts)
    return found


def _input(one: Invocation, key: str, given: Any, plan: Plan) -> Any:
    texts = given.get("from") if isinstance(given, dict) else None
    some = [texts] if isinstance(texts, str) else list(texts or ())
    skipped = [text for text in some if text.partition(".")[0] in plan.skip]
    if not skipped:
        return given
    if not isinstance(texts, str):
        raise StepInterfaceError(
            f"step '{one.id}': input '{key}' is a list of outputs, so step "
            f"'{skipped[0].partition('.')[0]}' can't be skipped"
        )
    step, _, output = texts.partition(".")
    body = (plan.original.steps[step].native.body.get("outputs") or {}).get(output)
    if body is None:
        raise StepInterfaceError(
            f"step '{step}' can't be skipped: run '{plan.original.name}' has no output '{output}' of it"
        )
    return stored_input(body)


def _value(one: Invocation, key: str, value: Any) -> Any:
    if isinstance(value, ExternalArtifact):
        return value
    if hasattr(value, "artifact_digest"):
        return stored_input(getattr(value, "native", value).body)
    return {"value": literal(one.step, key, value)}
