"""The API server is away: at the first contact, later, or silent. A run waits, says so, and nothing is charged to a step."""

# ruff: noqa: F401, F811 - the fixtures of the other files
from __future__ import annotations

import time

import pytest
from kube import Cluster
from kube_client import JOBS, Client
from kube_driver import Driver
from test_driver import FOREVER, Start, nothing_left, start
from test_pipelines import Object, Project, carried, project


def away(cluster: Cluster) -> None:
    """From now on it cuts every connection."""
    cluster.call(lambda: cluster.faults.add(match=".", cut="before"))


def back(cluster: Cluster) -> None:
    cluster.call(cluster.faults.clear)


def test_first_contact(project: Project) -> None:
    """It is waited for as it would be later, longer than any of its clients' own limits; no attempt is used up."""
    away(project.cluster)
    steps: Object = {"a": {"run": "echo here", "retry": {"max_retries": 3}}}
    engine = project.begin("run", "--with", "kubernetes", project.document(steps))
    until = time.monotonic() + 66
    while time.monotonic() < until:
        assert engine.poll() is None, engine.communicate()[0]
        time.sleep(0.5)
    back(project.cluster)
    text, _ = engine.communicate(timeout=100)
    assert engine.returncode == 0, text
    assert "doesn't answer" in text and "answers again" in text, text
    assert project.step("a")["attempts"] == 1
    project.nothing_left()


def test_pending_counts_what_the_cluster_needs(cluster: Cluster, start: Start) -> None:
    """A job that is submitted in a later outage isn't given up for it."""
    d = start(pending_ms=3000)
    d.submit(1, "exit 3")
    assert d.end(1)["exit_status"] == 3
    away(cluster)
    d.submit(2, "exit 4")
    d.until(lambda r: r["state"] == "note" and "doesn't answer" in r["text"])
    back(cluster)
    assert d.end(2)["exit_status"] == 4


def test_no_answer(cluster: Cluster, start: Start) -> None:
    """etcd stands still: a request has no answer, neither good nor bad. That is told while it lasts."""
    cluster.call(
        lambda: cluster.faults.add(match="^POST .*/jobs", delay_s=16.0, status=503, times=1)
    )
    d = start()
    d.submit(1, "exit 3")
    d.until(lambda r: r["state"] == "note" and "doesn't answer" in r["text"])
    d.until(lambda r: r["state"] == "note" and "answers again" in r["text"])
    assert d.end(1)["exit_status"] == 3
