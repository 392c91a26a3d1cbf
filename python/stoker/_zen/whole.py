"""Dynamic runs in the store: runs of the engine, the parts, that the client shows as one run.

The first part stands for the whole: its id is the run's, and what is logged for it is the run's. The
others name it in their document. A record of the kind "dynamic run" has the list of parts, the
status and what the body returned.
"""

from __future__ import annotations

import os
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .._base.errors import InWorkerError
from .._engine.client import Names, PipelineRun, StepRun
from .._engine.config import RunConfiguration
from .._engine.stored import stored_spec
from . import records

KIND = "dynamic run"

# In a run that a schedule or a snapshot started: kind → its id, which the run keeps.
started_by: Dict[str, str] = {}
told: List[Callable[[str], None]] = []  # called with the run's id when it begins
importing: List[str] = []  # the file of a kept pipeline, while it is imported

_heads: Dict[Tuple[Optional[str], str], str] = {}


def kept_of(part: Mapping[str, Any]) -> Dict[str, Any]:
    """What this dialect keeps in a document's or step's ``extra``."""
    return dict((part.get("extra") or {}).get("zenml") or {})


def head_of(run: str, store: Optional[str] = None) -> str:
    """The run of which this run of the engine is a part; itself if it is none."""
    known = _heads.get((store, run))
    if known is None:
        spec = stored_spec(store or records.store_folder(), run)
        known = str(kept_of(spec).get("part_of") or run)
        if spec:
            _heads[store, run] = known
    return known


def refuse_import(what: str) -> None:
    """Nothing starts because a kept pipeline's file is imported; raises InWorkerError, which ends
    the import."""
    if importing:
        raise InWorkerError(
            f"{what} while {importing[0]} is imported for a run of a kept pipeline: put it under "
            '`if __name__ == "__main__":`'
        )


def begun(run: str) -> None:
    """Tell who waits for it that a run has begun."""
    for tell in told:
        tell(run)


def begin(head: str, body: Dict[str, Any]) -> None:
    """Keep that a dynamic run has begun with its first part."""
    begun(head)
    process = {"pid": os.getpid(), "began": _began(os.getpid())}
    records.change(
        KIND, head, lambda kept: kept.update({**body, **process, "status": "running", "parts": []})
    )


def add(head: str, part: str) -> None:
    """Keep that a run of the engine is a part."""
    records.change(KIND, head, lambda body: body["parts"].append(part))


def end(head: str, status: str, outputs: Dict[str, Any], error: Optional[str]) -> None:
    """Keep how the body ended; ``status`` is the engine's word."""
    ended = {"status": status, "ended_ms": int(time.time() * 1000), "outputs": outputs}
    records.change(KIND, head, lambda body: body.update({**ended, "error": error}))


def every() -> Dict[str, Dict[str, Any]]:
    """Head → record, of all dynamic runs."""
    return {record.name: record.body for record in records.listed(KIND)}


def forget(head: str) -> List[str]:
    """Drop the record; returns the runs of the engine that were its parts."""
    record = records.get(KIND, head)
    if record is None:
        return [head]
    records.remove(KIND, head)
    return list(record.body["parts"])


def _began(pid: int) -> Optional[str]:
    """When a process began, in the kernel's ticks; None: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            return stream.read().rpartition(")")[2].split()[19]
    except OSError:
        return None


def status_of(record: Mapping[str, Any]) -> str:
    """The engine's word; a run whose process is gone has failed."""
    status = str(record["status"])
    if status == "running" and _began(int(record["pid"])) != record["began"]:
        return "failed"
    return status


def patched(body: Mapping[str, Any], record: Mapping[str, Any]) -> Dict[str, Any]:
    """The first part's row in a list of runs, as that of the whole."""
    told: Dict[str, Any] = {"status": status_of(record), "name": record.get("name")}
    told["ended_ms"] = record.get("ended_ms")
    return {**body, **told}


class Whole(PipelineRun):
    """A dynamic run: its parts' steps, and the record's status."""

    def __init__(
        self,
        head: str,
        store: Optional[str],
        record: Mapping[str, Any],
        body: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(head, store, body)
        self.record = record
        self._parts: Optional[List[PipelineRun]] = None

    @property
    def parts(self) -> List[PipelineRun]:
        """The runs of the engine."""
        if self._parts is None:
            self._parts = [PipelineRun(part, self.store) for part in self.record["parts"]]
        return self._parts

    @property
    def body(self) -> Mapping[str, Any]:
        """The first part's record with what the whole has."""
        if self._body is None or "steps" not in self._body:
            first = self.parts[0].body
            self.store = first.get("store") or self.store
            self._body = {**patched(first, self.record), "parameters": self._parameters()}
        return self._body

    def _parameters(self) -> Dict[str, Any]:
        return dict(self.record.get("parameters") or {})

    @property
    def steps(self) -> Names[StepRun]:
        """All parts' steps, by the names that the engine has for them."""
        found: Dict[str, StepRun] = {}
        for part in self.parts:
            found.update({k: StepRun(k, v, part) for k, v in part.body["steps"].items()})
        return Names(f"step in run {self.id}", found)

    @property
    def config(self) -> RunConfiguration:
        """Its configuration: the first part's, with the body's arguments."""
        body = {**self.body, "name": self.body.get("pipeline")}
        return RunConfiguration(body, stored_spec(self.store, self.id))

    @property
    def logs(self) -> str:
        """What all steps printed."""
        return "".join(part.logs for part in self.parts)

    def refresh(self) -> PipelineRun:
        """Read it again."""
        record = records.get(KIND, self.id)
        return Whole(self.id, self.store, self.record if record is None else record.body)


def native_of(run: str) -> PipelineRun:
    """The run of the engine, or the dynamic run of which it is a part."""
    head = head_of(run)
    record = records.get(KIND, head)
    return PipelineRun(run) if record is None else Whole(head, None, record.body)
