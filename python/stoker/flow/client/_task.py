"""The client's tasks: their logs, artifacts and end."""

from __future__ import annotations

import builtins
import json
import os
from collections import namedtuple
from datetime import datetime
from typing import (
    Any,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Tuple,
)

from .._records import RunRecord, TaskRecord
from ._object import DataArtifact, MetaflowData, MetaflowObject, origin_of, time_of
from ._place import has_spins, store


class Metadata(NamedTuple):
    """One entry of a task's metadata."""

    name: str
    value: Any
    created_at: Optional[int]
    type: str
    task: Any


class Task(MetaflowObject):
    """One task, an execution of a step: its logs, artifacts and end."""

    _NAME = "task"
    _FORM = "FlowName/RunID/StepName/TaskID"
    _CHILD = DataArtifact

    def __new__(cls, pathspec: Optional[str] = None, *more: Any, **options: Any) -> Any:
        """A task; for the pathspec of a persisted spin its :class:`SpunTask`."""
        if cls is Task and "/spin-" in str(pathspec or "") and has_spins():
            from .._spun import spun_task

            found = spun_task(str(pathspec), store())
            if found:
                return found
        return object.__new__(cls)

    def _look(self) -> TaskRecord:
        task: Optional[TaskRecord] = super()._look().task(self._components[2], self._components[3])
        if task is None:
            raise self._missing()
        return task

    @property
    def _run(self) -> RunRecord:
        return self._record.run  # type: ignore[no-any-return]

    @property
    def _now(self) -> TaskRecord:
        """The current record; that of a live run changes."""
        found = self._run.task(self._components[2], self.id)
        return found or self._record

    @property
    def _other(self) -> Optional[int]:
        """The attempt of this object, if it isn't the last one."""
        last = self._now.last_attempt
        return None if self._attempt in (None, last) else self._attempt

    def _names(self) -> Iterable[str]:
        return self._now.artifacts_of(self._attempt)

    def _child(self, name: str) -> Any:
        return self._make(name, self._now)

    @property
    def created_at(self) -> Optional[datetime]:
        """When its first attempt began (local time)."""
        return time_of(self._now.brief.get("started_ms"))

    @property
    def artifacts(self) -> Any:
        """Its artifacts, by name as attributes (:class:`DataArtifact`)."""
        found = list(self)
        kind = namedtuple("MetaflowArtifacts", [a.id for a in found])  # type: ignore[misc]
        return kind(*found)

    @property
    def data(self) -> MetaflowData:
        """Values of its artifacts, as attributes."""
        return MetaflowData(self)

    @property
    def metadata(self) -> List[Metadata]:
        """Its metadata: one entry for each name, and for each earlier attempt that it failed."""
        task = self._now
        at = task.brief.get("ended_ms") or task.brief.get("started_ms") or None
        facts = _facts(task)
        if self._other is not None:
            done = {"attempt-done": str(self._other), "attempt_ok": "False"}
            facts.update({"attempt": str(self._other), **(done if self._failure() else {})})
        earlier = range(task.last_attempt if self._other is None else 0)
        before = [entry for n in earlier for entry in _ended_badly(n)]
        return [Metadata(k, v, at, _KINDS.get(k, k), self) for k, v in [*before, *facts.items()]]

    @property
    def metadata_dict(self) -> Dict[str, Any]:
        """Its metadata, name → value."""
        return {m.name: m.value for m in self.metadata}

    @property
    def index(self) -> Optional[int]:
        """Index of its item in the innermost foreach, or of its node in ``num_parallel``; None:
        neither."""
        task = self._now
        if is_parallel(task):
            return task.rank
        frames = task.brief.get("foreach") or ()
        return int(frames[-1][1]) if frames else None

    @property
    def successful(self) -> bool:
        """Whether it ran to its end without ``@catch``."""
        return self.finished and not self._now.is_caught

    @property
    def finished(self) -> bool:
        """Whether it ran to its end."""
        return self._now.succeeded and self._other is None

    @property
    def finished_at(self) -> Optional[datetime]:
        """When it succeeded or failed (local time); None: it still runs, or never ran."""
        brief = self._now.brief
        if self._other is not None:
            return time_of(self._now.earlier(self._other).get("ended_ms"))
        ended = brief.get("status") in ("succeeded", "cached", "failed")
        return time_of(brief.get("ended_ms")) if ended else None

    @property
    def exception(self) -> Optional[Any]:
        """The exception that ended it: ``type``, ``exception``, ``stacktrace``. For ``@catch`` it
        is in the artifact ``var``."""
        error = self._failure()
        return None if not error else TaskFailure(error)

    def _failure(self) -> Optional[Mapping[str, Any]]:
        if self._other is None:
            return _error(self._now)
        task = os.path.dirname(str(self._now.brief.get("dir")))
        return _own_error(os.path.join(task, str(self._other + 1)))

    @property
    def runtime_name(self) -> Optional[str]:
        """``dev``: it ran on this machine."""
        return "dev"

    @property
    def current_attempt(self) -> int:
        """The attempt of this object, from 0."""
        if self._attempt is not None:
            return self._attempt
        return self._now.last_attempt

    @property
    def stdout(self) -> str:
        """Its standard output."""
        return self._log("stdout")

    @property
    def stderr(self) -> str:
        """Its standard error."""
        return self._log("stderr")

    @property
    def stdout_size(self) -> int:
        """Size of :attr:`stdout` in bytes."""
        return len(self._log_bytes("stdout"))

    @property
    def stderr_size(self) -> int:
        """Size of :attr:`stderr` in bytes."""
        return len(self._log_bytes("stderr"))

    def loglines(
        self, stream: str, as_unicode: bool = True, meta_dict: Any = None
    ) -> Iterator[Tuple[Optional[datetime], Any]]:
        """Pairs of time and line of ``stdout`` or ``stderr``.

        Stoker's logs have only the program's bytes. A line's time (local) is when the engine first
        saw it, at most 0.1 s after it was written in a task's first ten seconds, a second later on.
        """
        from .._logs import timed_lines

        for path in self._log_paths(stream):
            with open(path, "rb") as file:
                lines = timed_lines(path, file.read())
            for written, line in lines:
                yield (
                    datetime.fromtimestamp(written),
                    line.decode("utf-8", "replace") if as_unicode else line,
                )

    def _log_paths(self, stream: str) -> List[str]:
        """Its files; two if a gang's failure was caught by an attempt of its own."""
        if stream not in ("stdout", "stderr"):
            raise ValueError(f"a task has the streams 'stdout' and 'stderr', not {stream!r}")
        now = self._now
        path, folder = now.log_paths.get(stream), now.brief.get("dir")
        if not path or not folder:
            return []
        attempts = [self.current_attempt]
        if self._other is None and now.is_caught_gang:
            attempts.append(attempts[0] + 1)
        home, inside = os.path.dirname(folder), os.path.relpath(path, folder)
        found = [os.path.join(home, str(one + 1), inside) for one in attempts]
        return [one for one in found if os.path.exists(one)]

    def _log_bytes(self, stream: str) -> bytes:
        data = b""
        for path in self._log_paths(stream):
            with open(path, "rb") as file:
                data += file.read()
        return data

    def _log(self, stream: str) -> str:
        return whole_lines(self._log_bytes(stream).decode("utf-8", "replace"))

    @property
    def parent_task_pathspecs(self) -> Iterator[str]:
        """Pathspecs of the tasks that it follows; for a join all its inputs, by branch."""
        return (t.pathspec for t in self.parent_tasks)

    @property
    def child_task_pathspecs(self) -> Iterator[str]:
        """Pathspecs of the tasks that followed it."""
        return (t.pathspec for t in self.child_tasks)

    @property
    def parent_tasks(self) -> Iterator[Task]:
        """The tasks that it follows; for a join all its inputs, by branch."""
        for number in self._now.brief.get("parents") or ():
            yield from (self._peer(one) for one in self._run.numbered(int(number)))

    @property
    def child_tasks(self) -> Iterator[Task]:
        """The tasks that followed it, in their order."""
        return (self._peer(one) for one in self._run.following_tasks(self._now.number))

    def _peer(self, task: TaskRecord) -> Task:
        flow, run = self._components[:2]
        found: Task = Task(
            f"{flow}/{run}/{task.step}/{task.id}",
            _namespace_check=False,
            _current_metadata=f"local@{self._store}",
            _record=task,
        )
        return found

    @property
    def origin_pathspec(self) -> Optional[str]:
        """The task that ``resume`` cloned it from; None: it ran itself."""
        return origin_of(self._now)

    @property
    def environment_info(self) -> Dict[str, Any]:
        """Facts about interpreter and machine, from the run's record."""
        return dict(self._run.body.get("host") or {})

    @property
    def code(self) -> None:
        """None: the code of a run isn't packaged apart from its artifacts."""
        return


def whole_lines(text: str) -> str:
    """A log's text, whose last line ends as the others do."""
    return text if not text or text.endswith("\n") else text + "\n"


_KINDS = {"attempt_ok": "internal_attempt_status"}


def is_parallel(task: TaskRecord) -> bool:
    """Whether it is a task with several ranks, from ``num_parallel``."""
    return bool(task.brief.get("ranks"))


def _error(task: TaskRecord) -> Optional[Mapping[str, Any]]:
    """Its failure: the engine's report, with the step's record of the exception."""
    error = task.brief.get("error")
    if not error or task.succeeded:
        return None
    own = _own_error(str(task.brief.get("dir")))
    return {**error, **{k: own[k] for k in ("type", "message", "traceback", "raw") if own.get(k)}}


def _own_error(attempt: str) -> Mapping[str, Any]:
    """A step's record of its exception in an attempt's folder."""
    try:
        with open(os.path.join(attempt, "result.json"), encoding="utf-8") as file:
            return json.load(file).get("error") or {}
    except (OSError, ValueError):
        return {}


def _ended_badly(attempt: int) -> List[Tuple[str, Any]]:
    """Metadata of an attempt that was followed by another one."""
    return [("attempt", str(attempt)), ("attempt-done", str(attempt)), ("attempt_ok", "False")]


def _facts(task: TaskRecord) -> Dict[str, Any]:
    """A task's metadata under Metaflow's names, then the metadata that its step logged."""
    brief, run = task.brief, task.run
    facts: Dict[str, Any] = {"attempt": str(task.last_attempt)}
    facts["origin-run-id"] = str(brief.get("from_run") or run.mark.get("origin_run"))
    if brief.get("from_run"):
        facts["origin-task-id"] = str(brief.get("from_task"))
    facts.update({"ds-type": "local", "ds-root": run.store, "runtime": "dev"})
    tags = dict(t.split(":", 1) for t in run.system_tags if ":" in t)
    facts.update({k: tags[k] for k in _FACT_TAGS if k in tags})
    if run.mark.get("file"):
        facts["script-name"] = os.path.basename(str(run.mark["file"]))
    frames = brief.get("foreach") or ()
    if frames:
        steps = run.spec.get("steps") or {}
        names = [(steps.get(f[0]) or {}).get("foreach") or f[0] for f in frames]
        facts["foreach-stack"] = [f"{n}={f[1]}" for n, f in zip(names, frames)]
        first = [run.following(f[0]) for f in frames]
        path = [f"{step}:{f[1]}" for f, after in zip(frames, first) for step in after]
        facts["foreach-execution-path"] = ",".join(path)
    if is_parallel(task):
        facts["parallel-world-size"] = int(brief["ranks"])
        facts.update({} if task.rank else {"internal_task_type": "control_task"})
    if brief.get("status") in ("succeeded", "cached", "failed"):
        facts["attempt-done"] = facts["attempt"]
        facts["attempt_ok"] = str(task.succeeded)
    facts.update({k: v for k, v in (task.full.get("metadata") or {}).items() if k not in facts})
    return facts


_FACT_TAGS = ("user", "python_version", "metaflow_version", "stoker_version")


class TaskFailure(Exception):
    """A task's failure: ``type`` (of the exception, else the failure's class), ``exception`` (its
    text) and ``stacktrace``."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        kind = error.get("type") or error.get("class")
        self.type = f"builtins.{kind}" if kind and hasattr(builtins, str(kind)) else kind
        said = error.get("raw") or error.get("message")
        if said is None:
            said = error.get("cause") or error.get("text")
        self.exception = "" if said == kind else said  # raised without a message
        self.stacktrace = error.get("traceback")
        super().__init__(str(error.get("text") or self.exception))

    def __str__(self) -> str:
        return str(self.stacktrace or self.args[0])

    def __reduce__(self) -> Any:
        body = {"type": self.type, "message": self.exception, "traceback": self.stacktrace}
        return TaskFailure, ({**body, "text": self.args[0]},)
