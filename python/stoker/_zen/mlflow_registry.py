"""``zenml.integrations.mlflow``: the model registry, and the step that registers a model."""

from __future__ import annotations

import enum
import importlib
from datetime import datetime
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional

from .stacks import Component

_ALIASES = {"Staging": "staging", "Production": "champion", "Archived": "archived"}


class ModelVersionStage(enum.Enum):
    """Stages of a version."""

    NONE = "None"
    STAGING = "Staging"
    PRODUCTION = "Production"
    ARCHIVED = "Archived"


class _Plain:
    def __repr__(self) -> str:
        said = ", ".join(f"{k}={v!r}" for k, v in vars(self).items())
        return f"{type(self).__name__}({said})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and vars(other) == vars(self)

    __hash__ = None  # type: ignore[assignment]


class RegisteredModel(_Plain):
    """A model of the registry."""

    def __init__(
        self,
        name: str,
        description: Optional[str] = None,
        metadata: Optional[Dict[str, str]] = None,
    ) -> None:
        self.name, self.description, self.metadata = name, description, metadata


class ModelRegistryModelMetadata(_Plain):
    """Facts about a version; other names than ZenML's own are ``custom_attributes``."""

    _OWN = (
        *("zenml_version", "zenml_run_name", "zenml_pipeline_name", "zenml_pipeline_uuid"),
        *("zenml_pipeline_run_uuid", "zenml_step_name", "zenml_project"),
    )

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update({**dict.fromkeys(self._OWN), **fields})

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    @property
    def custom_attributes(self) -> Dict[str, str]:
        """Those with other names than ZenML's own."""
        return {k: str(v) for k, v in vars(self).items() if k not in self._OWN}

    def model_dump(self, exclude_none: bool = True, **_: Any) -> Dict[str, Any]:
        """The fields, without those that are None."""
        return {k: v for k, v in vars(self).items() if v is not None or not exclude_none}


class RegistryModelVersion(_Plain):
    """A version of a model."""

    def __init__(self, version: Any) -> None:
        from .mlflow_tracker import get_model_uri_from_version

        self.version = str(version.version)
        self.model_source_uri = get_model_uri_from_version(version)
        self.model_format = "MLflow"
        self.model_library = _library(self.model_source_uri)
        self.registered_model = RegisteredModel(version.name)
        self.description = version.description
        self.created_at = _moment(version.creation_timestamp)
        self.last_updated_at = _moment(version.last_updated_timestamp or version.creation_timestamp)
        self.stage = ModelVersionStage(version.current_stage or "None")
        more = dict(version.tags or {})
        if version.run_id:
            more["mlflow_run_id"] = version.run_id
        if version.run_link:
            more["mlflow_run_link"] = version.run_link
        if getattr(version, "aliases", None):
            more["mlflow_aliases"] = ",".join(version.aliases)
        self.metadata = ModelRegistryModelMetadata(**more)


def _moment(time_ms: Any) -> datetime:
    return datetime.fromtimestamp(int(time_ms) / 1e3)


def _library(uri: str) -> Optional[str]:
    try:
        flavors = importlib.import_module("mlflow.models").get_model_info(uri).flavors
    except Exception:  # no model there, or its library isn't installed
        return None
    module = flavors.get("python_function", {}).get("loader_module")
    return None if module is None else str(module)


def _asked(**parts: Any) -> str:
    """A filter of MLflow's: what is None isn't asked for."""
    return " AND ".join(
        f"{name.replace('__', '.')}='{value}'" for name, value in parts.items() if value
    )


class BaseModelRegistry(Component):
    """Base of model registries."""


class MLFlowModelRegistry(BaseModelRegistry):
    """MLflow's registry of models, at the experiment tracker's place."""

    def __init__(self, name: str, config: Mapping[str, Any]) -> None:
        super().__init__("model_registry", "mlflow", name, config)
        self._client: Any = None

    def configure_mlflow(self) -> None:
        """Let MLflow in this process use the experiment tracker."""
        tracker: Any = importlib.import_module(f"{__package__}.stacks").active().experiment_tracker
        tracker.configure_mlflow()

    @property
    def mlflow_client(self) -> Any:
        """MLflow's client."""
        if self._client is None:
            self.configure_mlflow()
            self._client = importlib.import_module("mlflow").MlflowClient()
        return self._client

    def _try(self, what: str, call: Callable[[], Any], error: type = RuntimeError) -> Any:
        from mlflow.exceptions import MlflowException

        try:
            return call()
        except MlflowException as bad:
            raise error(f"MLflow's model registry: {what}: {bad}") from None

    # --- models ---

    def register_model(
        self,
        name: str,
        description: Optional[str] = None,
        metadata: Optional[Dict[str, str]] = None,
    ) -> RegisteredModel:
        """Make a model; raises RuntimeError if there is one of this name."""
        made = self._try(
            f"can't register '{name}'",
            lambda: self.mlflow_client.create_registered_model(name, metadata, description),
        )
        return RegisteredModel(made.name, made.description, made.tags)

    def get_model(self, name: str) -> RegisteredModel:
        """The model; raises KeyError."""
        found = self._try(
            f"no model '{name}'", lambda: self.mlflow_client.get_registered_model(name), KeyError
        )
        return RegisteredModel(found.name, found.description, found.tags)

    def delete_model(self, name: str) -> None:
        """Delete a model; raises KeyError."""
        self.get_model(name)
        self.mlflow_client.delete_registered_model(name)

    def update_model(
        self,
        name: str,
        description: Optional[str] = None,
        metadata: Optional[Dict[str, str]] = None,
        remove_metadata: Optional[List[str]] = None,
    ) -> RegisteredModel:
        """Change a model; raises KeyError."""
        self.get_model(name)
        client = self.mlflow_client
        if description:
            client.update_registered_model(name, description)
        for key, value in (metadata or {}).items():
            client.set_registered_model_tag(name, key, value)
        for key in remove_metadata or ():
            client.delete_registered_model_tag(name, key)
        return self.get_model(name)

    def list_models(
        self, name: Optional[str] = None, metadata: Optional[Dict[str, str]] = None
    ) -> List[RegisteredModel]:
        """The models of this name and with these facts."""
        tags = {f"tags__{key}": value for key, value in (metadata or {}).items()}
        found = self.mlflow_client.search_registered_models(
            _asked(name=name, **tags), max_results=100
        )
        return [RegisteredModel(m.name, m.description, m.tags) for m in found]

    # --- versions ---

    def register_model_version(
        self,
        name: str,
        version: Optional[str] = None,
        model_source_uri: Optional[str] = None,
        description: Optional[str] = None,
        metadata: Optional[ModelRegistryModelMetadata] = None,
        **_: Any,
    ) -> RegistryModelVersion:
        """Make a version, and its model if it isn't there. MLflow chooses the version's number.

        Raises:
            ValueError: no ``model_source_uri``.
        """
        if not model_source_uri:
            raise ValueError("a version of a model needs model_source_uri")
        try:
            self.get_model(name)
        except KeyError:
            self.register_model(name)
        told = {k: str(v) for k, v in (metadata.model_dump() if metadata else {}).items()}
        made = self._try(
            f"can't register a version of '{name}'",
            lambda: self.mlflow_client.create_model_version(
                name,
                model_source_uri,
                run_id=told.get("mlflow_run_id"),
                run_link=told.get("mlflow_run_link"),
                description=description,
                tags=told,
            ),
        )
        return RegistryModelVersion(made)

    def _version(self, name: str, version: str) -> Any:
        return self._try(
            f"no version '{version}' of '{name}'",
            lambda: self.mlflow_client.get_model_version(name, version),
            KeyError,
        )

    def get_model_version(self, name: str, version: str) -> RegistryModelVersion:
        """The version; raises KeyError."""
        return RegistryModelVersion(self._version(name, version))

    def delete_model_version(self, name: str, version: str) -> None:
        """Delete a version; raises KeyError."""
        self._version(name, version)
        self.mlflow_client.delete_model_version(name, version)

    def update_model_version(
        self,
        name: str,
        version: str,
        description: Optional[str] = None,
        metadata: Optional[ModelRegistryModelMetadata] = None,
        remove_metadata: Optional[List[str]] = None,
        stage: Optional[ModelVersionStage] = None,
    ) -> RegistryModelVersion:
        """Change a version. A stage becomes MLflow's alias: production is ``champion``."""
        self._version(name, version)
        client = self.mlflow_client
        if description:
            client.update_model_version(name, version, description)
        for key, value in (metadata.model_dump() if metadata else {}).items():
            client.set_model_version_tag(name, version, key, value)
        for key in remove_metadata or ():
            client.delete_model_version_tag(name, version, key)
        alias = _ALIASES.get(stage.value) if stage is not None else None
        if alias is not None:
            client.set_registered_model_alias(name, alias, version)
        return self.get_model_version(name, version)

    def list_model_versions(
        self,
        name: Optional[str] = None,
        model_source_uri: Optional[str] = None,
        metadata: Optional[ModelRegistryModelMetadata] = None,
        stage: Optional[ModelVersionStage] = None,
        count: Optional[int] = None,
        created_after: Optional[datetime] = None,
        created_before: Optional[datetime] = None,
        order_by_date: Optional[str] = None,
        **more: Any,
    ) -> List[RegistryModelVersion]:
        """The versions that the arguments ask for."""
        tags = metadata.model_dump() if metadata else {}
        asked = _asked(
            name=name,
            source=model_source_uri,
            run_id=more.get("mlflow_run_id"),
            **{f"tags__{key}": value for key, value in tags.items()},
        )
        order = {"asc": ["creation_timestamp ASC"], "desc": ["creation_timestamp DESC"]}
        found = self.mlflow_client.search_model_versions(
            asked, order_by=order.get(order_by_date or "", [])
        )
        versions = [
            one
            for one in map(RegistryModelVersion, found)
            if (stage is None or one.stage == stage)
            and (created_after is None or one.created_at >= created_after)
            and (created_before is None or one.created_at <= created_before)
        ]
        return versions[:count] if count else versions

    def get_latest_model_version(
        self, name: str, stage: Optional[ModelVersionStage] = None
    ) -> Optional[RegistryModelVersion]:
        """The newest version, or the newest of a stage; None: there is none."""
        found = self.list_model_versions(name, stage=stage, order_by_date="desc", count=1)
        return found[0] if found else None

    def load_model_version(self, name: str, version: str, **more: Any) -> Any:
        """The model itself, as ``mlflow.pyfunc`` loads it; raises KeyError."""
        uri = self.get_model_version(name, version).model_source_uri
        return importlib.import_module("mlflow.pyfunc").load_model(uri, **more)
