"""The times of a log's lines, from the log's sizes that the engine sampled while the task ran."""

from __future__ import annotations

import os
from bisect import bisect_left
from typing import Iterator, List, Tuple

_STREAMS = ("stdout", "stderr")


def timed_lines(path: str, data: bytes) -> Iterator[Tuple[float, bytes]]:
    """(Unix time, line) of a log's bytes, as read from ``path``.

    A line's time is that of the first sample when the whole line was there. Samples are 0.1 s apart
    in a task's first ten seconds, later a quarter, half and a whole second (or as the step's
    ``sample`` sets it). Lines after the last sample have the file's time; so have all lines of a
    task without samples, and of one rank's log.
    """
    times, sizes = _looks(path)
    written = os.path.getmtime(path)
    lines = data.split(b"\n")
    if not lines[-1]:
        lines.pop()
    at = 0
    for line in lines:
        at = min(at + len(line) + 1, len(data))
        i = bisect_left(sizes, at)
        yield (times[i] if i < len(times) else written), line


def _looks(path: str) -> Tuple[List[float], List[int]]:
    """Times of the samples, and the log's sizes then, both ascending."""
    from .._worker.profile import read_samples

    folder, name = os.path.split(path)
    stream = _STREAMS.index(name.partition(".")[0])
    try:
        start_ms, _, samples = read_samples(os.path.join(folder, "samples.bin"))
    except ValueError:
        return [], []
    times: List[float] = []
    sizes: List[int] = []
    for one in samples:
        size = one.log_bytes[stream]
        if size > (sizes[-1] if sizes else 0):
            times.append(start_ms / 1000 + one.time_s)
            sizes.append(size)
    return times, sizes
