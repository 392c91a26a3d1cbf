"""Nodes: their resources, what happens when one falls silent, which pods must leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import writes
from .scheduler import tolerates
from .store import Change

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]
UNREACHABLE = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
GRACE_S = 40  # node-monitor-grace-period
DEFAULT: list[Object] = [
    {"name": "cpu-a", "capacity": {"cpu": "96", "memory": "1000Gi", "pods": "1100"}},
    {
        "name": "gpu-a",
        "capacity": {"cpu": "96", "memory": "1000Gi", "pods": "110", "nvidia.com/gpu": "8"},
        "labels": {
            "cloud.google.com/gke-accelerator": "nvidia-h100-80gb",
            "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        },
    },
    {
        "name": "tpu-a",
        "capacity": {"cpu": "96", "memory": "1000Gi", "pods": "110", "google.com/tpu": "4"},
        "labels": {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
            "cloud.google.com/gke-tpu-topology": "2x4",
        },
    },
]

BIG = {"cpu": "96", "memory": "1000Gi", "pods": "110"}
# One node per device plugin, with the labels of the plugin, its feature discovery or the cloud.
FIVE: list[Object] = [
    {"name": "cpu-a", "capacity": BIG},
    {
        "name": "nvidia-a",
        "capacity": {**BIG, "nvidia.com/gpu": "8"},
        "labels": {
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.count": "8",
            "nvidia.com/gpu.family": "ampere",
            "nvidia.com/gpu.memory": "81920",
            "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
            "nvidia.com/mig.capable": "true",
        },
        "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
    },
    {
        "name": "amd-a",
        "capacity": {**BIG, "amd.com/gpu": "8"},
        "labels": {
            "amd.com/gpu.cu-count": "304",
            "amd.com/gpu.device-id": "74a1",
            "amd.com/gpu.family": "AI",
            "amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM",
            "amd.com/gpu.simd-count": "1216",
            "amd.com/gpu.vram": "192G",
        },
        "taints": [{"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}],
    },
    {
        "name": "intel-a",
        "capacity": {**BIG, "gpu.intel.com/i915": "2"},
        "labels": {
            "gpu.intel.com/device.count": "2",
            "gpu.intel.com/family": "Max_Series",
            "gpu.intel.com/product": "Max_1550",
        },
    },
    {
        "name": "tpu-a",
        "capacity": {**BIG, "google.com/tpu": "4"},
        "labels": {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
            "cloud.google.com/gke-tpu-topology": "2x4",
        },
        "taints": [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}],
    },
    {
        "name": "trn-a",
        "capacity": {
            **BIG,
            "aws.amazon.com/neuron": "16",
            "aws.amazon.com/neurondevice": "16",
            "aws.amazon.com/neuroncore": "32",
        },
        "labels": {"node.kubernetes.io/instance-type": "trn1.32xlarge"},
        "taints": [{"key": "aws.amazon.com/neuron", "value": "true", "effect": "NoSchedule"}],
    },
]


def node_object(given: Object, now: str) -> Object:
    """Return a Node from ``{name, capacity, labels?, taints?, allocatable?}``."""
    name = given["name"]
    capacity = {"ephemeral-storage": "1Ti", "pods": "110", **given["capacity"]}
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        **(given.get("labels") or {}),
    }
    spec: Object = {"taints": given["taints"]} if given.get("taints") else {}
    good = {"lastHeartbeatTime": now, "lastTransitionTime": now}
    pressure = ("MemoryPressure", "DiskPressure", "PIDPressure")
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": dict(sorted(labels.items()))},
        "spec": spec,
        "status": {
            "capacity": dict(sorted(capacity.items())),
            "allocatable": dict(sorted({**capacity, **(given.get("allocatable") or {})}.items())),
            "conditions": [
                *(
                    {"type": t, "status": "False", **good, "reason": f"KubeletHasNo{t}"}
                    for t in pressure
                ),
                {"type": "Ready", "status": "True", **good, "reason": "KubeletReady"},
            ],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": "",
                "systemUUID": "",
                "bootID": "",
                "kernelVersion": "",
                "osImage": "Linux",
                "containerRuntimeVersion": "process://1",
                "kubeletVersion": "v1.36.2",
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


class Nodes:
    """Watches the nodes: heartbeats, taints, and pods that must leave."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self.lost: set[str] = set()
        self.store.listen("nodes", self._heard)

    def add(self, given: Object) -> None:
        obj = node_object(given, self.store.clock.now())
        meta = {
            **obj["metadata"],
            "uid": self.store.uid(),
            "creationTimestamp": self.store.clock.now(),
        }
        self.store.create("nodes", {**obj, "metadata": meta})

    def lose(self, name: str, kill: bool = True) -> None:
        """Silence the node's kubelet; with ``kill`` also end its containers without a report."""
        self.store.need("nodes", "", name)
        self.lost.add(name)
        if kill:
            self.cluster.kubelets.kill_node(name)
        self.cluster.later(self.cluster.scaled(GRACE_S), ("lost", name), self._unknown, name)

    def recover(self, name: str) -> None:
        """Bring the kubelet back: the node is Ready again and loses its taints."""
        self.lost.discard(name)
        node = self.store.need("nodes", "", name)
        now = self.store.clock.now()
        fresh = node_object({"name": name, "capacity": node["status"]["capacity"]}, now)["status"][
            "conditions"
        ]
        taints = [
            t
            for t in node["spec"].get("taints") or []
            if t["key"] not in (UNREACHABLE, OUT_OF_SERVICE)
        ]
        self._update(node, taints, {**node["status"], "conditions": fresh})
        for p in self._pods(name):
            if "deletionTimestamp" in p["metadata"]:
                run = self.cluster.kubelets.runs.get(
                    (p["metadata"]["namespace"], p["metadata"]["name"])
                )
                if run is not None:
                    run.stop.set()

    def _update(self, node: Object, taints: list[Object], status: Object) -> None:
        spec = {k: v for k, v in node["spec"].items() if k != "taints"}
        if taints:
            spec["taints"] = taints
        self.store.update("nodes", {**node, "spec": spec, "status": status})

    def _pods(self, node: str) -> list[Object]:
        return [p for p in self.store.each("pods") if p["spec"].get("nodeName") == node]

    def _unknown(self, name: str) -> None:
        """After 40 s of silence: conditions become Unknown, pods not Ready, the node tainted."""
        node = self.store.get("nodes", "", name)
        if node is None or name not in self.lost:
            return
        now = self.store.clock.now()
        conditions = [
            {
                **c,
                "status": "Unknown",
                "lastTransitionTime": now,
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
            }
            for c in node["status"]["conditions"]
        ]
        status = {**node["status"], "conditions": conditions}
        self._update(node, node["spec"].get("taints") or [], status)
        for p in self._pods(name):
            if p["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            changed = [
                {**c, "status": "False", "lastTransitionTime": now} if c["type"] == "Ready" else c
                for c in p["status"].get("conditions") or []
            ]
            self.store.touch("pods", p, {**p["status"], "conditions": changed})
            self.cluster.event(p, "Warning", "NodeNotReady", "Node is not ready", "node-controller")
        node = self.store.need("nodes", "", name)
        taints = [
            *(t for t in node["spec"].get("taints") or [] if t["key"] != UNREACHABLE),
            {"key": UNREACHABLE, "effect": "NoSchedule", "timeAdded": now},
            {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": now},
        ]
        self._update(node, taints, status)

    def _heard(self, change: Change) -> None:
        name = change.obj["metadata"]["name"]
        if change.type == "DELETED":
            self.lost.discard(name)
            self.cluster.soon(("node gone", name), self._end_pods, name, False)
            return
        for t in change.obj["spec"].get("taints") or []:
            if t["key"] == OUT_OF_SERVICE and name in self.lost:
                self.cluster.soon(("out of service", name), self._end_pods, name, True)
            elif t["effect"] == "NoExecute":
                self.cluster.soon(("taint", name, t["key"]), self._evict, name, t)

    def _evict(self, name: str, taint: Object) -> None:
        """The taint manager: delete pods that don't tolerate a taint, maybe after a delay."""
        for p in self._pods(name):
            uid = p["metadata"]["uid"]
            mine = [t for t in p["spec"].get("tolerations") or [] if tolerates(t, taint)]
            waits = [t.get("tolerationSeconds") for t in mine]
            if not mine:
                self._leave(name, taint, uid)
            elif all(w is not None for w in waits):
                seconds = self.cluster.scaled(min(w for w in waits if w is not None))
                self.cluster.later(seconds, ("leave", uid), self._leave, name, taint, uid)

    def _leave(self, name: str, taint: Object, uid: str) -> None:
        node = self.store.get("nodes", "", name)
        if node is None or not any(
            t["key"] == taint["key"] for t in node["spec"].get("taints") or []
        ):
            return
        for p in self._pods(name):
            if p["metadata"]["uid"] == uid and "deletionTimestamp" not in p["metadata"]:
                meta = p["metadata"]
                said = f"Marking for deletion Pod {meta['namespace']}/{meta['name']}"
                self.cluster.event(
                    p, "Normal", "TaintManagerEviction", said, "taint-eviction-controller"
                )
                p = writes.disrupt(
                    self.cluster,
                    p,
                    "DeletionByTaintManager",
                    "Taint manager: deleting due to NoExecute taint",
                )
                self.cluster.garbage.delete("pods", p, "Background")

    def _end_pods(self, name: str, terminating_only: bool) -> None:
        """The pod garbage collector: remove the pods of a node that is gone or out of service."""
        for p in self._pods(name):
            if terminating_only and "deletionTimestamp" not in p["metadata"]:
                continue
            if p["status"].get("phase") not in ("Succeeded", "Failed"):
                p = self.store.touch("pods", p, {**p["status"], "phase": "Failed"})
            self.cluster.garbage.delete("pods", p, "Background", 0)
