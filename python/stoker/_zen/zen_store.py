"""``Client().zen_store``: the client's functions under the names that ZenML's store has for them,
with filters and requests (:mod:`stoker._zen.schemas`) as arguments."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Dict, List, Mapping, Optional

from .enums import StoreType
from .records import store_folder
from .responses import project
from .schemas import BaseFilter, BaseZenModel, ServerModel

# The store's word for a run → the client's.
_RENAMED = {
    **{f"{how}_run": f"{how}_pipeline_run" for how in ("get", "delete", "update")},
    "list_runs": "list_pipeline_runs",
    "get_server_settings": "get_settings",
}
_LEFT_OUT = (
    *("hydrate", "include_full_metadata", "include_python_packages", "include_private"),
    *("step_configuration_filter", "include_config_schema"),
)
# Function → its request's fields that the client names otherwise; None: they say nothing here.
_FIELDS: Dict[str, Dict[str, Optional[str]]] = {
    "create_model_version": {"model": "model_name_or_id"},
    "create_run_metadata": {"values": "metadata", "types": None, "publisher_step_id": None},
    "create_run_template": {"source_snapshot_id": "snapshot_id"},
    "create_stack_component": {"type": "component_type"},
    "update_artifact": {"name": "new_name"},
    "update_secret": {"name": "new_name", "values": "add_or_update_values"},
    "update_stack": {"components": "component_updates"},
}
# Function → what it is asked for if its filter doesn't say otherwise.
_USUAL: Dict[str, Dict[str, Any]] = {"list_snapshots": {"named_only": False}}
_EVERYWHERE: Dict[str, Optional[str]] = {"user": None, "project": None}


class ZenStore:
    """The store as programs reach it below the client."""

    type = StoreType.SQL

    def __init__(self, client: Any) -> None:
        self._client = client

    @property
    def url(self) -> str:
        """The store's folder; "" without one."""
        return store_folder() or ""

    def is_local_store(self) -> bool:
        """True: it is a folder of this machine."""
        return True

    def get_store_info(self, force_refresh: bool = False) -> Any:
        """What the store is."""
        from zenml import __version__

        return ServerModel(
            id=project().id,
            name="stoker",
            version=__version__,
            deployment_type="local",
            database_type="sqlite",
            auth_scheme="NO_AUTH",
            active=True,
            debug=False,
            metadata={},
        )

    def get_deployment_id(self) -> Any:
        """The store's id."""
        return project().id

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        function = getattr(self._client, _RENAMED.get(name, name))
        return functools.partial(_call, name, function, self._client)


def _version(client: Any, id: Any) -> List[Any]:
    return [client.get_model_version(None, id).model.id, id]


def _component(client: Any, id: Any) -> List[Any]:
    for one in client.list_stack_components(id=id):
        return [id, one.type]
    raise KeyError(f"there is no stack component '{id}'")


# What the client finds by more than an id → its arguments, of an id.
_FIRST: Dict[str, Callable[[Any, Any], List[Any]]] = {
    "delete_stack_component": _component,
    "get_model_version": lambda client, id: [None, id],
    "get_stack_component": lambda client, id: _component(client, id)[::-1],
    "update_model_version": _version,
    "update_stack_component": _component,
}


def _call(called: str, function: Any, client: Any, *args: Any, **given: Any) -> Any:
    """Call the client: a filter's or request's fields are its keywords, and an object's id, however
    it is named, is its first argument.

    Raises:
        TypeError: a field that the client's function doesn't have.
    """
    filters: Dict[str, Any] = dict(_USUAL.get(called, {}))
    words: Dict[str, Any] = {}
    first: List[Any] = []
    for name, value in [*((None, one) for one in args), *given.items()]:
        if isinstance(value, BaseFilter):
            filters.update(value.asked())
        elif isinstance(value, BaseZenModel):
            words.update(_renamed(called, value.model_dump()))
        elif name is None or name.endswith("_id"):
            first.append(value)
        elif name not in _LEFT_OUT:
            words[name] = value
    if len(first) == 1 and called in _FIRST:
        first = _FIRST[called](client, first[0])
    known = inspect.signature(function).parameters
    for name in words:
        if name not in known and "given" not in known:
            does = "can't change" if called.startswith("update_") else "takes no"
            raise TypeError(f"zen_store.{called}() {does} '{name}'")
    return function(*first, **filters, **words)


def _renamed(called: str, fields: Mapping[str, Any]) -> Dict[str, Any]:
    """A request's fields under the client's names; those that aren't set are left out."""
    names = {**_EVERYWHERE, **_FIELDS.get(called, {})}
    words = {names.get(key, key): value for key, value in fields.items() if value is not None}
    words.pop(None, None)
    if called == "update_secret" and "add_or_update_values" in words:
        values = words.pop("add_or_update_values")
        words["add_or_update_values"] = {k: v for k, v in values.items() if v is not None}
        words["remove_values"] = [key for key, value in values.items() if value is None]
    return {str(key): value for key, value in words.items()}
