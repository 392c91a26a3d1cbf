"""Schedules: pipelines that systemd or cron starts. Each is a kept pipeline (``deployed.py``)."""

from __future__ import annotations

import datetime
import uuid
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .. import _deployed as shared
from .._base.errors import SettingsError, say
from .._deployed import units
from . import deployed, records, stacks
from .errors import EntityExistsError
from .page import Page, page_of
from .responses import Response, found_by, moment

_KIND = "schedule"


class ScheduleResponse(Response):
    """A schedule."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.record = dict(record)
        self.id = uuid.UUID(record["id"])
        self.name = str(record["title"])
        self.created, self.updated = moment(record["created_ms"]), moment(record["updated_ms"])
        self.active, self.is_archived = bool(record["active"]), bool(record["archived"])
        said = record["said"]
        self.cron_expression: Optional[str] = said["cron_expression"]
        self.catchup = bool(said["catchup"])
        every = said["interval_second"]
        self.interval_second = None if every is None else datetime.timedelta(seconds=every)
        for key in _TIMES:
            setattr(self, key, None if said[key] is None else moment(said[key] * 1000))
        self.pipeline_id = records.id_of("pipeline", str(record["pipeline"]))
        self.run_metadata: Dict[str, Any] = {}

    start_time: Optional[datetime.datetime]
    end_time: Optional[datetime.datetime]
    run_once_start_time: Optional[datetime.datetime]

    @property
    def orchestrator_id(self) -> uuid.UUID:
        """That of the stack on which its runs start."""
        name = str(self.record["env"]["ZENML_ACTIVE_STACK_NAME"])
        known = stacks.stacks()
        some = [one for one in known if one.name in (name, name.partition(":")[0])]
        found: uuid.UUID = (some or known)[0].parts["orchestrator"][0].id
        return found

    @property
    def utc_start_time(self) -> Optional[str]:
        """Its beginning as a text."""
        return _text(self.start_time)

    @property
    def utc_end_time(self) -> Optional[str]:
        """Its end as a text."""
        return _text(self.end_time)


_TIMES = ("start_time", "end_time", "run_once_start_time")


def _text(at: Optional[datetime.datetime]) -> Optional[str]:
    return None if at is None else at.replace(tzinfo=datetime.timezone.utc).isoformat()


def create(
    pipeline: Any, arguments: Tuple[Any, Dict[str, Any]], schedule: Any, name: str
) -> List[str]:
    """Keep a pipeline with its schedule and give it to systemd or cron; returns what the user has
    to know.

    Raises:
        EntityExistsError: there is a schedule of this name.
        SettingsError: systemd and cron can't keep it, or nothing can find the pipeline later.
    """
    said: Dict[str, Any] = {
        "cron_expression": schedule.cron_expression,
        "catchup": schedule.catchup,
        "interval_second": None,
    }
    if schedule.interval_second is not None:
        said["interval_second"] = schedule.interval_second.total_seconds()
    for key in _TIMES:
        at = getattr(schedule, key)
        said[key] = None if at is None else at.timestamp()
    now = records.now_ms()
    if _is_over(said, now / 1000):
        raise SettingsError(
            f"pipeline '{pipeline.name}': its schedule can't be kept: its time is over"
        )
    times = _times(f"pipeline '{pipeline.name}'", said)
    more = {"said": said, "schedule": times, "created_ms": now, "updated_ms": now}
    more["calendar"] = units.calendar_of(times["cron"])
    if deployed.taken(_KIND, name):
        raise EntityExistsError(f"a schedule '{name}' exists already")
    record = deployed.keep(pipeline, arguments, _KIND, name, **more, active=True, archived=False)
    head = f"pipeline '{pipeline.name}' doesn't run at once: it has the schedule '{name}'"
    return [f"{head}; {line}" for line in units.write(record)]


def _is_over(said: Mapping[str, Any], now: float) -> bool:
    once, begin, end = said["run_once_start_time"], said["start_time"], said["end_time"]
    if once is not None and once < now - 60:
        return True
    return end is not None and end < max(now, begin or now)


def _times(where: str, said: Mapping[str, Any]) -> Dict[str, Any]:
    try:
        times = units.times_of(
            said["cron_expression"],
            said["interval_second"],
            said["start_time"],
            said["end_time"],
            said["run_once_start_time"],
        )
    except shared.DeployError as bad:
        raise SettingsError(f"{where}: its schedule can't be kept: {bad}") from None
    return {**times, "catchup": said["catchup"]}


def schedules() -> List[ScheduleResponse]:
    """All schedules, the oldest first; archived ones, too."""
    found = [ScheduleResponse(one) for one in deployed.listed(_KIND)]
    return sorted(found, key=lambda one: one.record["created_ms"])


def of_id(wanted: Optional[str]) -> Optional[ScheduleResponse]:
    """The schedule with an id, or None."""
    return next((one for one in schedules() if str(one.id) == wanted), None) if wanted else None


def get(name_or_id: Any, archived: Optional[bool] = False) -> ScheduleResponse:
    """A schedule by name, id or prefix; raises KeyError."""
    some = [one for one in schedules() if archived is None or one.is_archived == archived]
    found: ScheduleResponse = found_by(_KIND, name_or_id, some)
    return found


def listing(given: Mapping[str, Any]) -> Page[ScheduleResponse]:
    """The page of schedules that the arguments ask for."""
    given = {"is_archived": False, **given}
    names = ("id", "name", "created", "updated", "active", "cron_expression", "catchup")
    more = ("start_time", "end_time", "run_once_start_time", "pipeline_id", "orchestrator_id")
    asked = {key: _reading(key) for key in (*names, *more, "is_archived")}
    asked["interval_second"] = lambda one: _seconds(one.record["said"]["interval_second"])
    if given.get("interval_second") is not None:
        given["interval_second"] = _seconds(given["interval_second"])
    return page_of("schedules", schedules(), given, asked)


def _seconds(given: Any) -> Any:
    """A number of seconds, an int if it is whole."""
    return int(given) if isinstance(given, float) and given.is_integer() else given


def _reading(key: str) -> Any:
    return lambda one: getattr(one, key)


def update(
    name_or_id: Any, cron_expression: Optional[str] = None, active: Optional[bool] = None
) -> ScheduleResponse:
    """Change a schedule's times, stop it, or let it go on.

    Raises:
        KeyError: there is none.
        SettingsError: the cron expression isn't one.
    """
    record = get(name_or_id).record
    fields: Dict[str, Any] = {"updated_ms": records.now_ms()}
    if cron_expression is not None:
        fields["said"] = {**record["said"], "cron_expression": cron_expression}
        fields["schedule"] = _times(f"schedule '{record['title']}'", fields["said"])
        fields["calendar"] = units.calendar_of(cron_expression)
    if active is not None:
        fields["active"] = active
    record = shared.change(record["name"], **fields)
    left = units.remove(record["folder"])
    for line in units.write(record) if record["active"] else left:
        say(f"schedule '{record['title']}': {line}")
    return ScheduleResponse(record)


def delete(name_or_id: Any, soft: bool = True) -> None:
    """Stop a schedule and remove it; with ``soft`` it stays among the archived ones. Raises
    KeyError."""
    found = get(name_or_id, None)
    name = found.record["name"]
    if soft:
        left = units.remove(found.record["folder"])
        shared.change(name, active=False, archived=True, updated_ms=records.now_ms())
    else:
        left = shared.remove(name)
    for line in left:
        say(f"schedule '{found.name}': {line}")
