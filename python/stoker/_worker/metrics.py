"""``log_metrics``: numbers over time, for steps, ranks, and the programs of command steps.

Each call appends one line to the task's file (``$STOKER_METRICS``; the format is in
``src/store/metrics/metrics.h``), so it costs one write and readers see it at once.
"""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional, Tuple

_VARIABLE = "STOKER_METRICS"
_RESERVED = ("step", "time")
_files: Dict[
    Tuple[int, str], int
] = {}  # (process, path) -> descriptor: a forked child opens its own


def log_metrics(
    metrics: Mapping[str, Any], *, step: Optional[int] = None, all_ranks: bool = False
) -> None:
    """Append values of the running step's metrics; ``stoker metrics`` shows them while it runs.

    Of a step with several ranks only rank 0 logs, because the others usually log the same.

    Args:
        metrics: names and numbers (of Python, numpy, torch …); NaN and infinity are kept.
        step: the position of the values, a whole number from 0 on: a batch, an epoch. A later
            attempt that goes on at this step replaces what the earlier one logged from there on.
        all_ranks: each rank logs, into a curve of its own.

    Raises:
        RuntimeError: no step is running in this process.
        TypeError: a value is no number, or ``step`` is no whole number.
        ValueError: a metric is named ``step`` or ``time``, or ``step`` is below 0.

    Example::

        @step
        def train(epochs: int) -> float:
            for epoch in range(epochs):
                loss = fit()
                log_metrics({"loss": loss}, step=epoch)
            return loss
    """
    path = os.environ.get(_VARIABLE)
    if not path:
        raise RuntimeError(
            "log_metrics: no step is running in this process; call it within the function of a "
            "step, or in a program that a step runs"
        )
    rank = int(os.environ.get("RANK") or 0)
    if rank > 0 and not all_ranks:
        return
    line: Dict[str, Any] = {}
    if step is not None:
        line["step"] = _whole(step)
    line["time"] = time.time()
    for name, value in metrics.items():
        if name in _RESERVED:
            raise ValueError(f"log_metrics: '{name}' can't be the name of a metric")
        line[str(name)] = _number(name, value)
    if rank > 0:
        folder, file = os.path.split(path)
        own = os.environ.get("STOKER_RANK_DIR") or os.path.join(folder, f"rank-{rank}")
        path = os.path.join(own, file)
    os.write(_file(path), (json.dumps(line, ensure_ascii=False) + "\n").encode())


def _file(path: str) -> int:
    key = (os.getpid(), path)
    fd = _files.get(key)
    if fd is None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        _files.clear()  # another attempt's, or the parent's
        _files[key] = fd
    return fd


def _whole(step: Any) -> int:
    if isinstance(step, bool) or not hasattr(step, "__index__"):
        raise TypeError(
            f"log_metrics: step is a {type(step).__name__}, not a whole number: step={step!r}"
        )
    whole = int(step.__index__())
    if whole < 0:
        raise ValueError(f"log_metrics: step={whole} is below 0")
    return whole


def _number(name: Any, value: Any) -> Any:
    """The value as JSON: numbers that aren't finite by their names."""
    if isinstance(value, (bool, int)):
        return value
    if not isinstance(value, float):
        if isinstance(value, (str, bytes)) or not hasattr(value, "__float__"):
            raise TypeError(f"log_metrics: '{name}' is a {type(value).__name__}, not a number")
        try:
            value = float(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise TypeError(
                f"log_metrics: '{name}' is a {type(value).__name__} that isn't one number: {error}"
            ) from None
    if value - value == 0.0:
        return value
    return "nan" if value != value else "inf" if value > 0 else "-inf"
