"""A watch: the events of a shelf after a version, filtered, with bookmarks and a timeout."""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections.abc import AsyncIterator, Callable
from typing import Any, Optional

from . import errors
from .selectors import Match
from .store import Change, Store, dump

Object = dict[str, Any]


@dataclasses.dataclass
class WatchFaults:
    """Faults of watches, as chances from 0 to 1; ``cut_after`` ends a stream after n events."""

    drop: float = 0.0
    double: float = 0.0
    cut_after: Optional[int] = None
    half: bool = False  # the cut happens in the middle of an event
    random: random.Random = dataclasses.field(default_factory=lambda: random.Random(1))


class Watch:
    """One open watch; iterate over ``events``."""

    def __init__(
        self,
        store: Store,
        shelf: str,
        match: Optional[Match],
        view: Callable[[Object], Object],
        faults: WatchFaults,
    ) -> None:
        self.store = store
        self.shelf = shelf
        self.match = match
        self.view = view
        self.faults = faults
        self.pending: list[Change] = []
        self.ready = asyncio.Event()
        self.sent_rv = store.rv

    def _heard(self, change: Change) -> None:
        self.pending.append(change)
        self.ready.set()

    def _event(self, change: Change) -> bytes:
        """Return the line for a change as this watch sees it, empty if it doesn't."""
        kind = change.type
        if self.match is not None:
            now, before = self.match(change.obj), change.old is not None and self.match(change.old)
            if not now and not before:
                return b""
            if kind == "MODIFIED" and now != before:
                kind = "ADDED" if now else "DELETED"
        shown = self.view(change.obj)
        raw = change.raw if shown is change.obj else dump(shown)
        return b'{"type":"%b","object":%b}\n' % (kind.encode(), raw)

    def _spoiled(self, line: bytes) -> bytes:
        f = self.faults
        if f.drop and f.random.random() < f.drop:
            return b""
        if f.double and f.random.random() < f.double:
            return line + line
        return line

    async def events(
        self,
        rv: Optional[int],
        initial: Callable[[], list[Object]],
        timeout_s: float,
        bookmark: Optional[Object],
        bookmark_s: float,
        mark_initial: bool = False,
    ) -> AsyncIterator[bytes]:
        """Yield lines until ``timeout_s`` is over; with ``rv`` None, first ``initial`` as ADDED.

        ``bookmark``: an empty object of the kind, sent every ``bookmark_s`` and before the end with
        the version up to which this watch has seen everything; None sends none. ``mark_initial``:
        send an annotated bookmark after ``initial`` (streaming lists).
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        stop = self.store.listen(self.shelf, self._heard)
        sent = 0
        try:
            if rv is not None and rv < self.store.compacted:
                error = errors.expired(rv, self.store.compacted)
                yield b'{"type":"ERROR","object":%b}\n' % dump(error)
                return
            start = self.store.rv if rv is None else rv
            self.pending[:0] = [] if rv is None else self.store.since(self.shelf, rv)
            if rv is None:
                self.pending = [Change(start, self.shelf, "ADDED", o, None) for o in initial()]
            self.sent_rv = start
            next_mark = loop.time() + bookmark_s
            while True:
                batch, self.pending = self.pending, []
                self.ready.clear()
                lines: list[bytes] = []
                for change in batch:
                    self.sent_rv = max(self.sent_rv, change.rv)
                    if rv is not None and change.rv <= rv:
                        continue
                    line = self._event(change)
                    if line:
                        lines.append(self._spoiled(line))
                        sent += 1
                        if self.faults.cut_after is not None and sent >= self.faults.cut_after:
                            last = lines[-1]
                            yield b"".join(lines[:-1]) + (
                                last[: len(last) // 2] if self.faults.half else last
                            )
                            raise ConnectionResetError("this watch was cut on purpose")
                if lines:
                    yield b"".join(lines)
                if mark_initial and bookmark is not None:
                    notes = {"annotations": {"k8s.io/initial-events-end": "true"}}
                    yield self._mark({**bookmark, "metadata": notes})
                    mark_initial = False
                now = loop.time()
                over = now >= end
                if bookmark is not None and (now >= next_mark or over):
                    self.sent_rv = max(
                        self.sent_rv, start, self.store.rv if not self.pending else 0
                    )
                    yield self._mark(bookmark)
                    next_mark = now + bookmark_s
                if over:
                    return
                until = min(end, next_mark) if bookmark is not None else end
                try:
                    await asyncio.wait_for(self.ready.wait(), max(0.001, until - now))
                except asyncio.TimeoutError:
                    pass
        finally:
            stop()

    def _mark(self, bookmark: Object) -> bytes:
        meta = {**bookmark.get("metadata", {}), "resourceVersion": str(self.sent_rv)}
        return b'{"type":"BOOKMARK","object":%b}\n' % dump({**bookmark, "metadata": meta})
