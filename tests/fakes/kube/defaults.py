"""The server's defaults: fields that answers have although the request left them out."""

from __future__ import annotations

from typing import Any

from .selectors import canonical

Object = dict[str, Any]
ORDER = {  # Go's order of fields; clients don't care, but it makes diffs easier to read
    "Job": (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "podFailurePolicy",
        "successPolicy",
        "backoffLimit",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
        "selector",
        "manualSelector",
        "template",
        "ttlSecondsAfterFinished",
        "completionMode",
        "suspend",
        "podReplacementPolicy",
        "managedBy",
    )
}


def _tag(image: str) -> str:
    last = image.rsplit("/", 1)[-1]
    return last.split("@")[0].partition(":")[2]


def _probe_free(c: Object) -> Object:
    c = dict(c)
    c["resources"] = {
        kind: {k: canonical(v) for k, v in sorted(found.items())}
        if isinstance(found, dict)
        else found
        for kind, found in (c.get("resources") or {}).items()
    }
    c.setdefault("terminationMessagePath", "/dev/termination-log")
    c.setdefault("terminationMessagePolicy", "File")
    if "imagePullPolicy" not in c:
        latest = _tag(c.get("image") or "") in ("", "latest") and "@" not in (c.get("image") or "")
        c["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    if c.get("env"):
        c["env"] = [_env(e) for e in c["env"]]
    if c.get("ports"):
        c["ports"] = [{**p, "protocol": p.get("protocol", "TCP")} for p in c["ports"]]
    return c


def _env(e: Object) -> Object:
    ref = (e.get("valueFrom") or {}).get("fieldRef")
    if not ref:
        return e
    return {**e, "valueFrom": {"fieldRef": {"apiVersion": "v1", **ref}}}


def _volume(v: Object) -> Object:
    v = dict(v)
    if len(v) == 1:
        v["emptyDir"] = {}
    for kind in ("configMap", "secret", "projected", "downwardAPI"):
        if isinstance(v.get(kind), dict):
            v[kind] = {**v[kind], "defaultMode": v[kind].get("defaultMode", 420)}
    if "hostPath" in v:
        v["hostPath"] = {**v["hostPath"], "type": v["hostPath"].get("type", "")}
    return v


def pod_spec(spec: Object) -> Object:
    """Complete a pod's spec as the server does, in a Job's template or in a Pod."""
    out = dict(spec)
    if out.get("volumes"):
        out["volumes"] = [_volume(v) for v in out["volumes"]]
    for field in ("initContainers", "containers"):
        if out.get(field):
            out[field] = [_probe_free(c) for c in out[field]]
    out.setdefault("restartPolicy", "Always")
    out.setdefault("terminationGracePeriodSeconds", 30)
    out.setdefault("dnsPolicy", "ClusterFirst")
    out.setdefault("securityContext", {})
    out.setdefault("schedulerName", "default-scheduler")
    if out.get("serviceAccountName"):
        out.setdefault("serviceAccount", out["serviceAccountName"])
    return out


def job(obj: Object) -> Object:
    """Complete a Job before it is stored: defaults, and selector and pod labels from its uid."""
    meta, spec = obj["metadata"], dict(obj.get("spec") or {})
    uid = meta["uid"]
    indexed = spec.get("completionMode") == "Indexed"
    if spec.get("completions") is None and spec.get("parallelism") is None and not indexed:
        spec["completions"] = spec["parallelism"] = 1
    if spec.get("parallelism") is None:
        spec["parallelism"] = 1
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = 2**31 - 1 if spec.get("backoffLimitPerIndex") is not None else 6
    for field, value in (
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("manualSelector", False),
    ):
        if spec.get(field) is None:
            spec[field] = value
    if spec.get("podReplacementPolicy") is None:
        spec["podReplacementPolicy"] = (
            "Failed" if spec.get("podFailurePolicy") is not None else "TerminatingOrFailed"
        )
    if spec.get("podFailurePolicy"):
        spec["podFailurePolicy"] = _failure_policy(spec["podFailurePolicy"])
    template = dict(spec.get("template") or {})
    template["spec"] = pod_spec(template.get("spec") or {})
    if not spec["manualSelector"]:
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
        labels = dict((template.get("metadata") or {}).get("labels") or {})
        labels.update(
            {
                "batch.kubernetes.io/controller-uid": uid,
                "batch.kubernetes.io/job-name": meta.get("name", ""),
                "controller-uid": uid,
                "job-name": meta.get("name", ""),
            }
        )
        template["metadata"] = {
            **(template.get("metadata") or {}),
            "labels": dict(sorted(labels.items())),
        }
    spec["template"] = template
    ordered = {k: spec[k] for k in ORDER["Job"] if spec.get(k) is not None}
    ordered.update({k: v for k, v in spec.items() if k not in ordered and v is not None})
    return {**obj, "spec": ordered, "status": {}}


def _failure_policy(policy: Object) -> Object:
    rules = []
    for rule in policy.get("rules") or []:
        rule = dict(rule)
        if rule.get("onPodConditions"):
            rule["onPodConditions"] = [{"status": "True", **c} for c in rule["onPodConditions"]]
        rules.append(rule)
    return {**policy, "rules": rules}


UNREACHABLE = [
    {
        "key": f"node.kubernetes.io/{what}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for what in ("not-ready", "unreachable")
]


def pod(obj: Object) -> Object:
    """Complete a Pod before it is stored.

    Adds the defaults and what admission adds, except the priority and the token's volume.
    """
    spec = pod_spec(obj.get("spec") or {})
    for field in ("containers", "initContainers"):
        for c in spec.get(field) or []:
            limits = c["resources"].get("limits")
            if limits:
                requests = {**limits, **(c["resources"].get("requests") or {})}
                c["resources"] = {**c["resources"], "requests": requests}
    spec.setdefault("serviceAccountName", "default")
    spec.setdefault("serviceAccount", spec["serviceAccountName"])
    spec["tolerations"] = with_tolerations(spec.get("tolerations") or [])
    spec.setdefault("enableServiceLinks", True)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    return {
        **obj,
        "spec": spec,
        "status": {"phase": "Pending", "qosClass": qos_class(spec)},
    }


def with_tolerations(mine: list[Object]) -> list[Object]:
    """Add the two tolerations that every pod gets unless it already tolerates that taint."""
    out = list(mine)
    for extra in UNREACHABLE:
        covers = any(
            t.get("key") in (extra["key"], None, "") and t.get("effect") in ("NoExecute", None, "")
            for t in mine
            if t.get("key") or t.get("operator") == "Exists"
        )
        if not covers:
            out.append(dict(extra))
    return out


def qos_class(spec: Object) -> str:
    """Return Guaranteed, Burstable or BestEffort, from the CPU and memory of all containers."""
    guaranteed, some = True, False
    for c in (spec.get("containers") or []) + (spec.get("initContainers") or []):
        limits, requests = c["resources"].get("limits") or {}, c["resources"].get("requests") or {}
        for name in ("cpu", "memory"):
            if name in limits or name in requests:
                some = True
            if name not in limits or requests.get(name, limits[name]) != limits[name]:
                guaranteed = False
    return "Guaranteed" if guaranteed else "Burstable" if some else "BestEffort"


def service(obj: Object) -> Object:
    """Complete a Service; one of type ClusterIP without a clusterIP becomes headless."""
    spec = dict(obj.get("spec") or {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] == "ClusterIP":
        spec.setdefault("clusterIP", "None")
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec.get("ports"):
        spec["ports"] = [
            {"protocol": "TCP", "targetPort": p.get("port"), **p} for p in spec["ports"]
        ]
    return {**obj, "spec": spec, "status": {"loadBalancer": {}}}


def secret(obj: Object) -> Object:
    """Complete a Secret: ``stringData`` moves to ``data`` as base64."""
    import base64

    out = {k: v for k, v in obj.items() if k != "stringData"}
    data = dict(obj.get("data") or {})
    for key, value in (obj.get("stringData") or {}).items():
        data[key] = base64.b64encode(value.encode()).decode()
    if data:
        out["data"] = data
    out.setdefault("type", "Opaque")
    return out
