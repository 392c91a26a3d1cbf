"""The results of a spun task, read from its folder; it belongs to no run."""

from __future__ import annotations

import json
import os
from collections import namedtuple
from datetime import datetime
from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, Optional

from . import _records


def scope_of(task: Mapping[str, Any], store: str) -> Dict[str, Dict[str, Any]]:
    """Name → ref of the artifacts at a task's start: its parent's; none for a join."""
    flow = task.get("flow") or {}
    parents = flow.get("parents") or ()
    if flow.get("join") or not parents:
        return {}
    refs = flow.get("refs") or ()
    return {name: placed(refs[i], store) for name, i in (parents[0].get("scope") or {}).items()}


def placed(ref: Mapping[str, Any], store: str) -> Dict[str, Any]:
    """A ref with the path of its content."""
    if ref.get("path") or not ref.get("digest"):
        return dict(ref)
    digest = str(ref["digest"])
    return {**ref, "path": os.path.join(store, "artifacts", digest[:2], digest[2:])}


def inspect_spin(datastore_root: str = ".") -> None:
    """From now on ``Task(PATHSPEC)`` also finds the tasks that ``spin --persist`` left in a store.

    Args:
        datastore_root: the store, or the folder that has it.
    """
    from .client import metadata

    metadata(f"spin@{datastore_root}")


def spun_task(pathspec: str, store: Optional[str]) -> Optional[SpunTask]:
    """The task that ``spin --persist`` left in a store under this pathspec; None: there is none."""
    parts = pathspec.split("/")
    folder = os.path.join(store or "", "spins", parts[1], "1")
    if len(parts) != 4 or not os.path.isdir(folder):
        return None
    facts = dict(zip(_PARTS, parts))
    return SpunTask({**facts, "dir": folder, "metadata": f"local@{store}"})


def spun_tasks(flow: str, store: Optional[str]) -> List[SpunTask]:
    """The tasks of a flow that ``spin --persist`` left in a store, the newest first."""
    base = os.path.join(store or "", "spins")
    found = []
    for run in sorted(os.listdir(base) if os.path.isdir(base) else (), reverse=True):
        task = SpunTask({**dict.fromkeys(_PARTS, ""), "dir": f"{base}/{run}/1", "metadata": store})
        body = task._read("task.json")
        if str(body.get("entry")).partition(":")[2].split(".")[-2:-1] == [flow]:
            facts = zip(_PARTS, (flow, run, str(body["step"]), str(body["task"])))
            found.append(SpunTask({**dict(facts), "dir": task.folder, "metadata": f"@{store}"}))
    return found


_PARTS = ("flow_name", "run_id", "step_name", "task_id")


class SpunArtifact:
    """One artifact of a spun task."""

    def __init__(self, name: str, ref: Mapping[str, Any]) -> None:
        self.id = name
        self._ref = ref

    @property
    def data(self) -> Any:
        """Its value."""
        return _records.load(self._ref)

    def __repr__(self) -> str:
        return f"<artifact '{self.id}' of a spun task>"


class SpunTask:
    """A task that ``spin`` ran: its artifacts, logs and end."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self.folder = str(facts["dir"])
        self.id = str(facts["task_id"])
        self.pathspec = "/".join(
            str(facts[k]) for k in ("flow_name", "run_id", "step_name", "task_id")
        )
        self._store = str(facts["metadata"]).rpartition("@")[2]

    def _read(self, name: str) -> Dict[str, Any]:
        try:
            with open(os.path.join(self.folder, name), encoding="utf-8") as file:
                found: Dict[str, Any] = json.load(file)
                return found
        except (OSError, ValueError):
            return {}

    @property
    def _refs(self) -> Dict[str, Dict[str, Any]]:
        task, result = self._read("task.json"), self._read("result.json")
        graph = ((task.get("extra") or {}).get("flow") or {}).get("graph")
        found = _records.hidden(graph, self.path_components[2], self.successful)
        found["name"] = {"value": self.path_components[0], "type": "builtins.str"}
        found.update(task.get("inputs") or {})
        found.update(scope_of(task, self._store))
        known = {r.get("digest"): r for r in (task.get("flow") or {}).get("refs") or ()}
        for name, ref in (result.get("outputs") or {}).items():
            if ref.get("artifact"):
                ref = placed(
                    {**known.get(ref["artifact"], {}), "digest": ref["artifact"]}, self._store
                )
            elif ref.get("path"):
                ref = {**ref, "path": os.path.join(self.folder, ref["path"])}
            found[name] = ref
        for name in result.get("dropped") or ():
            found.pop(name, None)
        return found

    @property
    def cards(self) -> List[Dict[str, Any]]:
        """Name, id, type, file and path (of its own page, else the file) of its cards."""
        folder = os.path.join(self.folder, "cards")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        found = []
        for name in (one for one in names if one.endswith(".json") and one[0] != "."):
            said = self._read(os.path.join("cards", name))
            path = os.path.join(folder, os.path.basename(said.get("html") or name))
            facts = {"name": name[: -len(".json")], "path": path}
            found.append({**facts, "id": said.get("id"), "type": said.get("type")})
        return found

    @property
    def successful(self) -> bool:
        """Whether the step ran to its end."""
        return self._read("result.json").get("status") == "ok"

    finished = successful

    @property
    def exception(self) -> Optional[Any]:
        """The exception that ended it."""
        from .client import TaskFailure

        error = self._read("result.json").get("error")
        return None if not error else TaskFailure(error)

    @property
    def path_components(self) -> List[str]:
        """The parts of the pathspec."""
        return self.pathspec.split("/")

    @property
    def artifacts(self) -> Any:
        """Its artifacts, by name as attributes."""
        found = list(self)
        kind = namedtuple("MetaflowArtifacts", [one.id for one in found])  # type: ignore[misc]
        return kind(*found)

    @property
    def metadata_dict(self) -> Dict[str, Any]:
        """Its metadata, name → value: what the step logged, and how it ended."""
        ended = {"attempt": "0", "attempt-done": "0", "attempt_ok": str(self.successful)}
        logged = (self._read("result.json").get("metadata") or {}).get("") or {}
        return {**ended, **logged, "ds-type": "local", "ds-root": self._store, "runtime": "dev"}

    @property
    def metadata(self) -> List[Any]:
        """Its metadata, as the client's tasks have it."""
        from .client._task import Metadata

        at = int(self.finished_at.timestamp() * 1000) if self.finished_at else None
        return [Metadata(k, v, at, k, self) for k, v in self.metadata_dict.items()]

    @property
    def index(self) -> Optional[int]:
        """Index of its item in the innermost foreach, or None."""
        frames = (self._read("task.json").get("flow") or {}).get("foreach") or ()
        return frames[-1].get("index") if frames else None

    @property
    def created_at(self) -> Optional[datetime]:
        """When it began (local time)."""
        return self._time_of("task.json")

    @property
    def finished_at(self) -> Optional[datetime]:
        """When it ended (local time)."""
        return self._time_of("result.json")

    def _time_of(self, name: str) -> Optional[datetime]:
        path = os.path.join(self.folder, name)
        return datetime.fromtimestamp(os.path.getmtime(path)) if os.path.exists(path) else None

    current_attempt = 0
    runtime_name = "dev"
    code = origin_pathspec = environment_info = None
    user_tags: FrozenSet[str] = frozenset()

    def is_in_namespace(self) -> bool:
        """True: it is no part of a run, whose tags would say."""
        return True

    def loglines(
        self, stream: str, as_unicode: bool = True, meta_dict: Any = None
    ) -> Iterator[Any]:
        """Pairs of time and line of ``stdout`` or ``stderr``."""
        for line in self._log(f"{stream}.log").splitlines():
            yield self.finished_at, line if as_unicode else line.encode("utf-8")

    @property
    def stdout_size(self) -> int:
        """Size of :attr:`stdout` in bytes."""
        return len(self.stdout.encode("utf-8"))

    @property
    def stderr_size(self) -> int:
        """Size of :attr:`stderr` in bytes."""
        return len(self.stderr.encode("utf-8"))

    @property
    def parent_task_pathspecs(self) -> Iterator[str]:
        """None: it is no part of a run."""
        return iter(())

    parent_tasks = child_tasks = child_task_pathspecs = parent_task_pathspecs

    @property
    def system_tags(self) -> FrozenSet[str]:
        """Tags from Stoker: user, versions, date."""
        from ._tags import system_tags

        return frozenset(system_tags())

    tags = system_tags

    @property
    def stdout(self) -> str:
        """Its standard output."""
        return self._log("stdout.log")

    @property
    def stderr(self) -> str:
        """Its standard error."""
        return self._log("stderr.log")

    def _log(self, name: str) -> str:
        from .client._task import whole_lines

        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return whole_lines(file.read())

    @property
    def data(self) -> Any:
        """Values of its artifacts, as attributes."""
        from .client import MetaflowData

        return MetaflowData(self)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[SpunArtifact]:
        return (SpunArtifact(k, v) for k, v in self._refs.items() if k[0] != "_")

    def __getitem__(self, name: str) -> SpunArtifact:
        return SpunArtifact(name, self._refs[name])

    def __contains__(self, name: str) -> bool:
        return name in self._refs

    def __repr__(self) -> str:
        return f"SpunTask('{self.pathspec}')"
