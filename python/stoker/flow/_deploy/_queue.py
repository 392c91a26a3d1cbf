"""Events of this machine: ``deployments/.events`` in the store has those that nobody has handled.

An event is written first, then handled under a lock: it starts each deployed flow whose events have
all come. A process that ends in between leaves it to the next one; an event may then start a flow
twice. A step only writes its event, because what it started would end with it: the program that
started the step's run handles it (:class:`Watch`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import uuid
from typing import Any, Dict, List, Mapping, Optional

from ..._deployed import locked
from .. import _records
from . import home, listed, start

_LOOK_S = 0.2


def publish(event_name: str, payload: Optional[Mapping[str, Any]] = None, **facts: Any) -> str:
    """Publish an event and start what waits for it; returns the event's id.

    Args:
        event_name: its name. payload: what it carries. facts: its ``id``, ``type`` and ``timestamp``.

    Raises:
        OSError: the store can't be written, or this step can't reach it.
    """
    event = {"name": event_name, "id": str(uuid.uuid4()), "type": "event", "timestamp": time.time()}
    event.update({**facts, "payload": dict(payload or {})})
    in_step = bool(os.environ.get("STOKER_TASK_DIR"))
    folder = home()
    if not os.path.isdir(folder):
        if in_step:
            raise FileNotFoundError(
                f"event '{event_name}' can't be published: there is no {folder}; a step in a container "
                "or on another machine can't publish, and without a deployed flow nobody waits"
            )
        print(f"event '{event_name}': no flow is deployed, so none starts", file=sys.stderr)
        return str(event["id"])
    queue = os.path.join(folder, ".events")
    os.makedirs(queue, exist_ok=True)
    path = os.path.join(queue, f"{time.time_ns():020d}-{uuid.uuid4()}")
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(event, file)
    os.replace(f"{path}.new", f"{path}.json")
    if not in_step:
        handle()
    return str(event["id"])


def handle(store: Optional[str] = None) -> List[str]:
    """Handle the waiting events; returns the names of the deployed flows that started."""
    queue = os.path.join(home(store), ".events")
    started: List[str] = []
    if not _waiting(queue):
        return started
    with locked(os.path.join(queue, "lock")):
        for path in _waiting(queue):
            try:
                with open(path, encoding="utf-8") as file:
                    event = json.load(file)
            except ValueError:
                os.remove(path)
                continue
            for record in listed(None, store):
                if _takes(record, event):
                    started.append(str(record["name"]))
            os.remove(path)
    return started


def _waiting(queue: str) -> List[str]:
    try:
        names = sorted(os.listdir(queue))
    except FileNotFoundError:
        return []
    return [os.path.join(queue, one) for one in names if one.endswith(".json")]


def _takes(record: Mapping[str, Any], event: Dict[str, Any]) -> bool:
    """Whether the event was the last one that the deployed flow waited for; starts it then."""
    triggers = record["triggers"]
    if event["name"] not in [one["event"] for one in triggers]:
        return False
    path = os.path.join(record["folder"], "pending.json")
    came: Dict[str, Dict[str, Any]] = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            came = json.load(file)
    came[event["name"]] = event
    if any(one["event"] not in came for one in triggers):
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(came, file)
        os.replace(f"{path}.new", path)
        return False
    if os.path.exists(path):
        os.remove(path)
    words = []
    for one in triggers:
        payload = came[one["event"]]["payload"]
        for parameter, field in one["parameters"].items():
            if field in payload:
                value = payload[field]
                text = value if isinstance(value, str) else json.dumps(value)
                words.append(f"--{parameter}={text}")
    facts = [
        {key: one[key] for key in ("name", "id", "type", "timestamp")} for one in came.values()
    ]
    start(record, words, facts, awaited=False)
    return True


class Watch:
    """While a run goes on: handles the events that its steps publish."""

    def __init__(self) -> None:
        self._end = threading.Event()
        store = _records.store_path()
        self._thread = threading.Thread(target=self._look, args=(store,), daemon=True)
        self._thread.start()

    def _look(self, store: Optional[str]) -> None:
        while not self._end.wait(_LOOK_S):
            self._handle(store)
        self._handle(store)

    def _handle(self, store: Optional[str]) -> None:
        try:
            handle(store)
        except Exception as bad:  # the run itself goes on
            print(f"stoker: an event can't be handled: {bad}", file=sys.stderr)

    def end(self) -> None:
        """End, after the events so far."""
        self._end.set()
        self._thread.join()
