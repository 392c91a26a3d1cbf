"""The three kinds of PATCH: JSON merge patch, JSON patch, strategic merge patch."""

from __future__ import annotations

import copy
from typing import Any, Optional

from .errors import ApiError, bad_request

Object = dict[str, Any]
MERGE_KEYS = {  # x-kubernetes-patch-merge-key of the lists that are merged, by field name
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "ownerReferences": "uid",
    "conditions": "type",
    "ports": "containerPort",
    "taints": "key",
    "addresses": "type",
}


def merge(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merge(out.get(key), value)
    return out


def strategic(target: Any, patch: Any, field: str = "") -> Any:
    """Apply a patch of ``kubectl apply`` or ``patch``: lists with a merge key are merged by it."""
    if isinstance(patch, dict):
        return _strategic_object(target, patch)
    if isinstance(patch, list) and field in MERGE_KEYS and isinstance(target, list):
        return _strategic_list(target, patch, MERGE_KEYS[field])
    return patch


def _strategic_object(target: Any, patch: Object) -> Object:
    if patch.get("$patch") == "replace":
        return {k: v for k, v in patch.items() if k != "$patch"}
    out = dict(target) if isinstance(target, dict) else {}
    keep = patch.get("$retainKeys")
    for key, value in patch.items():
        if key.startswith("$"):
            if key.startswith("$deleteFromPrimitiveList/"):
                name = key.split("/", 1)[1]
                out[name] = [v for v in out.get(name) or [] if v not in value]
            continue
        if value is None:
            out.pop(key, None)
        else:
            out[key] = strategic(out.get(key), value, key)
    if keep is not None:
        out = {k: v for k, v in out.items() if k in keep}
    return out


def _strategic_list(target: list[Any], patch: list[Any], by: str) -> list[Any]:
    out = list(target)
    for item in patch:
        if not isinstance(item, dict):
            return patch
        key = item.get(by)
        at: Optional[int] = next((i for i, o in enumerate(out) if o.get(by) == key), None)
        if item.get("$patch") == "delete":
            out = [o for o in out if o.get(by) != key]
        elif at is None:
            out.append(strategic(None, item))
        else:
            out[at] = strategic(out[at], item)
    return out


def _pointer(path: str) -> list[str]:
    return [p.replace("~1", "/").replace("~0", "~") for p in path.split("/")[1:]]


def _refused() -> ApiError:
    return ApiError(
        422,
        "Invalid",
        "the server rejected our request due to an error in our request",
        details={},
    )


def json_patch(target: Object, steps: Any) -> Object:
    """Apply a JSON patch (RFC 6902); 422 for a failed test or a path that doesn't exist."""
    if not isinstance(steps, list):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        )
    out = copy.deepcopy(target)
    for step in steps:
        *way, last = _pointer(step.get("path", ""))
        try:
            at: Any = out
            for part in way:
                at = at[int(part)] if isinstance(at, list) else at[part]
            _apply(at, last, step)
        except (KeyError, IndexError, ValueError, TypeError):
            raise _refused()
    return out


def _apply(at: Any, last: str, step: Object) -> None:
    op, value = step["op"], step.get("value")
    if isinstance(at, list):
        where = len(at) if last == "-" else int(last)
        if op == "add":
            at.insert(where, value)
        elif op == "remove":
            del at[where]
        elif op == "replace":
            at[where] = value
        elif op == "test" and at[where] != value:
            raise ValueError("test")
    elif op == "remove":
        del at[last]
    elif op == "test":
        if at[last] != value:
            raise ValueError("test")
    elif op == "add" or (op == "replace" and last in at):
        at[last] = value
    else:
        raise ValueError(op)
