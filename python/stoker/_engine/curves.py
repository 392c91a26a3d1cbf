"""Metrics of a run over time, read from ``stoker metrics --json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional

from .._base.binary import json_of

if TYPE_CHECKING:
    import pandas


class Point(NamedTuple):
    """One value: its position (None: not told), when it was logged (Unix seconds; None: not told),
    and the number."""

    step: Optional[int]
    time: Optional[float]
    value: float


class Metric:
    """One metric of a task; of a step with several ranks, of one rank.

    Attributes:
        name, step, task, rank: its name, and the step, the task and the rank that logged it.
        points: its values in the order of logging, attempts of a task as one curve.
        last, min, max: the last value, and the least and greatest finite one (NaN: there is none).
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        self.name = str(body["metric"])
        self.step = str(body["step"])
        self.task = str(body["task"])
        self.rank = int(body["rank"])
        self.last = float(body["last"])
        self.min = float(body["min"])
        self.max = float(body["max"])
        self.points = [
            Point(step, None if ms is None else ms / 1000, float(value))
            for step, ms, value in body["points"]
        ]

    @property
    def values(self) -> List[float]:
        """The numbers alone."""
        return [point.value for point in self.points]

    def __repr__(self) -> str:
        return f"<metric '{self.name}' of '{self.task}': {len(self.points)} values, last {self.last:g}>"


def metrics_of(place: str, store: Optional[str]) -> List[Metric]:
    """All metrics of ``RUN`` or ``RUN/STEP``, with all their values."""
    return [Metric(body) for body in json_of(["metrics", place, "--points", "0"], store)]


def frame_of(metrics: List[Metric]) -> pandas.DataFrame:
    """One row a value: step, task, rank, metric, position, time, value."""
    import pandas

    rows: Dict[str, List[Any]] = {
        name: [] for name in ("step", "task", "rank", "metric", "position", "time", "value")
    }
    for one in metrics:
        for point in one.points:
            values = (one.step, one.task, one.rank, one.name, *point)
            for name, value in zip(rows, values):
                rows[name].append(value)
    frame = pandas.DataFrame(rows)
    frame["time"] = pandas.to_datetime(frame["time"], unit="s", utc=True)
    return frame
