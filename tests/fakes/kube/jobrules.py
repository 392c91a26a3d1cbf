"""The Job controller's rules: pure functions of a Job and its pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from .garbage import TRACKING
from .store import parsed

if TYPE_CHECKING:
    from .jobs import View

Object = dict[str, Any]
INDEX = "batch.kubernetes.io/job-completion-index"
FAILURES = "batch.kubernetes.io/job-index-failure-count"
EXCEEDED = ("FailureTarget", "BackoffLimitExceeded", "Job has reached the specified backoff limit")


def finished_condition(job: Object) -> Optional[Object]:
    """Return the condition that says that a Job has ended, or None while it runs."""
    for c in job["status"].get("conditions") or []:
        if c["type"] in ("Complete", "Failed") and c["status"] == "True":
            found: Object = c
            return found
    return None


def set_condition(
    conditions: list[Object], kind: str, value: str, reason: str, message: str, now: str
) -> None:
    """Add a condition or change the one of this type; the same values change nothing."""
    for i, c in enumerate(conditions):
        if c["type"] == kind:
            if c["status"] != value:
                conditions[i] = _condition(kind, value, reason, message, now)
            return
    conditions.append(_condition(kind, value, reason, message, now))


def _condition(kind: str, value: str, reason: str, message: str, now: str) -> Object:
    return {
        "type": kind,
        "status": value,
        "lastProbeTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }


def index_of(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, "-1"))


def parse_indexes(text: str) -> set[int]:
    """``0,2-4`` → {0, 2, 3, 4}."""
    out: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        out |= set(range(int(first), int(last or first) + 1))
    return out


def spell_indexes(indexes: set[int]) -> str:
    """{0, 2, 3, 4} → ``0,2-4``; two neighbours stay separate, as in ``0,1``."""
    parts: list[str] = []
    run: list[int] = []
    for i in [*sorted(indexes), -1]:
        if run and i != run[-1] + 1:
            whole = len(run) > 2
            parts += [f"{run[0]}-{run[-1]}"] if whole else [str(r) for r in run]
            run = []
        run.append(i)
    return ",".join(parts)


def containers_of(pod: Object) -> list[Object]:
    status = pod["status"]
    return (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or [])


def failure_action(policy: Object, pod: Object) -> tuple[str, str]:
    """Return (action, message) of the first podFailurePolicy rule that a failed pod matches."""
    where = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    for i, rule in enumerate(policy.get("rules") or []):
        codes = rule.get("onExitCodes")
        for c in containers_of(pod) if codes else []:
            code = ((c.get("state") or {}).get("terminated") or {}).get("exitCode", 0)
            if code == 0 or codes.get("containerName", c["name"]) != c["name"]:
                continue
            if (code in codes["values"]) == (codes["operator"] == "In"):
                return rule["action"], (
                    f"Container {c['name']} for pod {where} failed with exit code {code} matching "
                    f"{rule['action']} rule at index {i}"
                )
        for wanted in rule.get("onPodConditions") or []:
            for c in pod["status"].get("conditions") or []:
                if (c["type"], c["status"]) == (wanted["type"], wanted.get("status", "True")):
                    return rule["action"], (
                        f"Pod {where} has condition {c['type']} matching {rule['action']} rule at index {i}"
                    )
    return "Count", ""


def restarts(pods: list[Object]) -> int:
    return sum(
        c.get("restartCount", 0)
        for p in pods
        if p["status"].get("phase") in ("Pending", "Running")
        for c in containers_of(p)
    )


def verdict(
    job: Object, status: Object, view: View, newly_failed: int, active_s: float, scale: float
) -> Optional[tuple[str, str, str]]:
    """Return (condition, reason, message) if a Job is to end, else None."""
    spec = job["spec"]
    failed = status.get("failed", 0) + newly_failed
    if spec.get("backoffLimitPerIndex") is None and newly_failed and failed > spec["backoffLimit"]:
        return EXCEEDED
    if spec["template"]["spec"].get("restartPolicy") == "OnFailure":
        n = restarts(view.active)
        if n and n >= max(1, spec["backoffLimit"]):
            return EXCEEDED
    deadline = spec.get("activeDeadlineSeconds")
    timed = deadline is not None and "startTime" in status and not spec["suspend"]
    if timed and active_s >= deadline * scale:
        return (
            "FailureTarget",
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        )
    done = parse_indexes(status.get("completedIndexes") or "")
    if spec.get("backoffLimitPerIndex") is not None:
        lost = parse_indexes(status.get("failedIndexes") or "")
        most = spec.get("maxFailedIndexes")
        if most is not None and len(lost) > most:
            return (
                "FailureTarget",
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes",
            )
        if lost and len(lost | done) >= spec["completions"]:
            return ("FailureTarget", "FailedIndexes", "Job has failed indexes")
    for i, rule in enumerate((spec.get("successPolicy") or {}).get("rules") or []):
        wanted = parse_indexes(rule["succeededIndexes"]) if rule.get("succeededIndexes") else None
        got = len(done & wanted) if wanted is not None else len(done)
        need = rule.get("succeededCount") or (len(wanted) if wanted is not None else 1)
        if got >= need:
            return ("SuccessCriteriaMet", "SuccessPolicy", f"Matched rules at index {i}")
    return _completed(spec, status, view)


def _completed(spec: Object, status: Object, view: View) -> Optional[tuple[str, str, str]]:
    met = ("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
    succeeded = status.get("succeeded", 0) + (0 if view.indexed else len(view.new_succeeded))
    completions = spec.get("completions")
    if completions is None:  # a work queue: done when one pod has succeeded and none is left
        return met if succeeded and not view.active and not view.terminating else None
    return met if succeeded >= completions else None


def wanted_active(spec: Object, status: Object, view: View) -> int:
    """Return how many pods should run."""
    succeeded = status.get("succeeded", 0) + (0 if view.indexed else len(view.new_succeeded))
    completions = spec.get("completions")
    if completions is None:
        return len(view.active) if succeeded else int(spec["parallelism"])
    left = completions - succeeded
    if view.indexed:
        left -= len(parse_indexes(status.get("failedIndexes") or ""))
    return int(max(0, min(spec["parallelism"], left)))


def finish_time(pod: Object) -> float:
    """When a pod ended, for the backoff: its containers' end, or Ready=False, or its deletion."""
    ends = [
        c["state"]["terminated"]["finishedAt"]
        for c in pod["status"].get("containerStatuses") or []
        if (c.get("state") or {}).get("terminated", {}).get("finishedAt")
    ]
    if ends:
        return max(map(parsed, ends))
    for c in pod["status"].get("conditions") or []:
        if c["type"] == "Ready" and c["status"] == "False":
            return parsed(c["lastTransitionTime"])
    meta = pod["metadata"]
    if "deletionTimestamp" in meta:
        return parsed(meta["deletionTimestamp"]) - float(meta.get("deletionGracePeriodSeconds", 0))
    return parsed(meta["creationTimestamp"])


def next_indexes(spec: Object, status: Object, view: View, n: int) -> list[Optional[int]]:
    """Return the completion indexes to start next, or None for each pod of a plain Job."""
    if not view.indexed:
        return [None] * n
    taken = {index_of(p) for p in view.active}
    if spec["podReplacementPolicy"] == "Failed":
        taken |= {index_of(p) for p in view.terminating}
    taken |= parse_indexes(status.get("completedIndexes") or "")
    taken |= parse_indexes(status.get("failedIndexes") or "")
    free: list[Optional[int]] = []
    for i in range(spec["completions"]):
        if len(free) == n:
            break
        if i not in taken:
            free.append(i)
    return free


def pod_of(job: Object, view: View, index: Optional[int]) -> Object:
    """Return the Pod that a Job creates next."""
    meta, template = job["metadata"], job["spec"]["template"]
    inner = template.get("metadata") or {}
    labels, annotations = dict(inner.get("labels") or {}), dict(inner.get("annotations") or {})
    spec = dict(template["spec"])
    stem = meta["name"]
    if index is not None:
        labels[INDEX] = annotations[INDEX] = str(index)
        stem = f"{stem}-{index}"
        spec.setdefault("hostname", stem)
        env = {
            "name": "JOB_COMPLETION_INDEX",
            "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}},
        }
        for kind in ("initContainers", "containers"):
            if spec.get(kind):
                spec[kind] = [
                    c
                    if any(e["name"] == env["name"] for e in c.get("env") or [])
                    else {**c, "env": [*(c.get("env") or []), env]}
                    for c in spec[kind]
                ]
        if job["spec"].get("backoffLimitPerIndex") is not None:
            before = [
                p
                for p in view.pods
                if index_of(p) == index and p["status"].get("phase") == "Failed"
            ]
            annotations[FAILURES] = str(len(before))
    out_meta: Object = {
        "generateName": f"{stem}-",
        "namespace": meta["namespace"],
        "labels": dict(sorted(labels.items())),
        "ownerReferences": [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
        "finalizers": [TRACKING],
    }
    if annotations:
        out_meta["annotations"] = annotations
    return {"kind": "Pod", "apiVersion": "v1", "metadata": out_meta, "spec": spec}
