"""A small JobSet controller for clusters with the add-on: creates Jobs, sums up their status."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import writes
from .jobrules import finished_condition
from .selectors import labels_of
from .store import Change

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]
SHELF = "jobsets.jobset.x-k8s.io"
PREFIX = "jobset.sigs.k8s.io"


class JobSets:
    """Creates a JobSet's Jobs and headless service.

    The JobSet is Completed when all its Jobs are, and Failed when one is.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self.store.listen(SHELF, self._heard)
        self.store.listen("jobs.batch", self._job)

    def _heard(self, change: Change) -> None:
        meta = change.obj["metadata"]
        if change.type != "DELETED":
            self.cluster.soon(("jobset", meta["uid"]), self.sync, meta["namespace"], meta["name"])

    def _job(self, change: Change) -> None:
        name = labels_of(change.obj).get(f"{PREFIX}/jobset-name")
        if name:
            namespace = change.obj["metadata"]["namespace"]
            self.cluster.soon(("jobset", namespace, name), self.sync, namespace, name)

    def sync(self, namespace: str, name: str) -> None:
        js = self.store.get(SHELF, namespace, name)
        if js is None or "deletionTimestamp" in js["metadata"]:
            return
        if any(c["status"] == "True" for c in js["status"].get("conditions") or []):
            return
        owner = {
            "apiVersion": js["apiVersion"],
            "kind": "JobSet",
            "name": name,
            "uid": js["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        self._service(js, owner)
        jobs: list[Object] = []
        for group in js["spec"].get("replicatedJobs") or []:
            for i in range(group.get("replicas", 1)):
                job = self.store.get("jobs.batch", namespace, f"{name}-{group['name']}-{i}")
                jobs.append(job or self._make(js, group, i, owner))
        self._judge(js, jobs)

    def _service(self, js: Object, owner: Object) -> None:
        meta = js["metadata"]
        network = js["spec"].get("network") or {}
        name = network.get("subdomain") or meta["name"]
        if network.get("enableDNSHostnames", True) is False or self.store.get(
            "services", meta["namespace"], name
        ):
            return
        spec = {
            "clusterIP": "None",
            "publishNotReadyAddresses": network.get("publishNotReadyAddresses", True),
            "selector": {f"{PREFIX}/jobset-name": meta["name"]},
        }
        body = {"kind": "Service", "apiVersion": "v1", "spec": spec}
        writes.insert(
            self.cluster,
            "services",
            {
                **body,
                "metadata": {
                    "name": name,
                    "namespace": meta["namespace"],
                    "ownerReferences": [owner],
                },
            },
        )

    def _make(self, js: Object, group: Object, index: int, owner: Object) -> Object:
        meta, template = js["metadata"], group["template"]
        marks = {
            f"{PREFIX}/jobset-name": meta["name"],
            f"{PREFIX}/replicatedjob-name": group["name"],
            f"{PREFIX}/replicatedjob-replicas": str(group.get("replicas", 1)),
            f"{PREFIX}/job-index": str(index),
        }
        spec = dict(template["spec"])
        pods = dict(spec["template"])
        inner = dict(pods.get("metadata") or {})
        inner["labels"] = {**(inner.get("labels") or {}), **marks}
        inner["annotations"] = {**(inner.get("annotations") or {}), **marks}
        pod_spec = {
            "subdomain": (js["spec"].get("network") or {}).get("subdomain") or meta["name"],
            **pods["spec"],
        }
        spec["template"] = {**pods, "metadata": inner, "spec": pod_spec}
        spec["suspend"] = bool(js["spec"].get("suspend"))
        outer = template.get("metadata") or {}
        made, _ = writes.insert(
            self.cluster,
            "jobs.batch",
            {
                "kind": "Job",
                "apiVersion": "batch/v1",
                "metadata": {
                    "name": f"{meta['name']}-{group['name']}-{index}",
                    "namespace": meta["namespace"],
                    "labels": {**(outer.get("labels") or {}), **marks},
                    "annotations": {**(outer.get("annotations") or {}), **marks},
                    "ownerReferences": [owner],
                },
                "spec": spec,
            },
        )
        return made

    def _judge(self, js: Object, jobs: list[Object]) -> None:
        ends = [finished_condition(j) for j in jobs]
        now = self.store.clock.now()
        bad = next((j for j, e in zip(jobs, ends) if e is not None and e["type"] == "Failed"), None)
        if bad is not None:
            kind, reason = "Failed", "FailedJobs"
            message = f"jobset failed due to one or more job failures (first failed job: {bad['metadata']['name']})"
        elif jobs and all(e is not None for e in ends):
            kind, reason, message = "Completed", "AllJobsCompleted", "jobset completed successfully"
        else:
            return
        condition = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": now,
        }
        self.store.touch(
            SHELF, js, {**js["status"], "conditions": [condition], "terminalState": kind}
        )
        for j, e in zip(jobs, ends):
            if e is None:
                self.cluster.garbage.delete("jobs.batch", j, "Background")
