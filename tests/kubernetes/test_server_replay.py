"""The tests' cluster answers as a real one did: the recordings of tests/data/kubernetes, replayed.

What isn't compared, and why: times and the durations between events; names, uids and versions (turned into those of this run); a Job's
counters in the middle of its life (they depend on when the controller looks: compared where a GET asked);
events that only repeat the one before in what is compared (a real kubelet's second write of the same state); counts
of events that repeat; logs that were "asked again and again", states that a slow machine may never see (the words of such
a refusal are in test_server_pods.py). ``NOT_COMPARED`` is the rest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import replay
from kube import Cluster
from kube_client import Client

EARLIER = (
    "the restarted container ends before the controller deletes its pod; in the recording after"
)
STAND_IN = "a stand-in kubelet of the recording tells less than a real one, and in other words"
NOT_COMPARED: dict[str, dict[int, str]] = {
    "job-exit-3": {55: EARLIER},
    "device-nodes": {81: STAND_IN},
    "node-lost": {41: STAND_IN},
    "discovery": {
        3: "the real one's own start hooks",
        22: "its etcd was too old for streaming lists",
    },
    "errors": {70: "the real one's second try quotes its own first one's uids"},
}


def crowded(cluster: Cluster) -> None:
    cluster.faults.add(match="errors/jobs", status=429, times=2)


def grant(cluster: Cluster) -> None:
    cluster.grants.add(("alice", "errors"))


def taint(cluster: Cluster) -> None:
    node = cluster.store.need("nodes", "", "gpu-b")
    taints = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    cluster.call(cluster.store.update, "nodes", {**node, "spec": {"taints": taints}})


def silence(cluster: Cluster) -> None:
    cluster.call(cluster.nodes.lose, "gpu-lost")


ACTIONS: dict[str, dict[int, Callable[[Cluster], object]]] = {
    "device-nodes": {70: taint},
    "node-lost": {19: silence},
    "errors": {
        76: crowded,
        78: grant,
        80: Cluster.restart,
        82: lambda c: c.call(c.store.compact),
    },
}
SCENARIOS = sorted(p.stem for p in replay.DATA.glob("*.jsonl"))
ALICE = "token of user alice (no rights unless the note says so)"
TENTH = """#!/bin/sh
# A tenth of the time: what takes seconds in a recording needn't here.
exec /usr/bin/sleep $(awk "BEGIN {print $1 / 10}")
"""
NSLOOKUP = """#!/bin/sh
getent ahostsv4 "$1" | awk 'NR == 1 {print "Name: " n; print "Address: " $1}' n="$1"
"""
NC = """#!PYTHON
# nc -l -p PORT -w SECONDS (sends its stdin to the first who comes), nc HOST PORT (shows what it gets)
import os, socket, sys
if sys.argv[1] == "-l":
    server = socket.create_server((socket.gethostbyname(socket.gethostname()), int(sys.argv[3])))
    server.settimeout(20)
    server.accept()[0].sendall(sys.stdin.buffer.read())
else:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), 20) as s:
        while data := s.recv(4096):
            os.write(1, data)
"""
BUSYBOX = '#!/bin/sh\nexec "$@"\n'


def nodes(scenario: str) -> list[dict]:
    """The recorded nodes, and two that were only there for one recording."""
    listed = next(
        r["response"]
        for r in replay.load("discovery")
        if r.get("request", {}).get("path") == "/api/v1/nodes" and r["status"] == 200
    )
    out = []
    for n in listed["items"]:
        out.append(
            {
                "name": n["metadata"]["name"],
                "labels": n["metadata"]["labels"],
                "capacity": n["status"]["capacity"],
            }
        )
    capacity = {"cpu": "96", "memory": "1000Gi", "nvidia.com/gpu": "8"}
    for name in ("gpu-lost", "gpu-spare") if scenario == "node-lost" else ():
        out.append({"name": name, "labels": {"pool": "demo"}, "capacity": capacity})
    return out


@pytest.fixture
def world(tmp_path: Path, make_cluster: Callable[..., Cluster]) -> Callable[[str], Cluster]:
    """Makes the cluster of a recording: its nodes, its namespace, programs that take a tenth of the time."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (
        ("sleep", TENTH),
        ("busybox", BUSYBOX),
        ("nslookup", NSLOOKUP),
        ("nc", NC.replace("PYTHON", sys.executable)),
    ):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)

    def make(name: str) -> Cluster:
        return make_cluster(
            nodes=nodes(name),
            namespaces=["default", "demo", name],
            show=[str(tools), sys.prefix, sys.base_prefix],
            environment={"PATH": f"{tools}:/bin:/usr/bin"},
            user_time_scale=0.1,
            time_scale=0.1,
            bookmark_s=0.5,
        )

    return make


@pytest.mark.parametrize("name", SCENARIOS)
def test_recording(name: str, world: Callable[[str], Cluster]) -> None:
    cluster = world(name)
    users = {
        "": Client(cluster),
        "none": Client(cluster, ""),
        "unknown token": Client(cluster, "no-such-token"),
        ALICE: Client(cluster, "alice-token"),
    }
    skip = set(NOT_COMPARED.get(name, {}))
    replayed = replay.Replay(cluster, name, skip, users, ACTIONS.get(name, {}))
    replayed.replaced = {
        "/bin/busybox": f"{cluster.options.show[0]}/busybox",
        "<140000 characters left out of the transcript>": "x" * 140000,
    }
    found = replayed.run()
    assert not found, (
        f"{len(found)} differences\n" + "\n".join(found) + json.dumps(cluster.failures)
    )
