"""The Job controller: pods for Jobs, counts from pods, conditions from counts.

It writes in the same order as the real controller: first ``FailureTarget`` or
``SuccessCriteriaMet`` and the uncounted pods, then the pods' finalizers, then the counters, and
``Failed`` or ``Complete`` once no pod is still ending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from . import jobrules, writes
from .errors import ApiError
from .garbage import TRACKING
from .jobrules import finished_condition, index_of, parse_indexes, spell_indexes
from .store import Change

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]
END = {"FailureTarget": "Failed", "SuccessCriteriaMet": "Complete"}


class View:
    """A snapshot of a Job and its pods; pods that ended and aren't counted yet are new."""

    def __init__(self, job: Object, pods: list[Object]) -> None:
        self.job = job
        self.spec = job["spec"]
        self.status = job["status"]
        self.pods = pods
        self.indexed = self.spec["completionMode"] == "Indexed"
        early = self.spec["podReplacementPolicy"] == "TerminatingOrFailed"
        uncounted = self.status.get("uncountedTerminatedPods") or {}
        known = set(uncounted.get("succeeded") or []) | set(uncounted.get("failed") or [])
        self.active: list[Object] = []
        self.terminating: list[Object] = []
        self.new_succeeded: list[Object] = []
        self.new_failed: list[Object] = []
        for p in pods:
            phase, going = p["status"].get("phase"), "deletionTimestamp" in p["metadata"]
            ended = phase in ("Succeeded", "Failed")
            fresh = (
                TRACKING in (p["metadata"].get("finalizers") or [])
                and p["metadata"]["uid"] not in known
            )
            if not ended:
                (self.terminating if going else self.active).append(p)
            if fresh and phase == "Succeeded":
                self.new_succeeded.append(p)
            elif fresh and (phase == "Failed" or (going and not ended and early)):
                self.new_failed.append(p)

    @property
    def ready(self) -> int:
        def is_ready(p: Object) -> bool:
            conditions = p["status"].get("conditions") or []
            return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

        return sum(is_ready(p) for p in self.active)


class Jobs:
    """Controls all Jobs of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.store = cluster.store
        self.owned: dict[str, dict[str, str]] = {}  # job uid → {pod uid: pod name}
        self.create_failures: dict[str, int] = {}
        self.started: dict[
            str, float
        ] = {}  # job uid → exact startTime; the Job's own has whole seconds only
        self.failures: dict[
            str, tuple[int, float]
        ] = {}  # job uid → (failures in a row, time of the last one)
        self.store.listen("jobs.batch", self._job_heard)
        self.store.listen("pods", self._pod_heard)

    def _job_heard(self, change: Change) -> None:
        meta = change.obj["metadata"]
        if change.type == "DELETED":
            self.owned.pop(meta["uid"], None)
            return
        spec_changed = change.old is None or change.old["spec"] != change.obj["spec"]
        if spec_changed:
            self.cluster.soon(("job", meta["uid"]), self.sync, meta["namespace"], meta["name"])

    def _pod_heard(self, change: Change) -> None:
        meta = change.obj["metadata"]
        for owner in meta.get("ownerReferences") or []:
            if owner["kind"] != "Job" or not owner.get("controller"):
                continue
            pods = self.owned.setdefault(owner["uid"], {})
            if change.type == "DELETED":
                pods.pop(meta["uid"], None)
            else:
                pods[meta["uid"]] = meta["name"]
            if change.type != "ADDED":  # the real controller batches pod changes for a second
                wait = self.cluster.scaled(1)
                self.cluster.later(
                    wait, ("job", owner["uid"]), self.sync, meta["namespace"], owner["name"]
                )

    def pods_of(self, job: Object) -> list[Object]:
        namespace = job["metadata"]["namespace"]
        found = [
            self.store.get("pods", namespace, name)
            for name in self.owned.get(job["metadata"]["uid"], {}).values()
        ]
        return [p for p in found if p is not None]

    def sync(self, namespace: str, name: str) -> None:
        """Bring one Job up to date."""
        job = self.store.get("jobs.batch", namespace, name)
        if (
            job is None
            or job["spec"].get("managedBy", "kubernetes.io/job-controller")
            != "kubernetes.io/job-controller"
        ):
            return
        ended = finished_condition(job)
        if ended:
            self.garbage_left(job)
            return
        view = View(job, self.pods_of(job))
        if "deletionTimestamp" in job["metadata"]:
            self._going(job, view)
            return
        status = dict(job["status"])
        started = "startTime" in status
        if not started and not job["spec"]["suspend"]:
            status["startTime"] = self.store.clock.now()
            self.started[job["metadata"]["uid"]] = self.store.clock.time()
            deadline = job["spec"].get("activeDeadlineSeconds")
            if deadline is not None:
                wait = deadline * self.cluster.options.user_time_scale
                self.cluster.later(
                    wait + 0.01, ("deadline", job["metadata"]["uid"]), self.sync, namespace, name
                )
        self._step(job, view, status)

    def _going(self, job: Object, view: View) -> None:
        """Handle a Job being deleted: release its ending pods; count and judge nothing."""
        for p in view.terminating:
            self._untrack(p)
        counts = {
            "active": len(view.active),
            "terminating": len(view.terminating),
            "ready": view.ready,
        }
        self._write(job, {**job["status"], **counts})

    def garbage_left(self, job: Object) -> None:
        for p in self.pods_of(job):
            self._untrack(p)

    def _untrack(self, pod: Object) -> None:
        finalizers = pod["metadata"].get("finalizers") or []
        if TRACKING in finalizers:
            left = [f for f in finalizers if f != TRACKING] or None
            self.store.touch("pods", pod, finalizers=left)

    def _step(self, job: Object, view: View, status: Object) -> None:
        spec = job["spec"]
        conditions = list(status.get("conditions") or [])
        if job["spec"].get("backoffLimitPerIndex") is None:
            self._note_ends(job, view)
        ignored = self._judge_failures(job, view, conditions)
        counted_failed = [p for p in view.new_failed if p["metadata"]["uid"] not in ignored]
        if spec["suspend"]:  # pods that the suspension deleted haven't failed
            counted_failed = [p for p in counted_failed if "deletionTimestamp" not in p["metadata"]]
        if view.indexed:
            self._note_indexes(status, view, counted_failed)
        self._judge_end(job, view, status, conditions, counted_failed)
        target = next((c for c in conditions if c["type"] in END and c["status"] == "True"), None)
        if (
            target and target["type"] == "SuccessCriteriaMet"
        ):  # pods that the Job's success deleted haven't failed
            counted_failed = [p for p in counted_failed if "deletionTimestamp" not in p["metadata"]]
        active, terminating = len(view.active), len(view.terminating)
        if target:
            terminating += self._stop(job, view.active)
            active = 0
        elif spec["suspend"]:
            stopped = self._stop(job, view.active)
            terminating, active = terminating + stopped, 0
            if self._suspended(job, conditions, True):
                status.pop("startTime", None)
        else:
            if any(c["type"] == "Suspended" for c in conditions):
                self._suspended(job, conditions, False)
            active += self._manage(job, view, status)
        if conditions:
            status["conditions"] = conditions
        status["active"] = active
        status["terminating"] = terminating
        status["ready"] = 0 if target or spec["suspend"] else view.ready
        self._count(job, view, status, counted_failed, target)

    def _suspended(self, job: Object, conditions: list[Object], yes: bool) -> bool:
        """Set the condition Suspended and record an event. Return whether it changed."""
        reason, value = ("JobSuspended", "True") if yes else ("JobResumed", "False")
        old = next((c["status"] for c in conditions if c["type"] == "Suspended"), None)
        if old == value:
            return False
        said = "Job suspended" if yes else "Job resumed"
        now = self.store.clock.now()
        jobrules.set_condition(conditions, "Suspended", value, reason, said, now)
        kind = "Suspended" if yes else "Resumed"
        self.cluster.event(job, "Normal", kind, said, "job-controller")
        return True

    def _count(
        self,
        job: Object,
        view: View,
        status: Object,
        failed: list[Object],
        target: Optional[Object],
    ) -> None:
        """Write twice, with the pods' finalizers in between, so that each pod counts once."""
        succeeded = [] if view.indexed else view.new_succeeded
        uncounted: Object = {}
        if succeeded:
            uncounted["succeeded"] = [p["metadata"]["uid"] for p in succeeded]
        if failed:
            uncounted["failed"] = [p["metadata"]["uid"] for p in failed]
        status["uncountedTerminatedPods"] = uncounted
        job = self._write(job, status)
        fresh = view.new_succeeded + view.new_failed
        for p in fresh:
            current = self.store.get("pods", p["metadata"]["namespace"], p["metadata"]["name"])
            if current is not None and current["metadata"]["uid"] == p["metadata"]["uid"]:
                self._untrack(current)
        status = {**status, "uncountedTerminatedPods": {}}
        if succeeded:
            status["succeeded"] = status.get("succeeded", 0) + len(succeeded)
        if failed:
            status["failed"] = status.get("failed", 0) + len(failed)
        if target and not status["terminating"] and not status.get("active"):
            now = self.store.clock.now()
            done = {
                **target,
                "type": END[target["type"]],
                "lastProbeTime": now,
                "lastTransitionTime": now,
            }
            status["conditions"] = [*status["conditions"], done]
            if done["type"] == "Complete":
                status["completionTime"] = now
        if (
            self.store.get("jobs.batch", job["metadata"]["namespace"], job["metadata"]["name"])
            is None
        ):
            return
        ended = len(status.get("conditions") or []) > len(job["status"].get("conditions") or [])
        if ended and not fresh and status["terminating"] != job["status"].get("terminating"):
            job = self._write(job, {**status, "conditions": job["status"]["conditions"]})
        job = self._write(job, status)
        if ended:
            self._ended(job)

    def _ended(self, job: Object) -> None:
        done = job["status"]["conditions"][-1]
        if done["type"] == "Failed":
            self.cluster.event(job, "Warning", done["reason"], done["message"], "job-controller")
        else:
            self.cluster.event(job, "Normal", "Completed", "Job completed", "job-controller")
        self.cluster.garbage.ttl(job)
        self.garbage_left(job)

    def _write(self, job: Object, status: Object) -> Object:
        order = (
            "conditions",
            "startTime",
            "completionTime",
            "active",
            "succeeded",
            "failed",
            "terminating",
            "completedIndexes",
            "failedIndexes",
            "uncountedTerminatedPods",
            "ready",
        )
        zero = ("active", "succeeded", "failed")
        clean = {k: status[k] for k in order if k in status and (status[k] or k not in zero)}
        if clean.get("completedIndexes") == "":
            del clean["completedIndexes"]
        return self.store.touch("jobs.batch", job, clean)

    def _judge_failures(self, job: Object, view: View, conditions: list[Object]) -> set[str]:
        """Return uids of failed pods that don't count (Ignore); FailJob sets the condition."""
        ignored: set[str] = set()
        policy = job["spec"].get("podFailurePolicy")
        for p in view.new_failed if policy else []:
            action, message = jobrules.failure_action(policy, p)
            if action == "Ignore":
                ignored.add(p["metadata"]["uid"])
            elif action == "FailJob" and not any(c["type"] in END for c in conditions):
                jobrules.set_condition(
                    conditions,
                    "FailureTarget",
                    "True",
                    "PodFailurePolicy",
                    message,
                    self.store.clock.now(),
                )
        return ignored

    def _note_indexes(self, status: Object, view: View, failed: list[Object]) -> None:
        """Update completedIndexes and failedIndexes; ``succeeded`` counts the completed ones."""
        done = parse_indexes(status.get("completedIndexes") or "")
        top = view.spec.get("completions") or 0
        done |= {i for i in map(index_of, view.new_succeeded) if 0 <= i < top}
        status["completedIndexes"] = spell_indexes(done)
        status["succeeded"] = len(done)
        limit = view.spec.get("backoffLimitPerIndex")
        if limit is None:
            return
        lost = parse_indexes(status.get("failedIndexes") or "")
        policy = view.spec.get("podFailurePolicy")
        for p in failed:
            count = int((p["metadata"].get("annotations") or {}).get(jobrules.FAILURES, "0"))
            forced = policy and jobrules.failure_action(policy, p)[0] == "FailIndex"
            if (forced or count >= limit) and index_of(p) not in done:
                lost.add(index_of(p))
        status["failedIndexes"] = spell_indexes(lost)

    def _judge_end(
        self,
        job: Object,
        view: View,
        status: Object,
        conditions: list[Object],
        failed: list[Object],
    ) -> None:
        """Set FailureTarget or SuccessCriteriaMet once it is due."""
        if any(c["type"] in END and c["status"] == "True" for c in conditions):
            return
        now = self.store.clock.now()
        verdict = jobrules.verdict(
            job,
            status,
            view,
            len(failed),
            self.store.clock.time()
            - self.started.get(job["metadata"]["uid"], self.store.clock.time()),
            self.cluster.options.user_time_scale,
        )
        if verdict:
            kind, reason, message = verdict
            jobrules.set_condition(conditions, kind, "True", reason, message, now)

    def _stop(self, job: Object, pods: list[Object]) -> int:
        """Delete pods of a Job that ends or is suspended. Return how many are still ending."""
        for p in pods:
            self.cluster.garbage.delete("pods", p, "Background")
            name = p["metadata"]["name"]
            self.cluster.event(
                job, "Normal", "SuccessfulDelete", f"Deleted pod: {name}", "job-controller"
            )
        return len(pods)

    def _manage(self, job: Object, view: View, status: Object) -> int:
        """Create or delete pods towards ``parallelism``. Return the change in active pods."""
        spec, uid = job["spec"], job["metadata"]["uid"]
        wanted = jobrules.wanted_active(spec, status, view)
        if len(view.active) > wanted:
            extra = view.active[wanted:]
            self._stop(job, extra)
            return -len(extra)
        missing = wanted - len(view.active)
        if spec["podReplacementPolicy"] == "Failed":
            missing -= len(view.terminating)
        if missing <= 0:
            return 0
        wait = self._backoff_left(uid)
        if wait > 0:
            meta = job["metadata"]
            self.cluster.later(
                wait + 0.001, ("backoff", uid), self.sync, meta["namespace"], meta["name"]
            )
            return 0
        made = 0
        for index in jobrules.next_indexes(spec, status, view, missing):
            if not self._create_pod(job, view, index):
                break
            made += 1
        return made

    def _note_ends(self, job: Object, view: View) -> None:
        """Track failures in a row, including those that don't count: they delay the next pod."""
        uid, now = job["metadata"]["uid"], self.store.clock.time()
        if view.new_succeeded:
            self.failures.pop(uid, None)
        for p in view.new_failed:
            row, last = self.failures.get(uid, (0, 0.0))
            at = jobrules.finish_time(p)  # whole seconds only: the time it is seen is more precise
            self.failures[uid] = (row + 1, max(last, now if now - at < 2 else at))

    def _backoff_left(self, uid: str) -> float:
        """Return the seconds until the next pod may start.

        The wait is 10 s, doubled with each failure in a row, up to 10 minutes.
        """
        row, last = self.failures.get(uid, (0, 0.0))
        if not row:
            return 0.0
        return last + self.cluster.scaled(min(10 * 2 ** (row - 1), 600)) - self.store.clock.time()

    def _create_pod(self, job: Object, view: View, index: Optional[int]) -> bool:
        meta = job["metadata"]
        pod = jobrules.pod_of(job, view, index)
        pod["metadata"]["name"] = pod["metadata"]["generateName"] + self.store.suffix()
        try:
            made, _ = writes.insert(self.cluster, "pods", pod)
        except ApiError as e:
            n = self.create_failures[meta["uid"]] = self.create_failures.get(meta["uid"], 0) + 1
            self.cluster.event(
                job, "Warning", "FailedCreate", f"Error creating: {e.message}", "job-controller"
            )
            wait = self.cluster.scaled(min(600, 2 ** (n - 1)))
            self.cluster.later(
                wait, ("retry", meta["uid"]), self.sync, meta["namespace"], meta["name"]
            )
            return False
        self.create_failures.pop(meta["uid"], None)
        self.cluster.event(
            job,
            "Normal",
            "SuccessfulCreate",
            f"Created pod: {made['metadata']['name']}",
            "job-controller",
        )
        return True

    def resync(self) -> None:
        """Check every Job again (after a pause of the controller)."""
        for job in self.store.each("jobs.batch"):
            meta = job["metadata"]
            self.cluster.soon(("job", meta["uid"]), self.sync, meta["namespace"], meta["name"])
