"""Fixtures of the Kubernetes tests: a small cluster on this machine (see ``kube``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator

import pytest
from front_tools import cannot
from kube import Cluster, Options
from kube_client import Client


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    """Makes clusters with ``Options``' fields; all are stopped at the end, none may have failed inside."""
    if os.geteuid() != 0 or not sys.platform.startswith("linux"):
        cannot("pods are processes in namespaces of their own: that needs root on Linux")
    made: list[Cluster] = []

    def make(**options: object) -> Cluster:
        cluster = Cluster(Options(**options))  # type: ignore[arg-type]
        made.append(cluster.start())
        return cluster

    yield make
    for cluster in made:
        cluster.stop()
        assert cluster.failures == []


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """A cluster of three nodes: cpu-a, gpu-a (8 nvidia.com/gpu), tpu-a (4 google.com/tpu)."""
    return make_cluster()


@pytest.fixture
def api(cluster: Cluster) -> Client:
    """A plain client of ``cluster``, as administrator."""
    return Client(cluster)
