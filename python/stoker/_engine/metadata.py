"""``log_metadata``: for the running step, or for a finished run, its steps and artifacts."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Optional

from .._base.binary import output_of
from .._worker import context
from .._worker.context import plain_metadata


def log_metadata(
    metadata: Dict[str, Any],
    *,
    step_id: Any = None,
    step_name: Optional[str] = None,
    run_id_name_or_prefix: Any = None,
    artifact_version_id: Any = None,
    artifact_name: Optional[str] = None,
    artifact_version: Any = None,
    infer_artifact: bool = False,
    **target: Any,
) -> None:
    """Attach metadata to the running step or one of its outputs, or to the named object.

    Args:
        metadata: names and values with a JSON form (numpy scalars and paths are converted).
        step_id: a step of a finished run, ``RUN/STEP``.
        step_name: the same with ``run_id_name_or_prefix``.
        run_id_name_or_prefix: a finished run by id, name, prefix or ``"latest"``; without a step,
            the run itself.
        artifact_version_id: a named artifact, by its digest.
        artifact_name: an output of the running or the named step; else a stored name.
        artifact_version: version of a stored name (default: the latest).
        infer_artifact: attach it to the running step's only output.

    Raises:
        RuntimeError: no target is given and no step is running, or the target is a model.
        EngineError: there is no such run, step or artifact, or the run has not ended yet.
        TypeError: a value has no JSON form.

    Example::

        @step
        def train() -> float:
            log_metadata({"accuracy": 0.97})
            return fit()
    """
    asked = sorted(name for name, value in target.items() if value not in (None, False))
    if asked:
        raise RuntimeError(
            f"log_metadata({asked[0]}=…): metadata can be attached to runs, steps and artifacts; "
            "Stoker keeps no models"
        )
    place = _place(step_id, step_name, run_id_name_or_prefix, artifact_name)
    if place is not None:
        _log_outside([place], metadata)
    elif artifact_version_id is not None or artifact_version is not None:
        named = _named(artifact_version_id, artifact_name, artifact_version)
        _log_outside(["--artifact", named], metadata)
    elif context._current is not None:
        if artifact_name is not None or infer_artifact:
            context._current.add_output_metadata(metadata, artifact_name)
        else:
            context._current._metadata.update(plain_metadata(metadata, "log_metadata"))
    elif artifact_name is not None:
        _log_outside(["--artifact", artifact_name], metadata)
    else:
        raise RuntimeError(
            "log_metadata: no step is running in this process; call it within the function of a "
            "step, or name its target: run_id_name_or_prefix=…, step_name=… or artifact_name=…"
        )


def _place(step_id: Any, step_name: Any, run: Any, output: Optional[str]) -> Optional[str]:
    """``RUN[/STEP[.OUTPUT]]``; None: no run is named, or it is the running step."""
    if step_id is not None:
        place = str(getattr(step_id, "id", step_id))
        if "/" not in place:
            raise RuntimeError(f"log_metadata(step_id='{place}'): a step's id is RUN/STEP")
    elif run is None:
        if step_name is not None and (
            context._current is None or step_name != context._current.step_name
        ):
            raise RuntimeError(
                f"log_metadata(step_name='{step_name}') needs the run: add run_id_name_or_prefix=…"
            )
        return None
    else:
        run = str(getattr(run, "id", run))
        place = run if step_name is None else f"{run}/{step_name}"
    if (
        context._current is not None
        and place == f"{context._current.run_id}/{context._current.step_name}"
    ):
        return None
    if output is None:
        return place
    if "/" not in place:
        raise RuntimeError(
            f"log_metadata(artifact_name='{output}'): of which step of run '{place}'? say step_name=… too"
        )
    return f"{place}.{output}"


def _named(digest: Any, name: Optional[str], version: Any) -> str:
    """``NAME:VERSION`` of a stored artifact."""
    if digest is None:
        if name is None:
            raise RuntimeError(
                f"log_metadata(artifact_version={version!r}): say artifact_name=… too"
            )
        return f"{name}:{version}"
    from .client import Client  # a step that only logs numbers doesn't need it

    wanted = str(getattr(digest, "id", digest))
    for found in Client().list_artifact_versions():
        if found.id == wanted and name in (None, found.name):
            return f"{found.name}:{found.version}"
    raise RuntimeError(
        f"log_metadata(artifact_version_id='{wanted[:12]}…'): that artifact has no name; identify "
        "it by run_id_name_or_prefix=…, step_name=… and artifact_name=…"
    )


def _log_outside(target: List[str], metadata: Dict[str, Any]) -> None:
    plain = plain_metadata(metadata, "log_metadata")
    output_of(["metadata", *target, json.dumps(plain, ensure_ascii=False)])


def log_artifact_metadata(
    metadata: Dict[str, Any], artifact_name: Optional[str] = None, **target: Any
) -> None:
    """Attach metadata to an output of the running step, or to a stored artifact; see
    :func:`log_metadata`."""
    inside = context._current is not None and not target
    log_metadata(metadata, artifact_name=artifact_name, infer_artifact=inside, **target)


def log_step_metadata(metadata: Dict[str, Any], **target: Any) -> None:
    """Attach metadata to the running step, or to the named one; see :func:`log_metadata`."""
    log_metadata(metadata, **target)
