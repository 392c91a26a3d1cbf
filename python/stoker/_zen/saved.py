"""``save_artifact``, ``load_artifact``, ``register_artifact``."""

from __future__ import annotations

import os
import tempfile
from typing import Any, Dict, List, Optional

from .._base.binary import output_of
from .._base.errors import EngineError, say
from .._engine.artifacts import _as_file
from .._engine.launch import add_artifact
from .._worker import context
from .._worker.context import plain_metadata
from ..materializers import _artifact
from ..materializers._facts import facts_of, model_kind
from . import records, stacks, tags, targets
from .artifacts import ArtifactVersionResponse, get_version, log, versions_of
from .errors import EntityExistsError


def save_artifact(
    data: Any,
    name: str,
    version: Any = None,
    artifact_type: Any = None,
    tags: Any = None,
    extract_metadata: bool = True,
    include_visualizations: bool = True,
    user_metadata: Optional[Dict[str, Any]] = None,
    materializer: Any = None,
    uri: Optional[str] = None,
    **_: Any,
) -> ArtifactVersionResponse:
    """Store a value under a name; an equal value is another version.

    Raises:
        EntityExistsError: the name has this version.
        SerializeError: the value can't be stored.
        ValueError: the name is empty.
        RuntimeError: a step calls it on another machine, where the store isn't.
    """
    if not name:
        raise ValueError("save_artifact: the name is empty")
    with tempfile.TemporaryDirectory(prefix="stoker-save-") as folder:
        said: List[str] = []
        path = os.path.join(folder, "value")
        entry, told = _artifact.store(
            data, path, materializer, said, name, with_visuals=include_visualizations
        )
        told = {**facts_of(data), **told} if extract_metadata else {}
        for sentence in said:
            say(sentence)
        if "value" in entry:
            entry = _as_file(entry, path)
        kept: Dict[str, Any] = {} if extract_metadata else {"enable_artifact_metadata": False}
        if "materializer" not in (entry.get("meta") or {}):
            kept["materializer"] = model_kind(data)
        if not include_visualizations:
            kept["enable_artifact_visualization"] = False
        told.update((user_metadata or {}) if extract_metadata else {})
        told = plain_metadata(told, "save_artifact")
        return _add(entry, name, version, artifact_type, "manual", tags, told, kept)


def register_artifact(
    folder_or_file_uri: str,
    name: str,
    version: Any = None,
    artifact_type: Any = None,
    tags: Any = None,
    has_custom_name: bool = True,
    artifact_metadata: Optional[Dict[str, Any]] = None,
    **_: Any,
) -> ArtifactVersionResponse:
    """Keep a copy of a file or folder under a name; its value is a ``Path``.

    Raises:
        FileNotFoundError: there is no such file or folder.
        EntityExistsError: the name has this version.
    """
    path = os.path.abspath(folder_or_file_uri)
    if not os.path.exists(path):
        raise FileNotFoundError(f"artifact '{name}': there is no file or folder '{path}'")
    bounds = str(stacks.active().artifact_store.path)
    if "://" not in bounds and os.path.commonpath([bounds, path]) != bounds:
        raise FileNotFoundError(
            f"artifact '{name}': '{path}' is outside of the artifact store, '{bounds}'"
        )
    form = "dir" if os.path.isdir(path) else "file"
    entry = {"path": path, "format": form, "type": "pathlib.Path", "meta": {}}
    return _add(entry, name, version, artifact_type, "preexisting", tags, artifact_metadata)


def _add(
    entry: Dict[str, Any],
    name: str,
    version: Any,
    artifact_type: Any,
    save_type: str,
    given_tags: Any,
    metadata: Optional[Dict[str, Any]],
    more: Optional[Dict[str, Any]] = None,
) -> ArtifactVersionResponse:
    kept: Dict[str, Any] = {"save_type": save_type, **(more or {})}
    if artifact_type is not None:
        kept["artifact_type"] = str(getattr(artifact_type, "value", artifact_type))
    entry = {**entry, "meta": {**(entry.get("meta") or {}), "zenml": kept}}
    if version is not None and any(one.version == str(version) for one in versions_of(name)):
        raise EntityExistsError(f"artifact '{name}' has a version '{version}' already")
    before = {one.id for one in versions_of(name)}
    step = context._current
    try:
        add_artifact(entry, name, version, None if step is None else (step.run_id, step.step_name))
    except EngineError as bad:
        if "already" in str(bad):
            raise EntityExistsError(str(bad)) from None
        records.no_store(bad)  # raises in a step on another machine
        raise
    made = [one for one in versions_of(name) if one.id not in before][-1]
    tags.attach("artifact_version", made.id, given_tags)
    if metadata:
        log(made, metadata)
        made = get_version(made.id)
    model = targets.running_model()
    if model is not None:
        model.link(made)
    return made


def load_artifact(name_or_id: Any, version: Any = None) -> Any:
    """The value of a stored artifact.

    Raises:
        KeyError: there is none.
    """
    return get_version(name_or_id, version).load()


def load_artifact_from_response(artifact: ArtifactVersionResponse) -> Any:
    """Its value."""
    return artifact.load()


def download_artifact_files_from_response(
    artifact: ArtifactVersionResponse, path: str, overwrite: bool = False
) -> None:
    """Copy its files into a zip file; raises FileExistsError unless ``overwrite``."""
    artifact.download_files(path, overwrite)


def get_producer_step_of_artifact(artifact: ArtifactVersionResponse) -> Any:
    """The step that made it; raises RuntimeError if none did."""
    return artifact.step


def get_artifacts_versions_of_pipeline_run(
    pipeline_run: Any, only_produced: bool = False
) -> List[ArtifactVersionResponse]:
    """What a run's steps gave; ``only_produced``: without what cached ones reused."""
    found: List[ArtifactVersionResponse] = (
        pipeline_run.produced_artifact_versions if only_produced else pipeline_run.artifact_versions
    )
    return found


def rename(old: str, new: str) -> None:
    """Give all versions of a name another one.

    Raises:
        EntityExistsError: the other name is taken.
    """
    if any(one.name == new for one in versions_of()):
        raise EntityExistsError(f"artifact '{new}' exists already")
    if versions_of(old):
        output_of(["artifact", "mv", old, new])
    kept = records.get("artifact", old)
    if kept is not None:
        records.create("artifact", new, {"created_ms": kept.body.get("created_ms")})
        records.remove("artifact", old)
