"""``Model``: the declared model, with ZenML's methods on the version that it means."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .._definition import types
from .._definition.graph import active_graph
from .._worker.context import plain_metadata
from . import models
from .artifacts import ArtifactVersionResponse
from .enums import ModelStages
from .lazy import LazyMetadata, LazyOfModel


class Model(types.Model):
    """A model and a version of it; the version exists once a run uses it or it is asked for."""

    def _get_or_create_model(self) -> models.ModelResponse:
        try:
            return models.get_model_exactly(self.name)
        except KeyError:
            return models.create_model(self.name, self.given())

    def _get_or_create_model_version(self, *_: Any, **__: Any) -> models.ModelVersionResponse:
        made = self.__dict__.get("_made")
        if made is None:
            made = models.resolve(self.given(), known={})
            self.__dict__["_made"] = made
        return models.get_model_version(made.model, made.id)

    def _get_model_version(self, *_: Any, **__: Any) -> models.ModelVersionResponse:
        made = self.__dict__.get("_made")
        if made is not None:
            return models.get_model_version(made.model, made.id)
        return models.get_model_version(models.get_model_exactly(self.name), self.version)

    @property
    def id(self) -> Any:
        """The version's id; the version is made where there is none.

        Raises:
            RuntimeError: it is named by a stage or number that none has.
        """
        try:
            return self._get_or_create_model_version().id
        except KeyError as bad:
            raise RuntimeError(bad.args[0]) from None

    @property
    def model_version_id(self) -> Any:
        """The version's id."""
        return self._get_model_version().id

    @property
    def model_id(self) -> Any:
        """The model's id."""
        return models.get_model_exactly(self.name).id

    @property
    def number(self) -> int:
        """The version's number."""
        return self._get_or_create_model_version().number

    @property
    def stage(self) -> Any:
        """The version's stage, or None."""
        found = self._get_model_version().stage
        return None if found is None else ModelStages(found)

    @property
    def run_metadata(self) -> Dict[str, Any]:
        """The version's metadata; in a pipeline's body, looked up when the step starts."""
        if active_graph() is not None:
            return LazyMetadata({"model": self.name, "version": _late_version(self.version)})  # type: ignore[return-value]
        return self._get_model_version().run_metadata

    def get_artifact(
        self, name: str, version: Optional[str] = None
    ) -> Optional[ArtifactVersionResponse]:
        """An artifact of the version, or None."""
        if active_graph() is not None:
            return self._late(name, version)
        return self._get_or_create_model_version().get_artifact(name, version)

    def get_model_artifact(
        self, name: str, version: Optional[str] = None
    ) -> Optional[ArtifactVersionResponse]:
        """The same among its models."""
        if active_graph() is not None:
            return self._late(name, version)
        return self._get_or_create_model_version().get_model_artifact(name, version)

    def get_data_artifact(
        self, name: str, version: Optional[str] = None
    ) -> Optional[ArtifactVersionResponse]:
        """The same among its data."""
        if active_graph() is not None:
            return self._late(name, version)
        return self._get_or_create_model_version().get_data_artifact(name, version)

    def get_deployment_artifact(
        self, name: str, version: Optional[str] = None
    ) -> Optional[ArtifactVersionResponse]:
        """The same among its services."""
        if active_graph() is not None:
            return self._late(name, version)
        return self._get_or_create_model_version().get_deployment_artifact(name, version)

    def load_artifact(self, name: str, version: Optional[str] = None) -> Any:
        """The value of an artifact of the version.

        Raises:
            ValueError: it has none of this name.
        """
        if active_graph() is not None:
            return self._late(name, version)
        found = self.get_artifact(name, version)
        if found is None:
            raise ValueError(
                f"version '{self._get_model_version().name}' of model '{self.name}' has no "
                f"artifact '{name}'"
            )
        return found.load()

    def _late(self, name: str, version: Optional[str]) -> ArtifactVersionResponse:
        """What stands for an artifact in a pipeline's body."""
        given = {"model": self.name, "version": _late_version(self.version)}
        late: Any = LazyOfModel({**given, "artifact": name, "artifact_version": version})
        return late  # type: ignore[no-any-return]

    def set_stage(self, stage: Any, force: bool = False) -> None:
        """Give the version a stage."""
        self._get_or_create_model_version().set_stage(stage, force)

    def log_metadata(self, metadata: Dict[str, Any]) -> None:
        """Add metadata to the version."""
        self._get_or_create_model_version().log(plain_metadata(metadata, "log_metadata"))

    def delete_all_artifacts(
        self, only_link: bool = True, delete_from_artifact_store: bool = False
    ) -> None:
        """Remove the artifacts from the version; without ``only_link`` they are deleted, too."""
        from .client import Client

        Client().delete_all_model_version_artifact_links(self.id, only_links=only_link)

    def delete_artifact(self, *_: Any, **__: Any) -> None:
        """Not there: an artifact belongs to a version by the run that made it."""
        raise NotImplementedError(
            f"model '{self.name}': an artifact belongs to a version by the run that made it; "
            "delete the run or the artifact itself"
        )


def _late_version(version: Any) -> Any:
    return getattr(version, "value", version)


def bound(version: models.ModelVersionResponse, given: Dict[str, Any]) -> Model:
    """The declared model with the version that it means."""
    known = {k: getattr(version.model, k, None) for k in types.Model._fields}
    known["tags"] = [tag.name for tag in version.tags]
    known["suppress_class_validation_warnings"] = True
    fields = {k: v for k, v in given.items() if k in types.Model._fields and v is not None}
    made = Model(**{**known, **fields, "name": version.model.name, "version": version.name})
    made.__dict__["_made"] = version
    return made
