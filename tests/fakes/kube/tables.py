"""Tables for ``kubectl get``: answers as ``meta.k8s.io/v1`` Table."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from .resources import Resource
from .store import dump, parsed

Object = dict[str, Any]
Cells = Callable[[Object], list[Any]]


def _age(stamp: str) -> str:
    seconds = max(0, int(time.time() - parsed(stamp))) if stamp else 0
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def _pod(o: Object) -> list[Any]:
    status = o.get("status") or {}
    states = status.get("containerStatuses") or []
    word = status.get("reason") or status.get("phase", "")
    for c in states:
        state = c.get("state") or {}
        word = (state.get("waiting") or state.get("terminated") or {}).get("reason") or word
    if "deletionTimestamp" in o["metadata"]:
        word = "Terminating"
    ready = sum(1 for c in states if c.get("ready"))
    restarts = sum(c.get("restartCount", 0) for c in states)
    node = o["spec"].get("nodeName") or "<none>"
    total = len(o["spec"]["containers"])
    return [
        f"{ready}/{total}",
        word,
        restarts,
        _age(o["metadata"]["creationTimestamp"]),
        status.get("podIP") or "<none>",
        node,
    ]


def _job(o: Object) -> list[Any]:
    status, spec = o.get("status") or {}, o["spec"]
    word = "Suspended" if spec.get("suspend") else "Running"
    for c in status.get("conditions") or []:
        if c["status"] == "True":
            word = c["type"]
    done, wanted = status.get("succeeded", 0), spec.get("completions")
    took = ""
    if status.get("startTime"):
        end = parsed(status["completionTime"]) if status.get("completionTime") else time.time()
        took = f"{int(end - parsed(status['startTime']))}s"
    return [
        word,
        f"{done}/{wanted if wanted is not None else 1}",
        took,
        _age(o["metadata"]["creationTimestamp"]),
    ]


def _node(o: Object) -> list[Any]:
    ready = next(
        (c["status"] for c in o["status"]["conditions"] if c["type"] == "Ready"), "Unknown"
    )
    version = o["status"]["nodeInfo"]["kubeletVersion"]
    word = "Ready" if ready == "True" else "NotReady"
    return [word, "<none>", _age(o["metadata"]["creationTimestamp"]), version]


def _event(o: Object) -> list[Any]:
    target = o.get("involvedObject") or o.get("regarding") or {}
    said = o.get("message") or o.get("note") or ""
    name = f"{target.get('kind', '').lower()}/{target.get('name', '')}"
    return [o.get("type", ""), o.get("reason", ""), name, said]


COLUMNS: dict[str, tuple[list[str], Cells]] = {
    "Pod": (["Ready", "Status", "Restarts", "Age", "IP", "Node"], _pod),
    "Job": (["Status", "Completions", "Duration", "Age"], _job),
    "Node": (["Status", "Roles", "Age", "Version"], _node),
    "Event": (["Type", "Reason", "Object", "Message"], _event),
}
WIDE = ("IP", "Node")


def _columns(r: Resource) -> tuple[list[str], Cells]:
    return COLUMNS.get(
        r.kind, (["Age"], lambda o: [_age(o["metadata"].get("creationTimestamp", ""))])
    )


def _row(r: Resource, o: Object) -> Object:
    bare = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": o["metadata"],
    }
    return {"cells": [o["metadata"].get("name", ""), *_columns(r)[1](o)], "object": bare}


def table(r: Resource, objects: list[Object], meta: Object) -> Object:
    """Return a Table of objects of one kind."""
    names = _columns(r)[0]
    columns = [
        {"name": "Name", "type": "string", "format": "name", "description": "", "priority": 0}
    ]
    for n in names:
        columns.append(
            {
                "name": n,
                "type": "string",
                "format": "",
                "description": "",
                "priority": int(n in WIDE),
            }
        )
    keep = {k: meta[k] for k in ("resourceVersion", "continue", "remainingItemCount") if k in meta}
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": keep,
        "columnDefinitions": columns,
        "rows": [_row(r, o) for o in objects],
    }


async def stream(r: Resource, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Turn the objects of a watch into Tables of one row."""
    async for lines in events:
        out = []
        for line in lines.splitlines():
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                event["object"] = table(r, [event["object"]], event["object"]["metadata"])
            out.append(dump(event) + b"\n")
        yield b"".join(out)
