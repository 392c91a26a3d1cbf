"""``parallel_map`` and ``parallel_imap_unordered``: a function for many arguments, in processes."""

from __future__ import annotations

import os
import pickle
import select
import sys
import traceback
from itertools import islice
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple

_CHUNK = 1 << 20


class MulticoreException(Exception):
    """A process of ``parallel_map`` failed; its traceback is on stderr."""


class _Child:
    """One call in a process of its own, whose result comes through a pipe."""

    def __init__(self, func: Callable[[Any], Any], argument: Any) -> None:
        self.end, end = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.end)
            _work(func, argument, end)
        os.close(end)
        self.parts: List[bytes] = []

    def read(self) -> bool:
        """Read what has come; returns whether that is all."""
        part = os.read(self.end, _CHUNK)
        self.parts.append(part)
        return not part

    def result(self) -> Any:
        """Its result; raises MulticoreException if it failed."""
        os.close(self.end)
        _, status = os.waitpid(self.pid, 0)
        if status:
            raise MulticoreException("Child failed")
        return pickle.loads(b"".join(self.parts))


def _work(func: Callable[[Any], Any], argument: Any, end: int) -> None:
    status = 1
    try:
        data = pickle.dumps(func(argument), protocol=pickle.HIGHEST_PROTOCOL)
        with os.fdopen(end, "wb") as pipe:
            pipe.write(data)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def parallel_imap_unordered(
    func: Callable[[Any], Any],
    iterable: Iterable[Any],
    max_parallel: Optional[int] = None,
    dir: Optional[str] = None,
) -> Iterator[Any]:
    """Call a function for each item, each in a forked process; results come as they are ready.

    Args:
        max_parallel: at most this many at once; default: one for each CPU that this process has.
        dir: accepted for Metaflow's programs; results don't go through files.

    Raises:
        MulticoreException: a call raised, or its process ended; the others end first.
    """
    items = iter(iterable)
    most = max_parallel or len(os.sched_getaffinity(0))
    running: Dict[int, _Child] = {}
    try:
        while True:
            for one in islice(items, most - len(running)):
                child = _Child(func, one)
                running[child.end] = child
            if not running:
                return
            for end in select.select(list(running), [], [])[0]:
                if running[end].read():
                    yield running.pop(end).result()
    finally:
        for child in running.values():
            while not child.read():
                pass
            os.close(child.end)
            os.waitpid(child.pid, 0)


def parallel_map(
    func: Callable[[Any], Any],
    iterable: Iterable[Any],
    max_parallel: Optional[int] = None,
    dir: Optional[str] = None,
) -> List[Any]:
    """Call a function for each item, each in a forked process; returns the results in the items'
    order. Arguments and errors are those of :func:`parallel_imap_unordered`."""

    def numbered(pair: Tuple[int, Any]) -> Tuple[int, Any]:
        return pair[0], func(pair[1])

    found = parallel_imap_unordered(numbered, enumerate(iterable), max_parallel, dir)
    return [result for _, result in sorted(found, key=lambda pair: pair[0])]
