"""Saves and loads artifacts by name, in a step or outside any run."""

from __future__ import annotations

import os
import tempfile
from typing import Any, List, Optional, Union

from .._base.errors import say
from ..materializers import _artifact
from .client import ArtifactVersion, Client
from .launch import add_artifact


def save_artifact(
    data: Any,
    name: str,
    version: Union[str, int, None] = None,
    *,
    materializer: Any = None,
    **_: Any,
) -> ArtifactVersion:
    """Store a value under a name (and a version, if one is given).

    Raises:
        SerializeError: the value can't be stored.
        EngineError: the store refused it.

    Example::

        save_artifact({"classes": 10}, name="labels")
    """
    with tempfile.TemporaryDirectory(prefix="stoker-save-") as folder:
        said: List[str] = []
        path = os.path.join(folder, "value")
        entry, _metadata = _artifact.store(data, path, materializer, said, name)
        for sentence in said:
            say(sentence)
        if "value" in entry:
            entry = _as_file(entry, path)
        body = {**entry, **add_artifact(entry, name, version), "name": name, "version": version}
    return ArtifactVersion(name, body)


def _as_file(entry: Any, path: str) -> Any:
    """Write small JSON, which a step's result would contain, to a file."""
    import json

    with open(path, "w", encoding="utf-8") as stream:
        json.dump(entry["value"], stream)
    return {"path": path, "format": "json", "type": entry["type"], "meta": {}}


def load_artifact(name_or_id: str, version: Union[str, int, None] = None) -> Any:
    """Value of a stored artifact, by name (the latest, or the given version) or digest.

    Raises:
        KeyError: there is no such artifact.
        LoadError: the artifact can't be read.

    Example::

        labels = load_artifact("labels")
    """
    found: Optional[ArtifactVersion] = Client().get_artifact_version(name_or_id, version)
    assert found is not None
    return found.load()
