"""Artifacts and their versions: rows of the store's named artifacts."""

from __future__ import annotations

import json
import os
import uuid
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set

from .._base.binary import json_of, output_of
from .._base.errors import EngineError
from .._definition.types import ArtifactType
from .._engine.client import ArtifactVersion
from .._engine.stored import stored_spec
from . import records, tags, whole
from .enums import ArtifactSaveType
from .page import Page, page_of
from .records import store_folder as store_folder
from .responses import Response, Source, found_by, moment, with_numbers

_KIND = "artifact"  # of records: those that lost their last version
_MODELS = ("sklearn.", "torch.nn.", "xgboost.", "lightgbm.", "keras.", "transformers.", "catboost.")
_MATERIALIZERS = (
    *((f"builtins.{t}", "built_in", "BuiltInContainer") for t in ("dict", "list", "set", "tuple")),
    ("builtins.bytes", "built_in", "Bytes"),
    ("builtins.", "built_in", "BuiltIn"),
    ("numpy.ndarray", "numpy", "Numpy"),
    ("numpy.float64", "built_in", "BuiltIn"),
    ("sklearn.", "sklearn", "Sklearn"),
    ("pandas.", "pandas", "Pandas"),
    ("stoker.materializers.", "structured_string", "StructuredString"),
    ("PIL.", "pillow_image", "PillowImage"),
    ("scipy.sparse.", "sparse", "Sparse"),
    ("pathlib.", "path", "Path"),
    ("stoker._zen.mlflow_services.", "service", "Service"),
    ("uuid.", "uuid", "UUID"),
)
_INTEGRATIONS = {  # a materializer's module → the integration that has it
    **{name: name for name in ("numpy", "pandas", "sklearn")},
    **{"pillow_image": "pillow", "sparse": "scipy"},
}


class ArtifactVersionResponse(Response):
    """One version of an artifact."""

    _absent = ("item_count",)

    def __init__(self, row: Mapping[str, Any]) -> None:
        self.row = row
        self.id: uuid.UUID = records.id_of("artifact version", _key(row))
        self.name = str(row["name"])
        self.version = str(row["version"])
        self.created = self.updated = moment(row.get("created_ms"))
        self._visuals: Optional[List[Any]] = None

    @property
    def artifact_digest(self) -> str:
        """The digest of its content: a step takes it as an input by this."""
        return str(self.row["digest"])

    content_hash = artifact_digest

    @property
    def artifact_store_id(self) -> uuid.UUID:
        """The id of the store's component."""
        return records.id_of("component", "artifact_store/default")

    @property
    def visualizations(self) -> List[Any]:
        """What shows it: pages, texts, tables and pictures."""
        from .visuals import visualizations_of

        if self._visuals is None:
            self._visuals = visualizations_of(self)
        return list(self._visuals)

    @property
    def native(self) -> ArtifactVersion:
        """The same in Stoker's own client."""
        return ArtifactVersion(self.name, {**self.row, "path": None}, self.row.get("store"))

    @property
    def artifact(self) -> ArtifactResponse:
        """The artifact of which this is a version."""
        return ArtifactResponse(self.name)

    @property
    def tags(self) -> List[tags.TagResponse]:
        """Its tags: its own, and those of its run that cascade."""
        own = [*(self.row.get("tags") or ()), *self._cascaded]
        return [
            tag
            for tag in tags.of("artifact_version", self.id, own)
            if not (tag.exclusive and tag.name in own and self._later(tag.name))
        ]

    @property
    def _cascaded(self) -> List[str]:
        """The tags that its run gives to what its steps return."""
        if not self.row.get("run") or self.save_type != ArtifactSaveType.STEP_OUTPUT:
            return []
        kept = whole.kept_of(stored_spec(self.row.get("store"), str(self.row["run"])))
        return [name for name, said in (kept.get("tags") or {}).items() if said.get("cascade")]

    def _later(self, tag: str) -> bool:
        """Whether a later version got an exclusive tag when it was made."""
        rows = [one.row for one in versions_of(self.name)]
        after = [r for r in rows if r.get("created_ms", 0) > self.row.get("created_ms", 0)]
        return any(tag in (r.get("tags") or ()) for r in after)

    @property
    def run_metadata(self) -> Dict[str, Any]:
        """Its metadata, and its size."""
        size = self.row.get("size")
        if self.switch("enable_artifact_metadata") is False:
            size = None
        found = {} if size is None else {"storage_size": int(size)}
        return {**found, **with_numbers(self.row.get("metadata") or {})}

    @property
    def uri(self) -> str:
        """Path of its file or folder."""
        return self.native.uri

    def load(self, *_: Any, **__: Any) -> Any:
        """Its value."""
        return self.native.load()

    read = load

    @property
    def data_type(self) -> Source:
        """The class of its value."""
        return Source(str(self.row.get("type") or "builtins.object"))

    @property
    def materializer(self) -> Source:
        """The class of ZenML's that stands for how it is stored."""
        kind = str(self.data_type)
        own = str((self.row.get("meta") or {}).get("materializer") or "").partition(":")
        if own[2] and not own[0].startswith("stoker."):
            return Source(f"{own[0]}.{own[2]}")
        if self._model_kind:
            library = "pytorch" if "pytorch" in self._model_kind else "tensorflow"
            return Source(f"zenml.integrations.{library}.materializers.{self._model_kind}")
        if self.save_type == ArtifactSaveType.PREEXISTING:
            return Source(
                "zenml.artifacts.preexisting_data_materializer.PreexistingDataMaterializer"
            )
        for begins, module, name in _MATERIALIZERS:
            if kind.startswith(begins):
                home = f"integrations.{_INTEGRATIONS[module]}." if module in _INTEGRATIONS else ""
                return Source(f"zenml.{home}materializers.{module}_materializer.{name}Materializer")
        return Source("zenml.materializers.cloudpickle_materializer.CloudpickleMaterializer")

    @property
    def _model_kind(self) -> str:
        """ZenML's materializer of a model of Keras or PyTorch; "": it is none of these."""
        kept = (self.row.get("meta") or {}).get("zenml") or {}
        return str(kept.get("materializer") or "")

    @property
    def save_type(self) -> ArtifactSaveType:
        """Whether it is a step's output or was saved by hand."""
        if self.row.get("output"):
            return ArtifactSaveType.STEP_OUTPUT
        given = (self.row.get("meta") or {}).get("zenml") or {}
        return ArtifactSaveType(given.get("save_type", "manual"))

    @property
    def type(self) -> ArtifactType:
        """Its kind: as configured, else by the class of its value."""
        kind = self._configured().get("artifact_type") or self._materializers_kind
        if kind is None and (self._model_kind or str(self.data_type).startswith(_MODELS)):
            return ArtifactType.MODEL
        if kind is None and str(self.data_type).startswith("stoker.materializers"):
            return ArtifactType.DATA_ANALYSIS  # HTMLString and its kin
        if kind is None and str(self.data_type).startswith("stoker._zen.mlflow_services."):
            return ArtifactType.SERVICE
        contained = str(self.materializer).endswith(".BuiltInContainerMaterializer")
        return ArtifactType(kind or ("BaseArtifact" if contained else "DataArtifact"))

    @property
    def _materializers_kind(self) -> Optional[str]:
        """What the program's own materializer says of it; ``BaseArtifact`` if nothing."""
        meta = self.row.get("meta") or {}
        said, known = meta.get("artifact_type"), {one.value for one in ArtifactType}
        if not meta.get("materializer"):
            return None
        return said if said in known else ArtifactType.BASE.value

    def switch(self, name: str) -> Optional[bool]:
        """An ``enable_…`` of its step or pipeline, or of ``save_artifact``; None: not given."""
        if not self.row.get("output"):
            return ((self.row.get("meta") or {}).get("zenml") or {}).get(name)
        spec = stored_spec(self.row.get("store"), str(self.row.get("run")))
        step = (spec.get("steps") or {}).get(self.row.get("step")) or {}
        for of in (step, spec):
            said = ((of.get("extra") or {}).get("zenml") or {}).get(name)
            if said is not None:
                return bool(said)
        return None

    def _configured(self) -> Mapping[str, Any]:
        """What the step's ``ArtifactConfig`` said, or ``save_artifact``."""
        if not self.row.get("output"):
            return (self.row.get("meta") or {}).get("zenml") or {}
        spec = stored_spec(self.row.get("store"), str(self.row.get("run")))
        step = (spec.get("steps") or {}).get(self.row.get("step")) or {}
        kept = ((step.get("extra") or {}).get("zenml") or {}).get("outputs") or {}
        return kept.get(self.row["output"]) or {}

    @property
    def producer_pipeline_run_id(self) -> Optional[uuid.UUID]:
        """The run that made it; None: it was saved outside of a run."""
        run = self.row.get("run")
        return records.id_of("run", whole.head_of(run)) if run else None

    @property
    def producer_step_run_id(self) -> Optional[uuid.UUID]:
        """The step that made it, or None."""
        if not self.row.get("run") or not self.row.get("step"):
            return None
        return records.id_of("step", f"{whole.head_of(self.row['run'])}/{self.row['step']}")

    @property
    def run(self) -> Any:
        """The run that made it.

        Raises:
            RuntimeError: none did.
        """
        from .runs import run_of

        if not self.row.get("run"):
            raise RuntimeError(f"no run made artifact '{self.name}:{self.version}'")
        return run_of(str(self.row["run"]))

    @property
    def step(self) -> Any:
        """The step that made it; raises as :attr:`run`."""
        found = self.run.steps.values()
        return next(step for step in found if step._place == self.row["step"])

    def visualize(self, title: Optional[str] = None) -> None:
        """Display it in a notebook.

        Raises:
            RuntimeError: the program doesn't run in a notebook.
        """
        from .visuals import visualize_artifact

        visualize_artifact(self, title)

    def download_files(self, path: str, overwrite: bool = False) -> None:
        """Copy its files into a zip file."""
        import zipfile

        if os.path.exists(path) and not overwrite:
            raise FileExistsError(f"'{path}' exists; pass overwrite=True to replace it")
        with zipfile.ZipFile(path, "w") as archive:
            for file, name in _files(self.uri):
                plain = self.row.get("format") == "json" and not os.path.isdir(self.uri)
                archive.write(file, "data.json" if plain else name)


def _files(top: str) -> Iterable[Any]:
    if not os.path.isdir(top):
        return [(top, os.path.basename(top))]
    names = [os.path.join(d, f) for d, _, files in os.walk(top) for f in files]
    return [(name, os.path.relpath(name, top)) for name in names]


class ArtifactResponse(Response):
    """All versions of a name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id = records.id_of("artifact", name)
        self.has_custom_name = "::" not in name

    @property
    def versions(self) -> Dict[str, ArtifactVersionResponse]:
        """Version → artifact, in order of creation."""
        return {one.version: one for one in versions_of(self.name)}

    @property
    def latest_version_name(self) -> Optional[str]:
        """The latest version."""
        return next(reversed(list(self.versions)), None)

    @property
    def latest_version_id(self) -> Optional[uuid.UUID]:
        """Its id."""
        latest = self.latest_version_name
        return None if latest is None else self.versions[latest].id

    @property
    def tags(self) -> List[tags.TagResponse]:
        """Its own tags; those of a version are the version's."""
        return tags.of("artifact", self.id)

    @property
    def created(self) -> Any:
        """When its first version was made."""
        kept = [r.body.get("created_ms") for r in records.listed(_KIND, self.name)]
        made = [one.row.get("created_ms") for one in versions_of(self.name)]
        return moment(min((ms for ms in (*kept, *made) if ms), default=None))

    updated = created


def _key(row: Mapping[str, Any]) -> str:
    parts = ("created_ms", "run", "step", "output", "version", "digest")
    return "/".join(str(row.get(one)) for one in parts)


def rows() -> List[Dict[str, Any]]:
    """All named artifacts in order of creation; none without a store."""
    try:
        found: List[Dict[str, Any]] = json_of(["artifact", "list"])
    except EngineError as bad:
        if records.no_store(bad):
            return []
        raise
    found.reverse()
    return found


def versions_of(name: Optional[str] = None) -> List[ArtifactVersionResponse]:
    """Versions in order of creation, of one name or of all."""
    store = store_folder()
    return [
        ArtifactVersionResponse({**row, "store": store})
        for row in rows()
        if name in (None, row["name"])
    ]


def get_version(name_or_id: Any, version: Any = None) -> ArtifactVersionResponse:
    """A version by the artifact's name (the latest, or the given one), by id, or by its prefix.

    Raises:
        KeyError: there is none.
    """
    if isinstance(name_or_id, ArtifactVersionResponse):
        return name_or_id
    wanted = str(getattr(name_or_id, "id", name_or_id))
    everything = versions_of()
    named = [one for one in everything if one.name == wanted]
    if version is not None:
        for one in named:
            if one.version == str(version):
                return one
        raise KeyError(f"there is no artifact '{wanted}' with version '{version}'")
    if named:
        return named[-1]
    found: ArtifactVersionResponse = found_by("artifact version", wanted, everything)
    return found


def _artifacts() -> List[ArtifactResponse]:
    """All artifacts, those too of which all versions were deleted."""
    left = [record.name for record in records.listed(_KIND)]
    return [ArtifactResponse(n) for n in dict.fromkeys((*left, *(v.name for v in versions_of())))]


def get_artifact(name_or_id: Any) -> ArtifactResponse:
    """An artifact by name, id or prefix; raises as :func:`get_version`."""
    wanted = getattr(name_or_id, "id", name_or_id)
    found: ArtifactResponse = found_by("artifact", wanted, _artifacts())
    return found


_VERSION_FILTERS = {
    "id": lambda a: a.id,
    "artifact": lambda a: a.name,
    "artifact_id": lambda a: records.id_of("artifact", a.name),
    "name": lambda a: a.name,
    "version": lambda a: a.version,
    "version_number": lambda a: a.version,
    "created": lambda a: a.created,
    "updated": lambda a: a.updated,
    "type": lambda a: a.type,
    "data_type": lambda a: str(a.data_type),
    "materializer": lambda a: str(a.materializer),
    "uri": lambda a: a.uri,
    "has_custom_name": lambda a: "::" not in a.name,
    "tags": lambda a: [t.name for t in a.tags],
    "pipeline_run": lambda a: _run_of(a),
    "save_type": lambda a: a.save_type,
    "artifact_store_id": lambda a: a.artifact_store_id,
    "run_metadata": lambda a: a.run_metadata,
}
_ARTIFACT_FILTERS = {
    "id": lambda a: a.id,
    "name": lambda a: a.name,
    "has_custom_name": lambda a: a.has_custom_name,
    "created": lambda a: a.created,
    "updated": lambda a: a.updated,
    "tags": lambda a: [t.name for t in a.tags],
}


def list_versions(
    given: Mapping[str, Any], belong: Optional[Set[uuid.UUID]] = None
) -> Page[ArtifactVersionResponse]:
    """The page of versions that the arguments ask for, among those that ``belong`` to a model."""
    given = dict(given)
    if isinstance(given.get("artifact"), ArtifactResponse):
        given["artifact"] = given["artifact"].name
    found = versions_of()
    if belong is not None:
        found = [one for one in found if one.id in belong]
    if given.pop("only_unused", None):
        taken = used()
        found = [one for one in found if one.id not in taken]
    return page_of("artifact_versions", found, given, _VERSION_FILTERS)


def _run_of(version: ArtifactVersionResponse) -> List[Any]:
    """The run that made a version, by id and name."""
    made = version.producer_pipeline_run_id
    return [] if made is None else [made, version.run.name]


def used() -> Set[uuid.UUID]:
    """The versions that a run made or took."""
    from .runs import runs

    steps = [step for run in runs() for step in run.steps.values()]
    lists = [some for step in steps for of in (step.outputs, step.inputs) for some in of.values()]
    return {one.id for some in lists for one in some}


def list_artifacts(given: Mapping[str, Any]) -> Page[ArtifactResponse]:
    """The page of artifacts that the arguments ask for."""
    return page_of("artifacts", _artifacts(), given, _ARTIFACT_FILTERS)


def delete_version(version: ArtifactVersionResponse) -> None:
    """Remove a version's name; the content goes once nothing refers to it."""
    if len(versions_of(version.name)) == 1:  # the artifact stays
        made = version.row.get("created_ms")
        records.change(_KIND, version.name, lambda body: body.setdefault("created_ms", made))
    output_of(["artifact", "rm", f"{version.name}:{version.version}"])
    tags.forget("artifact_version", version.id)


def delete_artifact(artifact: ArtifactResponse) -> None:
    """Remove it with all versions."""
    if artifact.versions:
        output_of(["artifact", "rm", artifact.name, "--all"])
    records.remove(_KIND, artifact.name)
    tags.forget("artifact", artifact.id)


def log(version: ArtifactVersionResponse, metadata: Dict[str, Any]) -> None:
    """Add metadata to a version."""
    words = ["metadata", "--artifact", f"{version.name}:{version.version}"]
    output_of([*words, json.dumps(metadata, ensure_ascii=False)])
