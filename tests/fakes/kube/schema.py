"""Checks request bodies, in JSON or YAML, against the API's own schemas.

There are two checks: first a walk along ``openapi-batch-v1.json`` (the recorded server's schema)
drops and names unknown fields and reports type errors as Go does, then ``kubernetes-validate`` runs
in strict mode. Its results are cached by the body's shape, so a thousand similar Jobs need only one
validation.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, Optional

from .errors import ApiError, bad_request
from .selectors import quantity

Object = dict[str, Any]
OPENAPI = Path(__file__).resolve().parents[2] / "data/kubernetes/openapi-batch-v1.json"
VERSION = "1.36"
GO_TYPES = {"boolean": "bool", "string": "string", "number": "float64", "array": "slice"}
CORE_KINDS = ("Pod", "ConfigMap", "Secret", "Service", "Event")


class Doubled(dict[str, Any]):
    """A JSON object with duplicate keys, which ``doubled`` lists."""

    doubled: list[str]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    plain = dict(pairs)
    if len(plain) == len(pairs):
        return plain
    seen: set[str] = set()
    marked = Doubled(plain)
    marked.doubled = [k for k, _ in pairs if k in seen or seen.add(k)]  # type: ignore[func-returns-value]
    return marked


def read(body: bytes, content_type: str, kind: str) -> Any:
    """Return the object of a request body. Raises 400 and 415 with the real server's messages."""
    media = content_type.split(";")[0].strip()
    if media in ("application/yaml", "application/x-yaml"):
        import yaml

        try:
            return yaml.safe_load(body)
        except yaml.YAMLError as e:
            raise bad_request(f"error converting YAML to JSON: {e}")
    if media not in ("application/json", ""):
        raise ApiError(
            415,
            "UnsupportedMediaType",
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )
    try:
        found = json.loads(body, object_pairs_hook=_object)
    except ValueError as e:
        text = body.decode(errors="replace")
        shown = "<empty>" if not text else text if len(text) <= 30 else text[:30] + " ..."
        cut = not text or getattr(e, "pos", 0) >= len(text.rstrip())
        why = "unexpected end of JSON input" if cut else f"invalid character: {e}"
        raise bad_request(
            f"the object provided is unrecognized (must be of type {kind}): couldn't get "
            f"version/kind; json parse error: {why} ({shown})"
        )
    if not isinstance(found, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind})")
    return found


@functools.cache
def _schemas() -> Object:
    found: Object = json.loads(OPENAPI.read_text())["components"]["schemas"]
    return found


def schema_name(group: str, version: str, kind: str) -> Optional[str]:
    """Return the name of a kind's schema in the document, or None if it has none."""
    if group == "" and kind in CORE_KINDS:
        return f"io.k8s.api.core.{version}.{kind}"
    if (group, kind) == ("batch", "Job"):
        return f"io.k8s.api.batch.{version}.Job"
    if kind == "DeleteOptions":
        return "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
    return None


class _Walk:
    """A walk along one body: ``problems`` has the errors in the order of the body."""

    def __init__(self, kind: str, version: str) -> None:
        self.kind = kind
        self.version = version
        self.problems: list[str] = []

    def wrong(self, value: Any, go_type: str, owner: str, go_path: str) -> ApiError:
        got = {bool: "bool", str: "string", dict: "object", list: "array"}.get(
            type(value), "number"
        )
        return bad_request(
            f'{self.kind} in version "{self.version}" cannot be handled as a {self.kind}: json: '
            f"cannot unmarshal {got} into Go struct field {owner}.{go_path} of type {go_type}"
        )

    def quantity(self, value: Any, schema: Object) -> None:
        """Raise 400 for an invalid quantity (int-or-string has a format, a quantity none)."""
        if value is None or "format" in schema:
            return
        try:
            quantity(value)
        except ValueError:
            raise bad_request(
                f'{self.kind} in version "{self.version}" cannot be handled as a {self.kind}: quantities must match '
                "the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            )

    def value(self, value: Any, schema: Object, path: str, go: tuple[str, ...], owner: str) -> Any:
        while "$ref" in schema or "allOf" in schema:
            ref = schema.get("$ref") or schema["allOf"][0]["$ref"]
            name = ref.rsplit("/", 1)[1]
            schema = _schemas()[name]
            if "properties" in schema:
                owner = name.rsplit(".", 1)[1]
        if value is None or "oneOf" in schema:
            self.quantity(value, schema)
            return value
        kind = schema.get("type")
        good = {
            "object": isinstance(value, dict),
            "array": isinstance(value, list),
            "string": isinstance(value, str),
            "boolean": isinstance(value, bool),
            "integer": isinstance(value, int) and not isinstance(value, bool),
            "number": isinstance(value, (int, float)) and not isinstance(value, bool),
        }.get(kind or "", True)
        if not good:
            name = schema.get("format") or GO_TYPES.get(kind or "", owner)
            raise self.wrong(value, name, owner, ".".join(go))
        if kind == "array":
            items = schema["items"]
            return [self.value(v, items, f"{path}[{i}]", go, owner) for i, v in enumerate(value)]
        if kind == "object":
            return self.fields(value, schema, path, go, owner)
        return value

    def fields(
        self, value: Object, schema: Object, path: str, go: tuple[str, ...], owner: str
    ) -> Object:
        known, others = schema.get("properties"), schema.get("additionalProperties")
        dot = f"{path}." if path else ""
        for key in getattr(value, "doubled", []):
            self.problems.append(f'duplicate field "{dot}{key}"')
        if known is None and others is None:
            return value
        out: Object = {}
        for key, inner in value.items():
            if known is not None and key in known:
                out[key] = self.value(inner, known[key], f"{dot}{key}", (*go, key), owner)
            elif isinstance(others, dict):
                out[key] = self.value(inner, others, f"{dot}{key}", (*go, key), owner)
            else:
                self.problems.append(f'unknown field "{dot}{key}"')
        return out


@functools.cache
def _validator(kind: str, api_version: str) -> Any:
    """Return kubernetes-validate's strict schema of a kind, or None if it has none."""
    import re

    import referencing
    from jsonschema.validators import Draft202012Validator
    from kubernetes_validate import utils

    versions = [v for v in utils.all_versions() if utils.major_minor(v) == VERSION]
    folder = f"kubernetes-json-schema/v{versions[-1]}-local-strict"
    name = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)
    try:
        schema = utils.schema_contents(f"{folder}/{kind.lower()}-{name}.json", VERSION)
    except FileNotFoundError:
        return None
    parts = [schema, utils.schema_contents(f"{folder}/_definitions.json", VERSION)]
    registry: Any = referencing.Registry()
    for part in parts:
        registry = referencing.Resource.from_contents(part) @ registry
    return Draft202012Validator(schema, registry=registry)


def _shape(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((k, _shape(v)) for k, v in value.items())
    if isinstance(value, list):
        return tuple(_shape(v) for v in value)
    return type(value)


_judged: dict[Any, Optional[str]] = {}


def _second_judge(obj: Object) -> Optional[str]:
    """Return what kubernetes-validate (strict) reports about an object, or None."""
    key = (obj["kind"], obj["apiVersion"], _shape(obj))
    if key not in _judged:
        validator = _validator(obj["kind"], obj["apiVersion"])
        found = next(validator.iter_errors(obj), None) if validator else None
        _judged[key] = found and f"{'.'.join(map(str, found.absolute_path))}: {found.message}"
    return _judged[key]


def check(obj: Object, group: str, version: str, kind: str, mode: str) -> tuple[Object, list[str]]:
    """Return (object without unknown fields, warnings). ``mode``: Strict, Warn or Ignore.

    Raises 400 for wrong types, and in strict mode for unknown and duplicate fields. A body without
    ``kind`` and ``apiVersion`` gets them from the path.
    """
    mine, wanted = obj.get("kind") or kind, f"{group}/{version}" if group else version
    if mine != kind:
        raise bad_request(
            f'{mine} in version "{version}" cannot be handled as a {kind}: converting '
            f"({version}.{mine}) to ({group or 'core'}.{kind}): unknown conversion"
        )
    if (obj.get("apiVersion") or wanted) != wanted:
        raise bad_request(
            f"the API version in the data ({obj['apiVersion']}) does not match the expected API "
            f"version ({wanted})"
        )
    walk = _Walk(kind, version)
    name = schema_name(group, version, kind)
    clean: Object = obj
    if name:
        clean = walk.value(obj, _schemas()[name], "", (), kind)
    if walk.problems and mode == "Strict":
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: '
            + ", ".join(walk.problems)
        )
    clean = {"kind": kind, "apiVersion": wanted, **clean}
    clean["kind"], clean["apiVersion"] = kind, wanted
    return clean, walk.problems if mode == "Warn" else []


def check_again(obj: Object) -> None:
    """Run the second check last, as all others have better messages. Raises 400."""
    said = _second_judge(obj)
    if said:
        raise bad_request(
            f"{obj['kind']} cannot be handled as a {obj['kind']}: kubernetes-validate: {said}"
        )
