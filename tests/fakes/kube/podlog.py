"""``GET …/pods/NAME/log``: a log's text, or a log that is followed as it grows."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from . import errors
from .containers import Log
from .errors import ApiError
from .http import Response
from .store import parsed

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]


def _pick(pod: Object, name: str) -> str:
    """Return the name of the container; 400 where it is ambiguous or doesn't exist."""
    spec, pod_name = pod["spec"], pod["metadata"]["name"]
    mains = [c["name"] for c in spec["containers"]]
    inits = [c["name"] for c in spec.get("initContainers") or []]
    if name:
        if name not in mains + inits:
            raise errors.bad_request(f"container {name} is not valid for pod {pod_name}")
        return name
    default = (pod["metadata"].get("annotations") or {}).get(
        "kubectl.kubernetes.io/default-container"
    )
    if default in mains:
        return str(default)
    if len(mains) > 1:
        raise errors.bad_request(
            f"a container name must be specified for pod {pod_name}, choose one of: [{' '.join(mains)}]"
        )
    return str(mains[0])


def _waiting(pod: Object, name: str) -> str:
    status = pod["status"]
    for c in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
        if c["name"] == name and "waiting" in (c.get("state") or {}):
            reason = c["state"]["waiting"].get("reason", "ContainerCreating")
            return (
                "trying and failing to pull image"
                if reason in ("ErrImagePull", "ImagePullBackOff")
                else reason
            )
    return ""


def _stamp(at: float, zone_h: int) -> str:
    """Return a time as the container runtime writes it: in its node's time zone."""
    words = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at + zone_h * 3600))
    return f"{words}.{int(at % 1 * 1e9):09d}" + (f"{zone_h:+03d}:00" if zone_h else "Z")


async def answer(cluster: Cluster, namespace: str, name: str, query: dict[str, str]) -> Response:
    """Answer with the log so far, or follow it until the container ends."""
    pod = cluster.store.need("pods", namespace, name)
    node = pod["spec"].get("nodeName")
    container = _pick(pod, query.get("container", ""))
    if not node:
        return Response(204, b"")
    if node in cluster.nodes.lost:
        url = f"https://127.0.0.1:1/containerLogs/{namespace}/{name}/{container}"
        raise ApiError(500, None, f'Get "{url}": dial tcp 127.0.0.1:1: connect: connection refused')
    previous = query.get("previous") in ("true", "1")
    log = cluster.kubelets.log_of(pod, container, previous)
    if log is None and previous:
        raise errors.bad_request(
            f'previous terminated container "{container}" in pod "{name}" not found'
        )
    waiting = _waiting(pod, container)
    if log is None or (waiting and waiting not in ("CrashLoopBackOff",)):
        why = waiting or "ContainerCreating"
        raise errors.bad_request(
            f'container "{container}" in pod "{name}" is waiting to start: {why}'
        )
    follow = query.get("follow") in ("true", "1")
    return Response(200, content_type="text/plain", stream=_lines(cluster, log, query, follow))


async def _lines(
    cluster: Cluster, log: Log, query: dict[str, str], follow: bool
) -> AsyncIterator[bytes]:
    stamps = query.get("timestamps") in ("true", "1")
    left = int(query["limitBytes"]) if "limitBytes" in query else None
    oldest = 0.0
    if "sinceSeconds" in query:
        oldest = cluster.store.clock.time() - float(query["sinceSeconds"])
    elif "sinceTime" in query:
        oldest = parsed(query["sinceTime"])
    first = 0
    if "tailLines" in query:
        first = max(0, len(log.lines) - int(query["tailLines"]))
    at = log.dropped + first
    while True:
        changed = log.changed
        fresh = log.lines[max(0, at - log.dropped) :]
        at = log.dropped + len(log.lines)
        text = b"".join(
            (_stamp(t, cluster.store.clock.zone_h).encode() + b" " + line) if stamps else line
            for t, line in fresh
            if t >= oldest
        )
        if left is not None:
            text = text[:left]
            left -= len(text)
        if text:
            yield text
        if not follow or not log.open or left == 0:
            return
        await changed.wait()
