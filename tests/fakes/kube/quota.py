"""ResourceQuota and LimitRange: each new object is checked, a Job's pods when they are created."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from . import errors
from .resources import Resource
from .selectors import quantity, spelled
from .store import Change

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]


def pod_usage(pod: Object) -> dict[str, Fraction]:
    """Return what a pod adds to the quantities that a quota can limit."""
    out: dict[str, Fraction] = {"pods": Fraction(1)}
    for c in pod["spec"]["containers"]:
        for kind in ("requests", "limits"):
            for name, text in (c["resources"].get(kind) or {}).items():
                key = f"{kind}.{name}"
                out[key] = out.get(key, Fraction(0)) + quantity(text)
                if kind == "requests" and name in ("cpu", "memory"):
                    out[name] = out[key]
    return out


class Quota:
    """Admits or refuses objects, and keeps ``status.used`` up to date."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.store = cluster.store
        for shelf in ("pods", "jobs.batch", "resourcequotas", "configmaps", "secrets"):
            self.store.listen(shelf, self._heard)

    def _heard(self, change: Change) -> None:
        namespace = change.obj["metadata"].get("namespace", "")
        if any(key[0] == namespace for key in self.store.shelves["resourcequotas"]):
            self.cluster.soon(("quota", namespace), self._refresh, namespace)

    def used(self, namespace: str, key: str) -> Fraction:
        """Return how much of a quota's key is in use."""
        if key.startswith("count/"):
            shelf = key[len("count/") :]
            return Fraction(sum(1 for k in self.store.shelves[shelf] if k[0] == namespace))
        live = (
            p
            for p in self.store.each("pods")
            if p["metadata"]["namespace"] == namespace
            and p["status"].get("phase") not in ("Succeeded", "Failed")
        )
        return sum((pod_usage(p).get(key, Fraction(0)) for p in live), Fraction(0))

    def admit(self, r: Resource, obj: Object) -> None:
        """Raise 403 if a quota or limit range of the namespace forbids the object."""
        namespace, name = obj["metadata"].get("namespace", ""), obj["metadata"].get("name", "")
        if not r.namespaced:
            return
        text, code = self.cluster.webhooks.get(r.plural, ("", 0))
        if text:
            said = f'admission webhook "policy.example.com" denied the request: {text}'
            raise errors.ApiError(code, None, said)
        if r.kind == "Pod":
            self._pod_security(namespace, name, obj)
            self._limits(namespace, name, obj)
        asked = {f"count/{r.store}": Fraction(1)}
        if r.kind == "Pod":
            asked.update(pod_usage(obj))
        for q in self.store.all("resourcequotas", namespace):
            hard = (q.get("spec") or {}).get("hard") or {}
            over: list[str] = []
            for key in sorted(hard):
                if key in asked and asked[key] + self.used(namespace, key) > quantity(hard[key]):
                    over.append(key)
            if over:
                told = [
                    "requested: " + ",".join(f"{k}={spelled(asked[k])}" for k in over),
                    "used: " + ",".join(f"{k}={spelled(self.used(namespace, k))}" for k in over),
                    "limited: " + ",".join(f"{k}={hard[k]}" for k in over),
                ]
                why = f"exceeded quota: {q['metadata']['name']}, {', '.join(told)}"
                raise errors.forbidden(r.plural, r.group, name, why)

    def _pod_security(self, namespace: str, name: str, pod: Object) -> None:
        """Check Pod Security Admission's level "restricted", with its messages."""
        space = self.store.get("namespaces", "", namespace)
        labels = space["metadata"].get("labels") or {} if space else {}
        if labels.get("pod-security.kubernetes.io/enforce") != "restricted":
            return
        of_pod = pod["spec"].get("securityContext") or {}
        wrong: dict[str, list[str]] = {}
        for c in [*(pod["spec"].get("initContainers") or []), *pod["spec"]["containers"]]:
            own = {**of_pod, **(c.get("securityContext") or {})}
            checks = {
                "allowPrivilegeEscalation != false": own.get("allowPrivilegeEscalation") is False,
                "unrestricted capabilities": "ALL"
                in (own.get("capabilities") or {}).get("drop", []),
                "runAsNonRoot != true": own.get("runAsNonRoot") is True,
                "seccompProfile": (own.get("seccompProfile") or {}).get("type")
                in ("RuntimeDefault", "Localhost"),
            }
            for what, good in checks.items():
                if not good:
                    wrong.setdefault(what, []).append(f'"{c["name"]}"')
        if wrong:
            told = ", ".join(f"{w} (container {', '.join(cs)})" for w, cs in wrong.items())
            raise errors.forbidden(
                "pods", "", name, f'violates PodSecurity "restricted:latest": {told}'
            )

    def _limits(self, namespace: str, name: str, pod: Object) -> None:
        for lr in self.store.all("limitranges", namespace):
            for limit in (lr.get("spec") or {}).get("limits") or []:
                for what, top in (
                    (limit.get("max") or {}).items() if limit["type"] == "Container" else []
                ):
                    for c in pod["spec"]["containers"]:
                        asked = (c["resources"].get("limits") or {}).get(what)
                        if asked is not None and quantity(asked) > quantity(top):
                            why = (
                                f"maximum {what} usage per Container is {top}, but limit is {asked}"
                            )
                            raise errors.forbidden("pods", "", name, why)

    def _refresh(self, namespace: str) -> None:
        for q in self.store.all("resourcequotas", namespace):
            hard = (q.get("spec") or {}).get("hard") or {}
            used = {k: spelled(self.used(namespace, k)) for k in sorted(hard)}
            status = {"hard": dict(sorted(hard.items())), "used": used}
            if q.get("status") != status:
                self.store.touch("resourcequotas", q, status)
