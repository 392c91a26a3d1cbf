"""Create, replace, patch and delete: what happens between a checked body and the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import defaults, errors, schema, validate
from .errors import ApiError, Cause
from .store import dump

if TYPE_CHECKING:
    from .api import Call
    from .cluster import Cluster

Object = dict[str, Any]
WITH_GENERATION = ("Job", "Pod", "JobSet", "PodDisruptionBudget", "EndpointSlice")
ORPHANS = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
    "remove them or set propagationPolicy=Orphan to suppress this warning"
)
ONE_MIB = 1024 * 1024
MOST_BYTES = 3 * ONE_MIB // 2  # etcd's limit for one object


def create(cluster: Cluster, call: Call) -> tuple[Object, list[str]]:
    """Handle a POST; return (the new object, warnings)."""
    r = call.resource
    body = call.body()
    clean, warnings = schema.check(body, r.group, r.version, r.kind, call.validation)
    meta = dict(clean.get("metadata") or {})
    if r.namespaced:
        if meta.get("namespace", call.namespace) != call.namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if cluster.store.get("namespaces", "", call.namespace) is None:
            raise errors.not_found("namespaces", "", call.namespace)
        meta["namespace"] = call.namespace
    made, more = insert(cluster, r.store, {**clean, "metadata": meta}, call.dry, clean)
    return made, [*warnings, *more]


def insert(
    cluster: Cluster, shelf: str, obj: Object, dry: bool = False, checked: Any = None
) -> tuple[Object, list[str]]:
    """Complete, validate, admit and store an object, from a client or a controller."""
    from .resources import BY_STORE

    r = BY_STORE[shelf]
    store = cluster.store
    meta = {
        k: v
        for k, v in obj["metadata"].items()
        if k not in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
        and not (k == "namespace" and not r.namespaced)
    }
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = meta["generateName"][:58] + store.suffix()
    meta["uid"] = store.uid()
    if r.kind in WITH_GENERATION:
        meta["generation"] = 1
    meta["creationTimestamp"] = store.clock.now()
    obj, causes, warnings = complete(cluster, r.kind, {**obj, "metadata": meta})
    if causes:
        raise errors.invalid(r.kind, r.group, obj["metadata"].get("name") or "", causes)
    if checked is not None:
        schema.check_again({**checked, "metadata": _without(checked.get("metadata") or {})})
    if store.get(shelf, meta.get("namespace", ""), meta["name"]) is not None:
        raise errors.already_exists(r.plural, r.group, meta["name"])
    cluster.quota.admit(r, obj)
    if checked is not None and len(dump(obj)) > MOST_BYTES:
        # The real server retries with the object that its first try completed, and refuses that.
        why = "Invalid value: {}: `selector` not auto-generated"
        raise errors.invalid(
            r.kind, r.group, meta["name"], [("FieldValueInvalid", why, "spec.selector")]
        )
    return (obj if dry else store.create(shelf, obj)), warnings


def _without(meta: Object) -> Object:
    return {k: v for k, v in meta.items() if k not in ("creationTimestamp", "managedFields")}


def complete(cluster: Cluster, kind: str, obj: Object) -> tuple[Object, list[Cause], list[str]]:
    """Return (object with defaults, why it is invalid, warnings)."""
    if kind == "Job":
        done = defaults.job(obj)
        return (done, *validate.job(done))
    causes = validate.metadata(obj["metadata"])
    warnings: list[str] = []
    if kind == "Pod":
        obj = defaults.pod(obj)
        obj = cluster.scheduler.with_priority(obj)
        obj = cluster.kubelets.with_token(obj)
        more, warnings = validate.pod_spec(obj["spec"], "spec")
        causes = causes + more
    elif kind == "Service":
        obj = defaults.service(obj)
    elif kind == "Secret":
        obj = defaults.secret(obj)
    elif kind == "Namespace":
        obj = {**obj, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    elif kind in ("ResourceQuota", "JobSet"):
        if kind == "JobSet":
            validate.jobset(obj)
        obj = {**obj, "status": {}}
    elif kind == "PriorityClass":
        obj = {"preemptionPolicy": "PreemptLowerPriority", **obj}
    elif kind == "PodDisruptionBudget":
        zero = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
        obj = {**obj, "status": dict.fromkeys(zero, 0)}
    if kind in ("ConfigMap", "Secret"):
        size = sum(len(k) + len(v) for k, v in (obj.get("data") or {}).items())
        if size > ONE_MIB:
            why = f"Too long: may not be more than {ONE_MIB} bytes"
            causes = [*causes, ("FieldValueTooLong", why, "[]" if kind == "ConfigMap" else "data")]
    return obj, causes, warnings


def replace(cluster: Cluster, call: Call) -> tuple[Object, list[str]]:
    """Handle a PUT: replace the whole object, or its status."""
    r = call.resource
    clean, warnings = schema.check(call.body(), r.group, r.version, r.kind, call.validation)
    old = cluster.store.need(r.store, call.namespace, call.name)
    new, more = change(cluster, call, old, clean)
    return new, [*warnings, *more]


def change(cluster: Cluster, call: Call, old: Object, new: Object) -> tuple[Object, list[str]]:
    """Store ``new`` in place of ``old`` as far as that is allowed. Raises 409 and 422."""
    r, store = call.resource, cluster.store
    asked = (new.get("metadata") or {}).get("resourceVersion")
    if asked and asked != old["metadata"]["resourceVersion"]:
        raise errors.conflict(r.plural, r.group, call.name, errors.MODIFIED)
    meta = {**old["metadata"]}
    for key in ("labels", "annotations", "finalizers", "ownerReferences"):
        meta.pop(key, None)
        if (new.get("metadata") or {}).get(key):
            meta[key] = new["metadata"][key]
    if call.sub == "status":
        out = {**old, "status": new.get("status") or {}}
        return (out if call.dry else store.update(r.store, out)), []
    out = {**new, "kind": r.kind, "apiVersion": r.api_version, "metadata": meta}
    if "status" in old:
        out["status"] = old["status"]
    warnings: list[str] = []
    causes: list[Cause] = validate.labels(meta.get("labels") or {}, "metadata.labels")
    if r.kind == "Job":
        out["spec"] = defaults.job({**out, "metadata": meta})["spec"]
        causes += validate.job(out)[0] or job_update(old, out)
    elif r.kind in ("ConfigMap", "Secret"):
        out = defaults.secret(out) if r.kind == "Secret" else out
        if old.get("immutable") and {k: old.get(k) for k in ("data", "binaryData")} != {
            k: out.get(k) for k in ("data", "binaryData")
        }:
            causes.append(
                (
                    "FieldValueForbidden",
                    "Forbidden: field is immutable when `immutable` is set",
                    "data",
                )
            )
    elif r.kind == "Pod" and out["spec"] != old["spec"]:
        causes.append(
            (
                "FieldValueForbidden",
                "Forbidden: pod updates may not change fields other than a few",
                "spec",
            )
        )
    if causes:
        raise errors.invalid(r.kind, r.group, call.name, causes)
    if out.get("spec") != old.get("spec") and r.kind in WITH_GENERATION:
        out["metadata"] = {**meta, "generation": meta.get("generation", 1) + 1}
    return (out if call.dry else store.update(r.store, out)), warnings


MUTABLE = ("nodeSelector", "tolerations", "affinity", "schedulingGates")


def job_update(old: Object, new: Object) -> list[Cause]:
    """Return causes for changed fields of a Job that can't change.

    A suspended Job that never started may change its scheduling.
    """
    causes: list[Cause] = []
    was, now = old["spec"], new["spec"]
    indexed = was["completionMode"] == "Indexed" and now.get("completions") == now.get(
        "parallelism"
    )
    if was.get("completions") != now.get("completions") and not indexed:
        causes.append(
            validate.bad(now.get("completions"), "field is immutable", "spec.completions")
        )
    for field in (
        "selector",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
    ):
        if was.get(field) != now.get(field):
            causes.append(validate.bad(now.get(field), "field is immutable", f"spec.{field}"))
    loose = bool(was.get("suspend")) and "startTime" not in old["status"]

    def fixed(template: Object) -> Object:
        spec = dict(template["spec"])
        if loose:
            for key in MUTABLE:
                spec.pop(key, None)
            for kind in ("containers", "initContainers"):
                spec[kind] = [{**c, "resources": None} for c in spec.get(kind) or []]
        return spec

    if fixed(was["template"]) != fixed(now["template"]):
        field = "spec.template.spec" if loose else "spec.template"
        field = (
            "spec.template.spec" if was["template"]["spec"] != now["template"]["spec"] else field
        )
        causes.append(validate.bad({}, "field is immutable", field))
    return causes


def delete(cluster: Cluster, call: Call) -> tuple[Object, list[str]]:
    """Handle a DELETE; return (answer, warnings). The policy comes from the body or the query."""
    options: Object = {}
    if call.request.body:
        options = schema.read(
            call.request.body, call.request.headers.get("content-type", ""), "DeleteOptions"
        )
    for key in ("propagationPolicy", "gracePeriodSeconds"):
        if key in call.query:
            options.setdefault(key, call.query[key])
    r = call.resource
    obj = cluster.store.need(r.store, call.namespace, call.name)
    wanted = options.get("preconditions") or {}
    meta = obj["metadata"]
    if wanted.get("uid", meta["uid"]) != meta["uid"]:
        raise errors.conflict(
            r.kind,
            r.group,
            call.name,
            f"the UID in the precondition ({wanted['uid']}) does not match the UID in record "
            f"({meta['uid']}). The object might have been deleted and then recreated",
        )
    if wanted.get("resourceVersion", meta["resourceVersion"]) != meta["resourceVersion"]:
        raise errors.conflict(r.plural, r.group, call.name, errors.MODIFIED)
    policy, warnings = options.get("propagationPolicy"), []
    if options.get("orphanDependents") is not None and policy is None:
        policy = "Orphan" if options["orphanDependents"] else "Background"
    if policy not in (None, "Orphan", "Background", "Foreground"):
        raise errors.invalid(
            "DeleteOptions",
            "meta.k8s.io",
            "",
            [
                (
                    "FieldValueNotSupported",
                    f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan"',
                    "propagationPolicy",
                )
            ],
        )
    if policy is None and r.kind == "Job":
        policy, warnings = "Orphan", [ORPHANS]
    if call.dry:
        return obj, warnings
    grace = options.get("gracePeriodSeconds")
    gone = cluster.garbage.delete(
        r.store, obj, policy or "Background", None if grace is None else int(grace)
    )
    if gone is None:
        details = errors.details_of(call.name, r.group, r.plural)
        return errors.success({**details, "uid": meta["uid"]}), warnings
    return gone, warnings


def evict(cluster: Cluster, namespace: str, name: str, body: Object) -> Object:
    """Evict a pod, with a condition; 429 if a disruption budget forbids it."""
    from .selectors import labels_of, matches_labels

    store = cluster.store
    pod = store.need("pods", namespace, name)
    for budget in store.all("poddisruptionbudgets.policy", namespace):
        selector = (budget.get("spec") or {}).get("selector") or {}
        least = (budget.get("spec") or {}).get("minAvailable")
        if least is None or not matches_labels(labels_of(pod), selector):
            continue
        healthy = sum(
            1
            for p in store.all("pods", namespace)
            if matches_labels(labels_of(p), selector) and cluster.kubelets.ready(p)
        )
        if healthy - 1 < int(least):
            raise ApiError(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
                {
                    "causes": [
                        {
                            "reason": "DisruptionBudget",
                            "message": f"The disruption budget {budget['metadata']['name']} needs "
                            f"{least} healthy pods and has {healthy} currently",
                        }
                    ]
                },
            )
    disrupt(cluster, pod, "EvictionByEvictionAPI", "Eviction API: evicting")
    grace = (body.get("deleteOptions") or {}).get("gracePeriodSeconds")
    cluster.garbage.delete("pods", store.need("pods", namespace, name), "Background", grace)
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def disrupt(cluster: Cluster, pod: Object, reason: str, message: str) -> Object:
    """Set the condition DisruptionTarget, which comes before a pod is taken away."""
    now = cluster.store.clock.now()
    status = dict(pod["status"])
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
    others = [c for c in status.get("conditions") or [] if c["type"] != "DisruptionTarget"]
    status["conditions"] = [*others, condition]
    return cluster.store.touch("pods", pod, status)
