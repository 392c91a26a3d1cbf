"""The records of flows' runs, from the engine: one process for a run, one for a step, none for a
task.

Uses ``stoker show RUN --json`` and ``stoker show RUN/STEP --json``
(docs/formats/engine-command-line.md). Records of ended runs don't change and are kept; those of
live runs are read again at each use.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from .._base.binary import json_of, output_of
from .._base.binary import store_path as store_path
from .._base.digest import sha256
from .._base.errors import EngineError
from .._engine.stored import stored, stored_spec

# How long an answer about a live run is valid, in seconds and in multiples of the time that it
# took: one use reads many properties of many tasks.
_FRESH_S = 0.05
_FRESH_TIMES = 10
_LIVE = ("running", "interrupted")  # an interrupted run may be resumed
PARAMETERS = "_parameters"  # the step whose one task has a run's parameters, as in Metaflow


def flow_mark(store: Optional[str], run: str) -> Optional[Mapping[str, Any]]:
    """The front's data about the flow (``extra.flow``), or None if the run isn't a flow's."""
    found = (stored_spec(store, run).get("extra") or {}).get("flow")
    return found if isinstance(found, dict) else None


def listed(store: Optional[str], flow: Optional[str] = None) -> Iterator[Dict[str, Any]]:
    """Runs of flows (or of one flow), the newest first, from ``stoker runs --json``."""
    if store is None or not os.path.isdir(store) or _has_only_deployed(store):
        return
    words = ["runs", *([flow] if flow else []), "--no-values", "--limit", "1000000"]
    try:
        rows = json_of(words, store)
    except EngineError as bad:
        if "no pipeline has run here yet" not in str(bad):
            raise
        return  # the first run is making the store
    for row in rows:
        if flow_mark(store, row["run"]) is not None:
            yield row


def _has_only_deployed(store: str) -> bool:
    """Whether flows were deployed there, but nothing has run yet."""
    names = os.listdir(store)
    return "deployments" in names and "store.db" not in names


class _Fresh:
    """How long an answer is valid: requested when this object was made, received when :meth:`came`
    was called."""

    def __init__(self) -> None:
        self._asked = self._until = time.monotonic()

    def came(self) -> None:
        now = time.monotonic()
        self._until = now + max(_FRESH_S, _FRESH_TIMES * (now - self._asked))

    def __bool__(self) -> bool:
        return time.monotonic() <= self._until


class TaskRecord:
    """One task, or one rank of a task with several.

    Attributes:
        id: as in a pathspec; rank K of task 7 is ``7_node_K``.
        number: the task's number, for the engine.
        brief: its entry in the run's record.
    """

    __slots__ = ("brief", "id", "number", "rank", "run", "step")

    def __init__(self, run: RunRecord, step: str, brief: Mapping[str, Any], rank: int = 0) -> None:
        self.run = run
        self.step = step
        self.brief = brief
        self.rank = rank
        self.number = int(brief["id"])
        self.id = f"{self.number}_node_{rank}" if rank else str(self.number)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskRecord):
            return NotImplemented
        return (self.run, self.step, self.id) == (other.run, other.step, other.id)

    def __hash__(self) -> int:
        return hash((self.run, self.step, self.id))

    @property
    def full(self) -> Mapping[str, Any]:
        """Its entry in the step's record, with artifacts, metadata and cards."""
        return self.run.details(self.step).get(self.number) or self.brief

    @property
    def artifacts(self) -> Dict[str, Dict[str, Any]]:
        """Name → ref with ``path``, for the artifacts that it has at its end."""
        full = self.full
        own = (full.get("ranks") or [])[self.rank] if self.rank else full
        return {**self.run.given, **(own.get("artifacts") or {})}

    def earlier(self, attempt: int) -> Mapping[str, Any]:
        """What is known of an attempt before the last, from 0; {}: there is no such attempt."""
        found = (one for one in self.full.get("earlier") or () if one["attempt"] == attempt + 1)
        return next(found, {})

    def artifacts_of(self, attempt: Optional[int]) -> Dict[str, Dict[str, Any]]:
        """Name → ref with ``path``, for the artifacts that an attempt (None: the last) left, with
        those that Metaflow hides."""
        if attempt in (None, self.last_attempt):
            return {**self._hidden(), **self.artifacts}
        ranks = self.earlier(int(attempt or 0)).get("ranks")
        return {**self.run.given, **ranks[self.rank]["artifacts"]} if ranks else {}

    def _hidden(self) -> Dict[str, Dict[str, Any]]:
        if self.brief.get("status") not in ("succeeded", "cached", "failed"):
            return {}
        found = hidden(self.run.graph, self.step, self.succeeded, self.is_caught)
        if self.succeeded:
            found.update({name: _value_ref(value, "json") for name, value in self._way().items()})
        return found

    def _way(self) -> Dict[str, Any]:
        """Where a task that succeeded has gone on to, by the names that Metaflow hides."""
        document = (self.run.spec.get("steps") or {}).get(self.step) or {}
        after = self.run.following_tasks(self.number)
        item, width = document.get("foreach"), None
        steps = targets(document)
        if document.get("cases"):
            steps = [one for one in steps if any(t.step == one for t in after)]
        if item and after:
            width = int(after[0].brief["foreach"][-1][2])
        return {
            "_transition": (steps, item) if steps else None,
            "_foreach_var": item,
            "_foreach_num_splits": width,
            "_exception": None,
        }

    @property
    def last_attempt(self) -> int:
        """Its last attempt so far, from 0. In a gang the attempt that only catches the failure of
        the one before counts with that; if a process was killed, it counts in rank 0 by itself."""
        last = max(0, int(self.brief.get("attempts") or 1) - 1)
        return last - 1 if last and self.is_caught_gang else last

    @property
    def is_caught_gang(self) -> bool:
        """Whether its last attempt, of several ranks, only caught the failure of the one before."""
        if not self.brief.get("ranks") or not self.succeeded:
            return False
        caught = (self.full.get("metadata") or {}).get("caught") or {}
        return bool(caught) and (self.rank > 0 or not caught.get("killed"))

    @property
    def is_caught(self) -> bool:
        """Whether ``@catch`` made it succeed."""
        steps = self.run.spec.get("steps") or {}
        if not self.succeeded or not (steps.get(self.step) or {}).get("fallback"):
            return False
        if self.brief.get("from_run"):
            origin = find_run(self.run.store, str(self.brief["from_run"]))  # None: removed since
            first = origin.numbered(int(self.brief["from_task"])) if origin else []
            return bool(first) and first[0].is_caught
        return "caught" in (self.full.get("metadata") or {})

    @property
    def succeeded(self) -> bool:
        """Whether it succeeded, by running or by taking another task's result."""
        return str(self.brief["status"]) in ("succeeded", "cached")

    @property
    def log_paths(self) -> Dict[str, Optional[str]]:
        """``stdout`` and ``stderr`` → path of the last attempt's file; each rank has its own."""
        logs = dict(self.brief.get("logs") or {})
        folder = os.path.join(str(self.brief.get("dir")), f"rank-{self.rank}")
        if self.brief.get("ranks") and (self.rank or os.path.isdir(folder)):
            return {s: os.path.join(folder, f"{s}.log") for s in ("stdout", "stderr")}
        return {"stdout": logs.get("stdout"), "stderr": logs.get("stderr")}


class _Given(TaskRecord):
    """The task of the step ``_parameters``: no process, but the values that a run was given."""

    __slots__ = ()

    def __init__(self, run: RunRecord) -> None:
        at = run.body.get("created_ms")
        brief = {"id": 0, "status": "succeeded", "started_ms": at, "ended_ms": at}
        super().__init__(run, PARAMETERS, brief)

    @property
    def full(self) -> Mapping[str, Any]:
        """Its entry, with the names of the flow's first and last step as metadata."""
        ends = dict(zip(("start_step", "end_step"), self.run.endpoints))
        return {**self.brief, "metadata": ends}

    def _hidden(self) -> Dict[str, Dict[str, Any]]:
        return hidden(self.run.graph)

    @property
    def artifacts(self) -> Dict[str, Dict[str, Any]]:
        """Name → ref of the parameters; large ones are inputs of the first step."""
        stored = self.run.first_mark.get("stored") or ()
        began = self.run.tasks.get(self.run.endpoints[0]) or ()
        large = began[0].artifacts if stored and began else {}
        none = {name: _value_ref(None, "json") for name in self.run.mark.get("none") or ()}
        return {**self.run.given, **none, **{k: large[k] for k in stored if k in large}}


class _Index:
    """The tasks of a run at one moment, indexed for look-ups."""

    def __init__(self, run: RunRecord, body: Dict[str, Any]) -> None:
        self.body = body
        self.steps: Dict[str, List[TaskRecord]] = {}
        self.named: Dict[Tuple[str, str], TaskRecord] = {}
        self.numbers: Dict[int, List[TaskRecord]] = {}
        self.children: Dict[int, List[TaskRecord]] = {}
        for brief in body.get("tasks") or ():
            for rank in range(max(1, int(brief.get("ranks") or 0))):
                one = TaskRecord(run, brief["step"], brief, rank)
                self.steps.setdefault(one.step, []).append(one)
                self.named[one.step, one.id] = one
                self.numbers.setdefault(one.number, []).append(one)
                for parent in dict.fromkeys(brief.get("parents") or ()):
                    self.children.setdefault(int(parent), []).append(one)


class RunRecord:
    """One run."""

    def __init__(self, store: Optional[str], run: str) -> None:
        self.store = store
        self.id = run
        self._body: Optional[Dict[str, Any]] = None
        self._fresh = _Fresh()
        self._details: Dict[str, Tuple[_Fresh, bool, Dict[int, Dict[str, Any]]]] = {}
        self._known: Optional[_Index] = None
        self._given: Optional[Dict[str, Dict[str, Any]]] = None
        self._spec: Optional[Mapping[str, Any]] = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunRecord):
            return NotImplemented
        return (self.store, self.id) == (other.store, other.id)

    def __hash__(self) -> int:
        return hash((self.store, self.id))

    @property
    def body(self) -> Dict[str, Any]:
        """The record, from ``stoker show RUN --json``.

        Raises:
            EngineError: there is no such run.
        """
        if self._body is None or (self.live and not self._fresh):
            self._fresh = _Fresh()
            self._body = dict(json_of(["show", self.id], self.store))
            self._fresh.came()
        return self._body

    @property
    def live(self) -> bool:
        """Whether it could still change, by the last record."""
        return self._body is None or self._body.get("status") in _LIVE

    def forget(self) -> None:
        """Read the record again at the next use."""
        self._body = None

    @property
    def spec(self) -> Mapping[str, Any]:
        """The document of the run."""
        if self._spec is None:
            self._spec = stored_spec(self.store, self.id)
        return self._spec

    @property
    def mark(self) -> Mapping[str, Any]:
        """``extra.flow`` of its document."""
        return (self.spec.get("extra") or {}).get("flow") or {}

    @property
    def first_mark(self) -> Mapping[str, Any]:
        """``extra.flow`` of its first step."""
        first = (self.spec.get("steps") or {}).get(self.endpoints[0]) or {}
        return (first.get("extra") or {}).get("flow") or {}

    @property
    def graph(self) -> Optional[Mapping[str, Any]]:
        """The flow's graph as plain data (``_compile.graph_info``); None: an older run's."""
        return self.first_mark.get("graph")

    @property
    def flow(self) -> str:
        """The flow's name."""
        return str(self.spec.get("name") or self.body["pipeline"])

    @property
    def given(self) -> Dict[str, Dict[str, Any]]:
        """Values that every task sees besides its artifacts: parameters and the flow's name, as
        refs with a ``value``."""
        if self._given is not None:
            return self._given
        declared = self.spec.get("parameters") or {}
        values = {k: v.get("default") for k, v in declared.items()}
        types = {k: v.get("type") for k, v in declared.items()}
        values["name"], types["name"] = self.flow, "str"
        self._given = {k: _value_ref(v, str(types[k])) for k, v in values.items()}
        return self._given

    @property
    def system_tags(self) -> List[str]:
        """Tags that users can't change."""
        return [str(t) for t in self.mark.get("system_tags") or ()]

    @property
    def user_tags(self) -> List[str]:
        """The current tags that users gave."""
        system = set(self.system_tags)
        return [t for t in self.body.get("tags") or () if t not in system]

    def in_namespace(self, wanted: Optional[str]) -> bool:
        """Whether it has this tag (None: the global namespace has all runs)."""
        return wanted is None or wanted in self.system_tags or wanted in self.user_tags

    @property
    def _index(self) -> _Index:
        body = self.body
        if self._known is None or self._known.body is not body:
            self._known = _Index(self, body)
        return self._known

    @property
    def tasks(self) -> Dict[str, List[TaskRecord]]:
        """Step → its tasks, in the order of their addition, without steps that have no task."""
        return self._index.steps

    def task(self, step: str, task: str) -> Optional[TaskRecord]:
        """A task by its step and id."""
        given = _Given(self)
        return (
            given if (step, task) == (given.step, given.id) else self._index.named.get((step, task))
        )

    def of_step(self, step: str) -> List[TaskRecord]:
        """The tasks of a step, in the order of their addition; ``_parameters`` has one."""
        return [_Given(self)] if step == PARAMETERS else self.tasks.get(step, [])

    @property
    def endpoints(self) -> Tuple[str, str]:
        """Names of the flow's first and last step."""
        steps = self.spec.get("steps") or {}
        last = [name for name in steps if not targets(steps[name])]
        return next(iter(steps), "start"), (last or ["end"])[-1]

    def numbered(self, number: int) -> List[TaskRecord]:
        """A task by its number; for a task with several ranks, all of them."""
        return self._index.numbers.get(number, [])

    def following_tasks(self, number: int) -> List[TaskRecord]:
        """The tasks that a task is a parent of."""
        return self._index.children.get(number, [])

    def details(self, step: str) -> Dict[int, Dict[str, Any]]:
        """Task number → its entry in ``stoker show RUN/STEP --json``."""
        fresh, final, known = self._details.get(step, (None, False, {}))
        if final or (known and fresh):
            return known
        final = self.body.get("status") not in _LIVE
        fresh = _Fresh()
        answer = json_of(["show", f"{self.id}/{step}", "--refs"], self.store)
        fresh.came()
        refs = answer["refs"]
        for task in answer["tasks"]:
            before = (rank for one in task.get("earlier") or () for rank in one["ranks"])
            for one in (task, *(task.get("ranks") or ()), *before):
                one["artifacts"] = {name: refs[i] for name, i in one["artifacts"].items()}
        known = {int(t["id"]): t for t in answer["tasks"]}
        self._details[step] = (fresh, final, known)
        return known

    def following(self, step: str) -> List[str]:
        """Steps that follow this one in the document."""
        return targets((self.spec.get("steps") or {}).get(step) or {})

    def tag(self, add: List[str], remove: List[str]) -> None:
        """Change the user tags.

        Raises:
            EngineError: the engine refused.
        """
        words = [w for t in remove for w in ("--remove", t)]
        words += [w for t in add for w in ("--add", t)]
        output_of(["tag", self.id, *words], self.store)
        self.forget()


def hidden(
    graph: Optional[Mapping[str, Any]],
    step: Optional[str] = None,
    ok: bool = False,
    caught: bool = False,
) -> Dict[str, Dict[str, Any]]:
    """Artifacts of an ended task (no step: of ``_parameters``) that only their names show: name →
    ref with a ``value``."""
    values: Dict[str, Any] = {"_graph_info": graph} if graph else {}
    values["_success"] = step is None or (ok and not caught)
    if step is not None:
        values.update(_current_step=step, _task_ok=ok)
    return {name: _value_ref(value, "json") for name, value in values.items()}


def _value_ref(value: Any, kind: str) -> Dict[str, Any]:
    """A ref for a value in the document; digest and size are those of its JSON."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass")
    name = type(value).__name__ if kind == "json" else kind
    digest = sha256(text).hexdigest()
    return {"value": value, "type": f"builtins.{name}", "digest": digest, "size": len(text)}


def targets(step: Mapping[str, Any]) -> List[str]:
    """The steps that can follow a step of a document."""
    given = step.get("next")
    if given is None:
        return list(dict.fromkeys((step.get("cases") or {}).values()))
    return [given] if isinstance(given, str) else list(given)


def load(ref: Mapping[str, Any]) -> Any:
    """The value of an artifact.

    Raises:
        LoadError: it can't be read.
    """
    from ..materializers import _artifact

    if "value" in ref:  # the content of its file
        return _artifact.load({"value": ref["value"]})
    path = str(ref["path"])
    # files of spun tasks aren't in the store
    if str(ref.get("digest"))[2:] == os.path.basename(path):
        path = stored(path, str(ref["digest"]), path.rpartition("/artifacts/")[0])
    entry = {"path": path, "format": ref.get("format"), "type": ref.get("type") or ""}
    return _artifact.load({**entry, "meta": dict(ref.get("meta") or {})})


def size_of(ref: Mapping[str, Any]) -> int:
    """Bytes that an artifact takes in the store."""
    size = ref.get("size")
    if size is None or size < 0:
        size = sum(os.path.getsize(p) for p in _files(str(ref["path"])))
    return int(size)


def _files(path: str) -> Iterator[str]:
    if not os.path.isdir(path):
        yield path
        return
    for folder, _, names in os.walk(path):
        yield from (os.path.join(folder, n) for n in names)


def find_run(store: Optional[str], run: str) -> Optional[RunRecord]:
    """A flow's run by its id, or None."""
    if store is None or not run or not os.path.isdir(os.path.join(store, "runs", run)):
        return None
    record = RunRecord(store, run)
    try:
        record.body  # noqa: B018 (asking is the point)
    except EngineError:
        return None
    return record if record.mark else None
