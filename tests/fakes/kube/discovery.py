"""What clients ask first: version, health, groups, resources, and a little OpenAPI."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import errors
from .http import Request, Response
from .store import dump

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]
VERSION: Object = {  # as in the recordings
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.2",
    "gitCommit": "$Format:%H$",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "go1.27.3",
    "compiler": "gc",
    "platform": "linux/amd64",
}
HEALTH = ("readyz", "livez", "healthz")


def is_discovery(parts: list[str]) -> bool:
    """Whether a path asks about the API rather than an object."""
    if not parts or parts[0] in ("version", "openapi", *HEALTH):
        return True
    return parts[0] in ("api", "apis") and len(parts) <= (2 if parts[0] == "api" else 3)


def answer(cluster: Cluster, request: Request, parts: list[str]) -> Response:
    """Return the document of a discovery path, or 404."""
    catalogue = cluster.catalogue
    if not parts:
        raise errors.page_not_found()
    if parts[0] == "version":
        return Response(200, dump(VERSION))
    if parts[0] in HEALTH:
        return Response(200, b"ok", "text/plain; charset=utf-8")
    if parts[0] == "openapi":
        return _openapi(cluster, parts[1:])
    if parts == ["api"]:
        return Response(
            200,
            dump(
                {
                    "kind": "APIVersions",
                    "versions": ["v1"],
                    "serverAddressByClientCIDRs": [
                        {"clientCIDR": "0.0.0.0/0", "serverAddress": cluster.address}
                    ],
                }
            ),
        )
    if parts == ["apis"]:
        return Response(200, dump(catalogue.group_list()))
    group = parts[1] if parts[0] == "apis" else ""
    if group not in catalogue.groups:
        raise errors.page_not_found()
    if parts[0] == "apis" and len(parts) == 2:
        return Response(
            200, dump({"kind": "APIGroup", "apiVersion": "v1", **catalogue.group_object(group)})
        )
    version = parts[-1]
    if version not in catalogue.groups[group]:
        raise errors.no_such_resource()
    return Response(200, dump(catalogue.resource_list(group, version)))


def _openapi(cluster: Cluster, rest: list[str]) -> Response:
    """Return just enough OpenAPI v3 for kubectl to see that ``fieldValidation`` is supported."""
    catalogue = cluster.catalogue
    versions = [(g, v) for g, vs in catalogue.groups.items() for v in vs]
    paths = {("apis/" + g if g else "api") + "/" + v: (g, v) for g, v in versions}
    if rest == ["v3"]:
        return Response(
            200, dump({"paths": {p: {"serverRelativeURL": f"/openapi/v3/{p}"} for p in paths}})
        )
    found = paths.get("/".join(rest[1:]))
    if rest[:1] != ["v3"] or found is None:
        raise errors.page_not_found()
    group, version = found
    out: Object = {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
        "paths": {},
    }
    prefix = f"/apis/{group}/{version}" if group else f"/api/{version}"
    for r in catalogue.resources:
        if (r.group, r.version) != (group, version):
            continue
        middle = "/namespaces/{namespace}" if r.namespaced else ""
        kind = {"group": group, "kind": r.kind, "version": version}
        params = [{"name": n, "in": "query"} for n in ("dryRun", "fieldManager", "fieldValidation")]
        out["paths"][f"{prefix}{middle}/{r.plural}/{{name}}"] = {
            "patch": {"x-kubernetes-group-version-kind": kind, "parameters": params}
        }
    return Response(200, dump(out))
