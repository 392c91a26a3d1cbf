"""The REST API: turns requests into calls of the store, checks permissions, writes responses."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Optional

from . import discovery, errors, patches, podlog, schema, tables, writes
from .errors import ApiError
from .http import Request, Response
from .resources import REVIEWS, Resource
from .selectors import Match, field_selector, label_selector
from .store import dump
from .watch import Watch

if TYPE_CHECKING:
    from .cluster import Cluster

Object = dict[str, Any]
VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
TABLE = "as=Table"
PARTIAL = "as=PartialObjectMetadata"


class Call:
    """One request to a resource, parsed."""

    def __init__(
        self, request: Request, user: str, resource: Resource, rest: list[str], ns: str
    ) -> None:
        self.request = request
        self.user = user
        self.resource = resource
        self.namespace = ns
        self.name = rest[0] if rest else ""
        self.sub = rest[1] if len(rest) > 1 else ""
        self.query = request.query
        self.accept = request.headers.get("accept", "")
        self.warnings: list[str] = []

    @property
    def dry(self) -> bool:
        return "dryRun" in self.query

    @property
    def validation(self) -> str:
        return self.query.get("fieldValidation") or "Warn"

    def view(self, obj: Object) -> Object:
        """Return an object as this path shows it: events have two API versions."""
        if self.resource.api_version == "events.k8s.io/v1":
            return events_view(obj)
        return obj

    def body(self) -> Object:
        found = schema.read(
            self.request.body, self.request.headers.get("content-type", ""), self.resource.kind
        )
        assert isinstance(found, dict)
        return found


def events_view(e: Object) -> Object:
    """Return a core/v1 Event as events.k8s.io/v1 shows it."""
    if e.get("kind") != "Event":
        return e
    out: Object = {"kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": e["metadata"]}
    out["eventTime"] = e.get("eventTime")
    for new, old in (
        ("reportingController", "reportingComponent"),
        ("reportingInstance", "reportingInstance"),
        ("action", "action"),
        ("reason", "reason"),
        ("regarding", "involvedObject"),
        ("note", "message"),
        ("type", "type"),
        ("deprecatedSource", "source"),
        ("deprecatedFirstTimestamp", "firstTimestamp"),
        ("deprecatedLastTimestamp", "lastTimestamp"),
        ("deprecatedCount", "count"),
    ):
        if old in e:
            out[new] = e[old]
    return out


class Api:
    """Answers requests for one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.store = cluster.store

    async def handle(self, request: Request) -> Response:
        """Answer any request: a test's control, or a call of the API, to which faults apply."""
        if request.path.startswith("/_test/"):
            return await self.cluster.control.handle(request)
        spoil = self.cluster.faults.take(request)
        if spoil is not None and not spoil.after:
            return spoil.response(None)
        try:
            response = await self._answer(request)
        except ApiError as e:
            response = error_response(e)
        response.headers.setdefault("Date", self.cluster.http_date())
        return response if spoil is None else spoil.response(response)

    def user(self, request: Request) -> str:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        user = self.cluster.tokens.get(token.strip()) if kind.lower() == "bearer" else None
        if user is None:
            user = request.headers.get("x-client-certificate")  # set by the TLS server only
        if user is None:
            raise errors.unauthorized()
        return user

    async def _answer(self, request: Request) -> Response:
        user = self.user(request)
        parts = [p for p in request.path.split("/") if p]
        if discovery.is_discovery(parts):
            return discovery.answer(self.cluster, request, parts)
        if parts[0] == "api":
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) >= 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise errors.page_not_found()
        if group not in self.cluster.catalogue.groups:
            raise errors.page_not_found()
        ns = ""
        if len(rest) >= 3 and rest[0] == "namespaces" and self._namespaced(group, version, rest[2]):
            ns, rest = rest[1], rest[2:]
        if (group, version, rest[0]) in REVIEWS and request.method == "POST":
            return self._review(request, user, group, version, rest[0])
        resource = self.cluster.catalogue.find(group, version, rest[0])
        if resource is None:
            raise errors.no_such_resource()
        call = Call(request, user, resource, rest[1:], ns)
        self._authorize(call)
        response = await self._dispatch(call)
        for text in call.warnings:
            response.headers["Warning"] = '299 - "%s"' % text.replace("\\", "\\\\").replace(
                '"', '\\"'
            )
        return response

    def _namespaced(self, group: str, version: str, plural: str) -> bool:
        found = self.cluster.catalogue.find(group, version, plural)
        return found is not None and found.namespaced

    def _verb(self, call: Call) -> str:
        verb = VERBS.get(call.request.method, call.request.method.lower())
        if not call.name and verb == "get":
            return "watch" if call.query.get("watch") in ("true", "1") else "list"
        if not call.name and verb == "delete":
            return "deletecollection"
        return verb

    def _authorize(self, call: Call) -> None:
        r, verb = call.resource, self._verb(call)
        if self.cluster.allowed(call.user, verb, r.group, r.plural, call.sub, call.namespace):
            return
        where = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
        asked = f"{r.plural}/{call.sub}" if call.sub else r.plural
        raise errors.forbidden(
            r.plural,
            r.group,
            call.name,
            f'User "{call.user}" cannot {verb} resource "{asked}" in API group "{r.group}" {where}',
        )

    async def _dispatch(self, call: Call) -> Response:
        method, name, sub = call.request.method, call.name, call.sub
        if sub == "log" and method == "GET":
            return await podlog.answer(self.cluster, call.namespace, name, call.query)
        if sub and sub not in [s[0] for s in call.resource.subresources]:
            raise errors.no_such_resource()
        if sub == "eviction" and method == "POST":
            return self._made(call, writes.evict(self.cluster, call.namespace, name, call.body()))
        if method == "GET":
            return await (self._get(call) if name else self._list(call))
        if method == "POST" and not name:
            obj, call.warnings = writes.create(self.cluster, call)
            return self._made(call, obj)
        if method == "PUT" and name:
            obj, call.warnings = writes.replace(self.cluster, call)
            return self._one(call, obj)
        if method == "PATCH" and name:
            return self._one(call, self._patch(call))
        if method == "DELETE":
            if name:
                obj, call.warnings = writes.delete(self.cluster, call)
                return self._one(call, obj)
            return self._delete_all(call)
        raise errors.method_not_allowed()

    def _made(self, call: Call, obj: Object) -> Response:
        return Response(201, dump(call.view(obj)))

    def _one(self, call: Call, obj: Object) -> Response:
        shown = call.view(obj)
        if TABLE in call.accept and obj.get("kind") != "Status":
            return Response(200, dump(tables.table(call.resource, [shown], obj["metadata"])))
        if PARTIAL in call.accept:
            shown = {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": obj["metadata"],
            }
        return Response(200, dump(shown))

    async def _get(self, call: Call) -> Response:
        self._acceptable(call)
        r = call.resource
        found = self.store.get(r.store, call.namespace, call.name)
        if found is None:
            raise errors.not_found(r.plural, r.group, call.name)
        return self._one(call, found)

    def _acceptable(self, call: Call) -> None:
        takes = call.accept.replace(" ", "")
        if takes and not any(
            t in takes for t in ("json", "*/*", "application/*", "yaml", "protobuf")
        ):
            raise ApiError(
                406,
                "NotAcceptable",
                "406: Not Acceptable\n\nAvailable representations: application/json, "
                "application/yaml, application/vnd.kubernetes.protobuf",
                details={},
            )

    def _match(self, call: Call) -> Optional[Match]:
        r = call.resource
        known = r.fields
        text = call.query.get("fieldSelector", "")
        if r.api_version == "events.k8s.io/v1":  # the same events with other names
            text = text.replace("regarding.", "involvedObject.")
            known = next(x.fields for x in self.cluster.catalogue.resources if x.plural == "events")
        tests = [
            t
            for t in (
                label_selector(call.query.get("labelSelector", "")),
                field_selector(text, r.kind, known),
            )
            if t
        ]
        ns = call.namespace
        if ns:
            tests.append(lambda o: o["metadata"].get("namespace") == ns)
        if not tests:
            return None
        return lambda o: all(t(o) for t in tests)

    async def _list(self, call: Call) -> Response:
        self._acceptable(call)
        match = self._match(call)
        if call.query.get("watch") in ("true", "1"):
            return self._watch(call, match)
        rv = self.store.rv
        asked = call.query.get("resourceVersion", "")
        if asked and asked != "0":
            await self._version_there(asked, call.query.get("resourceVersionMatch", ""))
        found = [
            o for o in self.store.all(call.resource.store, call.namespace) if not match or match(o)
        ]
        meta: Object = {"resourceVersion": str(rv)}
        if call.query.get("limit", "0") != "0" or call.query.get("continue"):
            found = self._page(call, found, meta)
        shown = [call.view(o) for o in found]
        if TABLE in call.accept:
            return Response(200, dump(tables.table(call.resource, shown, meta)))
        return Response(200, self._list_body(call, shown, meta))

    def _list_body(self, call: Call, items: list[Object], meta: Object) -> bytes:
        r = call.resource
        if PARTIAL + "List" in call.accept:
            bare = [
                {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": o["metadata"],
                }
                for o in items
            ]
            return dump(
                {
                    "kind": "PartialObjectMetadataList",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": meta,
                    "items": bare,
                }
            )
        bare = [{k: v for k, v in o.items() if k not in ("kind", "apiVersion")} for o in items]
        return dump(
            {"kind": f"{r.kind}List", "apiVersion": r.api_version, "metadata": meta, "items": bare}
        )

    async def _version_there(self, asked: str, how: str) -> None:
        """Raise 504 for a future version (after a wait), 410 for an exact past one."""
        try:
            wanted = int(asked)
        except ValueError:
            raise errors.bad_request(
                f'resourceVersion: Invalid value: "{asked}": strconv.ParseUint: parsing "{asked}": '
                "invalid syntax"
            )
        if wanted > self.store.rv:
            await asyncio.sleep(self.cluster.scaled(3))
        if wanted > self.store.rv:
            raise ApiError(
                504,
                "Timeout",
                f"Timeout: Too large resource version: {wanted}, current: {self.store.rv}",
                {
                    "causes": [
                        {
                            "reason": "ResourceVersionTooLarge",
                            "message": "Too large resource version",
                        }
                    ],
                    "retryAfterSeconds": 1,
                },
                retry_after=1,
            )
        if how == "Exact" and wanted < self.store.compacted:
            raise ApiError(410, "Expired", "The resourceVersion for the provided list is too old.")

    def _page(self, call: Call, found: list[Object], meta: Object) -> list[Object]:
        """Return one page of a list.

        ``continue`` is base64 of version and last key; it expires by compaction.
        """
        start = ""
        token = call.query.get("continue", "")
        if token:
            try:
                said = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
                start, meta["resourceVersion"] = said["start"], str(said["rv"])
            except (ValueError, KeyError):
                raise errors.bad_request(
                    "invalid continue token: continue key is not valid: invalid character "
                    "'\\x81' looking for beginning of value"
                )
            if said["rv"] < self.store.compacted:
                raise ApiError(
                    410,
                    "Expired",
                    "The provided continue parameter is too old to display a consistent list result. "
                    "You can start a new list without the continue parameter, or use the continue "
                    "token in this response to retrieve the remainder of the results. Continuing with "
                    "the provided token results in an inconsistent list - objects that were created, "
                    "modified, or deleted between the time the first chunk was returned and now may "
                    "show up in the list.",
                )

        def key(o: Object) -> str:
            return f"{o['metadata'].get('namespace', '')}/{o['metadata']['name']}"

        rest = [o for o in found if key(o) > start]
        size = int(call.query.get("limit") or 0) or len(rest)
        if len(rest) > size:
            mark = {
                "v": "meta.k8s.io/v1",
                "rv": int(meta["resourceVersion"]),
                "start": key(rest[size - 1]),
            }
            meta["continue"] = base64.urlsafe_b64encode(dump(mark)).decode().rstrip("=")
            if not call.query.get("labelSelector") and not call.query.get("fieldSelector"):
                meta["remainingItemCount"] = len(rest) - size
        return rest[:size]

    def _watch(self, call: Call, match: Optional[Match]) -> Response:
        r, query = call.resource, call.query
        asked = query.get("resourceVersion", "")
        try:
            rv = (
                int(asked)
                if asked not in ("", "0") and query.get("sendInitialEvents") != "true"
                else None
            )
        except ValueError:
            raise ApiError(
                500,
                None,
                f'resourceVersion: Invalid value: "{asked}": strconv.ParseUint: parsing "{asked}": '
                "invalid syntax",
            )
        timeout = float(query.get("timeoutSeconds") or 0) or self.cluster.options.watch_s
        bookmark: Optional[Object] = None
        if query.get("allowWatchBookmarks") in ("true", "1"):
            bookmark = empty_of(r)
        listed = self.store.all
        watch = Watch(
            self.store, r.store, match, call.view, self.cluster.faults.watch_faults(call.request)
        )
        events = watch.events(
            rv,
            lambda: [o for o in listed(r.store, call.namespace) if match is None or match(o)],
            timeout,
            bookmark,
            self.cluster.options.bookmark_s,
            query.get("sendInitialEvents") == "true",
        )
        stream: AsyncIterator[bytes] = events
        if TABLE in call.accept:
            stream = tables.stream(r, events)
        return Response(200, stream=stream)

    def _patch(self, call: Call) -> Object:
        media = call.request.headers.get("content-type", "").split(";")[0].strip()
        how = {
            "application/merge-patch+json": patches.merge,
            "application/strategic-merge-patch+json": patches.strategic,
            "application/json-patch+json": patches.json_patch,
        }.get(media)
        if how is None:
            raise ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
        r = call.resource
        old = self.store.get(r.store, call.namespace, call.name)
        if old is None:
            raise errors.not_found(r.plural, r.group, call.name)
        try:
            patch = json.loads(call.request.body)
        except ValueError as e:
            raise errors.bad_request(f"error decoding patch: {e}")
        new = how(old, patch)
        obj, call.warnings = writes.change(self.cluster, call, old, new)
        return obj

    def _delete_all(self, call: Call) -> Response:
        match = self._match(call)
        gone: list[Object] = []
        for o in self.store.all(call.resource.store, call.namespace):
            if match is None or match(o):
                call.name = o["metadata"]["name"]
                gone.append(o)
                call.namespace = o["metadata"].get("namespace", "")
                _, call.warnings = writes.delete(self.cluster, call)
        return Response(200, self._list_body(call, gone, {"resourceVersion": str(self.store.rv)}))

    def _review(
        self, request: Request, user: str, group: str, version: str, plural: str
    ) -> Response:
        """Answer a SelfSubject…Review about the user and their rights; always with status 201."""
        kind = REVIEWS[(group, version, plural)]
        found = schema.read(request.body, request.headers.get("content-type", ""), kind)
        out: Object = {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {}}
        if kind == "SelfSubjectReview":
            groups = ["system:masters"] if user == self.cluster.ADMIN else []
            out["status"] = {
                "userInfo": {
                    "username": user,
                    "uid": "u1",
                    "groups": [*groups, "system:authenticated"],
                }
            }
            return Response(201, dump(out))
        spec = found.get("spec") or {}
        out["spec"] = {
            k: {a: b for a, b in v.items() if b != ""} if isinstance(v, dict) else v
            for k, v in spec.items()
        }
        if kind == "SelfSubjectAccessReview":
            a = spec.get("resourceAttributes") or {}
            out["status"] = {
                "allowed": self.cluster.allowed(
                    user,
                    a.get("verb", ""),
                    a.get("group", ""),
                    a.get("resource", ""),
                    a.get("subresource", ""),
                    a.get("namespace", ""),
                )
            }
        else:
            every = self.cluster.allowed(user, "*", "*", "*", "", spec.get("namespace", ""))
            rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}] if every else []
            out["status"] = {"resourceRules": rules, "nonResourceRules": [], "incomplete": False}
        return Response(201, dump(out))


def empty_of(r: Resource) -> Object:
    """Return an object for a BOOKMARK: it has a kind, and otherwise only Go's zero values."""
    out: Object = {"kind": r.kind, "apiVersion": r.api_version, "metadata": {}}
    if r.kind == "Job":
        out["spec"] = {"template": {"metadata": {}, "spec": {"containers": None}}}
        out["status"] = {}
    elif r.kind == "Pod":
        out["spec"], out["status"] = {"containers": None}, {}
    return out


def error_response(e: ApiError) -> Response:
    headers = {"Retry-After": str(e.retry_after)} if e.retry_after is not None else {}
    if e.text is not None:
        return Response(e.code, e.text.encode(), "text/plain; charset=utf-8", headers)
    return Response(e.code, dump(e.status()), headers=headers)
