"""Headless services: an address for each pod, names in every pod's /etc/hosts, EndpointSlices.

All pods share the machine's loopback; each has its own address 127.x.y.z. Names resolve as with
cluster DNS: HOSTNAME.SUBDOMAIN.NAMESPACE.svc.cluster.local and its shorter forms work once the pod
has an address, a headless service with the subdomain's name selects the pod, and the pod is Ready
(or the service publishes addresses that aren't). The file changes in place, so a running program
sees new names when it retries. Services with a cluster IP are stored but not served.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .selectors import labels_of
from .store import Change

if TYPE_CHECKING:
    from .cluster import Cluster
    from .kubelet import PodRun

Object = dict[str, Any]
SLICES = "endpointslices.discovery.k8s.io"


class Services:
    """The names of pods, by namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self.next_ip = 0
        self.files: dict[str, tuple[PodRun, Path]] = {}  # pod's uid → its hosts file
        self.store.listen("services", self._heard)

    def take_ip(self) -> str:
        """Return the next address, in turn from 127.128.0.1 on, half of the loopback's."""
        self.next_ip = self.next_ip % (2**23 - 2) + 1
        n = self.next_ip
        return f"127.{128 + (n >> 16)}.{n >> 8 & 255}.{n & 255}"

    def _heard(self, change: Change) -> None:
        self.changed(change.obj["metadata"]["namespace"])

    def changed(self, namespace: str) -> None:
        """A pod got or lost its address, or a service has changed."""
        if any(key[0] == namespace for key in self.store.shelves["services"]):
            self.cluster.soon(("names", namespace), self._refresh, namespace)

    def hosts_file(self, run: PodRun) -> Path:
        """Create the file that the pod's containers see as /etc/hosts."""
        path: Path = run.folder / "hosts"
        self.files[run.uid] = (run, path)
        path.write_text(self._text(run, self._names(run.key[0])))
        return path

    def _text(self, run: PodRun, names: str) -> str:
        spec = run.pod["spec"]
        host = spec.get("hostname") or run.key[1]
        full = (
            f"{host}.{spec['subdomain']}.{run.key[0]}.svc.cluster.local\t"
            if spec.get("subdomain")
            else ""
        )
        extra = "".join(
            f"{a['ip']}\t{' '.join(a.get('hostnames') or [])}\n"
            for a in spec.get("hostAliases") or []
        )
        return f"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost\n{run.ip}\t{full}{host}\n{extra}{names}"

    def _chosen(self, service: Object) -> list[PodRun]:
        """Return the pods behind a headless service that have an address and may be published."""
        spec, namespace = service["spec"], service["metadata"]["namespace"]
        wanted = spec.get("selector")
        if not wanted or spec.get("clusterIP") != "None":
            return []
        found = []
        for run in self.cluster.kubelets.runs.values():
            if run.key[0] != namespace or not run.ip or run.node in self.cluster.nodes.lost:
                continue
            pod = run.current()
            if pod is None or pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            labels = labels_of(pod)
            told = spec.get("publishNotReadyAddresses") or self.cluster.kubelets.ready(pod)
            if told and all(labels.get(k) == v for k, v in wanted.items()):
                found.append(run)
        return found

    def _names(self, namespace: str) -> str:
        lines: list[str] = []
        if not self.cluster.options.dns:
            return ""
        for service in self.store.all("services", namespace):
            name = service["metadata"]["name"]
            forms = [
                f"{name}.{namespace}.svc.cluster.local",
                f"{name}.{namespace}.svc",
                f"{name}.{namespace}",
                name,
            ]
            for run in self._chosen(service):
                spec = run.pod["spec"]
                if spec.get("hostname") and spec.get("subdomain") == name:
                    lines.append(
                        f"{run.ip}\t{' '.join(spec['hostname'] + '.' + f for f in forms)}\n"
                    )
                lines.append(f"{run.ip}\t{' '.join(forms)}\n")
        return "".join(lines)

    def _refresh(self, namespace: str) -> None:
        names = self._names(namespace)
        for uid, (run, path) in list(self.files.items()):
            if not path.exists():
                del self.files[uid]
            elif run.key[0] == namespace:
                text = self._text(run, names)
                if path.read_text() != text:
                    path.write_text(text)  # in place: the file is mounted
        for service in self.store.all("services", namespace):
            self._slice(service)

    def _slice(self, service: Object) -> None:
        """Update the EndpointSlice of a headless service."""
        meta = service["metadata"]
        if service["spec"].get("clusterIP") != "None" or not service["spec"].get("selector"):
            return
        endpoints = []
        for run in self._chosen(service):
            ready = self.cluster.kubelets.ready(run.pod) or bool(
                service["spec"].get("publishNotReadyAddresses")
            )
            e: Object = {
                "addresses": [run.ip],
                "conditions": {"ready": ready, "serving": ready, "terminating": False},
            }
            if run.pod["spec"].get("hostname"):
                e["hostname"] = run.pod["spec"]["hostname"]
            target = {"kind": "Pod", "namespace": run.key[0], "name": run.key[1], "uid": run.uid}
            endpoints.append({**e, "targetRef": target, "nodeName": run.node})
        ports = [
            {k: p[k] for k in ("name", "protocol", "port") if k in p}
            for p in service["spec"].get("ports") or []
        ]
        body = {"addressType": "IPv4", "endpoints": endpoints, "ports": ports}
        for old in self.store.all(SLICES, meta["namespace"]):
            if labels_of(old).get("kubernetes.io/service-name") == meta["name"]:
                self.store.update(SLICES, {**old, **body})
                return
        owner = {
            "apiVersion": "v1",
            "kind": "Service",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        new_meta = {
            "name": f"{meta['name']}-{self.store.suffix()}",
            "namespace": meta["namespace"],
            "uid": self.store.uid(),
            "creationTimestamp": self.store.clock.now(),
            "labels": {"kubernetes.io/service-name": meta["name"]},
            "ownerReferences": [{**owner, "blockOwnerDeletion": True}],
        }
        self.store.create(
            SLICES,
            {
                "kind": "EndpointSlice",
                "apiVersion": "discovery.k8s.io/v1",
                "metadata": new_meta,
                **body,
            },
        )
