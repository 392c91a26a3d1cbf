"""``Client().zen_store``: the client's functions under the names that ZenML's store has for them,
with filters and requests (:mod:`stoker._zen.schemas`) as arguments."""

from __future__ import annotations

import functools
from typing import Any, Dict, List

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
_LEFT_OUT = ("hydrate", "include_full_metadata", "include_python_packages")


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
        return functools.partial(_call, getattr(self._client, _RENAMED.get(name, name)))


def _call(function: Any, *args: Any, **given: Any) -> Any:
    """Call the client: a filter's or request's fields are its keywords, and an object's id, however
    it is named, is its first argument."""
    words: Dict[str, Any] = {}
    first: List[Any] = []
    for name, value in [*((None, one) for one in args), *given.items()]:
        if isinstance(value, BaseFilter):
            words.update(value.asked())
        elif isinstance(value, BaseZenModel):
            words.update(value.model_dump())
        elif name is None or name.endswith("_id"):
            first.append(value)
        elif name not in _LEFT_OUT:
            words[name] = value
    return function(*first, **words)
