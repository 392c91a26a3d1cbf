"""How much is asked of the API server: few requests a job, whatever the nodes' delays."""

# ruff: noqa: F401, F811 - the fixtures of the other files
from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from kube import Cluster
from kube_client import JOBS, Client
from kube_driver import Driver
from test_driver import FOREVER, Start, start
from test_driver_faults import run_many

N = 200
KINDS = {
    "log": r"^GET .*/log\?",
    "event": r"^GET .*/events\?",
    "post": r"^POST .*/jobs\?",
    "delete": r"^DELETE ",
}


def count(asked: list[str]) -> Counter[str]:
    """Requests by kind; "all" of them."""
    found = Counter(kind for line in asked for kind, way in KINDS.items() if re.search(way, line))
    found["all"] = len(asked)
    return found


def test_four_a_job(make_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """A busy node: pods are silent for seconds before they start, and logs end seconds before their pods."""
    node = {"name": "a", "capacity": {"cpu": "96", "memory": "1000Gi", "pods": "110"}}
    cluster = make_cluster(start_lag_s=5.0, status_lag_s=7.0, nodes=[node])
    d = Driver(cluster.kubeconfig(tmp_path / "config"))
    run_many(d, N)
    d.close()
    asked = count(cluster.asked)
    assert (asked["post"], asked["delete"]) == (N, N), asked
    assert asked["log"] <= N * 1.1, asked
    assert asked["event"] <= N * 0.1, asked
    assert asked["all"] <= N * 4, asked


MISSING = {"volumes": [{"name": "v", "configMap": {"name": "nowhere"}}]}


@pytest.mark.parametrize("may_watch", [True, False])
def test_events(cluster: Cluster, start: Start, may_watch: bool) -> None:
    """They tell why a Job waits. Without the right to watch them, those of each Job are asked for."""
    if not may_watch:
        cluster.call(cluster.control.do_deny, "watch", "events")
    d = start()
    for i in (1, 2, 3):
        d.submit(i, options=MISSING)
        d.until(lambda r, i=i: r["id"] == i and "can't mount a volume" in r["text"])
    asked = [a for a in cluster.asked if "/events?" in a]
    of_one = [a for a in asked if "involvedObject" in a]
    assert any("watch=true" in a for a in asked) and bool(of_one) != may_watch, asked
    assert not may_watch or len(asked) == 2, asked


def test_a_node_is_silent(cluster: Cluster, start: Start) -> None:
    """Its kubelet doesn't answer for logs; the API server isn't blamed for that, and isn't asked all the time."""
    d = start()
    d.submit(1, "echo up; sleep 600", options={"node_selector": "kubernetes.io/hostname=gpu-a"})
    d.until(lambda r: r["state"] == "log")
    cluster.call(cluster.control.do_lose, "gpu-a", False)
    cluster.restart(0.05)
    d.submit(2, "sleep 20; exit 3", options={"node_selector": "kubernetes.io/hostname=cpu-a"})
    assert d.end(2)["exit_status"] == 3
    assert not [text for text in d.texts("note") if "doesn't answer" in text]
    assert sum("s-r1-train-1-1" in a and "/log?" in a for a in cluster.asked) < 9
