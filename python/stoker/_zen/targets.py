"""What ``log_metadata`` and the functions for tags may name: runs, steps, artifacts, models."""

from __future__ import annotations

import uuid
from typing import Any, Callable, Dict, List, Optional, Set

from .._base.errors import EngineError
from .._engine import metadata as engine
from .._worker import context
from .._worker.context import plain_metadata
from . import artifacts, models, records, runs, tags


def _running() -> Any:
    return context._current


def running_model() -> Optional[models.ModelVersionResponse]:
    """The version of the running step's model, or None."""
    step = _running()
    given = step.extra.get("model") if step is not None else None
    if not isinstance(given, dict):
        return None
    model = models.get_model_exactly(str(given["name"]))
    return models.get_model_version(model, given.get("version_id") or given.get("version"))


def log_metadata(metadata: Dict[str, Any], **target: Any) -> None:
    """Attach metadata to what ``target`` names: ``step_id``; ``run_id_name_or_prefix``, with
    ``step_name``; ``artifact_version_id``; ``artifact_name``, with ``artifact_version``;
    ``model_version_id``; ``model_name``, with ``model_version``; ``infer_artifact``,
    ``infer_model``. With none of them, to the running step.

    Raises:
        ValueError: it names nothing, and no step is running.
        KeyError: there is no such object.
    """
    given = {k: v for k, v in target.items() if v not in (None, False)}
    plain = plain_metadata(metadata, "log_metadata")
    if given.get("infer_model"):
        version = running_model()
        if version is None:
            raise ValueError("log_metadata(infer_model=True): the running step has no model")
        version.log(plain)
    elif "model_version_id" in given or {"model_name", "model_version"} <= given.keys():
        model_version(given).log(plain)
    elif "artifact_version_id" in given:
        artifacts.log(artifacts.get_version(given["artifact_version_id"]), plain)
    elif "step_id" in given:
        _log_step(runs.get_step(given["step_id"]), plain)
    elif "run_id_name_or_prefix" in given:
        _log_run(runs.get_run(given["run_id_name_or_prefix"]), given, plain)
    elif _running() is not None and given.get("infer_artifact"):
        _log_output(given, plain)
    elif {"artifact_name", "artifact_version"} <= given.keys():
        found = artifacts.get_version(given["artifact_name"], given.get("artifact_version"))
        artifacts.log(found, plain)
    elif given:
        raise ValueError(
            f"log_metadata: {', '.join(sorted(given))} alone names nothing; "
            "give artifact_name=… and model_name=… with a version, or infer_artifact=True"
        )
    elif _running() is None:
        raise ValueError(
            "log_metadata: no step is running in this process; name the target: "
            "run_id_name_or_prefix=…, step_name=…, artifact_name=… or model_name=…"
        )
    else:
        engine.log_metadata(metadata)


def _log_output(given: Dict[str, Any], plain: Dict[str, Any]) -> None:
    """Metadata of an output of the running step; else of a stored artifact of that name."""
    name = given.get("artifact_name")
    known = _running()._outputs
    if name is None or (name in known and "artifact_version" not in given):
        _running().add_output_metadata(plain, name)
        return
    if "artifact_version" not in given:
        raise ValueError(
            f"log_metadata: artifact '{name}' is no output of the running step, which has "
            f"{', '.join(known)}; say its artifact_version"
        )
    artifacts.log(artifacts.get_version(name, given.get("artifact_version")), plain)


def _is_running(run: runs.PipelineRunResponse, step: Optional[str]) -> bool:
    now = _running()
    return now is not None and now.run_id == run.native.id and step in (None, now.step_name)


def _log_step(step: runs.StepRunResponse, plain: Dict[str, Any]) -> None:
    if _is_running(step.run, step._place):
        _running()._metadata.update(plain)
        return
    _log_native(f"{step.run.native.id}/{step._place}", plain)


def _log_run(run: runs.PipelineRunResponse, given: Dict[str, Any], plain: Dict[str, Any]) -> None:
    step = given.get("step_name")
    if step is not None:
        _log_step(run.steps[step], plain)
        return
    _log_native(run.native.id, plain)


def _log_native(place: str, plain: Dict[str, Any]) -> None:
    """Metadata of a run, or of ``RUN/STEP``: while the run goes on, a record keeps it."""
    try:
        engine._log_outside([place], plain)
    except EngineError as bad:
        if "is already running" not in str(bad):
            raise
        records.change(
            records.LATER,
            place,
            lambda body: body.update(metadata={**(body.get("metadata") or {}), **plain}),
        )


def settle(run: str) -> None:
    """Give a run that has ended, and its steps, the metadata that records kept for them."""
    for record in records.listed(records.LATER):
        if record.name.partition("/")[0] == run:
            engine._log_outside([record.name], record.body["metadata"])
            records.remove(records.LATER, record.name)


def model_version(given: Dict[str, Any]) -> models.ModelVersionResponse:
    """The version that ``model_version_id`` names, or ``model_name`` with ``model_version``.

    Raises:
        KeyError: there is none.
    """
    if "model_version_id" in given:
        wanted = str(getattr(given["model_version_id"], "id", given["model_version_id"]))
        for model in models.models():
            for version in models.versions(model):
                if str(version.id) == wanted:
                    return version
        raise KeyError(f"there is no version of a model with id '{wanted}'")
    return models.get_model_version(given["model_name"], given.get("model_version"))


def belonging(model: Any, version: Any) -> Optional[Set[uuid.UUID]]:
    """What belongs to a model, or to a version of one; None: neither is asked for.

    Raises:
        KeyError: there is none.
    """
    if model is None and version is None:
        return None
    if version is not None:
        some = [model_version({"model_version_id": version})]
    else:
        some = models.versions(models.get_model(model))
    return {one.id for each in some for one in each._links()}


def bulk_log_metadata(
    metadata: Dict[str, Any],
    pipeline_runs: Any = None,
    step_runs: Any = None,
    artifact_versions: Any = None,
    model_versions: Any = None,
    infer_models: bool = False,
    infer_artifacts: bool = False,
) -> None:
    """Attach metadata to several objects; each is named by an object with ``id`` or ``name``, or
    ``version``.

    Raises:
        ValueError: nothing is named.
        KeyError: there is no such object.
    """
    named = (pipeline_runs, step_runs, artifact_versions, model_versions)
    if not any(named) and not infer_models and not infer_artifacts:
        raise ValueError("bulk_log_metadata: name at least one target")
    for one in pipeline_runs or ():
        log_metadata(metadata, run_id_name_or_prefix=one.value)
    for one in step_runs or ():
        if getattr(one, "id", None) is not None:
            log_metadata(metadata, step_id=one.id)
        else:
            log_metadata(metadata, run_id_name_or_prefix=one.run.value, step_name=one.name)
    for one in artifact_versions or ():
        if getattr(one, "id", None) is not None:
            log_metadata(metadata, artifact_version_id=one.id)
        else:
            log_metadata(metadata, artifact_name=one.name, artifact_version=one.version)
    for one in model_versions or ():
        if getattr(one, "id", None) is not None:
            log_metadata(metadata, model_version_id=one.id)
        else:
            log_metadata(metadata, model_name=one.name, model_version=one.version)
    if infer_models:
        log_metadata(metadata, infer_model=True)
    if infer_artifacts:
        for name in _running()._outputs if _running() is not None else ():
            log_metadata(metadata, artifact_name=name, infer_artifact=True)


def log_model_metadata(
    metadata: Dict[str, Any], model_name: Optional[str] = None, model_version: Any = None
) -> None:
    """Attach metadata to a version of a model; without a name, of the running step's."""
    if model_name is None:
        log_metadata(metadata, infer_model=True)
    else:
        log_metadata(metadata, model_name=model_name, model_version=model_version)


def log_artifact_metadata(
    metadata: Dict[str, Any], artifact_name: Optional[str] = None, artifact_version: Any = None
) -> None:
    """Attach metadata to an output of the running step, or to a stored artifact."""
    here = _running() is not None and (not artifact_name or artifact_name in _running()._outputs)
    if artifact_name and not here and artifact_version is None:
        artifact_version = artifacts.get_version(artifact_name).version
    log_metadata(
        metadata,
        artifact_name=artifact_name,
        artifact_version=artifact_version,
        infer_artifact=here and artifact_version is None,
    )


def log_step_metadata(
    metadata: Dict[str, Any],
    step_name: Optional[str] = None,
    pipeline_name_id_or_prefix: Any = None,
    run_id: Any = None,
) -> None:
    """Attach metadata to the running step, or to a step of a finished run."""
    run = run_id
    if run is None and pipeline_name_id_or_prefix is not None:
        run = runs.get_pipeline(pipeline_name_id_or_prefix).last_run.id
    log_metadata(metadata, step_name=step_name, run_id_name_or_prefix=run)


def link_artifact_to_model(artifact_version: Any, model: Any = None) -> None:
    """Add a stored artifact to a version of a model; without one, to the running step's.

    Raises:
        RuntimeError: no model is named, and the running step has none.
    """
    version = running_model() if model is None else model._get_or_create_model_version()
    if version is None:
        raise RuntimeError("link_artifact_to_model: name a model; no running step has one")
    version.link(artifacts.get_version(artifact_version))


def tagged(caller: str, given: List[str], target: Dict[str, Any], add: bool) -> None:
    """Change the tags of what ``target`` names (see ``add_tags``)."""
    change = tags.attach if add else tags.detach
    if "pipeline" in target:
        change("pipeline", runs.get_pipeline(target["pipeline"]).id, given)
    elif "run" in target:
        _tag_run(runs.get_run(target["run"]).native.id, given, add)
    elif "artifact" in target:
        change("artifact", artifacts.get_artifact(target["artifact"]).id, given)
    elif "artifact_version_id" in target:
        version = artifacts.get_version(target["artifact_version_id"])
        change("artifact_version", version.id, given)
    elif "model" in target:
        change("model", models.get_model(target["model"]).id, given)
    elif "model_version_id" in target or "model_name" in target:
        change("model_version", model_version(target).id, given)
    elif "run_template" in target or "snapshot" in target:
        raise ValueError(f"{caller}: Stoker keeps no run templates and no snapshots")
    elif _running() is not None and not _stored(target):
        _tag_here(caller, given, target, add)
    elif "artifact_name" in target:
        version = artifacts.get_version(target["artifact_name"], target.get("artifact_version"))
        change("artifact_version", version.id, given)
    else:
        raise ValueError(f"{caller}: no step is running in this process; name a target: run=…")


def tag_by_id(resource: Any, names: List[str], add: bool) -> None:
    """Change the tags of an object with ``id`` and ``type``.

    Raises:
        KeyError: there is no such object.
        ValueError: objects of this type have no tags here.
    """
    kind, id = str(getattr(resource.type, "value", resource.type)), resource.id
    finds: Dict[str, Callable[[Any], Any]] = {
        "artifact": artifacts.get_artifact,
        "artifact_version": artifacts.get_version,
        "model": models.get_model,
        "model_version": lambda one: model_version({"model_version_id": one}),
        "pipeline": runs.get_pipeline,
    }
    if kind == "pipeline_run":
        _tag_run(runs.get_run(id).native.id, names, add)
    elif kind in finds:
        change = tags.attach if add else tags.detach
        change(kind, finds[kind](id).id, names)
    else:
        raise ValueError(f"there are no objects of the type '{kind}', so none has tags")


def log_by_id(resource: Any, metadata: Dict[str, Any]) -> None:
    """Attach metadata to an object with ``id`` and ``type``; raises as :func:`tag_by_id`."""
    kind = str(getattr(resource.type, "value", resource.type))
    words = {
        "pipeline_run": "run_id_name_or_prefix",
        "step_run": "step_id",
        "artifact_version": "artifact_version_id",
        "model_version": "model_version_id",
    }
    if kind not in words:
        raise ValueError(f"objects of the type '{kind}' have no metadata here")
    log_metadata(metadata, **{words[kind]: resource.id})


def _stored(target: Dict[str, Any]) -> bool:
    """Whether it names an artifact that isn't an output of the running step."""
    name = target.get("artifact_name")
    return name is not None and (
        target.get("artifact_version") is not None or name not in _running()._outputs
    )


def _tag_here(caller: str, given: List[str], target: Dict[str, Any], add: bool) -> None:
    step = _running()
    if "artifact_name" in target or target.get("infer_artifact"):
        change = step.add_output_tags if add else step.remove_output_tags
        change(given, target.get("artifact_name"))
    else:
        _tag_run(step.run_id, given, add)


def _tag_run(run: str, given: List[str], add: bool) -> None:
    tags.tag_run(run, *(given, None) if add else (None, given))
