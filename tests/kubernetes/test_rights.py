"""Missing rights: nothing is created, and a job that can't be watched any more is removed, or
reported as possibly alive."""

# ruff: noqa: F401, F811 - the fixtures of the other files
from __future__ import annotations

import pytest
from kube import Cluster
from kube_client import Client
from test_driver import FOREVER, Start, nothing_left, start
from test_pipelines import Project, carried, project

NEEDED = [(verb, "jobs") for verb in ("create", "get", "list", "watch", "delete")]
NEEDED += [("list", "pods"), ("watch", "pods")]


def deny(cluster: Cluster, verb: str, resource: str, **more: bool) -> None:
    cluster.call(lambda: cluster.control.do_deny(verb, resource, **more))


def n_made(cluster: Cluster) -> int:
    """Jobs that were ever made: the uids of those that events tell of, and of those that are there."""
    events = cluster.store.shelves.get("events", {}).values()
    told = {e["involvedObject"]["uid"] for e in events if e["involvedObject"]["kind"] == "Job"}
    return len(told) + len(cluster.store.shelves.get("jobs.batch", {}))


def there(cluster: Cluster, kind: str) -> list[str]:
    """What is there, whoever may see it."""
    return [o["metadata"]["name"] for o in cluster.store.shelves.get(kind, {}).values()]


@pytest.mark.parametrize(("verb", "resource"), NEEDED)
def test_nothing_is_made(
    api: Client, cluster: Cluster, start: Start, verb: str, resource: str
) -> None:
    deny(cluster, verb, resource)
    d = start()
    d.submit(1, FOREVER)
    end = d.end(1)
    assert (end["state"], end["failure"], end["is_hopeless"]) == ("failed", "start", True)
    assert f"no right to {verb} {resource} in namespace 'default'" in end["text"], end
    assert "stoker stack check" in end["text"] and "may still run" not in end["text"]
    assert n_made(cluster) == 0


@pytest.mark.parametrize(
    ("resource", "more"), [("secrets", {"secret": ["A=b"]}), ("services", {"nodes": 2})]
)
def test_only_who_needs_it(
    api: Client, cluster: Cluster, start: Start, resource: str, more: dict
) -> None:
    deny(cluster, "create", resource)
    d = start()
    d.submit(1, "exit 3")
    assert d.end(1)["exit_status"] == 3
    d.submit(2, FOREVER, **more)
    end = d.end(2)
    assert f"no right to create {resource}" in end["text"] and end["is_hopeless"], end
    d.do("forget", id=1)
    nothing_left(api)


def test_jobsets(api: Client, cluster: Cluster, start: Start) -> None:
    """Without a request for a JobSet it is an Indexed Job."""
    cluster.call(cluster.control.do_jobset)
    deny(cluster, "get", "jobsets")
    d = start()
    d.submit(1, "exit 3", nodes=2)
    assert d.end(1)["state"] == "ended"
    d.submit(2, "exit 3", nodes=2, options={"jobset": True})
    assert "no right to get jobsets" in d.end(2)["text"]


def test_other_namespaces_go_on(cluster: Cluster, start: Start) -> None:
    d = start()
    d.submit(1, "exit 3", options={"namespace": "nowhere"})
    assert d.end(1)["state"] == "failed"
    d.submit(2, "exit 3")
    assert d.end(2)["exit_status"] == 3


@pytest.mark.parametrize("resource", ["jobs", "pods"])
def test_taken_away_while_it_runs(
    api: Client, cluster: Cluster, start: Start, resource: str
) -> None:
    """A job that can't be watched any more is removed before its step fails."""
    d = start()
    d.submit(1, FOREVER, grace_ms=10000)
    d.until(lambda r: r["state"] == "log")
    deny(cluster, "list", resource)
    cluster.call(cluster.control.do_restart)
    end = d.end(1)
    assert (end["failure"], end["is_hopeless"]) == ("start", True), end
    assert f"no right to list {resource}" in end["text"] and "may still run" not in end["text"]
    assert there(cluster, "jobs.batch") == [] and there(cluster, "pods") == []


def test_said_to_live(api: Client, cluster: Cluster, start: Start) -> None:
    """It can't be removed either: the error says how to do that."""
    d = start()
    d.submit(1, FOREVER)
    d.until(lambda r: r["state"] == "log")
    deny(cluster, "list", "jobs")
    deny(cluster, "delete", "jobs")
    cluster.call(cluster.control.do_restart)
    end = d.end(1)
    assert "no right to list jobs" in end["text"], end
    assert "may still run: `kubectl -n default delete job s-r1-train-1-1`" in end["text"]
    assert there(cluster, "jobs.batch") == ["s-r1-train-1-1"]


def test_a_stop_that_may_not(api: Client, cluster: Cluster, start: Start) -> None:
    d = start()
    d.submit(1, FOREVER)
    d.until(lambda r: r["state"] == "log")
    deny(cluster, "delete", "jobs")
    d.do("stop", id=1, grace_ms=1000)
    end = d.end(1)
    assert end["failure"] == "cancelled" and "delete job s-r1-train-1-1`" in end["text"], end


def test_no_retries_are_spent(project: Project) -> None:
    """One attempt, no Job, and a sentence; with the right the run continues."""
    project.cluster.call(lambda: project.cluster.control.do_deny("watch", "pods"))
    steps = {
        "train": {"run": "true", "retry": {"max_retries": 5, "delay": "10ms"}},
        "other": {"run": "true"},
    }
    said = project.run(steps, rc=1)
    assert "no right to watch pods in namespace 'default'" in said, said
    step = project.step("train")
    assert step["attempts"] == 1, step
    assert n_made(project.cluster) == 0
    project.cluster.call(lambda: project.cluster.control.do_deny("watch", "pods", again=True))
    project("resume")
    assert project.step("train")["status"] == "succeeded"
    project.nothing_left()
