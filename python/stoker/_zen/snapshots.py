"""Named snapshots, and run templates, their older name: kept pipelines (``deployed.py``) from which
a program starts runs."""

from __future__ import annotations

import uuid
from typing import Any, Dict, Iterable, List, Mapping, Optional

from .. import _deployed as shared
from .._definition.checked import plain
from .._engine.config import RunConfiguration
from . import deployed, records, runs, stacks, tags
from .configuration import PipelineConfiguration, PipelineSnapshotResponse
from .errors import EntityExistsError
from .page import Page, page_of
from .responses import found_by, moment

_KIND = "snapshot"


class KeptSnapshot(PipelineSnapshotResponse):
    """A snapshot with a name: what its runs are started with."""

    _absent = (*PipelineSnapshotResponse._absent, "pipeline_spec")
    runnable = True

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = dict(record)
        self.is_dynamic = bool(record.get("dynamic"))
        self.id = uuid.UUID(record["id"])
        self.name = str(record["title"])
        self.description: Optional[str] = record["description"]
        self.created, self.updated = moment(record["created_ms"]), moment(record["updated_ms"])
        self.pipeline = runs.PipelineResponse(str(record["pipeline"]))
        self.tags = tags._as_objects(record["tags"])
        self.run_name_template = str(
            record["configuration"]["run_name"] or f"{self.pipeline.name}-{{date}}-{{time}}"
        )

    @property
    def stack(self) -> Any:
        """The stack on which its runs go, unless another is asked for."""
        name = str(self.record["env"].get("ZENML_ACTIVE_STACK_NAME") or stacks.active_name())
        return stacks.get_stack(name.partition(":")[0])

    @property
    def pipeline_configuration(self) -> PipelineConfiguration:
        """What its runs are configured with."""
        kept, parameters = self.record["configuration"], self.record["arguments"]
        given = RunConfiguration(
            {"parameters": {**parameters, **kept["parameters"]}}, kept["layer"]
        )
        return PipelineConfiguration(given, self.pipeline.name, {})

    @property
    def client_environment(self) -> Dict[str, Any]:
        """This machine."""
        return runs.machine()

    @property
    def runs(self) -> List[runs.PipelineRunResponse]:
        """Its runs, the first ones first."""
        return [one for one in runs.runs() if one.template_id == self.id]

    @property
    def latest_run_id(self) -> Optional[uuid.UUID]:  # type: ignore[override]
        """The id of its latest run."""
        found = self.runs
        return found[-1].id if found else None

    @property
    def latest_run_status(self) -> Any:
        """The status of its latest run."""
        found = self.runs
        return found[-1].status if found else None


class RunTemplateResponse(KeptSnapshot):
    """A run template: its id is that of its snapshot."""

    hidden = False

    @property
    def source_snapshot(self) -> KeptSnapshot:
        """The snapshot."""
        return KeptSnapshot(self.record)


def create(
    pipeline: Any, name: str, description: Optional[str], replace: bool, given: Any
) -> KeptSnapshot:
    """Keep a pipeline under a name.

    Raises:
        EntityExistsError: the name is taken, and not to be replaced.
        SettingsError: nothing can find the pipeline later.
    """
    _refuse_empty(name)
    before = deployed.taken(_KIND, name, pipeline.name)
    if before and not replace:
        _refuse_taken(name, pipeline.name)
    now = records.now_ms()
    more: Dict[str, Any] = {"description": description, "tags": tags.named(given or ())}
    more["dynamic"] = bool(getattr(pipeline, "is_dynamic", False))
    record = deployed.keep(
        pipeline, pipeline.prepared, _KIND, name, **more, created_ms=now, updated_ms=now
    )
    tags.make(given or ())
    for one in before:
        shared.remove(one["name"])
    return KeptSnapshot(record)


def template_of(
    source: Any, name: str, description: Optional[str], given: Any
) -> RunTemplateResponse:
    """A template of a kept snapshot.

    Raises:
        EntityExistsError: the name is taken.
        ValueError: the snapshot is that of a run.
    """
    if not isinstance(source, KeptSnapshot):
        raise ValueError(_of_run(source))
    if name != source.name:
        _refuse_taken(name, source.record["pipeline"])
    fields = {"name": name, "description": description, "add_tags": given}
    return RunTemplateResponse(update(source, fields))


def _of_run(source: Any) -> str:
    return (
        f"snapshot '{source.id}' is that of a run, which keeps only the digest of its code: "
        "create one by pipeline.create_snapshot(name=…)"
    )


def _refuse_empty(name: str) -> None:
    if not name.strip():
        raise ValueError("a snapshot's name can't be empty")


def _refuse_taken(name: str, pipeline: str) -> None:
    if deployed.taken(_KIND, name, pipeline):
        raise EntityExistsError(f"a snapshot '{name}' of pipeline '{pipeline}' exists already")


def snapshots() -> List[KeptSnapshot]:
    """All, the oldest first."""
    found = [KeptSnapshot(one) for one in deployed.listed(_KIND)]
    return sorted(found, key=lambda one: one.record["created_ms"])


def templates() -> List[RunTemplateResponse]:
    """The same as run templates."""
    return [RunTemplateResponse(one.record) for one in snapshots()]


def find(name_or_id: Any, pipeline: Any = None) -> Optional[KeptSnapshot]:
    """The snapshot of a name or id, of a pipeline if one is given; None: there is none."""
    some = snapshots()
    if pipeline is not None:
        wanted = str(getattr(pipeline, "id", pipeline))
        some = [one for one in some if wanted in (one.pipeline.name, str(one.pipeline.id))]
    try:
        found: KeptSnapshot = found_by(_KIND, name_or_id, some)
    except KeyError:
        return None
    return found


def get(name_or_id: Any) -> KeptSnapshot:
    """A snapshot by name, id or prefix; raises KeyError."""
    found: KeptSnapshot = found_by(_KIND, name_or_id, snapshots())
    return found


def get_template(name_or_id: Any) -> RunTemplateResponse:
    """A run template by name, id or prefix; raises KeyError."""
    found: RunTemplateResponse = found_by("run template", name_or_id, templates())
    return found


def listing(what: str, found: Iterable[Any], given: Mapping[str, Any]) -> Page[Any]:
    """The page of snapshots or templates that the arguments ask for."""
    asked = {
        **{key: _reading(key) for key in ("id", "name", "created", "updated", "pipeline_id")},
        "pipeline": lambda one: [one.pipeline.name, one.pipeline.id],
        "tags": lambda one: [t.name for t in one.tags],
        "stack": lambda one: [one.stack.name, one.stack.id],
        "stack_id": lambda one: one.stack.id,
        "source_snapshot_id": lambda one: getattr(getattr(one, "_run", None), "template_id", None),
        **{key: _reading(key) for key in ("runnable", "deployable")},
        **dict.fromkeys(("deployed", "hidden"), lambda one: False),
        **dict.fromkeys(
            ("build_id", "schedule_id", "code_repository_id", "trigger_id"), lambda one: None
        ),
    }
    return page_of(what, found, given, asked)


def _reading(key: str) -> Any:
    return lambda one: getattr(one, key)


def update(found: KeptSnapshot, given: Mapping[str, Any]) -> Dict[str, Any]:
    """Change ``name`` (``replace``: of another), ``description``, tags; returns the record."""
    record = found.record
    fields: Dict[str, Any] = {"updated_ms": records.now_ms()}
    if given.get("name") not in (None, found.name):
        _refuse_empty(given["name"])
        if not given.get("replace"):
            _refuse_taken(given["name"], record["pipeline"])
        for one in deployed.taken(_KIND, given["name"], record["pipeline"]):
            shared.remove(one["name"])
        fields["title"] = given["name"]
    if given.get("description") is not None:
        fields["description"] = given["description"]
    tags.make(given.get("add_tags") or ())
    gone = tags.named(given.get("remove_tags"))
    kept = dict.fromkeys([*record["tags"], *tags.named(given.get("add_tags"))])
    fields["tags"] = [one for one in kept if one not in gone]
    return shared.change(record["name"], **fields)


def delete(found: KeptSnapshot) -> None:
    """Remove it; its runs stay."""
    shared.remove(found.record["name"])


def to_run(name_or_id: Any, pipeline: Any) -> KeptSnapshot:
    """The snapshot that ``trigger_pipeline`` means.

    Raises:
        KeyError: there is none.
        ValueError: it is that of a run.
        RuntimeError: neither a snapshot nor a pipeline is named.
    """
    if name_or_id is None and pipeline is None:
        raise RuntimeError("You need to specify at least one of snapshot or pipeline to run.")
    if name_or_id is not None:
        found = find(name_or_id, pipeline)
        if found is None:
            wanted = str(getattr(name_or_id, "id", name_or_id))
            for one in (run.snapshot for run in runs.runs()):
                if str(one.id) == wanted:
                    raise ValueError(_of_run(one))
            raise KeyError(f"there is no snapshot '{getattr(name_or_id, 'id', name_or_id)}'")
        return found
    wanted = str(getattr(pipeline, "id", pipeline))
    some = [one for one in snapshots() if wanted in (one.pipeline.name, str(one.pipeline.id))]
    if not some:
        raise KeyError(
            f"pipeline '{getattr(pipeline, 'name', pipeline)}' has no snapshot to run: keep one by "
            "pipeline.create_snapshot(name=…)"
        )
    return some[-1]


def run(
    found: KeptSnapshot, given: Any, stack: Optional[str], synchronous: bool
) -> runs.PipelineRunResponse:
    """Start a run, with a run configuration that wins, and on a stack if one is named.

    Raises:
        RuntimeError: no run began; the text says why.
    """
    given = given.model_dump() if hasattr(given, "model_dump") else given
    configuration = plain(given or {})
    for key in ("build", "schedule"):
        if configuration.get(key):
            raise ValueError(f"Can't set {key} when running a snapshot.")
    env = {} if stack is None else {"ZENML_ACTIVE_STACK_NAME": stack}
    made, process = deployed.start(found.record, configuration, env)
    if synchronous:
        process.wait()
    return runs.run_of(made)
