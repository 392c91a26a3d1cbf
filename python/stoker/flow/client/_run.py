"""The client's steps, runs and flows."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Optional, Tuple

from ..._base.errors import EngineError
from .. import _records
from .._records import RunRecord, TaskRecord
from ..exception import MetaflowNamespaceMismatch, MetaflowTaggingError
from ._number import RunId, run_named
from ._object import MetaflowData, MetaflowObject, time_of
from ._place import get_namespace, store, store_of
from ._task import Task, is_parallel


class Step(MetaflowObject):
    """A step of a run: its tasks."""

    _NAME = "step"
    _FORM = "FlowName/RunID/StepName"
    _CHILD = Task

    def _look(self) -> RunRecord:
        run: RunRecord = super()._look()
        if not run.of_step(self._components[2]):
            raise self._missing()
        return run

    def _own(self) -> List[TaskRecord]:
        return self._run.of_step(self.id)

    def _names(self) -> Iterable[str]:
        return [t.id for t in reversed(self._own())]

    def _child(self, name: str) -> Any:
        return self._make(name, self._run.task(self.id, name))

    def __iter__(self) -> Iterator[Task]:
        for one in reversed(list(self._own())):
            yield self._make(one.id, one)

    @property
    def created_at(self) -> Optional[datetime]:
        """When its first task began (local time)."""
        return min(filter(None, (t.created_at for t in self)), default=None)

    @property
    def task(self) -> Optional[Task]:
        """One of its tasks: the newest; for a step with several ranks the first rank."""
        control = self.control_task
        return control if control is not None else next(iter(self), None)

    def tasks(self, *tags: str) -> Iterator[Task]:
        """Its tasks with all these tags, the newest first."""
        return self._tagged(tags)

    @property
    def control_task(self) -> Optional[Task]:
        """For a step of ``num_parallel``: the newest task's first rank; else None."""
        return next(self.control_tasks(), None)

    def control_tasks(self, *tags: str) -> Iterator[Task]:
        """For a step of ``num_parallel``: the first ranks of its tasks."""
        return (t for t in self._tagged(tags) if is_parallel(t._record) and not t._record.rank)

    @property
    def finished_at(self) -> Optional[datetime]:
        """When its last task ended (local time); None: a task still runs."""
        ends = [t.finished_at for t in self]
        known = [e for e in ends if e is not None]
        return max(known) if known and len(known) == len(ends) else None

    @property
    def parent_steps(self) -> Iterator[Step]:
        """The steps that it followed."""
        for name in self._run.tasks:
            if self.id in self._run.following(name):
                yield self._sibling(name)

    @property
    def child_steps(self) -> Iterator[Step]:
        """The steps that followed it."""
        for name in self._run.following(self.id):
            if name in self._run.tasks:
                yield self._sibling(name)

    def _sibling(self, name: str) -> Step:
        return Step(
            "/".join([*self._components[:2], name]),
            _namespace_check=False,
            _current_metadata=f"local@{self._store}",
            _record=self._run,
        )

    @property
    def environment_info(self) -> Optional[Dict[str, Any]]:
        """The environment of its task."""
        task = self.task
        return None if task is None else task.environment_info

    @property
    def origin_pathspec(self) -> Optional[str]:
        """The step from which its tasks were cloned."""
        for one in self._own():
            if one.brief.get("from_run"):
                return f"{self._components[0]}/{one.brief['from_run']}/{self.id}"
        return None


class Run(MetaflowObject):
    """A run of a flow: its steps, its final artifacts, its tags."""

    _NAME = "run"
    _FORM = "FlowName/RunID"
    _CHILD = Step

    @property
    def id(self) -> str:
        """Its id; ``int()`` makes it a number."""
        return RunId(self._components[1])

    @property
    def _graph_endpoints(self) -> Tuple[str, str]:
        """Names of the flow's first and last step."""
        return self._run.endpoints

    def _names(self) -> Iterable[str]:
        steps = self._run.tasks.items()
        newest = sorted(steps, key=lambda s: s[1][0].number, reverse=True)
        return [*(name for name, _ in newest), _records.PARAMETERS]

    def steps(self, *tags: str) -> Iterator[Step]:
        """Its steps that have begun, the newest first."""
        return self._tagged(tags)

    @property
    def code(self) -> None:
        """None: the code of a run isn't packaged apart from its artifacts."""
        return

    @property
    def trigger(self) -> Any:
        """The events that started it (:class:`stoker.flow.events.Trigger`); None: a person did."""
        from .._trigger import Trigger

        events = self._run.mark.get("trigger")
        if not events:
            return None
        store = f"local@{self._store}"
        return Trigger(
            events,
            lambda spec: Run(spec, _namespace_check=False, _current_metadata=store),
        )

    @property
    def end_task(self) -> Optional[Task]:
        """The task of the flow's last step; None: not reached."""
        name = self._graph_endpoints[1]
        if name not in self._run.tasks:
            return None
        return Step(
            f"{self.pathspec}/{name}",
            _namespace_check=False,
            _current_metadata=f"local@{self._store}",
            _record=self._run,
        ).task

    @property
    def data(self) -> Optional[MetaflowData]:
        """Artifacts of the last step; None: not reached."""
        end = self.end_task
        return None if end is None else end.data

    @property
    def successful(self) -> bool:
        """Whether it ran to its end."""
        end = self.end_task
        return end is not None and end.successful

    @property
    def finished(self) -> bool:
        """Whether its last step ran to its end; a failed run is not finished."""
        end = self.end_task
        return end is not None and end.finished

    @property
    def finished_at(self) -> Optional[datetime]:
        """When its last step ended (local time); None: it has not."""
        end = self.end_task
        return None if end is None else end.finished_at

    @property
    def status(self) -> str:
        """The engine's status: ``running succeeded failed cancelled interrupted``."""
        return str(self._run.body["status"])

    @property
    def origin_pathspec(self) -> Optional[str]:
        """The run that it resumes, or None."""
        origin = self._run.mark.get("origin_run")
        return f"{self._components[0]}/{origin}" if origin else None

    def add_tag(self, tag: Any) -> None:
        """Add a tag (or several)."""
        self.replace_tags([], _tag_list(tag))

    def add_tags(self, tags: Iterable[str]) -> None:
        """Add tags (or one)."""
        self.add_tag(tags)

    def remove_tag(self, tag: Any) -> None:
        """Remove a tag (or several)."""
        self.replace_tags(_tag_list(tag), [])

    def remove_tags(self, tags: Iterable[str]) -> None:
        """Remove tags."""
        self.replace_tags(tags, [])

    def replace_tag(self, tag_to_remove: Any, tag_to_add: Any) -> None:
        """Replace one tag by another, in one step."""
        self.replace_tags(_tag_list(tag_to_remove), _tag_list(tag_to_add))

    def replace_tags(self, tags_to_remove: Iterable[str], tags_to_add: Iterable[str]) -> None:
        """Remove some tags, then add others, in one step.

        Raises:
            MetaflowTaggingError: a tag isn't a text or is too long, or a tag to remove is one of
                Stoker's.
        """
        remove, add = list(tags_to_remove), list(tags_to_add)
        for tag in (*remove, *add):
            if not isinstance(tag, str) or not tag:
                raise MetaflowTaggingError(f"a tag is a text that isn't empty, not {tag!r}")
        system = self.system_tags
        for tag in remove:
            if tag in system:
                raise MetaflowTaggingError(
                    f"tag '{tag}' of {self.pathspec} is a system tag: it can't be removed"
                )
        if not (add or remove):
            raise MetaflowTaggingError(f"{self.pathspec}: there is no tag to add or to remove")
        add = [t for t in add if t not in system]
        if not (add or remove):
            return
        try:
            self._run.tag(add, remove)
        except EngineError as bad:
            raise MetaflowTaggingError(str(bad)) from None
        now = frozenset(self._run.user_tags)
        # Another process may have changed them since.
        self._user_tags = now.difference(remove).union(add)


def _tag_list(tag: Any) -> List[str]:
    return [tag] if isinstance(tag, str) or not isinstance(tag, Iterable) else list(tag)


class Flow(MetaflowObject):
    """A flow that has been run here: its runs."""

    _NAME = "flow"
    _FORM = "FlowName"
    _CHILD = Run

    def __init__(self, pathspec: Optional[str] = None, **more: Any) -> None:
        super().__init__(pathspec, **more)

    def _look(self) -> Any:
        if next(_records.listed(self._store, self._components[0]), None) is None:
            raise self._missing()
        return self

    def is_in_namespace(self) -> bool:
        """Whether the current namespace has one of its runs."""
        return get_namespace() is None or next(self._seen(), None) is not None

    def _all(self) -> Iterator[RunRecord]:
        for row in _records.listed(self._store, self.id):
            yield RunRecord(self._store, str(row["run"]))

    def _seen(self) -> Iterator[RunRecord]:
        wanted = get_namespace()
        return (r for r in self._all() if r.in_namespace(wanted))

    def _names(self) -> Iterable[str]:
        return (r.id for r in self._seen())

    def __iter__(self) -> Iterator[Run]:
        for record in self._seen():
            yield self._make(record.id, record)

    def __getitem__(self, name: Any) -> Run:
        name = run_named(str(name))
        record = _records.find_run(self._store, name)
        if record is None or record.flow != self.id:
            raise KeyError(name)
        run: Run = self._make(name, record)
        if not run.is_in_namespace():
            raise MetaflowNamespaceMismatch(get_namespace(), repr(run))
        return run

    def __contains__(self, name: Any) -> bool:
        try:
            return self[name] is not None
        except (KeyError, MetaflowNamespaceMismatch):
            return False

    def runs(self, *tags: str) -> Iterator[Run]:
        """Its runs in the namespace that have all tags, the newest first."""
        return self._tagged(tags)

    @property
    def latest_run(self) -> Optional[Run]:
        """The newest run in the namespace."""
        return next(iter(self), None)

    @property
    def latest_successful_run(self) -> Optional[Run]:
        """The newest run in the namespace that ran to its end."""
        return next((r for r in self if r.successful), None)

    @property
    def created_at(self) -> Optional[datetime]:
        """When it was first run (local time)."""
        rows = list(_records.listed(self._store, self.id))
        return time_of(rows[-1].get("created_ms")) if rows else None

    @property
    def finished_at(self) -> Optional[datetime]:
        """When its newest run ended (local time)."""
        latest = self.latest_run
        return None if latest is None else latest.finished_at

    @property
    def system_tags(self) -> FrozenSet[str]:
        """An empty set: tags belong to runs."""
        return frozenset()

    user_tags = system_tags


class Metaflow:
    """The flows that have been run here."""

    def __init__(self, _current_metadata: Optional[str] = None) -> None:
        place = (_current_metadata or "").rpartition("@")[2]
        self._store = store_of(place) if place else store()

    @property
    def flows(self) -> List[Flow]:
        """Flows that have a run in the namespace."""
        return list(self)

    def __iter__(self) -> Iterator[Flow]:
        names = dict.fromkeys(str(r["pipeline"]) for r in _records.listed(self._store))
        for name in names:
            flow = Flow(name, _namespace_check=False, _current_metadata=_metadata_of(self))
            if flow.is_in_namespace():
                yield flow

    def __getitem__(self, name: str) -> Flow:
        return Flow(name, _current_metadata=_metadata_of(self))

    def _ipython_key_completions_(self) -> List[str]:
        return [f.id for f in self]

    def __str__(self) -> str:
        return "Metaflow()"

    __repr__ = __str__


def _metadata_of(view: Any) -> Optional[str]:
    """``local@FOLDER`` of an object's store, None if there is none yet."""
    return f"local@{view._store}" if view._store else None
