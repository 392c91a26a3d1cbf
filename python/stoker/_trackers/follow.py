"""Reads a run's events, and the metrics that its tasks' files get meanwhile."""

from __future__ import annotations

import json
import os
import select
import sys
import time

from .tracker import Artifact, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

    from .line import Line

_LOOK_S = 1.0
_FILE = "metrics.jsonl"
_READ_BYTES = 1 << 20
_BACKLOG = 50  # calls that wait for a tracker, each with up to a megabyte of values


class _Tail:
    """What is new in the metrics files of one attempt."""

    def __init__(self, task: str, folder: str) -> None:
        self._task, self._folder = task, folder
        self._at: Dict[str, int] = {}

    def _files(self) -> List[Tuple[int, str]]:
        files = [(0, os.path.join(self._folder, _FILE))]
        try:
            names = os.listdir(self._folder)
        except OSError:
            return files
        for name in names:
            number = name[5:]
            if name.startswith("rank-") and number.isdigit():
                files.append((int(number), os.path.join(self._folder, name, _FILE)))
        return sorted(files)

    def read(self) -> List[Value]:
        """The values of whole lines since the last call."""
        values: List[Value] = []
        for rank, path in self._files():
            at = self._at.get(path, 0)
            try:
                with open(path, "rb") as stream:
                    stream.seek(at)
                    text = stream.read(_READ_BYTES)
                    if b"\n" not in text and len(text) == _READ_BYTES:
                        text += stream.readline()
            except OSError:
                continue
            whole = text[: text.rfind(b"\n") + 1]
            self._at[path] = at + len(whole)
            for line in whole.splitlines():
                values += self._values(rank, line)
        return values

    def _values(self, rank: int, line: bytes) -> List[Value]:
        try:
            members = json.loads(line)
            step, time_s = members.pop("step", None), members.pop("time", None)
        except (ValueError, AttributeError, TypeError):
            return []  # `stoker metrics` tells of it
        step = step if isinstance(step, int) else None
        time_s = float(time_s) if isinstance(time_s, (int, float)) else time.time()
        numbers = ((name, _number(value)) for name, value in members.items())
        return [Value(self._task, rank, n, v, step, time_s) for n, v in numbers if v is not None]


def _number(value: Any) -> Optional[float]:
    if isinstance(value, (int, float)) or value in ("nan", "inf", "-inf"):
        return float(value)
    return None


class Follower:
    """Gives what happens to the trackers, until the engine closes ``fd``."""

    def __init__(self, fd: int, lines: Sequence[Line]) -> None:
        self._fd, self._lines = fd, lines
        self._tails: Dict[str, _Tail] = {}
        self._end: Tuple[Optional[str], Optional[str]] = (None, None)
        self._begun: Dict[str, Any] = {}
        self._cached: Set[str] = set()

    def run(self) -> None:
        """Until the run's end, or the engine's."""
        rest = b""
        while True:
            ready, _, _ = select.select([self._fd], [], [], _LOOK_S)
            if ready:
                read = os.read(self._fd, _READ_BYTES)
                if not read:
                    break
                *whole, rest = (rest + read).split(b"\n")
                for event in whole:
                    self._event(json.loads(event))
            self._look()
        for task in list(self._tails):
            self._finish(task)
        if self._cached:
            self._give_cached()
        for line in self._lines:
            line.put("end", *self._end)
            line.close()

    def _put(self, method: str, *args: Any) -> None:
        for line in self._lines:
            line.put(method, *args)

    def _event(self, event: Dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "begin":
            self._begun = event
            self._put("begin", event)
        elif kind == "end":
            self._end = (event["status"], event.get("error"))
        elif event["status"] == "running":
            self._tails[event["task"]] = _Tail(event["task"], event["folder"])
        else:
            self._task_ended(event)

    def _look(self) -> None:
        if any(line.backlog() > _BACKLOG for line in self._lines):
            return  # the files keep the values until the slow one has caught up
        for tail in self._tails.values():
            values = tail.read()
            if values:
                self._put("metrics", values)

    def _finish(self, task: str) -> None:
        tail = self._tails.pop(task, None)
        while tail is not None:
            values = tail.read()
            if not values:
                return
            self._put("metrics", values)

    def _task_ended(self, event: Dict[str, Any]) -> None:
        task = event["task"]
        self._finish(task)
        if event["status"] == "cached":
            self._cached.add(task)
        known = event.get("metadata") or {}
        numbers = {k: v for k, v in known.items() if type(v) in (int, float)}
        if numbers and event["status"] == "succeeded":
            now = time.time()
            self._put(
                "metrics", [Value(task, 0, k, float(v), None, now) for k, v in numbers.items()]
            )
        for output in event["outputs"]:
            self._put(
                "artifact",
                Artifact(
                    task,
                    output["name"],
                    output["path"],
                    int(output["size"] or 0),
                    output.get("format") or "",
                    output.get("digest") or "",
                ),
            )

    def _give_cached(self) -> None:
        """What tasks from the cache logged when they ran."""
        from .._base.binary import json_of
        from .._base.errors import EngineError

        try:
            place = ["metrics", self._begun["run"], "--points", "0"]
            found = json_of(place, self._begun["store"])
        except EngineError as error:
            print(f"metrics of cached steps: {error}", file=sys.stderr, flush=True)
            return
        now = time.time()
        for metric in found:
            task, rank, name = metric["task"], int(metric["rank"]), metric["metric"]
            if task in self._cached:
                self._put(
                    "metrics",
                    [
                        Value(task, rank, name, float(value), step, now if ms is None else ms / 1e3)
                        for step, ms, value in metric["points"]
                    ],
                )
