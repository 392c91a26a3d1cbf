"""A Hugging Face Hub on the loopback interface: what ``huggingface_hub.snapshot_download`` asks for.

Repositories are given as revision → file → text; each request for a file's content is counted.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Mapping

Repo = Mapping[str, Mapping[str, str]]
_API = re.compile(r"/api/(model|dataset)s/([^/]+/[^/]+)(?:/(revision|tree)/([^/?]+))?(?:\?.*)?$")
_FILE = re.compile(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)$")


def digest(text: str) -> str:
    """The name of a commit or of a file's content."""
    return hashlib.sha1(text.encode()).hexdigest()


class Hub:
    """``with Hub({("model", "org/net"): {"main": {"config.json": "{}"}}}) as hub``.

    Attributes:
        url: for ``HF_ENDPOINT``. got: "REPO/FILE" → number of downloads. tokens: those that came.
    """

    def __init__(self, repos: Mapping[tuple[str, str], Repo]) -> None:
        hub = self
        self.got: Counter[str] = Counter()
        self.tokens: set[str] = set()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                hub.tokens.add(self.headers.get("Authorization", ""))
                asked = _API.match(self.path)
                if asked:
                    kind, name, what, revision = asked.groups()
                    found = hub._files(kind, name, revision or "main")
                    return self._json(found, name, revision or "main", what)
                asked = _FILE.match(self.path)
                if asked is None:
                    return self._answer(404, b"", {})
                kind, name, revision, path = asked.groups()
                files = hub._files("dataset" if kind else "model", name, revision)
                if files is None or path not in files:
                    return self._answer(404, b"", {"X-Error-Code": "EntryNotFound"})
                if self.command == "GET":
                    hub.got[f"{name}/{path}"] += 1
                head = {
                    "ETag": f'"{digest(files[path])}"',
                    "X-Repo-Commit": hub._commit(name, revision),
                }
                return self._answer(200, files[path].encode(), head)

            def _json(
                self, files: Mapping[str, str] | None, name: str, revision: str, what: str
            ) -> None:
                if files is None:
                    code = "RevisionNotFound" if hub._known(name) else "RepoNotFound"
                    return self._answer(404, b"{}", {"X-Error-Code": code})
                tree = [
                    {"type": "file", "path": k, "size": len(v), "oid": digest(v)}
                    for k, v in files.items()
                ]
                info = {
                    "id": name,
                    "sha": hub._commit(name, revision),
                    "siblings": [{"rfilename": one} for one in files],
                }
                said = json.dumps(tree if what == "tree" else info)
                return self._answer(200, said.encode(), {"Content-Type": "application/json"})

            def _answer(self, status: int, body: bytes, head: Mapping[str, str]) -> None:
                self.send_response(status)
                for key, value in {**head, "Content-Length": str(len(body))}.items():
                    self.send_header(key, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

        self._repos = repos
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _known(self, name: str) -> bool:
        return any(one == name for _, one in self._repos)

    def _commit(self, name: str, revision: str) -> str:
        return revision if len(revision) == 40 else digest(f"{name} {revision}")

    def _files(self, kind: str, name: str, revision: str) -> Mapping[str, str] | None:
        for one, files in self._repos.get((kind, name), {}).items():
            if revision in (one, self._commit(name, one)):
                return files
        return None

    def __enter__(self) -> Hub:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, bad: BaseException | None, at: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
