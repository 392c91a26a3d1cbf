"""What started a run: ``current.trigger`` in a run of a deployed flow (``_deploy/``)."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional


class MetaflowEvent(NamedTuple):
    """An event: ``type`` is ``event``, or ``run`` for the end of a run (``id``: its last task)."""

    name: str
    id: str
    timestamp: Optional[datetime]
    type: str


class Trigger:
    """The events that started a run, the newest first."""

    def __init__(
        self,
        _meta: Optional[List[Dict[str, Any]]] = None,
        _run_of: Callable[[str], Any] = lambda pathspec: None,
    ) -> None:
        newest = sorted(_meta or (), key=lambda one: one.get("timestamp") or 0, reverse=True)
        self._events = [
            MetaflowEvent(one["name"], one["id"], _time(one.get("timestamp")), one["type"])
            for one in newest
        ]
        self._run_of = _run_of
        self._runs: Optional[List[Any]] = None

    @classmethod
    def from_runs(cls, run_objs: List[Any]) -> Trigger:
        """As if the ends of these runs had started this one: ``metaflow.FLOW.STEP`` with the name
        of the last step, and ``metaflow.FLOW.end`` if that has another name."""
        known = {run.pathspec: run for run in run_objs}
        facts = []
        for one in filter(None, map(facts_of_run, run_objs)):
            own = f"{one['name'].rpartition('.')[0]}.{one['id'].split('/')[2]}"
            facts += [{**one, "name": name} for name in dict.fromkeys((own, one["name"]))]
        return cls(facts, known.__getitem__)

    @property
    def event(self) -> Optional[MetaflowEvent]:
        """The newest event."""
        return next(iter(self._events), None)

    @property
    def events(self) -> Optional[List[MetaflowEvent]]:
        """All events."""
        return list(self._events) or None

    @property
    def run(self) -> Any:
        """The newest run whose end started this one, or None."""
        return next(iter(self.runs or ()), None)

    @property
    def runs(self) -> Optional[List[Any]]:
        """The runs whose ends started this one, or None."""
        if self._runs is None:
            ended = (one.id.split("/")[:2] for one in self._events if one.type == "run")
            self._runs = [self._run_of(one) for one in dict.fromkeys(map("/".join, ended))]
        return list(self._runs) or None

    def __getitem__(self, key: str) -> Any:
        """The run of the flow ``key``; if no run started this one, the event of that name."""
        runs = self.runs
        if runs:
            found = [one for one in runs if one.path_components[0] == key]
        else:
            found = [one for one in self._events if one.name == key]
        if not found:
            raise KeyError(key)
        return found[0]

    def __iter__(self) -> Iterator[MetaflowEvent]:
        return iter(self._events)

    def __contains__(self, ident: str) -> bool:
        try:
            return self[ident] is not None
        except KeyError:
            return False


def facts_of_run(run: Any, name: Optional[str] = None) -> Optional[Dict[str, Any]]:
    """The event of a run's end as plain data; None: it hasn't reached its end.

    Args:
        run: the client's object. name: the flow's name, with its project and branch if it has them.
    """
    end = run.end_task
    if end is None:
        return None
    ended = run.finished_at
    return {
        "type": "run",
        "name": f"metaflow.{name or run.path_components[0]}.end",
        "id": end.pathspec,
        "timestamp": None if ended is None else ended.timestamp(),
    }


def _time(seconds: Any) -> Optional[datetime]:
    return None if seconds is None else datetime.fromtimestamp(seconds)
