"""Models, their versions, and what is linked to them: records of the store.

A version knows its runs. Its artifacts are what the steps of these runs gave, which it keeps when a
run has ended (`settle`), and what was linked by hand.
"""

from __future__ import annotations

import enum
import functools
import uuid
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from .._base.errors import EngineError
from .._definition.types import ArtifactType
from . import records, tags
from .artifacts import ArtifactVersionResponse, get_version, versions_of
from .enums import ModelStages
from .errors import EntityExistsError
from .page import Page, page_of
from .responses import Response, found_by, moment, with_numbers
from .templates import filled

FIELDS = (
    *("license", "description", "audience", "use_cases", "limitations", "trade_offs", "ethics"),
    "save_models_to_registry",
)


class ModelResponse(Response):
    """A model: the name of versions, and what is said about all of them."""

    def __init__(self, record: records.Record) -> None:
        self.name = record.name
        self.id = uuid.UUID(record.body["id"])
        self.created, self.updated = moment(record.created_ms), moment(record.updated_ms)
        for field in FIELDS:
            setattr(self, field, record.body.get(field))
        self.save_models_to_registry = record.body.get("save_models_to_registry", True)
        self.visualizations: List[Any] = []

    @property
    def tags(self) -> List[tags.TagResponse]:
        """Its tags."""
        return tags.of("model", self.id)

    @property
    def versions(self) -> List[Any]:
        """Its versions in order of creation, each as a ``Model``."""
        from .model import bound

        return [bound(version, {}) for version in versions(self)]

    @property
    def latest_version_name(self) -> Optional[str]:
        """Its latest version."""
        return next((v.name for v in reversed(versions(self))), None)

    @property
    def latest_version_id(self) -> Optional[uuid.UUID]:
        """Its id."""
        return next((v.id for v in reversed(versions(self))), None)


class ModelVersionResponse(Response):
    """A version of a model."""

    def __init__(self, model: ModelResponse, record: records.Record) -> None:
        self.model, self.body_ = model, record.body
        self.key = record.name
        self.id = uuid.UUID(record.body["id"])
        self.name = str(record.body["name"])
        self.number = int(record.body["number"])
        self.stage: Optional[str] = record.body.get("stage")
        self.description: Optional[str] = record.body.get("description")
        self.created, self.updated = moment(record.created_ms), moment(record.updated_ms)

    @property
    def tags(self) -> List[tags.TagResponse]:
        """Its tags."""
        return tags.of("model_version", self.id)

    @property
    def run_metadata(self) -> Dict[str, Any]:
        """Its metadata."""
        kept = get_model_version(self.model, self.id).body_.get("metadata") or {}
        return dict(with_numbers(kept))

    def _links(self) -> List[ArtifactVersionResponse]:
        """Its artifacts in order of their creation."""
        body = get_model_version(self.model, self.id).body_
        found: Dict[uuid.UUID, ArtifactVersionResponse] = {}
        known = records.listed("model_version")
        for run, steps in (body.get("runs") or {}).items():
            found.update((a.id, a) for a in _made_by(run, steps, known))
        linked, gone = set(body.get("artifacts") or ()), set(body.get("unlinked") or ())
        found.update((a.id, a) for a in versions_of() if str(a.id) in linked)
        found = {id: a for id, a in found.items() if str(id) not in gone}
        return sorted(found.values(), key=lambda a: (str(a.created), a.version))

    def _by_name(self, kinds: Callable[[Any], bool]) -> Dict[str, Dict[str, Any]]:
        found: Dict[str, Dict[str, Any]] = {}
        for one in self._links():
            if kinds(one.type):
                found.setdefault(one.name, {})[one.version] = one
        return found

    @property
    def data_artifacts(self) -> Dict[str, Dict[str, ArtifactVersionResponse]]:
        """Name → version → artifact, of all that are neither models nor services."""
        return self._by_name(lambda t: t not in (ArtifactType.MODEL, ArtifactType.SERVICE))

    @property
    def model_artifacts(self) -> Dict[str, Dict[str, ArtifactVersionResponse]]:
        """The same of its models."""
        return self._by_name(lambda t: t is ArtifactType.MODEL)

    @property
    def deployment_artifacts(self) -> Dict[str, Dict[str, ArtifactVersionResponse]]:
        """The same of its services."""
        return self._by_name(lambda t: t is ArtifactType.SERVICE)

    @property
    def data_artifact_ids(self) -> Dict[str, Dict[str, uuid.UUID]]:
        """Name → version → id, as :attr:`data_artifacts`."""
        return _ids(self.data_artifacts)

    @property
    def model_artifact_ids(self) -> Dict[str, Dict[str, uuid.UUID]]:
        """Name → version → id, as :attr:`model_artifacts`."""
        return _ids(self.model_artifacts)

    @property
    def deployment_artifact_ids(self) -> Dict[str, Dict[str, uuid.UUID]]:
        """Name → version → id, as :attr:`deployment_artifacts`."""
        return _ids(self.deployment_artifacts)

    def get_artifact(
        self, name: str, version: Optional[str] = None
    ) -> Optional[ArtifactVersionResponse]:
        """An artifact by name (the latest, or the given version), or None."""
        return _chosen(self._by_name(lambda t: True), name, version)

    def get_model_artifact(
        self, name: str, version: Optional[str] = None
    ) -> Optional[ArtifactVersionResponse]:
        """The same among its models."""
        return _chosen(self.model_artifacts, name, version)

    def get_data_artifact(
        self, name: str, version: Optional[str] = None
    ) -> Optional[ArtifactVersionResponse]:
        """The same among its data."""
        return _chosen(self.data_artifacts, name, version)

    def get_deployment_artifact(
        self, name: str, version: Optional[str] = None
    ) -> Optional[ArtifactVersionResponse]:
        """The same among its services."""
        return _chosen(self.deployment_artifacts, name, version)

    @property
    def pipeline_runs(self) -> Dict[str, Any]:
        """Name → run."""
        body = get_model_version(self.model, self.id).body_
        found = [_run(run) for run in body.get("runs") or {}]
        return {run.name: run for run in found if run is not None}

    @property
    def pipeline_run_ids(self) -> Dict[str, uuid.UUID]:
        """Name → id of a run."""
        return {name: run.id for name, run in self.pipeline_runs.items()}

    def to_model_class(self, **_: Any) -> Any:
        """It as a ``Model``."""
        from .model import bound

        return bound(self, {})

    def set_stage(self, stage: Any, force: bool = False) -> None:
        """Give it a stage, which only one version of a model has.

        Raises:
            RuntimeError: another version has it, and ``force`` is false.
            ValueError: there is no such stage.
        """
        stage = ModelStages(str(getattr(stage, "value", stage))).value
        if stage == "latest":
            raise ValueError("no version can be put into the stage 'latest'")
        for other in versions(self.model):
            if stage in ("archived", "none") or other.stage != stage or other.id == self.id:
                continue
            if not force:
                raise RuntimeError(
                    f"version '{other.name}' of model '{self.model.name}' is in the stage "
                    f"'{stage}'; force=True archives it"
                )
            _set(other, "stage", "archived")
        _set(self, "stage", stage)
        self.stage = stage

    def log(self, metadata: Mapping[str, Any]) -> None:
        """Add metadata."""
        records.change(
            "model_version", self.key, lambda b: b.setdefault("metadata", {}).update(metadata)
        )

    def link(self, artifact: ArtifactVersionResponse) -> None:
        """Add an artifact."""

        def add(body: Dict[str, Any]) -> None:
            known = body.setdefault("artifacts", [])
            if str(artifact.id) not in known:
                known.append(str(artifact.id))
            body["unlinked"] = [id for id in body.get("unlinked") or () if id != str(artifact.id)]

        records.change("model_version", self.key, add)

    def unlink(self, artifacts: Iterable[ArtifactVersionResponse]) -> None:
        """Remove artifacts from it; they stay in the store."""
        gone = [str(one.id) for one in artifacts]

        def take(body: Dict[str, Any]) -> None:
            body["artifacts"] = [id for id in body.get("artifacts") or () if id not in gone]
            body["unlinked"] = list(dict.fromkeys([*(body.get("unlinked") or ()), *gone]))

        records.change("model_version", self.key, take)

    def link_run(self, run: str, steps: Optional[List[str]]) -> None:
        """Add a run, or some of its steps."""
        records.change(
            "model_version", self.key, lambda b: b.setdefault("runs", {}).update({run: steps})
        )

    def link_running(self, run: str) -> None:
        """Add the run of the step that asks, if the program that began it hasn't yet, which says of
        which steps."""
        if run not in (get_model_version(self.model, self.id).body_.get("runs") or {}):
            records.change(
                "model_version", self.key, lambda b: b.setdefault("runs", {}).setdefault(run, None)
            )


class ModelVersionArtifactResponse(Response):
    """That an artifact belongs to a version of a model."""

    def __init__(self, version: ModelVersionResponse, artifact: ArtifactVersionResponse) -> None:
        self.model_version, self.artifact_version = version.id, artifact
        self.model = version.model.id
        self.name = artifact.name
        self.id = records.id_of("link", f"{version.id}/{artifact.id}")
        self.created = self.updated = artifact.created


class ModelVersionPipelineRunResponse(Response):
    """That a run belongs to a version of a model."""

    def __init__(self, version: ModelVersionResponse, run: Any) -> None:
        self.model_version, self.pipeline_run = version.id, run
        self.model = version.model.id
        self.name = run.name
        self.id = records.id_of("link", f"{version.id}/{run.id}")
        self.created = self.updated = run.created


def _run(engine_id: str) -> Any:
    """The run, or None if it was removed."""
    from .runs import run_of

    try:
        return run_of(engine_id)
    except EngineError as bad:
        if "no run" not in str(bad):
            raise
        return None


def _made_by(
    engine_id: str, steps: Optional[List[str]], known: List[records.Record]
) -> List[ArtifactVersionResponse]:
    """What some of a run's steps gave, or all but those with a model of their own; nothing if it was
    removed."""
    run = _run(engine_id)
    some = {} if run is None else run.steps
    lists = ((one.body.get("runs") or {}).get(engine_id) or () for one in known)
    own = {name for names in lists for name in names}
    chosen = [
        s for name, s in some.items() if (name not in own if steps is None else name in steps)
    ]
    return [a for step in chosen for outputs in step.outputs.values() for a in outputs]


def settle(engine_id: str) -> None:
    """Let the versions to which a run belongs keep what its steps gave, so that they have it when
    the run is removed."""
    known = records.listed("model_version")
    for record in known:
        runs = record.body.get("runs") or {}
        if engine_id in runs:
            ids = [str(one.id) for one in _made_by(engine_id, runs[engine_id], known)]
            records.change("model_version", record.name, functools.partial(_keep, ids))


def _keep(ids: List[str], body: Dict[str, Any]) -> None:
    gone = set(body.get("unlinked") or ())
    known = [*(body.get("artifacts") or ()), *(one for one in ids if one not in gone)]
    body["artifacts"] = list(dict.fromkeys(known))


def _ids(found: Dict[str, Dict[str, Any]]) -> Dict[str, Dict[str, uuid.UUID]]:
    return {name: {v: a.id for v, a in some.items()} for name, some in found.items()}


def _chosen(
    found: Dict[str, Dict[str, Any]], name: str, version: Any
) -> Optional[ArtifactVersionResponse]:
    some = found.get(name) or {}
    if version is not None:
        return some.get(str(version))
    return next(reversed(list(some.values())), None)


def _set(version: ModelVersionResponse, field: str, value: Any) -> None:
    records.change("model_version", version.key, lambda body: body.update({field: value}))


def create_model(name: str, given: Mapping[str, Any]) -> ModelResponse:
    """Make a model; raises EntityExistsError."""
    body = {field: given[field] for field in FIELDS if given.get(field) is not None}
    made = ModelResponse(records.create("model", name, body))
    tags.attach("model", made.id, given.get("tags"))
    return made


def models() -> List[ModelResponse]:
    """All models in order of creation."""
    return [ModelResponse(record) for record in records.listed("model")]


def get_model(name_or_id: Any) -> ModelResponse:
    """A model by name, id or prefix; raises KeyError."""
    found: ModelResponse = found_by("model", name_or_id, models())
    return found


def versions(model: ModelResponse) -> List[ModelVersionResponse]:
    """A model's versions in order of creation."""
    start = f"{model.id}/"
    found = [r for r in records.listed("model_version") if r.name.startswith(start)]
    return [ModelVersionResponse(model, record) for record in found]


def create_model_version(
    model: ModelResponse, name: Optional[str] = None, given: Optional[Mapping[str, Any]] = None
) -> ModelVersionResponse:
    """Make a version: the next number, which is also its name if none is given.

    Raises:
        EntityExistsError: there is one of this name.
    """
    while True:
        known = versions(model)
        if name is not None and any(v.name == name for v in known):
            raise EntityExistsError(f"model '{model.name}' has a version '{name}' already")
        number = max((v.number for v in known), default=0) + 1
        body = {"name": name or str(number), "number": number}
        if given and given.get("description"):
            body["description"] = given["description"]
        try:
            record = records.create("model_version", f"{model.id}/{number}", body)
        except EntityExistsError:
            continue  # another process took the number
        made = ModelVersionResponse(model, record)
        tags.attach("model_version", made.id, (given or {}).get("tags"))
        return made


def get_model_version(model: Any, version: Any = None) -> ModelVersionResponse:
    """A version by number, name, stage or id; None or ``latest``: the newest.

    Raises:
        KeyError: there is none.
    """
    if not isinstance(model, ModelResponse):
        model = get_model(model)
    known = versions(model)
    wanted = str(getattr(version, "value", version)) if version is not None else "latest"
    if wanted == "latest":
        if not known:
            raise KeyError(f"model '{model.name}' has no version")
        return known[-1]
    if isinstance(version, ModelStages) or wanted in ("staging", "production", "archived"):
        for one in reversed(known):
            if one.stage == wanted:
                return one
    for one in known:
        if isinstance(version, int) and one.number == version:
            return one
    for one in known:
        if one.name == wanted or (wanted.isdigit() and str(one.number) == wanted):
            return one
    for one in known:
        if wanted in (str(one.id), one.id.hex):
            return one
    raise KeyError(f"model '{model.name}' has no version '{wanted}'")


def resolve(
    given: Mapping[str, Any], new: bool = True, known: Optional[Mapping[str, str]] = None
) -> ModelVersionResponse:
    """The version that a declared :class:`Model` means; makes model and version where that is new.

    ``known`` are substitutions of placeholders in the version's name.

    Raises:
        KeyError: it names a stage or number that no version has.
    """
    name, version = str(given["name"]), given.get("version")
    if known is not None and isinstance(version, str) and not isinstance(version, enum.Enum):
        version = filled(version, known)
    try:
        model = get_model_exactly(name)
    except KeyError:
        model = create_model(name, {**given, "tags": None})
    if version is None and new:
        return create_model_version(model, None, _of_version(given))
    try:
        return get_model_version(model, version)
    except KeyError:
        text = str(getattr(version, "value", version))
        if text.isnumeric() or text in [s.value for s in ModelStages]:
            raise
        return create_model_version(model, text, _of_version(given))


def _of_version(given: Mapping[str, Any]) -> Dict[str, Any]:
    return {k: given.get(k) for k in ("tags", "description")}


def get_model_exactly(name: str) -> ModelResponse:
    """A model by its whole name."""
    record = records.get("model", name)
    if record is None:
        raise KeyError(f"there is no model '{name}'")
    return ModelResponse(record)


def version_of_run(run: str, step: Optional[str]) -> Optional[ModelVersionResponse]:
    """The version to which a whole run belongs, or a step by a model of its own; or None."""
    for record in records.listed("model_version"):
        runs = record.body.get("runs") or {}
        if run not in runs:
            continue
        steps = runs[run]
        if (steps is None) if step is None else (step in (steps or ())):
            id = record.name.partition("/")[0]
            model = next((m for m in models() if str(m.id) == id), None)
            return None if model is None else ModelVersionResponse(model, record)
    return None


def update_model(model: ModelResponse, given: Mapping[str, Any]) -> ModelResponse:
    """Change what is said about a model, its name aside."""
    fields = {k: given[k] for k in FIELDS if given.get(k) is not None}
    record = records.change("model", model.name, lambda body: body.update(fields))
    name = given.get("name")
    if name and name != model.name:
        if records.get("model", str(name)) is not None:
            raise EntityExistsError(f"model '{name}' exists already")
        records.create("model", str(name), dict(record.body))
        records.remove("model", model.name)
        record = records.get("model", str(name)) or record
    tags.attach("model", model.id, given.get("add_tags"))
    tags.detach("model", model.id, given.get("remove_tags"))
    return ModelResponse(record)


def update_version(version: ModelVersionResponse, given: Mapping[str, Any]) -> ModelVersionResponse:
    """Change a version: ``name``, ``description``, ``stage`` (with ``force``), tags."""
    for field in ("name", "description"):
        if given.get(field) is not None:
            _set(version, field, str(given[field]))
    if given.get("stage") is not None:
        version.set_stage(given["stage"], bool(given.get("force")))
    tags.attach("model_version", version.id, given.get("add_tags"))
    tags.detach("model_version", version.id, given.get("remove_tags"))
    return get_model_version(version.model, version.id)


def delete_version(version: ModelVersionResponse) -> None:
    """Remove a version; its artifacts and runs stay."""
    records.remove("model_version", version.key)
    tags.forget("model_version", version.id)


def delete_model(model: ModelResponse) -> None:
    """Remove a model and its versions."""
    for version in versions(model):
        delete_version(version)
    records.remove("model", model.name)
    tags.forget("model", model.id)


_FILTERS = {
    "id": lambda m: m.id,
    "name": lambda m: m.name,
    "created": lambda m: m.created,
    "updated": lambda m: m.updated,
    "tags": lambda m: [t.name for t in m.tags],
}
_VERSION_FILTERS = {
    **_FILTERS,
    "number": lambda v: v.number,
    "stage": lambda v: v.stage,
    "model": lambda v: [v.model.name, v.model.id],
    "run_metadata": lambda v: v.run_metadata,
}


def list_models(given: Mapping[str, Any]) -> Page[ModelResponse]:
    """The page of models that the arguments ask for."""
    return page_of("models", models(), given, _FILTERS)


def list_versions(given: Mapping[str, Any]) -> Page[ModelVersionResponse]:
    """The page of versions that the arguments ask for."""
    given = dict(given)
    given["model"] = getattr(given.get("model"), "name", given.get("model"))
    found = (version for model in models() for version in versions(model))
    return page_of("model_versions", found, given, _VERSION_FILTERS, "number")


def _all_versions() -> List[ModelVersionResponse]:
    return [version for model in models() for version in versions(model)]


def list_artifact_links(given: Mapping[str, Any]) -> Page[ModelVersionArtifactResponse]:
    """The page of links to artifacts that the arguments ask for."""
    given = dict(given)
    kinds: Dict[str, Callable[[Any], bool]] = {
        "only_data_artifacts": lambda t: t not in (ArtifactType.MODEL, ArtifactType.SERVICE),
        "only_model_artifacts": lambda t: t is ArtifactType.MODEL,
        "only_deployment_artifacts": lambda t: t is ArtifactType.SERVICE,
    }
    wanted = [kinds[word] for word in kinds if given.pop(word, None)]
    found = (
        ModelVersionArtifactResponse(version, artifact)
        for version in _all_versions()
        for artifact in version._links()
        if all(fits(artifact.type) for fits in wanted)
    )
    asked = {
        "id": lambda a: a.id,
        "created": lambda a: a.created,
        "updated": lambda a: a.updated,
        "model_version_id": lambda a: a.model_version,
        "artifact_version_id": lambda a: a.artifact_version.id,
        "artifact_name": lambda a: a.artifact_version.name,
        "has_custom_name": lambda a: "::" not in a.artifact_version.name,
    }
    return page_of("model_version_artifact_links", found, given, asked)


def list_run_links(given: Mapping[str, Any]) -> Page[ModelVersionPipelineRunResponse]:
    """The page of links to runs that the arguments ask for."""
    found = (
        ModelVersionPipelineRunResponse(version, run)
        for version in _all_versions()
        for run in version.pipeline_runs.values()
    )
    asked = {
        "id": lambda r: r.id,
        "created": lambda r: r.created,
        "updated": lambda r: r.updated,
        "model_version_id": lambda r: r.model_version,
        "pipeline_run_id": lambda r: r.pipeline_run.id,
        "pipeline_run_name": lambda r: r.pipeline_run.name,
    }
    return page_of("model_version_pipeline_run_links", found, given, asked)


def artifact_of(version: Any) -> ArtifactVersionResponse:
    """A version, by itself or by its id."""
    return get_version(version)
