"""Validation beyond types: names, numbers and references that the real server refuses with 422."""

from __future__ import annotations

import json
import re
from typing import Any

from .errors import ApiError, Cause
from .selectors import canonical, quantity

Object = dict[str, Any]
SUBDOMAIN = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
LABEL_NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
LABEL_VALUE = re.compile(r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$")
ENV_NAME = re.compile(r"^[ -<>-~]+$")
SUBDOMAIN_WORDS = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
    r"validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_WORDS = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must "
    "start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for "
    "validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
VALUE_WORDS = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
    "'12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
ENV_WORDS = "a valid environment variable name must consist only of printable ASCII characters other than '='"
PLAIN = ("cpu", "memory", "ephemeral-storage")


def bad(value: Any, why: str, field: str) -> Cause:
    return ("FieldValueInvalid", f"Invalid value: {json.dumps(value)}: {why}", field)


def missing(field: str, why: str = "") -> Cause:
    return ("FieldValueRequired", f"Required value: {why}" if why else "Required value", field)


def metadata(meta: Object, max_name: int = 253) -> list[Cause]:
    causes: list[Cause] = []
    name = meta.get("name") or ""
    if not name and not meta.get("generateName"):
        causes.append(missing("metadata.name", "name or generateName is required"))
    elif not SUBDOMAIN.match(name):
        causes.append(bad(name, SUBDOMAIN_WORDS, "metadata.name"))
    elif len(name) > max_name:
        causes.append(bad(name, f"must be no more than {max_name} bytes", "metadata.name"))
    return causes + labels(meta.get("labels") or {}, "metadata.labels")


def labels(found: Object, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for value in found.values():
        if len(value) > 63:
            causes.append(bad(value, "must be no more than 63 bytes", field))
        elif not LABEL_VALUE.match(value):
            causes.append(bad(value, VALUE_WORDS, field))
    return causes


def resources(found: Object, field: str) -> tuple[list[Cause], list[str]]:
    """Return (causes, warnings) for a container's limits and requests."""
    causes: list[Cause] = []
    warnings: list[str] = []
    limits = found.get("limits") or {}
    for kind in ("limits", "requests"):
        for name, text in (found.get(kind) or {}).items():
            at = f"{field}.{kind}[{name}]"
            value, text = quantity(text), canonical(text)
            if "/" not in name and name not in PLAIN and not name.startswith("hugepages-"):
                for why in (
                    "must be a standard resource type or fully qualified",
                    "must be a standard resource for containers",
                ):
                    causes.append(bad(name, why, at))
                continue
            if value < 0:
                causes.append(bad(str(text), "must be greater than or equal to 0", at))
            elif name not in PLAIN and value.denominator != 1:
                causes.append(bad(str(text), "must be an integer", at))
            elif name == "memory" and value.denominator != 1:
                warnings.append(
                    f'{at}: fractional byte value "{text}" is invalid, must be an integer'
                )
            if kind == "requests" and name in limits and not causes:
                top = quantity(limits[name])
                if name not in PLAIN and value != top:
                    why = f"must be equal to {name} limit of {limits[name]}"
                    causes.append(bad(str(text), why, f"{field}.requests"))
                elif value > top:
                    why = f"must be less than or equal to {name} limit of {limits[name]}"
                    causes.append(bad(str(text), why, f"{field}.requests"))
            if kind == "requests" and name not in PLAIN and name not in limits:
                causes.append(
                    (
                        "FieldValueRequired",
                        "Required value: Limit must be set for non overcommitable resources",
                        f"{field}.limits",
                    )
                )
    return causes, warnings


def container(c: Object, field: str, volumes: set[str]) -> tuple[list[Cause], list[str]]:
    causes: list[Cause] = []
    if not c.get("name"):
        causes.append(missing(f"{field}.name"))
    elif not LABEL_NAME.match(c["name"]) or len(c["name"]) > 63:
        causes.append(bad(c["name"], LABEL_WORDS, f"{field}.name"))
    if not c.get("image"):
        causes.append(missing(f"{field}.image"))
    for i, e in enumerate(c.get("env") or []):
        at = f"{field}.env[{i}]"
        if not ENV_NAME.match(e.get("name") or ""):
            causes.append(bad(e.get("name", ""), ENV_WORDS, f"{at}.name"))
        if e.get("value") and e.get("valueFrom"):
            causes.append(
                bad("", "may not be specified when `value` is not empty", f"{at}.valueFrom")
            )
    paths: set[str] = set()
    for i, m in enumerate(c.get("volumeMounts") or []):
        at = f"{field}.volumeMounts[{i}]"
        if m.get("name") not in volumes:
            causes.append(
                ("FieldValueNotFound", f"Not found: {json.dumps(m.get('name'))}", f"{at}.name")
            )
        if not m.get("mountPath"):
            causes.append(missing(f"{at}.mountPath"))
        elif m["mountPath"] in paths:
            causes.append(bad(m["mountPath"], "must be unique", f"{at}.mountPath"))
        paths.add(m.get("mountPath", ""))
    more, warnings = resources(c.get("resources") or {}, f"{field}.resources")
    return causes + more, warnings


def pod_spec(spec: Object, field: str) -> tuple[list[Cause], list[str]]:
    causes: list[Cause] = []
    warnings: list[str] = []
    volumes: set[str] = set()
    for i, v in enumerate(spec.get("volumes") or []):
        name = v.get("name") or ""
        if not LABEL_NAME.match(name) or len(name) > 63:
            causes.append(bad(name, LABEL_WORDS, f"{field}.volumes[{i}].name"))
        elif name in volumes:
            causes.append(
                (
                    "FieldValueDuplicate",
                    f"Duplicate value: {json.dumps(name)}",
                    f"{field}.volumes[{i}].name",
                )
            )
        volumes.add(name)
    if not spec.get("containers"):
        causes.append(missing(f"{field}.containers"))
    names: set[str] = set()
    for kind in ("initContainers", "containers"):
        for i, c in enumerate(spec.get(kind) or []):
            found, said = container(c, f"{field}.{kind}[{i}]", volumes)
            causes += found
            warnings += said
            if c.get("name") in names:
                at = f"{field}.{kind}[{i}].name"
                causes.append(
                    ("FieldValueDuplicate", f"Duplicate value: {json.dumps(c['name'])}", at)
                )
            names.add(c.get("name"))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and deadline < 1:
        causes.append(
            bad(
                deadline,
                "must be between 1 and 2147483647, inclusive",
                f"{field}.activeDeadlineSeconds",
            )
        )
    return causes, warnings


NUMBERS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
    "ttlSecondsAfterFinished",
)


def job(obj: Object) -> tuple[list[Cause], list[str]]:
    """Return (causes, warnings) for a Job with its defaults filled in."""
    meta, spec = obj["metadata"], obj["spec"]
    causes = metadata(meta)
    template = spec["template"]
    name = meta.get("name") or ""
    if len(name) > 63 and SUBDOMAIN.match(name):
        long = {"a": name, "b": name}
        causes += labels(long, "spec.template.labels")
    for field in NUMBERS:
        if spec.get(field) is not None and spec[field] < 0:
            causes.append(bad(spec[field], "must be greater than or equal to 0", f"spec.{field}"))
    indexed = spec["completionMode"] == "Indexed"
    if spec["completionMode"] not in ("Indexed", "NonIndexed"):
        causes.append(
            (
                "FieldValueNotSupported",
                f'Unsupported value: "{spec["completionMode"]}": supported values: "Indexed", "NonIndexed"',
                "spec.completionMode",
            )
        )
    if indexed and spec.get("completions") is None:
        causes.append(missing("spec.completions", "when completion mode is Indexed"))
    if indexed and spec.get("completions") is not None:
        width = len(f"{name}-{max(0, spec['completions'] - 1)}")
        if width > 63:
            causes.append(
                bad(name, "will not able to create pod with invalid DNS label", "metadata.name")
            )
    if spec.get("backoffLimitPerIndex") is not None and not indexed:
        causes.append(
            bad(
                spec["backoffLimitPerIndex"],
                "requires indexed completion mode",
                "spec.backoffLimitPerIndex",
            )
        )
    causes += _policies(spec, indexed)
    meta_labels = (template.get("metadata") or {}).get("labels") or {}
    own = {k: v for k, v in meta_labels.items() if v != name}
    causes += labels(own, "spec.template.labels")
    found, warnings = pod_spec(template["spec"], "spec.template.spec")
    causes += found
    if template["spec"].get("restartPolicy") not in ("OnFailure", "Never"):
        causes.append(
            missing("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
        )
    return causes, warnings


def _policies(spec: Object, indexed: bool) -> list[Cause]:
    causes: list[Cause] = []
    policy = spec.get("podFailurePolicy")
    if policy is not None:
        restart = spec["template"]["spec"].get("restartPolicy")
        if restart != "Never":
            causes.append(
                bad(
                    restart,
                    'only "Never" is supported when podFailurePolicy is specified',
                    "spec.template.spec.restartPolicy",
                )
            )
        names = {
            c.get("name")
            for kind in ("initContainers", "containers")
            for c in spec["template"]["spec"].get(kind) or []
        }
        for i, rule in enumerate(policy.get("rules") or []):
            at = f"spec.podFailurePolicy.rules[{i}]"
            codes = rule.get("onExitCodes")
            if rule.get("action") not in ("FailJob", "FailIndex", "Ignore", "Count"):
                causes.append(
                    (
                        "FieldValueNotSupported",
                        f'Unsupported value: "{rule.get("action")}": supported values: "Count", "FailIndex", "FailJob", "Ignore"',
                        f"{at}.action",
                    )
                )
            if rule.get("action") == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
                causes.append(
                    bad("FailIndex", "requires the backoffLimitPerIndex to be set", f"{at}.action")
                )
            if codes and codes.get("containerName") and codes["containerName"] not in names:
                causes.append(
                    bad(
                        codes["containerName"],
                        "must be one of the container or initContainer names in the pod template",
                        f"{at}.onExitCodes.containerName",
                    )
                )
            if codes and codes.get("operator") == "In" and 0 in (codes.get("values") or []):
                causes.append(
                    bad(0, "must not be 0 for the In operator", f"{at}.onExitCodes.values[0]")
                )
    if spec.get("successPolicy") is not None and not indexed:
        causes.append(
            bad(spec["completionMode"], "requires indexed completion mode", "spec.successPolicy")
        )
    return causes


def jobset(obj: Object) -> None:
    """Refuse what the add-on's webhook refuses: pod names that exceed the length of a label."""
    for group in obj["spec"].get("replicatedJobs") or []:
        last_job = group.get("replicas", 1) - 1
        last_pod = (group["template"]["spec"].get("completions") or 1) - 1
        longest = f"{obj['metadata']['name']}-{group['name']}-{last_job}-{last_pod}-abcde"
        if len(longest) > 63:
            raise ApiError(
                403,
                "Forbidden",
                'admission webhook "vjobset.kb.io" denied the request: pod names generated by this '
                "JobSet will be invalid: must be no more than 63 characters",
            )
