"""The table of resources that this server knows: discovery, routing and kinds use it."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

Object = dict[str, Any]
VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@dataclasses.dataclass(frozen=True)
class Resource:
    """One kind of object. ``store`` names its shelf: both API versions of events share one."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    subresources: tuple[tuple[str, str, tuple[str, ...]], ...] = ()
    fields: tuple[str, ...] = ()  # besides metadata.name and .namespace
    all_category: bool = False
    shelf: str = ""
    add_on: bool = False  # available only when switched on

    @property
    def store(self) -> str:
        return self.shelf or (f"{self.plural}.{self.group}" if self.group else self.plural)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()


STATUS = ("get", "patch", "update")
POD_SUBS = (
    ("binding", "Binding", ("create",)),
    ("eviction", "Eviction", ("create",)),
    ("log", "Pod", ("get",)),
    ("status", "Pod", STATUS),
)
EVENT_FIELDS = (
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
)
POD_FIELDS = (
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)


def _status(kind: str) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    return (("status", kind, STATUS),)


TABLE = [
    Resource("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    Resource("", "v1", "events", "Event", short=("ev",), fields=EVENT_FIELDS, shelf="events"),
    Resource("", "v1", "limitranges", "LimitRange", short=("limits",)),
    Resource(
        "",
        "v1",
        "namespaces",
        "Namespace",
        namespaced=False,
        short=("ns",),
        subresources=_status("Namespace"),
        fields=("status.phase",),
    ),
    Resource(
        "",
        "v1",
        "nodes",
        "Node",
        namespaced=False,
        short=("no",),
        subresources=_status("Node"),
        fields=("spec.unschedulable",),
    ),
    Resource(
        "",
        "v1",
        "persistentvolumeclaims",
        "PersistentVolumeClaim",
        short=("pvc",),
        subresources=_status("PersistentVolumeClaim"),
    ),
    Resource(
        "",
        "v1",
        "pods",
        "Pod",
        short=("po",),
        subresources=POD_SUBS,
        fields=POD_FIELDS,
        all_category=True,
    ),
    Resource(
        "",
        "v1",
        "resourcequotas",
        "ResourceQuota",
        short=("quota",),
        subresources=_status("ResourceQuota"),
    ),
    Resource("", "v1", "secrets", "Secret", fields=("type",)),
    Resource("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",)),
    Resource(
        "",
        "v1",
        "services",
        "Service",
        short=("svc",),
        subresources=_status("Service"),
        fields=("spec.clusterIP", "spec.type"),
        all_category=True,
    ),
    Resource("events.k8s.io", "v1", "events", "Event", short=("ev",), shelf="events", fields=()),
    Resource(
        "batch",
        "v1",
        "jobs",
        "Job",
        subresources=_status("Job"),
        fields=("status.successful",),
        all_category=True,
    ),
    Resource(
        "policy",
        "v1",
        "poddisruptionbudgets",
        "PodDisruptionBudget",
        short=("pdb",),
        subresources=_status("PodDisruptionBudget"),
    ),
    Resource(
        "scheduling.k8s.io",
        "v1",
        "priorityclasses",
        "PriorityClass",
        namespaced=False,
        short=("pc",),
    ),
    Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        short=("crd", "crds"),
    ),
    Resource(
        "jobset.x-k8s.io",
        "v1alpha2",
        "jobsets",
        "JobSet",
        subresources=_status("JobSet"),
        add_on=True,
    ),
]
# Created by POST, never stored.
REVIEWS = {
    ("authorization.k8s.io", "v1", "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    ("authorization.k8s.io", "v1", "selfsubjectrulesreviews"): "SelfSubjectRulesReview",
    ("authentication.k8s.io", "v1", "selfsubjectreviews"): "SelfSubjectReview",
}
BY_STORE = {r.store: r for r in TABLE if r.api_version != "events.k8s.io/v1"}


class Catalogue:
    """The available resources: the table with or without the add-ons."""

    def __init__(self, jobset: bool = False) -> None:
        self.resources = [r for r in TABLE if jobset or not r.add_on]
        self.by_path = {(r.group, r.version, r.plural): r for r in self.resources}
        self.groups: dict[str, list[str]] = {}
        for group, version, _ in [*self.by_path, *REVIEWS]:
            versions = self.groups.setdefault(group, [])
            if version not in versions:
                versions.append(version)

    def find(self, group: str, version: str, plural: str) -> Optional[Resource]:
        return self.by_path.get((group, version, plural))

    def group_object(self, group: str) -> Object:
        versions = [{"groupVersion": f"{group}/{v}", "version": v} for v in self.groups[group]]
        return {"name": group, "versions": versions, "preferredVersion": versions[0]}

    def group_list(self) -> Object:
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [self.group_object(g) for g in self.groups if g],
        }

    def resource_list(self, group: str, version: str) -> Object:
        found: list[Object] = []
        for r in self.resources:
            if (r.group, r.version) != (group, version):
                continue
            entry: Object = {
                "name": r.plural,
                "singularName": r.singular,
                "namespaced": r.namespaced,
                "kind": r.kind,
                "verbs": VERBS,
            }
            if r.short:
                entry["shortNames"] = list(r.short)
            if r.all_category:
                entry["categories"] = ["all"]
            found.append(entry)
            for name, kind, verbs in r.subresources:
                found.append(
                    {
                        "name": f"{r.plural}/{name}",
                        "singularName": "",
                        "namespaced": r.namespaced,
                        "kind": kind,
                        "verbs": list(verbs),
                    }
                )
        for (g, v, plural), kind in REVIEWS.items():
            if (g, v) == (group, version):
                found.append(
                    {
                        "name": plural,
                        "singularName": kind.lower(),
                        "namespaced": False,
                        "kind": kind,
                        "verbs": ["create"],
                    }
                )
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": f"{group}/{version}" if group else version,
            "resources": sorted(found, key=lambda r: str(r["name"])),
        }
