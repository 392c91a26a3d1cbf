"""Artifacts that a pipeline's body names: which version it is, is known when the step starts."""

from __future__ import annotations

import uuid
from typing import Any, Dict, Optional

from .._base import registry

KEY = "stoker.zenml.lazy"  # of the literal that stands for one in a document


class LazyArtifactVersionResponse:
    """What stands for an artifact in a pipeline's body."""


class LazyArtifact(LazyArtifactVersionResponse):
    """A stored artifact by name, looked up when the step that takes it starts."""

    def __init__(self, name: str, version: Optional[str] = None) -> None:
        self.name, self.version = name, version

    def late_literal(self) -> Dict[str, Any]:
        """What stands for it in a document."""
        return {KEY: {"name": self.name, "version": self.version}}

    @property
    def run_metadata(self) -> LazyMetadata:
        """Its metadata, as late."""
        return LazyMetadata({"model": None, "artifact": self.name, "version": self.version})

    def load(self, *_: Any) -> Any:
        """Its value at present."""
        from .artifacts import get_version

        return get_version(self.name, self.version).load()

    def __repr__(self) -> str:
        return f"LazyArtifact({self.name!r}, {self.version!r})"


MODEL_KEY = "stoker.zenml.lazy_model"  # a step that takes one isn't cached


class LazyOfModel(LazyArtifactVersionResponse):
    """Something of a version of a model (an artifact, or metadata), looked up when the step that
    takes it starts."""

    def __init__(self, given: Dict[str, Any]) -> None:
        self.given = given

    def late_literal(self) -> Dict[str, Any]:
        """What stands for it in a document."""
        return {MODEL_KEY: self.given}

    @property
    def run_metadata(self) -> LazyMetadata:
        """The artifact's metadata, as late."""
        return LazyMetadata(self.given)

    def load(self, *_: Any) -> LazyOfModel:
        """Itself: a step gets the value."""
        return self

    def __repr__(self) -> str:
        return f"LazyOfModel({self.given!r})"


class LazyVersion:
    """A version of a model, looked up when the step that takes something of it starts."""

    def __init__(self, model: Any, version: Any) -> None:
        self._given = {"model": model, "version": version}
        if isinstance(model, uuid.UUID) or model is None:
            found = self._now()
            self._given = {"model": found.model.name, "version": found.name}
        self._given["version"] = getattr(self._given["version"], "value", self._given["version"])

    def _now(self) -> Any:
        from .targets import model_version

        if self._given["model"] is None:
            return model_version({"model_version_id": self._given["version"]})
        named = {"model_name": self._given["model"], "model_version": self._given["version"]}
        return model_version(named)

    def get_artifact(self, name: str, version: Optional[str] = None) -> LazyOfModel:
        """An artifact of it."""
        return LazyOfModel({**self._given, "artifact": name, "artifact_version": version})

    get_model_artifact = get_data_artifact = get_deployment_artifact = get_artifact

    @property
    def run_metadata(self) -> LazyMetadata:
        """Its metadata."""
        return LazyMetadata(self._given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._now(), name)


class LazyMetadata:
    """Metadata by name, looked up when the step that takes it starts."""

    def __init__(self, given: Dict[str, Any]) -> None:
        self.given = given

    def __getitem__(self, key: str) -> LazyOfModel:
        return LazyOfModel({**self.given, "metadata": key})


def _come_of_model(given: Dict[str, Any]) -> Any:
    from .._worker.context import get_step_context
    from . import artifacts, models

    if given["model"] is None:
        one = artifacts.get_version(given["artifact"], given["version"])
        return one.run_metadata[given["metadata"]]

    model = models.get_model_exactly(given["model"])
    version = models.get_model_version(model, given.get("version"))
    native = get_step_context()
    if (native.extra.get("model") or {}).get("version_id") == str(version.id):
        version.link_running(native.run_id)
    if given.get("artifact") is None:
        return version.run_metadata[given["metadata"]]
    found = version.get_artifact(given["artifact"], given.get("artifact_version"))
    if found is None:
        raise KeyError(
            f"version '{version.name}' of model '{given['model']}' has no artifact "
            f"'{given['artifact']}'"
        )
    return found.load() if "metadata" not in given else found.run_metadata[given["metadata"]]


def _come(given: Dict[str, Any]) -> Any:
    from .artifacts import get_version

    name, version = given["name"], given.get("version")
    found = get_version(name, version)
    if version is None and found.name == name:
        registry.looked_up[f"@{name}"] = f"latest {found.artifact_digest}"
    else:
        key = f"@{found.name}:{found.version}"
        registry.looked_up[key] = f"version {found.artifact_digest} {found.version}"
    return found.load()


registry.late[KEY] = _come
registry.late[MODEL_KEY] = _come_of_model
