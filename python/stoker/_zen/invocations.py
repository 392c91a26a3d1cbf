"""Records of hooks that were called, as ZenML's client shows them."""

from __future__ import annotations

import datetime
import uuid
from typing import Any, Callable, Dict, List, Mapping, Optional

from .._definition.types import ExecutionStatus
from . import artifacts, enums, records
from .configuration import ExceptionInfo
from .page import Page, page_of
from .responses import Response, found_by, moment

KIND = "hook invocation"


class HookInvocationResponse(Response):
    """A call of a hook."""

    name: Any

    def __init__(self, record: records.Record) -> None:
        body: Mapping[str, Any] = record.body
        self._body = body
        self.id = uuid.UUID(body["id"])
        self.name = body.get("name")
        self.hook_type = enums.HookType(body["hook_type"])
        self.status = ExecutionStatus(body["status"])
        self.source: Optional[str] = body.get("source")
        self.pipeline_run_id = uuid.UUID(body["pipeline_run_id"])
        step = body.get("step_run_id")
        self.step_run_id = None if step is None else uuid.UUID(step)
        self.created = self.end_time = moment(record.created_ms)
        self.updated = moment(record.updated_ms)
        self.start_time = moment(body["start_ms"])
        self.log_collection: List[Any] = []

    @property
    def duration(self) -> Optional[datetime.timedelta]:
        """How long it took."""
        if self.start_time is None or self.end_time is None:
            return None
        return self.end_time - self.start_time

    @property
    def exception_info(self) -> Optional[ExceptionInfo]:
        """Why it failed, or None."""
        error = self._body.get("error")
        return None if error is None else ExceptionInfo(error)

    @property
    def outputs(self) -> Dict[str, List[artifacts.ArtifactVersionResponse]]:
        """What it returned, if it was told to store that."""
        given: Dict[str, str] = self._body.get("outputs") or {}
        return {name: [artifacts.get_version(one)] for name, one in given.items()}


_FILTERS: Dict[str, Callable[[HookInvocationResponse], Any]] = {
    "id": lambda h: h.id,
    "name": lambda h: h.name,
    "hook_type": lambda h: h.hook_type,
    "status": lambda h: h.status,
    "pipeline_run_id": lambda h: h.pipeline_run_id,
    "step_run_id": lambda h: h.step_run_id,
    "created": lambda h: h.created,
    "updated": lambda h: h.updated,
    "start_time": lambda h: h.start_time,
    "end_time": lambda h: h.end_time,
}


def _every() -> List[HookInvocationResponse]:
    return [HookInvocationResponse(one) for one in records.listed(KIND)]


def listing(given: Mapping[str, Any]) -> Page[HookInvocationResponse]:
    """The page of calls that the arguments ask for."""
    return page_of("hook_invocations", _every(), given, _FILTERS)


def get(wanted: Any) -> HookInvocationResponse:
    """A call by id; raises KeyError."""
    found: HookInvocationResponse = found_by("hook invocation", wanted, _every())
    return found


def delete(wanted: Any) -> None:
    """Forget a call; raises KeyError."""
    records.remove(KIND, str(get(wanted).id))
