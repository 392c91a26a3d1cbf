"""Garbage collection: deletion policies, owners and dependents, namespaces, time to live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from .resources import BY_STORE
from .store import Change, rfc3339

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]
TRACKING = "batch.kubernetes.io/job-tracking"
WAITING = ("orphan", "foregroundDeletion")


def owner_uids(obj: Object) -> list[str]:
    return [o["uid"] for o in obj["metadata"].get("ownerReferences") or []]


class Garbage:
    """Deletes objects according to their deletion policy, then their dependents."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self.dependents: dict[str, set[tuple[str, str, str]]] = {}  # owner's uid → keys
        for shelf in BY_STORE:
            self.store.listen(shelf, self._heard)

    def _heard(self, change: Change) -> None:
        meta = change.obj["metadata"]
        key = (change.shelf, meta.get("namespace", ""), meta["name"])
        before = set(owner_uids(change.old)) if change.old else set()
        now = set() if change.type == "DELETED" else set(owner_uids(change.obj))
        for uid in before - now:
            self.dependents.get(uid, set()).discard(key)
            self.cluster.soon(("owner", uid), self._settle, uid)
        for uid in now - before:
            self.dependents.setdefault(uid, set()).add(key)
        if change.type == "DELETED":
            self.cluster.soon(("gone", meta["uid"]), self._owner_gone, meta["uid"])
        elif set(meta.get("finalizers") or []) & set(WAITING):
            self.cluster.soon(("policy", meta["uid"]), self._policy, key)

    def delete(
        self, shelf: str, obj: Object, policy: str, grace: Optional[int] = None
    ) -> Optional[Object]:
        """Delete an object. Return its new state if it stays for now (or is a pod), else None."""
        meta, now = obj["metadata"], self.store.clock.time()
        if shelf == "pods":
            return self._delete_pod(obj, grace)
        if shelf == "namespaces":
            return self._delete_namespace(obj)
        add = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}.get(policy)
        has = self.dependents.get(meta["uid"])
        finalizers = [f for f in meta.get("finalizers") or [] if f not in WAITING]
        if add and (has or policy == "Foreground" or shelf == "jobs.batch"):
            finalizers.append(add)
        if finalizers:
            return self.store.touch(
                shelf,
                obj,
                deletionTimestamp=meta.get("deletionTimestamp") or rfc3339(now),
                deletionGracePeriodSeconds=0,
                finalizers=finalizers,
                generation=meta.get("generation", 1) + (0 if "deletionTimestamp" in meta else 1),
            )
        last = self.store.remove(shelf, meta.get("namespace", ""), meta["name"])
        return last if BY_STORE[shelf].kind in ("Service", "PersistentVolumeClaim") else None

    def _delete_pod(self, pod: Object, grace: Optional[int]) -> Object:
        """Delete a pod: its kubelet ends it first; a pod without a kubelet goes at once."""
        meta, spec = pod["metadata"], pod["spec"]
        if grace is None:
            grace = spec.get("terminationGracePeriodSeconds", 30)
        if not spec.get("nodeName") or pod["status"].get("phase") in ("Succeeded", "Failed"):
            grace = 0
        if "deletionTimestamp" in meta and meta.get("deletionGracePeriodSeconds", 0) <= grace:
            return pod
        now = self.store.clock.time()
        marked = {
            **pod,
            "metadata": {
                **meta,
                "generation": meta.get("generation", 1) + (0 if "deletionTimestamp" in meta else 1),
                "deletionTimestamp": rfc3339(now + grace),
                "deletionGracePeriodSeconds": grace,
            },
        }
        if grace or meta.get("finalizers"):
            return self.store.update("pods", marked)
        # Even a pod that goes at once causes two events: a last MODIFIED and a DELETED.
        key = (meta.get("namespace", ""), meta["name"])
        marked = self.store._write("MODIFIED", "pods", key, marked, pod)
        return self.store.remove("pods", *key)

    def release(self, pod: Object) -> None:
        """Remove a pod being deleted that its kubelet has ended, unless finalizers hold it."""
        current = self.store.get("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        if current is None or current["metadata"]["uid"] != pod["metadata"]["uid"]:
            return
        self._delete_pod(current, 0)

    def _delete_namespace(self, obj: Object) -> Object:
        name = obj["metadata"]["name"]
        for shelf, r in BY_STORE.items():
            if r.namespaced:
                for o in self.store.all(shelf, name):
                    self.delete(shelf, o, "Background", 0 if shelf == "pods" else None)
        status = {**obj.get("status", {}), "phase": "Terminating"}
        now = self.store.clock.now()
        marked = self.store.touch(
            "namespaces", obj, status, deletionTimestamp=now, finalizers=["kubernetes"]
        )
        self.cluster.later(0.05, ("namespace", name), self._namespace_empty, name)
        return marked

    def _namespace_empty(self, name: str) -> None:
        left = [
            s
            for s, r in BY_STORE.items()
            if r.namespaced and s != "events" and self.store.all(s, name)
        ]
        if left:
            self.cluster.later(0.05, ("namespace", name), self._namespace_empty, name)
        elif self.store.get("namespaces", "", name):
            for e in self.store.all("events", name):
                self.store.remove("events", name, e["metadata"]["name"])
            self.store.remove("namespaces", "", name)

    def _owner_gone(self, uid: str) -> None:
        for shelf, namespace, name in sorted(self.dependents.pop(uid, set())):
            obj = self.store.get(shelf, namespace, name)
            if obj is None:
                continue
            refs = obj["metadata"].get("ownerReferences") or []
            others = [o for o in refs if o["uid"] != uid and self._lives(o["uid"])]
            if others:
                self.store.touch(shelf, obj, ownerReferences=others)
                continue
            finalizers = obj["metadata"].get("finalizers") or []
            if TRACKING in finalizers:
                left = [f for f in finalizers if f != TRACKING] or None
                obj = self.store.touch(shelf, obj, finalizers=left)
            if self.store.get(shelf, namespace, name) is not None:
                self.delete(shelf, obj, "Background")

    def _lives(self, uid: str) -> bool:
        return any(
            o["metadata"]["uid"] == uid
            for s in ("jobs.batch", "jobsets.jobset.x-k8s.io", "pods")
            for o in self.store.each(s)
        )

    def _policy(self, key: tuple[str, str, str]) -> None:
        """Handle a waiting owner: free its dependents (orphan) or delete them (foreground)."""
        obj = self.store.get(*key)
        if obj is None:
            return
        meta = obj["metadata"]
        finalizers = meta.get("finalizers") or []
        for shelf, namespace, name in sorted(self.dependents.get(meta["uid"], set())):
            child = self.store.get(shelf, namespace, name)
            if child is None:
                continue
            held = TRACKING in (child["metadata"].get("finalizers") or [])
            if held and ("orphan" in finalizers or "deletionTimestamp" in child["metadata"]):
                left = [f for f in child["metadata"]["finalizers"] if f != TRACKING] or None
                child = self.store.touch(shelf, child, finalizers=left)
            if "orphan" in finalizers:
                refs = [o for o in child["metadata"]["ownerReferences"] if o["uid"] != meta["uid"]]
                self.store.touch(shelf, child, ownerReferences=refs or None)
            elif "deletionTimestamp" not in child["metadata"]:
                has_own = shelf == "jobs.batch" and self.dependents.get(child["metadata"]["uid"])
                self.delete(shelf, child, "Foreground" if has_own else "Background")
                self.cluster.soon(("policy", meta["uid"]), self._policy, key)
        self._settle(meta["uid"])

    def _settle(self, uid: str) -> None:
        """Delete an owner that waited for its dependents, once it has none."""
        if self.dependents.get(uid):
            return
        for shelf in ("jobs.batch", "jobsets.jobset.x-k8s.io"):
            for obj in self.store.each(shelf):
                meta = obj["metadata"]
                if meta["uid"] == uid and set(meta.get("finalizers") or []) & set(WAITING):
                    left = [f for f in meta["finalizers"] if f not in WAITING] or None
                    if left is None:  # the DELETED event still shows this finalizer
                        self.store.remove(shelf, meta["namespace"], meta["name"])
                    else:
                        self.store.touch(shelf, obj, finalizers=left)

    def ttl(self, job: Object) -> None:
        """Delete a Job that has just finished when its time to live is over."""
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        if seconds is None:
            return
        meta = job["metadata"]
        self.cluster.later(
            seconds * self.cluster.options.user_time_scale,
            ("ttl", meta["uid"]),
            self._ttl_over,
            meta["namespace"],
            meta["name"],
            meta["uid"],
        )

    def _ttl_over(self, namespace: str, name: str, uid: str) -> None:
        job = self.store.get("jobs.batch", namespace, name)
        if job is not None and job["metadata"]["uid"] == uid:
            self.delete("jobs.batch", job, "Foreground")
