"""Objects with versions, and their watchers: plays the part of etcd and the watch cache.

Objects in the store are never changed in place: a change is a new dictionary, so readers, watchers
and the history can share them without copies.
"""

from __future__ import annotations

import collections
import json
import random
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Optional

from . import errors
from .resources import BY_STORE

Object = dict[str, Any]
Key = tuple[str, str]  # (namespace, name); namespace is '' for objects without one
LETTERS = "bcdfghjklmnpqrstvwxz2456789"  # the letters in names that the real server generates


def dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


class Clock:
    """The server's time: ``skew_s`` is its error, ``zone_h`` the time zone of the nodes' logs."""

    def __init__(self) -> None:
        self.skew_s = 0.0
        self.zone_h = 0

    def time(self) -> float:
        return time.time() + self.skew_s

    def now(self) -> str:
        return rfc3339(self.time())


def rfc3339(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def micro(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1e6):06d}Z"


def parsed(stamp: str) -> float:
    """Return an RFC 3339 time as seconds since 1970."""
    import datetime

    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()


class Change:
    """One write: ``obj`` is the object after it, ``old`` before it (None if created)."""

    __slots__ = ("_raw", "obj", "old", "rv", "shelf", "type")

    def __init__(self, rv: int, shelf: str, kind: str, obj: Object, old: Optional[Object]) -> None:
        self.rv = rv
        self.shelf = shelf
        self.type = kind
        self.obj = obj
        self.old = old
        self._raw: Optional[bytes] = None

    @property
    def raw(self) -> bytes:
        if self._raw is None:
            self._raw = dump(self.obj)
        return self._raw


Listener = Callable[[Change], None]


class Store:
    """All objects of a cluster, one version counter, and the last ``history`` writes."""

    def __init__(self, clock: Clock, seed: int = 0, history: int = 100_000) -> None:
        self.clock = clock
        self.rv = 100_000  # as in a cluster that has run for a while
        self.compacted = self.rv  # watches from older versions have expired
        self.shelves: dict[str, dict[Key, Object]] = collections.defaultdict(dict)
        self.changes: collections.deque[Change] = collections.deque()
        self.history = history
        self.listeners: dict[str, list[Listener]] = collections.defaultdict(list)
        self.random = random.Random(seed or None)

    def uid(self) -> str:
        return str(uuid.UUID(int=self.random.getrandbits(128), version=4))

    def suffix(self, n: int = 5) -> str:
        return "".join(self.random.choices(LETTERS, k=n))

    def get(self, shelf: str, namespace: str, name: str) -> Optional[Object]:
        return self.shelves[shelf].get((namespace, name))

    def need(self, shelf: str, namespace: str, name: str) -> Object:
        found = self.get(shelf, namespace, name)
        if found is None:
            r = BY_STORE[shelf]
            raise errors.not_found(r.plural, r.group, name)
        return found

    def all(self, shelf: str, namespace: str = "") -> list[Object]:
        """Return the objects ordered by key, as in answers to lists."""
        items = self.shelves[shelf].items()
        return [
            o for k, o in sorted(items, key=lambda i: i[0]) if not namespace or k[0] == namespace
        ]

    def each(self, shelf: str) -> Iterator[Object]:
        return iter(list(self.shelves[shelf].values()))

    def create(self, shelf: str, obj: Object) -> Object:
        """Store a new object with uid, creationTimestamp and resourceVersion. 409 if it exists."""
        meta = obj["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if key in self.shelves[shelf]:
            r = BY_STORE[shelf]
            raise errors.already_exists(r.plural, r.group, meta["name"])
        return self._write("ADDED", shelf, key, obj, None)

    def update(self, shelf: str, obj: Object) -> Object:
        """Replace an object. One that is being deleted and has no finalizer left is removed."""
        meta = obj["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        old = self.shelves[shelf].get(key)
        if old is None:
            r = BY_STORE[shelf]
            raise errors.not_found(r.plural, r.group, meta["name"])
        if obj is old or obj == old:
            return old
        going = "deletionTimestamp" in meta and not meta.get("finalizers")
        if going and not meta.get("deletionGracePeriodSeconds"):
            return self.remove(shelf, *key)
        return self._write("MODIFIED", shelf, key, obj, old)

    def remove(self, shelf: str, namespace: str, name: str) -> Object:
        """Remove an object at once; the DELETED event has its last state and a new version."""
        old = self.shelves[shelf].pop((namespace, name))
        self.rv += 1
        last = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.rv)}}
        self._publish(Change(self.rv, shelf, "DELETED", last, old))
        return last

    def touch(
        self, shelf: str, obj: Object, status: Optional[Object] = None, **meta: Any
    ) -> Object:
        """Update an object's ``status`` and ``metadata`` keys (None removes a key)."""
        new = dict(obj)
        if status is not None:
            new["status"] = status
        if meta:
            merged = {**obj["metadata"], **meta}
            new["metadata"] = {k: v for k, v in merged.items() if v is not None}
        return self.update(shelf, new)

    def _write(self, kind: str, shelf: str, key: Key, obj: Object, old: Optional[Object]) -> Object:
        self.rv += 1
        meta = {**obj["metadata"], "resourceVersion": str(self.rv)}
        new = {**obj, "metadata": meta}
        self.shelves[shelf][key] = new
        self._publish(Change(self.rv, shelf, kind, new, old))
        return new

    def _publish(self, change: Change) -> None:
        self.changes.append(change)
        while len(self.changes) > self.history:
            self.compacted = self.changes.popleft().rv
        for listener in list(self.listeners[change.shelf]):
            listener(change)

    def since(self, shelf: str, rv: int) -> list[Change]:
        """Return the writes after version ``rv``."""
        found: list[Change] = []
        for change in reversed(self.changes):
            if change.rv <= rv:
                break
            if change.shelf == shelf:
                found.append(change)
        found.reverse()
        return found

    def compact(self) -> None:
        """Forget the history: watches and lists from any version before now expire."""
        self.changes.clear()
        self.compacted = self.rv

    def begin_anew(self) -> None:
        """Lower all versions, as after a restore of etcd, and forget the history."""
        self.rv = max(1, self.rv // 2)
        for objects in self.shelves.values():
            for key, obj in objects.items():
                self.rv += 1
                meta = {**obj["metadata"], "resourceVersion": str(self.rv)}
                objects[key] = {**obj, "metadata": meta}
        self.compact()

    def listen(self, shelf: str, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` on every write to a shelf; return a function that ends this.

        A listener may only take notes, not write.
        """
        self.listeners[shelf].append(listener)
        return lambda: self.listeners[shelf].remove(listener)
