"""The base of the client's objects, and artifacts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Tuple, Type

from ..._base.errors import did_you_mean
from .. import _records
from .._records import RunRecord, TaskRecord
from ..exception import MetaflowInvalidPathspec, MetaflowNamespaceMismatch, MetaflowNotFound
from ._number import run_named
from ._place import get_namespace, store, store_of


def time_of(milliseconds: Any) -> Optional[datetime]:
    """A record's time as local time; None: unknown, or still open."""
    return datetime.fromtimestamp(milliseconds / 1000) if milliseconds else None


_TASK_PARTS = 4  # of a task's pathspec


class MetaflowObject:
    """Base of all objects: pathspec, tags, times, parent and children."""

    _NAME = "base"
    _FORM = ""
    _CHILD: Optional[Type[MetaflowObject]] = None

    def __init__(
        self,
        pathspec: Optional[str] = None,
        attempt: Optional[int] = None,
        _namespace_check: bool = True,
        _current_metadata: Optional[str] = None,
        _record: Any = None,
    ) -> None:
        self._components = str(pathspec or "").split("/")
        if not all(self._components) or len(self._components) != self._FORM.count("/") + 1:
            raise MetaflowInvalidPathspec(f"Expects {type(self).__name__}('{self._FORM}')")
        self._attempt = attempt
        if attempt is not None and len(self._components) < _TASK_PARTS:
            raise MetaflowNotFound("Attempts can only be specified for Task or DataArtifact")
        if attempt is not None and int(attempt) < 0:
            raise MetaflowNotFound("Attempt can only be non-negative")
        if len(self._components) > 1:
            self._components[1] = run_named(self._components[1])
        place = (_current_metadata or "").rpartition("@")[2]
        self._store = store_of(place) if place else store()
        self._checks = _namespace_check
        self._user_tags: Optional[FrozenSet[str]] = None
        self._record = self._look() if _record is None else _record
        if _namespace_check and not self.is_in_namespace():
            raise MetaflowNamespaceMismatch(get_namespace(), repr(self))

    def _look(self) -> Any:
        """The object's record; raises MetaflowNotFound."""
        run = _records.find_run(self._store, self._components[1])
        if run is None or run.flow != self._components[0]:
            raise self._missing()
        return run

    def _missing(self) -> MetaflowNotFound:
        return MetaflowNotFound(f"{self!r} does not exist in store '{self._store}'")

    @property
    def _run(self) -> RunRecord:
        return self._record  # type: ignore[no-any-return]

    def _names(self) -> Iterable[str]:
        """Ids of its children, the newest first."""
        return ()

    def _make(self, name: str, record: Any = None) -> Any:
        assert self._CHILD is not None
        return self._CHILD(
            f"{self.pathspec}/{name}",
            attempt=self._attempt,
            _namespace_check=False,
            _current_metadata=f"local@{self._store}" if self._store else None,
            _record=record,
        )

    def _child(self, name: str) -> Any:
        return self._make(name, self._record)

    @property
    def id(self) -> str:
        """The last part of the pathspec."""
        return self._components[-1]

    @property
    def pathspec(self) -> str:
        """``Flow/run/step/task/artifact``, as far as it goes."""
        return "/".join(self._components)

    @property
    def path_components(self) -> List[str]:
        """The parts of the pathspec."""
        return list(self._components)

    @property
    def parent(self) -> Any:
        """The object that contains it; None for a flow."""
        if len(self._components) == 1:
            return None
        from . import KINDS

        kind = KINDS[len(self._components) - 2]
        records: Dict[Any, Any] = {"Task": self._record, "Step": self._run, "Run": self._run}
        return kind(
            "/".join(self._components[:-1]),
            _namespace_check=False,
            _current_metadata=f"local@{self._store}",
            _record=records.get(kind.__name__),
        )

    @property
    def system_tags(self) -> FrozenSet[str]:
        """The run's tags from Stoker: user, versions, date."""
        return frozenset(self._run.system_tags)

    @property
    def user_tags(self) -> FrozenSet[str]:
        """The run's tags from users, as they were when this object was made, or changed them."""
        if self._user_tags is None:
            self._user_tags = frozenset(self._run.user_tags)
        return self._user_tags

    @property
    def tags(self) -> FrozenSet[str]:
        """All its tags."""
        return self.system_tags | self.user_tags

    @property
    def created_at(self) -> Optional[datetime]:
        """When it was created (local time)."""
        return time_of(self._run.body.get("created_ms"))

    @property
    def origin_pathspec(self) -> Optional[str]:
        """The object that ``resume`` cloned it from, or None."""
        return None

    def is_in_namespace(self) -> bool:
        """Whether the current namespace has it."""
        return self._run.in_namespace(get_namespace())

    def __iter__(self) -> Iterator[Any]:
        for name in list(self._names()):
            if not name.startswith("_"):
                yield self._child(name)

    def __getitem__(self, name: Any) -> Any:
        names = list(self._names())
        if str(name) not in names:
            raise KeyError(name)
        return self._child(str(name))

    def __contains__(self, name: Any) -> bool:
        return str(name) in set(self._names())

    def _ipython_key_completions_(self) -> List[str]:
        return [n for n in self._names() if not n.startswith("_")]

    def _tagged(self, tags: Tuple[str, ...]) -> Iterator[Any]:
        wanted = set(tags)
        return (one for one in self if wanted <= set(one.tags))

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return (self.pathspec, self._store) == (other.pathspec, other._store)

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.pathspec))

    def __repr__(self) -> str:
        attempt = "" if self._attempt is None else f", attempt={self._attempt}"
        return f"{type(self).__name__}('{self.pathspec}'{attempt})"

    __str__ = __repr__

    def __getstate__(self) -> Dict[str, Any]:
        return {
            "pathspec": self.pathspec,
            "attempt": self._attempt,
            "metadata": f"local@{self._store}",
            "checks": self._checks,
        }

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(  # type: ignore[misc]
            state["pathspec"],
            attempt=state["attempt"],
            _namespace_check=state["checks"],
            _current_metadata=state["metadata"],
        )


class MetaflowData:
    """The artifacts of a task as attributes, each loaded when it is read."""

    def __init__(self, artifacts: Iterable[DataArtifact]) -> None:
        self._artifacts = {a.id: a for a in artifacts}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_artifacts":
            raise AttributeError(name)
        found = self._artifacts.get(name)
        if found is None:
            have = ", ".join(sorted(self._artifacts)) or "none"
            hint = did_you_mean(name, self._artifacts)
            raise AttributeError(f"no artifact '{name}' (there is: {have}){hint}")
        return found.data

    def __contains__(self, name: str) -> bool:
        return name in self._artifacts

    def __dir__(self) -> List[str]:
        return sorted(self._artifacts)

    def __repr__(self) -> str:
        return f"<MetaflowData: {', '.join(self._artifacts)}>"

    __str__ = __repr__


class DataArtifact(MetaflowObject):
    """One artifact of a task."""

    _NAME = "artifact"
    _FORM = "FlowName/RunID/StepName/TaskID/ArtifactName"

    def _look(self) -> TaskRecord:
        task: Optional[TaskRecord] = super()._look().task(self._components[2], self._components[3])
        if task is None or self._components[4] not in task.artifacts_of(self._attempt):
            raise self._missing()
        return task

    @property
    def _run(self) -> RunRecord:
        return self._record.run  # type: ignore[no-any-return]

    @property
    def _ref(self) -> Mapping[str, Any]:
        return self._record.artifacts_of(self._attempt)[self.id]  # type: ignore[no-any-return]

    @property
    def data(self) -> Any:
        """Its value, loaded at each read.

        Raises:
            LoadError: it can't be read.
        """
        return _records.load(self._ref)

    @property
    def artifact_name(self) -> str:
        """Its name."""
        return self.id

    @property
    def sha(self) -> str:
        """Digest of its content (SHA-256, hex): equal content, equal digest."""
        return str(self._ref["digest"])

    @property
    def size(self) -> int:
        """Its size in the store, in bytes."""
        return _records.size_of(self._ref)

    @property
    def finished_at(self) -> Optional[datetime]:
        """When its task ended (local time); of an earlier attempt, when that failed."""
        last = self._attempt in (None, self._record.last_attempt)
        known = self._record.brief if last else self._record.earlier(self._attempt)
        return time_of(known.get("ended_ms"))

    created_at = finished_at

    @property
    def origin_pathspec(self) -> Optional[str]:
        """The artifact of the task from which this one's task was cloned."""
        origin = origin_of(self._record)
        return None if origin is None else f"{origin}/{self.id}"


def origin_of(task: TaskRecord) -> Optional[str]:
    """Pathspec of the task from which this one was cloned, or None."""
    run = task.brief.get("from_run")
    if not run:
        return None
    origin = f"{task.run.flow}/{run}/{task.step}/{task.brief.get('from_task')}"
    return f"{origin}_node_{task.rank}" if task.rank else origin
