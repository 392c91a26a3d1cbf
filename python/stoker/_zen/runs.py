"""Pipelines, runs and steps as ZenML's client shows them."""

from __future__ import annotations

import datetime
import uuid
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from .._base.binary import json_of, output_of
from .._base.errors import EngineError
from .._definition.types import ExecutionStatus
from .._engine.client import Names, PipelineRun
from .._engine.stored import stored_spec
from . import deployed, records, schedules, stacks, tags, whole
from .artifacts import ArtifactVersionResponse, versions_of
from .configuration import (
    VERSION,
    LogsResponse,
    PipelineConfiguration,
    PipelineSnapshotResponse,
)
from .page import Page, page_of
from .responses import Response, found_by, moment, with_numbers
from .steps import StepRunResponse as StepRunResponse


class PipelineRunResponse(Response):
    """A run."""

    _absent = (
        *("trigger", "build", "code_reference", "exception_info"),
        *("code_path", "trigger_info", "parent_run", "original_run", "active_wait_condition"),
        *("source_snapshot", "root_run_id", "trigger_execution_info", "child_key"),
    )

    _own = ("notes", "_repr_html_", "refresh")

    is_templatable = triggered_by_deployment = False

    def __init__(self, native: PipelineRun) -> None:
        self.native = native
        self.id: uuid.UUID = records.id_of("run", native.id)
        body = native._body or native.body
        self.name = str(body.get("name") or native.id)
        self.created = moment(body.get("created_ms"))
        self.updated = moment(body.get("ended_ms")) or self.created
        self.in_progress = str(body.get("status")) == "running"

    @property
    def pipeline(self) -> PipelineResponse:
        """Its pipeline."""
        return PipelineResponse(str((self.native._body or self.native.body)["pipeline"]))

    @property
    def pipeline_id(self) -> uuid.UUID:
        """Its pipeline's id."""
        return self.pipeline.id

    @property
    def status(self) -> ExecutionStatus:
        """Its status."""
        return ExecutionStatus.of(str((self.native._body or self.native.body)["status"]))

    @property
    def index(self) -> int:
        """Its number among the runs of its pipeline, from 1."""
        ids = [run.id for run in runs() if run.pipeline.name == self.pipeline.name]
        return ids.index(self.id) + 1

    @property
    def steps(self) -> Names[StepRunResponse]:
        """Its steps that began or were cached, in the order in which they began."""
        found = {
            name: step
            for name, step in self.native.steps.items()
            if step.body.get("status") not in ("pending", "skipped")
        }
        versions = versions_of()
        order = sorted(found, key=lambda name: found[name].body.get("started_ms") or 0)
        made = [StepRunResponse(name, self, versions) for name in order]
        return Names(f"step in run {self.name}", {step.name: step for step in made})

    @property
    def config(self) -> PipelineConfiguration:
        """Its configuration."""
        began = self.native.body.get("started_ms") or self.native.body.get("created_ms")
        return PipelineConfiguration(self.native.config, self.pipeline.name, {}, began)

    @property
    def snapshot(self) -> PipelineSnapshotResponse:
        """What it was started with."""
        return PipelineSnapshotResponse(self)

    @property
    def schedule(self) -> Optional[schedules.ScheduleResponse]:
        """The schedule that started it; None: none did, or it is gone."""
        return schedules.of_id(self._started_by.get("schedule"))

    @property
    def template_id(self) -> Optional[uuid.UUID]:
        """The id of the run template, or snapshot, that it was started from."""
        made = self._started_by.get("snapshot")
        return uuid.UUID(made) if made else None

    @property
    def _started_by(self) -> Dict[str, str]:
        kept: Dict[str, str] = self.native.config._zenml.get("started_by") or {}
        return kept

    @property
    def orchestrator_run_id(self) -> Optional[str]:
        """The engine's id if any step really ran."""
        return self.native.id if self._ran else None

    @property
    def log_collection(self) -> List[LogsResponse]:
        """What its steps printed."""
        return [LogsResponse(self, "client", self.id, None)]

    @property
    def tags(self) -> List[tags.TagResponse]:
        """Its tags."""
        own = json_of(["tag", self.native.id], self.native.store)["tags"]
        return tags._as_objects(own)

    @property
    def run_metadata(self) -> Dict[str, Any]:
        """Metadata of the run itself."""
        later = records.later_metadata(self.native.id) if self.in_progress else {}
        return dict(with_numbers({**self.native.run_metadata, **later}))

    @property
    def start_time(self) -> Optional[datetime.datetime]:
        """When it began."""
        return moment(self.native.body.get("started_ms"))

    @property
    def end_time(self) -> Optional[datetime.datetime]:
        """When it ended."""
        return moment(self.native.body.get("ended_ms"))

    @property
    def artifact_versions(self) -> List[ArtifactVersionResponse]:
        """Everything that its steps gave."""
        return [a for step in self.steps.values() for v in step.outputs.values() for a in v]

    @property
    def produced_artifact_versions(self) -> List[ArtifactVersionResponse]:
        """The same without what cached steps reused."""
        own = [one for one in self.artifact_versions if one.producer_pipeline_run_id == self.id]
        return own

    @property
    def outputs(self) -> Dict[str, Any]:
        """Name → artifact, of what a dynamic pipeline's body returned; a static one returns
        nothing."""
        if not isinstance(self.native, whole.Whole):
            return {}
        given: Dict[str, List[str]] = self.native.record.get("outputs") or {}
        steps = self.steps
        places = {step._place: step for step in steps.values()}
        found = {}
        for name, (_, place, output, _shown) in given.items():
            step = places[place]
            found[name] = step.regular_outputs[step._shown(output)]
        return found

    @property
    def model_version(self) -> Any:
        """The version of the pipeline's model, or None."""
        from .models import version_of_run

        return version_of_run(self.native.id, None)

    @property
    def model_version_id(self) -> Any:
        """Its id, or None."""
        return getattr(self.model_version, "id", None)

    @property
    def stack(self) -> Any:
        """The stack on which it ran; this machine if the project has it no more."""
        store = self.native.store or records.store_folder()
        return stacks.of_run(
            str(whole.kept_of(stored_spec(store, self.native.id)).get("stack"))
        ).model

    @property
    def client_environment(self) -> Dict[str, Any]:
        """The machine that started it."""
        return machine()

    @property
    def orchestrator_environment(self) -> Dict[str, Any]:
        """The same if any step really ran."""
        return self.client_environment if self._ran else {}

    @property
    def _ran(self) -> bool:
        """Whether any step wasn't cached."""
        return not all(step.is_cached for step in self.native.steps.values())

    @property
    def logs(self) -> str:
        """What its steps printed."""
        return self.native.logs

    @property
    def enable_heartbeat(self) -> bool:
        """True: the engine watches its steps."""
        return True

    def refresh_run_status(self) -> PipelineRunResponse:
        """Read the run again."""
        return PipelineRunResponse(self.native.refresh())


def _release() -> Dict[str, str]:
    """What ``/etc/os-release`` says."""
    try:
        with open("/etc/os-release", encoding="utf-8") as stream:
            pairs = [line.strip().partition("=") for line in stream]
    except OSError:
        return {}
    return {key: value.strip("\"'") for key, equals, value in pairs if equals}


class PipelineResponse(Response):
    """A pipeline, by its runs."""

    _absent = ("description", "model_id")

    def __init__(self, name: str) -> None:
        self.name = name
        self.id: uuid.UUID = records.id_of("pipeline", name)

    def get_runs(self, **given: Any) -> List[PipelineRunResponse]:
        """Its runs, the latest first."""
        given.setdefault("sort_by", "desc:created")
        return list(list_runs({**given, "pipeline_name": self.name}))

    @property
    def runs(self) -> List[PipelineRunResponse]:
        """Its latest runs, the latest first."""
        return self.get_runs()

    @property
    def num_runs(self) -> int:
        """How many runs it has."""
        return list_runs({"pipeline_name": self.name}).total

    @property
    def last_run(self) -> PipelineRunResponse:
        """Its latest run.

        Raises:
            RuntimeError: it has none.
        """
        for run in self.runs:
            return run
        raise RuntimeError(f"pipeline '{self.name}' has no runs")

    @property
    def last_successful_run(self) -> PipelineRunResponse:
        """Its latest run that succeeded; raises as :attr:`last_run`."""
        for run in self.get_runs(status="completed"):
            return run
        raise RuntimeError(f"pipeline '{self.name}' has no successful runs")

    @property
    def latest_run_id(self) -> Optional[uuid.UUID]:
        """Its latest run's id, or None."""
        return next((run.id for run in self.runs), None)

    @property
    def latest_run_status(self) -> Optional[ExecutionStatus]:
        """Its latest run's status, or None."""
        return next((run.status for run in self.runs), None)

    last_status = latest_run_status

    @property
    def created(self) -> Any:
        """When it first ran, or was first kept."""
        times: List[Any] = [run.created for run in runs() if run.pipeline.name == self.name]
        times += [moment(ms) for name, ms in _kept() if name == self.name]
        return min(times, default=None)

    @property
    def updated(self) -> Any:
        """When it last ran."""
        return next((run.created for run in self.runs), self.created)

    @property
    def tags(self) -> List[tags.TagResponse]:
        """Its own tags; those of its runs are the runs'."""
        return tags.of("pipeline", self.id)


def _bodies() -> Iterator[Dict[str, Any]]:
    try:
        answer = json_of(["runs", "--no-values", "--limit", "1000000"])
    except EngineError as bad:
        if records.no_store(bad):
            return
        raise
    found = answer.get("runs") if isinstance(answer, dict) else answer
    wholes = whole.every()
    parts = {part for head, record in wholes.items() for part in record["parts"] if part != head}
    for body in reversed(list(found or ())):
        run = str(body["run"])
        if run in wholes:
            yield {**whole.patched(body, wholes[run]), "whole": wholes[run]}
        elif run not in parts:
            yield body


def all_tags() -> List[str]:
    """The tags of all runs."""
    return [tag for body in _bodies() for tag in body.get("tags") or ()]


def runs() -> List[PipelineRunResponse]:
    """All runs in order of creation."""
    return [PipelineRunResponse(_native(body)) for body in _bodies()]


def _native(body: Dict[str, Any]) -> PipelineRun:
    run, store = str(body["run"]), body.get("store")
    record = body.pop("whole", None)
    return (
        PipelineRun(run, store, body) if record is None else whole.Whole(run, store, record, body)
    )


def run_of(engine_id: str) -> PipelineRunResponse:
    """The run with the engine's id, or the dynamic run of which that is a part."""
    return PipelineRunResponse(whole.native_of(engine_id))


def get_run(name_or_id: Any) -> PipelineRunResponse:
    """A run by id, name, the engine's id, or a unique beginning of one.

    Raises:
        KeyError: there is none, or several.
    """
    if isinstance(name_or_id, PipelineRunResponse):
        return run_of(name_or_id.native.id)
    wanted = str(getattr(name_or_id, "id", name_or_id))
    everything = runs()
    if wanted == "latest" and everything:
        return everything[-1]
    for run in everything:
        if run.native.id == wanted:
            return run
    found: PipelineRunResponse = found_by("pipeline run", wanted, everything)
    return found


def machine() -> Dict[str, Any]:
    """This machine, as ZenML describes one."""
    import platform

    release = _release()
    return {
        "environment": "native",
        "os": "linux",
        "linux_distro": release.get("ID", ""),
        "linux_distro_like": release.get("ID_LIKE", ""),
        "linux_distro_version": release.get("VERSION_ID", ""),
        "python_version": platform.python_version(),
        "zenml_version": VERSION,
    }


_RUN_FILTERS = {
    "id": lambda r: r.id,
    "name": lambda r: r.name,
    "pipeline": lambda r: [r.pipeline.name, r.pipeline.id],
    "pipeline_name": lambda r: r.pipeline.name,
    "pipeline_id": lambda r: r.pipeline.id,
    "status": lambda r: r.status,
    "created": lambda r: r.created,
    "updated": lambda r: r.updated,
    "start_time": lambda r: r.start_time,
    "end_time": lambda r: r.end_time,
    "tags": lambda r: [t.name for t in r.tags],
    "model": lambda r: getattr(getattr(r.model_version, "model", None), "name", None),
    "model_version_id": lambda r: r.model_version_id,
    "in_progress": lambda r: r.in_progress,
    "linked_to_model_version_id": lambda r: r.model_version_id,
    "run_metadata": lambda r: r.run_metadata,
    "stack": lambda r: [r.stack.name, r.stack.id],
    "stack_id": lambda r: r.stack.id,
    "index": lambda r: r.index,
    "snapshot_id": lambda r: r.snapshot.id,
    "orchestrator_run_id": lambda r: r.native.id,
    "stack_component": lambda r: [
        word for some in r.stack.components.values() for one in some for word in (one.name, one.id)
    ],
    "templatable": lambda r: False,
    **dict.fromkeys(
        (
            *("build_id", "code_repository", "code_repository_id", "parent_run_id", "trigger_id"),
            *("triggered_by_deployment_id", "triggered_by_step_run_id"),
        ),
        lambda r: None,
    ),
    "schedule_id": lambda r: r._started_by.get("schedule"),
    "template_id": lambda r: r.template_id,
    "source_snapshot_id": lambda r: r.template_id,
}


def list_runs(given: Mapping[str, Any]) -> Page[PipelineRunResponse]:
    """The page of runs that the arguments ask for."""
    given = dict(given)
    for name in ("pipeline", "model"):
        given[name] = getattr(given.get(name), "name", given.get(name))
    given.pop("root_runs_only", None)  # no run has a parent
    return page_of("pipeline_runs", runs(), given, _RUN_FILTERS, "desc:created")


_STEP_FILTERS = {
    "id": lambda s: s.id,
    "name": lambda s: s.name,
    "pipeline_run_id": lambda s: s.pipeline_run_id,
    "status": lambda s: s.status,
    "created": lambda s: s.created,
    "updated": lambda s: s.updated,
    "start_time": lambda s: s.start_time,
    "end_time": lambda s: s.end_time,
    "original_step_run_id": lambda s: s.original_step_run_id,
    "cache_key": lambda s: s.cache_key,
    "cache_expires_at": lambda s: s.cache_expires_at,
    "cache_expired": lambda s: bool(
        s.cache_expires_at and s.cache_expires_at <= moment(records.now_ms())
    ),
    "code_hash": lambda s: s.code_hash,
    "version": lambda s: s.version,
    "snapshot_id": lambda s: s.snapshot_id,
    "model_version_id": lambda s: s.model_version_id,
    "run_metadata": lambda s: s.run_metadata,
    "model": lambda s: getattr(getattr(s.model_version, "model", None), "name", None),
}


def list_steps(given: Mapping[str, Any]) -> Page[StepRunResponse]:
    """The page of steps that the arguments ask for."""
    given = dict(given)
    with_earlier = not given.pop("exclude_retried", None)
    wanted = given.get("pipeline_run_id")
    found = runs() if wanted is None else [get_run(wanted)]
    last = [step for run in found for step in run.steps.values()]
    steps = [one for step in last for one in ((*step.earlier(), step) if with_earlier else (step,))]
    return page_of("run_steps", steps, given, _STEP_FILTERS)


def get_step(step_id: Any) -> StepRunResponse:
    """A step by id, or ``RUN/STEP``.

    Raises:
        KeyError: there is none.
    """
    wanted = str(getattr(step_id, "id", step_id))
    if "/" in wanted:
        run_id, _, name = wanted.partition("/")
        return get_run(run_id).steps[name.partition("/")[0]]
    for run in reversed(runs()):
        for step in run.steps.values():
            for one in (step, *step.earlier()):
                if str(one.id) == wanted:
                    return one
    raise KeyError(f"there is no step with id '{wanted}'")


_PIPELINE_FILTERS = {
    "id": lambda p: p.id,
    "name": lambda p: p.name,
    "latest_run_status": lambda p: p.latest_run_status,
    "created": lambda p: p.created,
    "updated": lambda p: p.updated,
    "tags": lambda p: [t.name for t in p.tags],
}


def pipelines() -> List[PipelineResponse]:
    """All pipelines that have run, in order of their first run, and those that are kept only."""
    names = [*(str(b["pipeline"]) for b in _bodies()), *(name for name, _ in _kept())]
    return [PipelineResponse(name) for name in dict.fromkeys(names)]


def _kept() -> List[Tuple[str, Any]]:
    """Pipeline and time of each schedule and snapshot."""
    some = [one for kind in ("schedule", "snapshot") for one in deployed.listed(kind)]
    return [(str(one["pipeline"]), one.get("created_ms")) for one in some]


def list_pipelines(given: Mapping[str, Any]) -> Page[PipelineResponse]:
    """The page of pipelines that the arguments ask for."""
    orders = {"latest_run": lambda p: p.updated}
    return page_of("pipelines", pipelines(), given, _PIPELINE_FILTERS, orders=orders)


def get_pipeline(name_or_id: Any) -> PipelineResponse:
    """A pipeline that has run or is kept, by name, id or prefix; raises KeyError."""
    found: PipelineResponse = found_by("pipeline", name_or_id, pipelines())
    return found


def delete_run(run: PipelineRunResponse) -> None:
    """Remove an ended run; what it gave to versions of models stays theirs."""
    from .models import settle

    settle(run.native.id)
    output_of(["store", "rm", *whole.forget(run.native.id)], run.native.store)
