"""The scheduler: picks a node for each pod, says why none fits, preempts other pods."""

from __future__ import annotations

import collections
import json
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Optional

from . import errors, writes
from .selectors import labels_of, matches_term, quantity
from .store import Change

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]
Amounts = dict[str, Fraction]
NO_MATCH = "node(s) didn't match Pod's node affinity/selector"
TAINTED = "node(s) had untolerated taint(s)"
NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"


def requests_of(pod: Object) -> Amounts:
    """Return what a pod takes from a node: all containers, or one init container if larger."""
    total: Amounts = {}
    for c in pod["spec"]["containers"]:
        for name, text in (c["resources"].get("requests") or {}).items():
            total[name] = total.get(name, Fraction(0)) + quantity(text)
    for c in pod["spec"].get("initContainers") or []:
        for name, text in (c["resources"].get("requests") or {}).items():
            total[name] = max(total.get(name, Fraction(0)), quantity(text))
    total["pods"] = Fraction(1)
    return total


def tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def untolerated(pod: Object, node: Object, effects: tuple[str, ...]) -> bool:
    mine = pod["spec"].get("tolerations") or []
    return any(
        t["effect"] in effects and not any(tolerates(m, t) for m in mine)
        for t in node["spec"].get("taints") or []
    )


class Scheduler:
    """Binds pods to nodes and tracks what each node has left."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self.waiting: dict[str, tuple[str, str]] = {}  # uid → (namespace, name)
        self.placed: dict[str, tuple[str, Amounts]] = {}  # uid → (node, what it takes)
        self.used: dict[str, Amounts] = collections.defaultdict(dict)
        self.allocatable: dict[str, Amounts] = {}
        self.store.listen("pods", self._pod)
        self.store.listen("nodes", self._node)

    def with_priority(self, pod: Object) -> Object:
        """Admission: resolve priorityClassName to its number. 403 for an unknown class."""
        name = pod["spec"].get("priorityClassName")
        value = 0
        spec = dict(pod["spec"])
        if name:
            found = self.store.get("priorityclasses.scheduling.k8s.io", "", name)
            if found is None:
                raise errors.forbidden(
                    "pods",
                    "",
                    pod["metadata"]["name"],
                    f"no PriorityClass with name {name} was found",
                )
            value = found["value"]
            spec["preemptionPolicy"] = found.get("preemptionPolicy", "PreemptLowerPriority")
        spec["priority"] = value
        return {**pod, "spec": spec}

    def _node(self, change: Change) -> None:
        name = change.obj["metadata"]["name"]
        if change.type == "DELETED":
            self.allocatable.pop(name, None)
        else:
            given = change.obj["status"].get("allocatable") or {}
            self.allocatable[name] = {k: quantity(v) for k, v in given.items()}
        self.cluster.soon(("schedule",), self.flush)

    def _pod(self, change: Change) -> None:
        meta, spec, status = change.obj["metadata"], change.obj["spec"], change.obj["status"]
        uid = meta["uid"]
        gone = change.type == "DELETED" or status.get("phase") in ("Succeeded", "Failed")
        if gone:
            self.waiting.pop(uid, None)
            if uid in self.placed:
                node, taken = self.placed.pop(uid)
                for name, amount in taken.items():
                    self.used[node][name] -= amount
                self.cluster.soon(("schedule",), self.flush)
        elif spec.get("nodeName"):
            self.waiting.pop(uid, None)
            if uid not in self.placed:
                self._take(uid, spec["nodeName"], requests_of(change.obj))
        elif "deletionTimestamp" in meta:
            self.waiting.pop(uid, None)
        elif uid not in self.waiting and not spec.get("schedulingGates"):
            self.waiting[uid] = (meta["namespace"], meta["name"])
            self.cluster.soon(("schedule",), self.flush)

    def _take(self, uid: str, node: str, amounts: Amounts) -> None:
        self.placed[uid] = (node, amounts)
        for name, amount in amounts.items():
            self.used[node][name] = self.used[node].get(name, Fraction(0)) + amount

    def flush(self) -> None:
        """Try all waiting pods, high priority first.

        A pod like one that just found no room isn't tried.
        """
        pods = [self.store.get("pods", *key) for key in self.waiting.values()]
        found = sorted(
            (p for p in pods if p is not None), key=lambda p: -p["spec"].get("priority", 0)
        )
        hopeless: dict[str, tuple[str, str]] = {}
        for pod in found:
            spec = pod["spec"]
            keys = ("nodeSelector", "affinity", "tolerations", "priority", "schedulerName")
            alike = json.dumps(
                [
                    [spec.get(k) for k in keys],
                    [c["resources"] for c in spec["containers"]],
                    self._missing_claim(pod),
                ],
                sort_keys=True,
            )
            if alike in hopeless:
                self._refuse(pod, hopeless[alike][0])
                continue
            why = self._place(pod)
            if why:
                hopeless[alike] = (why, "")
                self._refuse(pod, why)

    def _place(self, pod: Object) -> str:
        """Bind a pod, or preempt others and return why it doesn't fit yet."""
        wanted = requests_of(pod)
        reasons: dict[str, list[str]] = {}
        fits: list[Object] = []
        claim = self._missing_claim(pod)
        nodes = self.store.all("nodes")
        for node in nodes:
            said = [claim] if claim else self._filter(pod, node, wanted)
            if said:
                reasons[node["metadata"]["name"]] = said
            else:
                fits.append(node)
        if fits:
            best = max(fits, key=lambda n: self._score(pod, n))
            self._bind(pod, best["metadata"]["name"])
            return ""
        victims = self._preempt(pod, nodes, wanted)
        if victims:
            return self._sentence(nodes, reasons, {})
        helpless = {}
        for node in nodes:
            name = node["metadata"]["name"]
            room = all(n.startswith("Insufficient") or n == "Too many pods" for n in reasons[name])
            could = room and all(self.allocatable[name].get(k, 0) >= v for k, v in wanted.items())
            helpless[name] = NO_VICTIMS if could else NOT_HELPFUL
        return self._sentence(nodes, reasons, helpless)

    def _missing_claim(self, pod: Object) -> str:
        for v in pod["spec"].get("volumes") or []:
            claim = (v.get("persistentVolumeClaim") or {}).get("claimName")
            if claim and not self.store.get(
                "persistentvolumeclaims", pod["metadata"]["namespace"], claim
            ):
                return f'persistentvolumeclaim "{claim}" not found'
        return ""

    def _filter(self, pod: Object, node: Object, wanted: Amounts) -> list[str]:
        """Return the scheduler's messages about why a node doesn't fit; empty if it does."""
        if node["spec"].get("unschedulable"):
            return ["node(s) were unschedulable"]
        if untolerated(pod, node, ("NoSchedule", "NoExecute")):
            return [TAINTED]
        labels = labels_of(node)
        if any(labels.get(k) != v for k, v in (pod["spec"].get("nodeSelector") or {}).items()):
            return [NO_MATCH]
        affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        if required and not any(matches_term(node, t) for t in required["nodeSelectorTerms"]):
            return [NO_MATCH]
        name = node["metadata"]["name"]
        has, used = self.allocatable[name], self.used[name]
        short = [
            k for k, v in wanted.items() if v > has.get(k, Fraction(0)) - used.get(k, Fraction(0))
        ]
        return ["Too many pods" if k == "pods" else f"Insufficient {k}" for k in short]

    def _score(self, pod: Object, node: Object) -> tuple[int, float]:
        affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
        weight = sum(
            p["weight"]
            for p in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
            if matches_term(node, p["preference"])
        )
        name = node["metadata"]["name"]
        has, used = self.allocatable[name], self.used[name]
        full = [float(used.get(k, 0) / v) for k, v in has.items() if v]
        spare = sum(
            1 for k in has if "/" in k and k not in requests_of(pod)
        )  # nodes with devices stay free for pods that need them
        return weight, -spare - (sum(full) / len(full) if full else 0.0)

    def _sentence(
        self, nodes: list[Object], reasons: dict[str, list[str]], helpless: dict[str, str]
    ) -> str:
        def told(said: list[str]) -> str:
            counted = collections.Counter(said)
            return ", ".join(sorted(f"{n} {why}" for why, n in counted.items()))

        if not nodes:
            return "no nodes available to schedule pods"
        head = f"0/{len(nodes)} nodes are available"
        text = f"{head}: {told([w for said in reasons.values() for w in said])}."
        if helpless:
            text += f" no new claims to deallocate, preemption: {head}: {told(list(helpless.values()))}."
        return text

    def _bind(self, pod: Object, node: str) -> None:
        meta = pod["metadata"]
        now = self.store.clock.now()
        status = dict(pod["status"])
        scheduled = {
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": now,
        }
        others = [c for c in status.get("conditions") or [] if c["type"] != "PodScheduled"]
        status["conditions"] = [*others, scheduled]
        status.pop("nominatedNodeName", None)
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}
        said = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self.cluster.event(pod, "Normal", "Scheduled", said, "default-scheduler", action="Binding")
        self.store.update("pods", bound)

    def _refuse(self, pod: Object, why: str) -> None:
        """Report in the pod and in an event that no node fits, once per message."""
        current = self.store.get("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        if current is None:
            return
        conditions = current["status"].get("conditions") or []
        if any(c["type"] == "PodScheduled" and c.get("message") == why for c in conditions):
            return
        refused = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": self.store.clock.now(),
            "reason": "Unschedulable",
            "message": why,
        }
        others = [c for c in conditions if c["type"] != "PodScheduled"]
        self.store.touch("pods", current, {**current["status"], "conditions": [*others, refused]})
        self.cluster.event(
            pod, "Warning", "FailedScheduling", why, "default-scheduler", action="Scheduling"
        )

    def _preempt(self, pod: Object, nodes: list[Object], wanted: Amounts) -> list[Object]:
        """Delete pods of lower priority where that makes room. Return the deleted pods."""
        if pod["spec"].get("preemptionPolicy") == "Never":
            return []
        mine = pod["spec"].get("priority", 0)
        best: Optional[tuple[Object, list[Object]]] = None
        for node in nodes:
            name = node["metadata"]["name"]
            if any(not w.startswith("Insufficient") for w in self._filter(pod, node, wanted)):
                continue
            victims = self._victims(name, mine, wanted)
            if victims and (best is None or len(victims) < len(best[1])):
                best = (node, victims)
        if best is None:
            return []
        node_name = best[0]["metadata"]["name"]
        for victim in best[1]:
            if "deletionTimestamp" in victim["metadata"]:
                continue
            said = "default-scheduler: preempting to accommodate a higher priority pod"
            victim = writes.disrupt(self.cluster, victim, "PreemptionByScheduler", said)
            message = f"Preempted by pod {pod['metadata']['uid']} on node {node_name}"
            self.cluster.event(
                victim, "Normal", "Preempted", message, "default-scheduler", action="Preempting"
            )
            self.cluster.garbage.delete("pods", victim, "Background")
        return best[1]

    def _victims(self, node: str, priority: int, wanted: Amounts) -> list[Object]:
        lower = [
            p
            for p in self.store.each("pods")
            if p["spec"].get("nodeName") == node
            and p["metadata"]["uid"] in self.placed
            and p["spec"].get("priority", 0) < priority
        ]
        lower.sort(key=lambda p: p["spec"].get("priority", 0))
        free = {
            k: self.allocatable[node].get(k, Fraction(0)) - self.used[node].get(k, Fraction(0))
            for k in wanted
        }
        chosen: list[Object] = []
        for p in lower:
            if all(free[k] >= v for k, v in wanted.items()):
                break
            for k, v in requests_of(p).items():
                if k in free:
                    free[k] += v
            chosen.append(p)
        return chosen if all(free[k] >= v for k, v in wanted.items()) else []
