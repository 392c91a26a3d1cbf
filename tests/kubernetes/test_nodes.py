"""gpu_class on clusters whose nodes have the labels of real device plugins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kube import Cluster
from kube.nodes import BIG, FIVE
from kube_driver import Driver, shell

Make = Callable[..., Cluster]
Object = dict[str, Any]


def driver(cluster: Cluster, tmp_path: Path, **more: Any) -> Driver:
    return Driver(cluster.kubeconfig(tmp_path / "config"), **more)


def gpu_node(label: str, value: str) -> Object:
    return {"name": "n", "capacity": {**BIG, "nvidia.com/gpu": "8"}, "labels": {label: value}}


@pytest.mark.parametrize(
    ("gpu_class", "vendor", "node"),
    [
        ("A100-80GB", "nvidia", "nvidia-a"),
        ("A100", "nvidia", "nvidia-a"),
        ("MI300X", "amd", "amd-a"),
        ("Max-1550", "intel", "intel-a"),
        ("v5e", "google", "tpu-a"),
        ("Trainium", "aws", "trn-a"),
    ],
)
def test_each_device_plugins_node_is_found(
    make_cluster: Make, tmp_path: Path, gpu_class: str, vendor: str, node: str
) -> None:
    """Tainted as the plugins' conventions say: the taints are tolerated."""
    d = driver(make_cluster(nodes=FIVE), tmp_path)
    d.submit(1, resources={"gpu_count": 1, "gpu_class": gpu_class, "gpu_vendor": vendor})
    assert d.end(1)["state"] == "ended", d.reports
    assert [r["text"] for r in d.reports if r["state"] == "running"] == [f"node {node}"]
    d.close()


@pytest.mark.parametrize(
    ("gpu_class", "label", "value", "fits"),
    [
        ("A100", "nvidia.com/gpu.product", "NVIDIA-A100-PCIE-40GB", True),  # not in models.def
        ("A100-80GB", "nvidia.com/gpu.product", "NVIDIA-A100-PCIE-40GB", False),
        ("A100-40GB", "nvidia.com/gpu.product", "A100-SXM4-40GB", True),  # of an old driver
        ("A100", "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-SHARED", False),
        ("A100", "nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", False),
        ("V100-32GB", "nvidia.com/gpu.product", "Tesla-V100-SXM2-32GB", True),
        ("H100", "cloud.google.com/gke-accelerator", "nvidia-h100-mega-80gb", True),
        ("A100-80GB", "node.kubernetes.io/instance-type", "p4de.24xlarge", True),
        ("T4", "node.kubernetes.io/instance-type", "p4de.24xlarge", False),
    ],
)
def test_labels_of_one_cluster(
    make_cluster: Make, tmp_path: Path, gpu_class: str, label: str, value: str, fits: bool
) -> None:
    cluster = make_cluster(nodes=[gpu_node(label, value)])
    d = driver(cluster, tmp_path)
    d.submit(1, resources={"gpu_count": 1, "gpu_class": gpu_class})
    if fits:
        assert d.end(1)["state"] == "ended", d.reports
    else:
        waits = d.until(lambda r: r["state"] == "queued" and "node affinity" in r["text"])
        assert f"gpu_class '{gpu_class}'" in waits["text"], waits
        assert value in waits["text"] and label in waits["text"], waits
        assert "gpu_type_label" in waits["text"], waits
        d.do("stop", id=1)
        d.end(1)
    d.close()


def test_no_label_tells_models(make_cluster: Make, tmp_path: Path) -> None:
    d = driver(make_cluster(nodes=[gpu_node("team", "a")]), tmp_path, pending_ms=1500)
    d.submit(1, resources={"gpu_count": 1, "gpu_class": "A100"})
    end = d.end(1)
    assert "no node has a label that tells its model" in end["text"] and "A100" in end["text"], end
    assert "nvidia.com/gpu.product" in end["text"] and "gpu_type_label" in end["text"], end
    d.close()


def test_without_the_right_to_list_nodes(make_cluster: Make, tmp_path: Path) -> None:
    """The known spellings of the model do; nothing is said of nodes that nobody could list."""
    cluster = make_cluster(nodes=FIVE)
    cluster.denied.add(("list", "nodes"))
    d = driver(cluster, tmp_path)
    d.submit(1, resources={"gpu_count": 1, "gpu_class": "A100-80GB"})
    assert d.end(1)["state"] == "ended", d.reports
    d.close()


def test_nodes_are_listed_once_for_many_jobs(make_cluster: Make, tmp_path: Path) -> None:
    """Only where a job names a model: the others ask nothing of the nodes."""
    cluster = make_cluster(nodes=FIVE)
    asked = cluster.faults.add(match="^GET /api/v1/nodes", delay_s=0.001)
    d = driver(cluster, tmp_path)
    d.submit(100)
    d.end(100)
    assert asked.taken == 0
    for i in range(8):
        d.submit(i + 1, resources={"gpu_count": 1, "gpu_class": "A100"})
    for _ in range(8):
        d.until(lambda r: r["state"] == "ended")
    assert asked.taken == 1
    d.close()


def test_stack_check_names_the_models(make_cluster: Make, tmp_path: Path) -> None:
    cluster = make_cluster(nodes=FIVE)
    lines = shell("check", "{}", kubeconfig=cluster.kubeconfig(tmp_path / "config"))
    texts = [line["text"] for line in lines if "text" in line]
    assert (
        "nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB on 1 node (gpu_class A100, A100-80GB)"
        in texts
    ), texts
    for part in (
        "AMD_Instinct_MI300X_OAM on 1 node (gpu_class MI300X)",
        "Max_1550 on 1 node (gpu_class Max-1550)",
    ):
        assert any(part in text for text in texts), texts
