"""Services of a stack, such as servers of models: records of the store, as ZenML's client has them."""

from __future__ import annotations

import uuid
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from . import records
from .enums import ServiceState
from .errors import EntityExistsError
from .page import Page, page_of
from .responses import Response, found_by, moment

_KIND = "service"


class ServiceType(NamedTuple):
    """A kind of service."""

    type: str
    flavor: str
    name: str = ""
    description: str = ""
    logo_url: str = ""

    def model_dump(self, **_: Any) -> Dict[str, Any]:
        """The fields."""
        return self._asdict()


class ServiceResponse(Response):
    """A service as the client lists it."""

    _absent = ("pipeline_run",)

    def __init__(self, record: records.Record) -> None:
        body = record.body
        self.key, self.body_ = record.name, body
        self.id = uuid.UUID(body["id"])
        self.name: str = body["name"]
        self.created, self.updated = moment(record.created_ms), moment(record.updated_ms)
        self.service_type = ServiceType(**body["type"])
        self.config: Dict[str, Any] = body["config"]
        for field in ("service_source", "status", "endpoint", "labels"):
            setattr(self, field, body.get(field))
        for field in ("prediction_url", "health_check_url"):
            setattr(self, field, body.get(field))
        self.admin_state = _state(body.get("admin_state"))
        self.state = _state((body.get("status") or {}).get("state"))

    @property
    def model_version(self) -> Any:
        """The version of a model that it serves, or None."""
        from . import targets

        id = self.body_.get("model_version_id")
        return None if id is None else targets.model_version({"model_version_id": id})


def _state(word: Optional[str]) -> Any:
    return None if word is None else ServiceState(word)


def services() -> List[ServiceResponse]:
    """All services in order of creation."""
    return [ServiceResponse(record) for record in records.listed(_KIND)]


def create(config: Any, type: ServiceType, model_version_id: Any = None) -> ServiceResponse:
    """Register a service by its configuration's ``service_name``; raises EntityExistsError."""
    name = str(config.service_name)
    if any(one.name == name for one in services()):
        raise EntityExistsError(f"service '{name}' exists already")
    body: Dict[str, Any] = {"name": name, "type": type.model_dump(), "config": config.model_dump()}
    body["id"] = str(uuid.uuid4())
    if model_version_id is not None:
        body["model_version_id"] = str(model_version_id)
    return ServiceResponse(records.create(_KIND, body["id"], body))


def get(name_id_or_prefix: Any) -> ServiceResponse:
    """A service by name, id or prefix; raises KeyError."""
    found: ServiceResponse = found_by(_KIND, name_id_or_prefix, services())
    return found


def update(id: Any, fields: Mapping[str, Any]) -> ServiceResponse:
    """Change what is kept of a service; None leaves a field. Raises KeyError."""
    told = {key: value for key, value in fields.items() if value is not None}
    told = {key: getattr(value, "value", value) for key, value in told.items()}
    found = get(id)
    return ServiceResponse(records.change(_KIND, found.key, lambda body: body.update(told)))


def delete(id: Any) -> None:
    """Remove the record of a service; raises KeyError."""
    records.remove(_KIND, get(id).key)


_FILTERS: Mapping[str, Any] = {
    "id": lambda s: s.id,
    "created": lambda s: s.created,
    "updated": lambda s: s.updated,
    "service_name": lambda s: s.name,
    "name": lambda s: s.name,
    "type": lambda s: s.service_type.type,
    "flavor": lambda s: s.service_type.flavor,
    "pipeline_name": lambda s: s.config.get("pipeline_name"),
    "pipeline_step_name": lambda s: s.config.get("pipeline_step_name"),
    "pipeline_run_id": lambda s: None,
    "model_version_id": lambda s: s.body_.get("model_version_id"),
    "running": lambda s: s.state is ServiceState.ACTIVE,
}


def listing(given: Mapping[str, Any]) -> Page[ServiceResponse]:
    """The page of services that the arguments ask for; a ``config`` must be the service's own."""
    asked = {key: value for key, value in given.items() if value is not None}
    config = asked.pop("config", None)
    some = [one for one in services() if config is None or one.config == config]
    return page_of("services", some, asked, _FILTERS)
