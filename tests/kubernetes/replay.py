"""Sends a recording's requests to the cluster under test and tells where the answers differ.

The recorded names of pods, uids and resourceVersions are turned into those of this run. A recorded answer is waited for: a GET
is asked again until it is answered alike, a change is sent when the watches have shown what they had shown before it
in the recording. Times aren't compared, only order.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

from kube import Cluster
from kube_client import Answer, Client

Object = dict[str, Any]
DATA = Path(__file__).resolve().parents[1] / "data/kubernetes"
PATIENCE_S = 8
SETTLED_MS = 1000  # so long after a DELETE a recorder has waited for its end
NEVER_MS = 1 << 62
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SUFFIX = r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b"
COUNTERS = (
    "active",
    "succeeded",
    "failed",
    "terminating",
    "completedIndexes",
    "failedIndexes",
    "ready",
)


def load(name: str) -> list[Object]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text().splitlines()]


def begun(record: Object) -> int:
    """When a request was sent; a record's own time is when it was answered. No server answers within a
    millisecond: what the recorder saw in that one comes before the request."""
    at: int = record["t_ms"] - record.get("took_ms", 0)
    return at


class Words:
    """Texts with what differs from run to run taken out."""

    def __init__(self, records: list[Object]) -> None:
        stems: set[str] = set()
        for r in records:
            body = (r.get("request") or {}).get("body")
            if (
                isinstance(body, dict)
                and body.get("kind") == "Job"
                and "name" in (body.get("metadata") or {})
            ):
                stems.add(re.escape(body["metadata"]["name"]) + r"(?:-[0-9]+)?")
        names = "|".join(sorted(stems, key=len, reverse=True)) or "(?!)"
        self.pod = re.compile(rf"(?<![a-z0-9-])({names}){SUFFIX}")

    def clean(self, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        text = self.pod.sub(r"\1-?", text)
        text = UID.sub("UID", text)
        text = re.sub(r"(?m)^(lrwx|tmpfs|total).*\n", "", text)  # how busybox lists files
        text = re.sub(r"(tick \d+\n)+", "ticks\n", text)
        text = re.sub(r"\(\d+\)$|current: \d+", "N", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME", text)
        text = re.sub(
            r"Invalid value: \{.*\}: field is immutable",
            "Invalid value: {…}: field is immutable",
            text,
        )
        return text


def _states(pod: Object, words: Words) -> list[Any]:
    out: list[Any] = []
    status = pod.get("status") or {}
    for c in (status.get("initContainerStatuses") or []) + (status.get("containerStatuses") or []):
        for kind, state in c["state"].items():
            keys = ("reason", "exitCode", "message")
            out.append([c["name"], kind, *(words.clean(state.get(k)) for k in keys if k in state)])
    return out


def pod_essence(pod: Object, words: Words) -> Object:
    """What of a pod is compared."""
    status = pod.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    scheduled, disrupted = conditions.get("PodScheduled"), conditions.get("DisruptionTarget")
    out: Object = {"phase": status.get("phase"), "containers": _states(pod, words)}
    if "reason" in status:
        out["reason"] = [status["reason"], status.get("message")]
    if scheduled:
        out["scheduled"] = [scheduled["status"], scheduled.get("reason"), scheduled.get("message")]
    if disrupted:
        out["disrupted"] = [disrupted["reason"], disrupted["message"]]
    if "deletionTimestamp" in pod["metadata"]:
        out["deleted"] = True
        if (
            status.get("phase") == "Pending"
        ):  # which of its tries for an image was the last is chance
            del out["containers"]
    if pod["spec"].get("nodeName"):
        out["node"] = pod["spec"]["nodeName"]
    return out


def job_essence(job: Object, words: Words, counters: bool) -> Object:
    """What of a Job is compared; the counters only where nothing moves any more."""
    status = job.get("status") or {}
    out: Object = {
        "conditions": [
            [c["type"], c["status"], c.get("reason"), words.clean(c.get("message"))]
            for c in status.get("conditions") or []
        ]
    }
    if counters:
        out.update({k: status[k] for k in COUNTERS if k in status})
    if "deletionTimestamp" in job["metadata"]:
        out["finalizers"] = job["metadata"].get("finalizers")
    return out


def essence(obj: Any, words: Words, counters: bool = True, kind: str = "") -> Any:
    """What of an answer's body is compared, by its kind."""
    if isinstance(obj, str):
        return words.clean(obj)
    if not isinstance(obj, dict):
        return obj
    kind = obj.get("kind") or kind
    if kind.endswith("List") and "items" in obj:
        items = [essence(i, words, counters, kind[:-4]) for i in obj["items"] or []]
        if kind == "EventList":
            items = sorted({json.dumps(i) for i in items})
        elif kind == "PodList":
            items.sort(key=json.dumps)
        paged = {k: obj["metadata"][k] for k in ("remainingItemCount",) if k in obj["metadata"]}
        return {"kind": kind, "items": items, **paged}
    if kind == "Status":
        out = {k: words.clean(obj[k]) for k in ("status", "reason", "message", "code") if k in obj}
        details = obj.get("details") or {}
        causes = [
            [c.get("reason"), words.clean(c.get("message")), c.get("field")]
            for c in details.get("causes") or []
        ]
        out["details"] = {
            k: words.clean(details[k]) for k in ("name", "group", "kind") if k in details
        }
        if causes:
            out["causes"] = causes
        return out
    if kind == "Pod":
        return {"kind": kind, **pod_essence(obj, words)}
    if kind == "Job":
        return {"kind": kind, **job_essence(obj, words, counters)}
    if kind == "Event":
        return [obj.get("type"), obj["reason"], words.clean(obj.get("message") or obj.get("note"))]
    return {"kind": kind, "name": words.clean((obj.get("metadata") or {}).get("name"))}


class Stream:
    """One open watch or followed log of this run, read by a thread."""

    def __init__(self, client: Client, path: str) -> None:
        self.path = path
        self.events: list[Object] = []
        self.text = ""
        self.over = False
        self.status = 0
        self.connection = client.connect()
        self.connection.request("GET", path, headers=client.headers())
        self.answer = self.connection.getresponse()
        self.status = self.answer.status
        self.socket = self.connection.sock or self.answer.fp.raw._sock  # type: ignore[union-attr]
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        watching = "watch=true" in self.path
        try:
            for line in iter(self.answer.readline, b""):
                if watching:
                    self.events.append(json.loads(line))
                else:
                    self.text += line.decode()
        except (OSError, ValueError, AttributeError):
            pass
        self.over = True

    def close(self) -> None:
        import socket

        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.thread.join(5)
        self.connection.close()


def _unseen(pod: Object) -> bool:
    """A state that the recordings' stand-in kubelets (all but real-node's) went past: ended, but still Running."""
    states = pod.get("containers") or []
    over = bool(states) and all(s[1] == "terminated" for s in states)
    return over and pod["phase"] == "Running" and pod.get("node") != "real-node"


def sequence(events: list[Object], words: Words) -> list[Any]:
    """Essentials of a watch's events per object, with repetitions taken out, and no bookmarks."""
    out: dict[str, list[Any]] = {}
    names: dict[str, int] = {}
    for e in events:
        obj = e["object"]
        if e["type"] == "BOOKMARK":
            continue
        name = (obj.get("metadata") or {}).get("name", "")
        stem = f"{words.clean(name)} {names.setdefault(name, sum(words.clean(n) == words.clean(name) for n in names))}"
        item = [e["type"], essence(obj, words, counters=False)]
        if _unseen(item[1]):
            continue
        mine = out.setdefault(stem, [])
        again = (
            item in mine and item[1].get("phase") == "Pending"
        )  # tries for an image go round and round
        if not again and (not mine or mine[-1] != item):
            mine.append(item)
    return [[k, v] for k, v in sorted(out.items())]


Recorded = tuple[Stream, list[tuple[int, Object]], list[tuple[int, str]]]  # with their times in ms


class Replay:
    """One recording being replayed; ``differences`` are sentences, empty at best."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        skip: set[int],
        users: dict[str, Client],
        actions: dict[int, Callable[[Cluster], Any]],
    ) -> None:
        """``skip``: lines that aren't sent; ``actions``: what happens before a line (both from 1)."""
        self.replaced: dict[str, str] = {}  # words of the recording's machine → this one's
        self.actions = actions
        self.cluster = cluster
        self.deleted_ms = NEVER_MS  # when the last change was a DELETE, in the recording
        self.records = load(name)
        self.words = Words(self.records)
        self.skip = skip
        self.users = users
        self.differences: list[str] = []
        self.streams: dict[str, Recorded] = {}
        self.closed: list[tuple[str, Stream, list[Object], list[str]]] = []
        self.astray: set[str] = set()  # streams that didn't show what they should
        self.pairs: dict[str, str] = {}  # recorded uid or version → this run's
        self.made: dict[str, list[str]] = {}  # stem → this run's pods in order
        self.known: dict[str, list[str]] = {}  # stem → recorded pods in order
        cluster.call(cluster.store.listen, "pods", self._pod_made)
        self._note_pods()

    def _pod_made(self, change: Any) -> None:
        if change.type == "ADDED":
            name = change.obj["metadata"]["name"]
            self.made.setdefault(name[:-6], []).append(name)

    def _note_pods(self) -> None:
        for r in self.records:
            text = json.dumps(r)
            for m in self.words.pod.finditer(text):
                mine = self.known.setdefault(m[1], [])
                if m[0] not in mine:
                    mine.append(m[0])

    # --- names of this run

    def _ours(self, text: str, past: bool = False) -> str:
        """A recorded path or body with this run's names, uids and versions."""

        def pod(m: re.Match[str]) -> str:
            order = self.known[m[1]].index(m[0])
            end = time.monotonic() + PATIENCE_S
            while len(self.made.get(m[1], [])) <= order and time.monotonic() < end:
                time.sleep(0.01)
            made = self.made.get(m[1], [])
            return made[order] if order < len(made) else m[0]

        text = self.words.pod.sub(pod, text)
        text = UID.sub(lambda m: self.pairs.get(m[0], m[0]), text)
        text = re.sub(
            r'("resourceVersion": ?")(\d+)"',
            lambda m: m[1] + self.pairs.get(m[2], m[2]) + '"',
            text,
        )

        def version(m: re.Match[str]) -> str:
            if (
                "watch=true" in text
                and m[1] not in self.pairs
                and 1 < int(m[1]) < 10**8
                and not past
            ):
                return f"resourceVersion={self.pairs.get('last', '')}"  # no recorded answer had told it
            return f"resourceVersion={self.pairs.get(m[1], m[1])}"

        text = re.sub(r"timeoutSeconds=(\d+)", lambda m: f"timeoutSeconds={int(m[1]) / 10}", text)
        return re.sub(r"resourceVersion=(\d+)", version, text)

    def _pair(self, recorded: Any, ours: Any) -> None:
        if not isinstance(recorded, dict) or not isinstance(ours, dict):
            return
        a, b = recorded.get("metadata") or {}, ours.get("metadata") or {}
        for key in ("uid", "resourceVersion", "continue"):
            if key in a and key in b:
                self.pairs[a[key]] = b[key]
        if "resourceVersion" in b:
            self.pairs["last"] = b["resourceVersion"]
        uid = ((recorded.get("details") or {}).get("uid"), (ours.get("details") or {}).get("uid"))
        if all(uid):
            self.pairs[str(uid[0])] = str(uid[1])
        for x, y in zip(recorded.get("items") or [], ours.get("items") or []):
            self._pair(x, y)

    # --- the run

    def run(self) -> list[str]:
        for line, r in enumerate(self.records, 1):
            if line in self.actions:
                self._catch_up(r["t_ms"])
                self.actions[line](self.cluster)
            passing = "asked again and again" in (r.get("note") or "")
            if "request" in r and line not in self.skip and not passing:
                self._request(line, r)
            elif "event" in r and r["watch"] in self.streams:
                self.streams[r["watch"]][1].append((r["t_ms"], r["event"]))
            elif "chunk" in r and r["watch"] in self.streams:
                self.streams[r["watch"]][2].append((r["t_ms"], r["chunk"]))
            elif "end" in r and r["watch"] in self.streams:
                self._close(r["watch"], r["end"])
        for path in list(self.streams):
            self._close(path, "by client")
        return self.differences

    def _differ(self, where: str, recorded: Any, ours: Any) -> None:
        self.differences.append(
            f"{where}\n    recorded {json.dumps(recorded)[:1500]}\n    ours     {json.dumps(ours)[:1500]}"
        )

    def _settle(self) -> None:
        """Wait until what was deleted is gone: the recorder left time for that."""
        end = time.monotonic() + PATIENCE_S
        while self.cluster.call(self._is_going) and time.monotonic() < end:
            time.sleep(0.01)

    def _is_going(self) -> bool:
        jobs = {j["metadata"]["uid"] for j in self.cluster.store.all("jobs")}
        pods = [p["metadata"] for p in self.cluster.store.all("pods")]
        return any(
            "deletionTimestamp" in p or not {o["uid"] for o in p.get("ownerReferences", [])} <= jobs
            for p in pods
        )

    def _body(self, body: Any) -> Optional[bytes]:
        if body is None:
            return None
        if isinstance(body, str):
            found = re.match(r"<(\w+) with (?:one|an environment) value of (\d+) bytes>", body)
            if not found:
                return body.encode()
            return json.dumps(big(found[1], int(found[2]))).encode()
        text = self._ours(json.dumps(body))
        for old, new in self.replaced.items():
            text = text.replace(old, new)
        return text.encode()

    def _request(self, line: int, r: Object) -> None:
        q = r["request"]
        client = self.users[q.get("auth") or ""]
        if q["method"] != "GET":
            self._catch_up(begun(r))
            if begun(r) - self.deleted_ms >= SETTLED_MS:
                self._settle()
            self.deleted_ms = r["t_ms"] if q["method"] == "DELETE" else NEVER_MS
        path = self._ours(q["path"], "compact" in (r.get("note") or ""))
        for old, new in self.pairs.items():
            if old.startswith("eyJ"):
                path = path.replace(old, new)
        if r.get("stream"):
            self.streams[q["path"]] = (self._stream(client, path), [], [])
            return
        asked = (
            (q.get("body") or {}).get("metadata") or {} if isinstance(q.get("body"), dict) else {}
        )
        if asked.get("resourceVersion", "") not in (
            "",
            *self.pairs,
        ):  # no recorded answer had told it either
            self.pairs[asked["resourceVersion"]] = client.ask("GET", path).json["metadata"][
                "resourceVersion"
            ]
        if q["method"] != "GET" and re.search(r"/pods/[^/]+(/eviction)?$", path):
            client.until(
                re.sub(r"/eviction$", "", path), self.cluster.kubelets.ready
            )  # as the recorder did
        where = f"line {line} {q['method']} {q['path'][:150]} ({r.get('note')})"
        end = time.monotonic() + PATIENCE_S
        counters = q["method"] == "GET"
        wanted = self._compared(r["status"], r.get("headers") or {}, r["response"], counters)
        while True:
            answer = client.ask(q["method"], path, self._body(q.get("body")), q["headers"])
            got = self._compared(answer.status, answer.headers, self._content(answer), counters)
            if got == wanted or q["method"] != "GET" or time.monotonic() > end:
                break
            time.sleep(0.03)
        self._pair(r["response"], answer.json)
        if got != wanted:
            self._differ(where, wanted, got)

    def _stream(self, client: Client, path: str) -> Stream:
        """Open a stream, again until it is granted."""
        end = time.monotonic() + PATIENCE_S
        while True:
            stream = Stream(client, path)
            if stream.status == 200 or time.monotonic() > end:
                return stream
            stream.close()
            time.sleep(0.02)

    def _content(self, answer: Answer) -> Any:
        return answer.json if answer.json is not None else answer.text or None

    def _compared(self, status: int, headers: dict[str, str], body: Any, counters: bool) -> Object:
        kept = {k: headers[k] for k in ("content-type", "warning", "retry-after") if k in headers}
        if status == 204:
            kept, body = {}, None
        return {
            "status": status,
            "headers": kept,
            "body": essence(body or None, self.words, counters),
        }

    def _catch_up(self, until_ms: int) -> None:
        """Wait until each open stream has shown what the recording had shown by then."""
        for path, (stream, events, chunks) in self.streams.items():
            if path in self.astray:
                continue
            end = time.monotonic() + PATIENCE_S
            want = sequence([e for t, e in events if t < until_ms], self.words)
            text = self.words.clean("".join(c for t, c in chunks if t < until_ms))
            while time.monotonic() < end:
                have = dict(map(tuple, sequence(list(stream.events), self.words)))
                if all(v[-1] in have.get(k, []) for k, v in want) and len(stream.text) >= len(text):
                    break
                time.sleep(0.01)
            else:
                self.astray.add(path)  # its difference is told at its end

    def _close(self, path: str, how: str) -> None:
        stream, events, chunks = self.streams.pop(path)
        wanted = sequence([e for _, e in events], self.words)
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            ours = sequence(list(stream.events), self.words)
            cut = [[k, v[: len(w)]] for (k, v), (_, w) in zip(ours, wanted)]
            done = cut == wanted or (stream.over and how == "by server")
            if done and (how != "by server" or stream.over):
                break
            time.sleep(0.02)
        ours = sequence(list(stream.events), self.words)
        if how == "by server" and not stream.over:
            self._differ(f"stream {path}", "ended by the server", "still open")
        stream.close()
        for k, w in wanted:
            have = dict(map(tuple, ours)).get(k, [])
            if have[: len(w)] != w:
                at = next(
                    (n for n, (a, b) in enumerate(zip(have, w)) if a != b), min(len(have), len(w))
                )
                self._differ(
                    f"watch {path} {k} event {at}",
                    w[at - 1 : at + 2],
                    have[max(0, at - 1) : at + 2],
                )
        text, got = self.words.clean("".join(c for _, c in chunks)), self.words.clean(stream.text)
        if chunks and text != got:
            self._differ(f"log {path}", text, got)


def big(kind: str, size: int) -> Object:
    """The large bodies that the recordings leave out."""
    if kind == "ConfigMap":
        return {
            "apiVersion": "v1",
            "kind": kind,
            "metadata": {"name": "big"},
            "data": {"a": "x" * size},
        }
    container = {
        "name": "main",
        "image": "localhost/bb:1",
        "env": [{"name": "BIG", "value": "x" * size}],
    }
    spec = {
        "backoffLimit": 0,
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": {"name": "big"}, "spec": spec}
