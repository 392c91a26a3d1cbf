"""The results of a spun task, read from its folder; it belongs to no run."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Iterator, Mapping, Optional

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
        found = scope_of(task, self._store)
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
    def stdout(self) -> str:
        """Its standard output."""
        return self._log("stdout.log")

    @property
    def stderr(self) -> str:
        """Its standard error."""
        return self._log("stderr.log")

    def _log(self, name: str) -> str:
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()

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
