"""Registries of clouds on this machine: a proxy that answers for their names by TLS, asks for log-ins as each of them
documents it, and passes what it allows on to a docker-registry."""

from __future__ import annotations

import base64
import http.client
import http.server
import json
import ssl
import subprocess
import threading
import urllib.parse
from pathlib import Path
from typing import Any

ECR = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
GOOGLE = "europe-docker.pkg.dev"
AZURE = "team.azurecr.io"
HOSTS = (ECR, GOOGLE, AZURE)
PASSED = {"authorization", "connection", "host", "content-length", "transfer-encoding"}


class CloudFront:
    """``proxy`` is for HTTPS_PROXY, ``authority`` for SSL_CERT_FILE.

    ``secrets``: what each host accepts: the password of its user, or (Azure) Entra ID's token.
    ``rights``: what the account may do. ``repositories``: those of ECR. ``seen``: (host, method, path).
    """

    def __init__(self, folder: Path, registry: str) -> None:
        self.registry = registry
        self.secrets = {
            ECR: "123456789012-auth-token",
            GOOGLE: "google-token",
            AZURE: "entra-token",
        }
        self.rights = {"pull", "push"}
        self.repositories = {"team/stoker"}
        self.seen: list[tuple[str, str, str]] = []
        self.authority = folder / "cloud.crt"
        names = ",".join(f"DNS:{host}" for host in HOSTS)
        subprocess.run(
            [
                "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=clouds",
                "-keyout", folder / "cloud.key", "-out", self.authority, "-addext", f"subjectAltName={names}",
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(self.authority, folder / "cloud.key")
        front = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            host = ""

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_CONNECT(self) -> None:
                self.host = self.path.partition(":")[0]
                self.send_response(200 if self.host in HOSTS else 502)
                self.end_headers()
                if self.host not in HOSTS:
                    return
                inner = front.tls.wrap_socket(self.connection, server_side=True)
                self.connection = self.request = inner
                self.rfile, self.wfile = inner.makefile("rb"), inner.makefile("wb", buffering=0)
                self.close_connection = False

            def do_GET(self) -> None:
                front.answer(self)

            do_HEAD = do_POST = do_PUT = do_PATCH = do_GET

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.proxy = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def answer(self, h: Any) -> None:
        body = h.rfile.read(int(h.headers.get("Content-Length") or 0))
        self.seen.append((h.host, h.command, h.path))
        refusal = {ECR: self._ecr, GOOGLE: self._google, AZURE: self._azure}[h.host](h, body)
        if refusal is not None:
            status, doc, headers = refusal
            self._say(h, status, json.dumps(doc).encode(), headers)
            return
        up = http.client.HTTPConnection(self.registry)
        headers = {k: v for k, v in h.headers.items() if k.lower() not in PASSED}
        up.request(
            h.command, h.path, body, {**headers, "Host": h.host, "X-Forwarded-Proto": "https"}
        )
        got = up.getresponse()
        passed = {k: v for k, v in got.getheaders() if k.lower() not in PASSED}
        if h.command == "HEAD":
            passed["Content-Length"] = got.getheader("Content-Length") or "0"
        self._say(h, got.status, got.read(), passed)

    def _say(self, h: Any, status: int, body: bytes, headers: dict[str, str]) -> None:
        h.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            h.send_header(name, value)
        h.end_headers()
        if h.command != "HEAD":
            h.wfile.write(body)

    def _is_basic(self, h: Any, user: str) -> bool:
        pair = base64.b64encode(f"{user}:{self.secrets[h.host]}".encode()).decode()
        return bool(h.headers.get("Authorization") == f"Basic {pair}")

    def _lacks(self, h: Any) -> bool:
        return ("pull" if h.command in ("GET", "HEAD") else "push") not in self.rights

    def _errors(self, code: str, message: str) -> Any:
        return {"errors": [{"code": code, "message": message}]}

    def _ecr(self, h: Any, body: bytes) -> Any:
        if not self._is_basic(h, "AWS"):
            said = h.headers.get("Authorization")
            challenge = {
                "Www-Authenticate": f'Basic realm="https://{ECR}/",service="ecr.amazonaws.com"'
            }
            if said is None:
                return 401, "Not Authorized", challenge
            return 403, self._errors("DENIED", "Your Authorization Token is invalid."), {}
        name = h.path.removeprefix("/v2/").partition("/blobs/")[0].partition("/manifests/")[0]
        if name not in self.repositories:
            words = f"The repository with name '{name}' does not exist in the registry with id '123456789012'"
            return 404, self._errors("NAME_UNKNOWN", words), {}
        if self._lacks(h):
            action = "BatchGetImage" if h.command in ("GET", "HEAD") else "InitiateLayerUpload"
            who = "User: arn:aws:iam::123456789012:user/u is not authorized to perform"
            return 403, self._errors("DENIED", f"{who}: ecr:{action} on resource: {name}"), {}
        return None

    def _bearer(self, h: Any, where: str) -> Any:
        if h.headers.get("Authorization") == f"Bearer for {h.host}":
            words = "Permission 'artifactregistry.repositories.uploadArtifacts' denied on resource (or it may not exist)"
            return (403, self._errors("DENIED", words), {}) if self._lacks(h) else None
        realm = f'Bearer realm="https://{h.host}{where}",service="{h.host}"'
        return (
            401,
            self._errors("UNAUTHORIZED", "authentication required"),
            {"WWW-Authenticate": realm},
        )

    def _google(self, h: Any, body: bytes) -> Any:
        if not h.path.startswith("/v2/token"):
            return self._bearer(h, "/v2/token")
        if self._is_basic(h, "oauth2accesstoken"):
            return 200, {"token": f"for {h.host}"}, {}
        return 403, self._errors("DENIED", "Unauthenticated request"), {}

    def _azure(self, h: Any, body: bytes) -> Any:
        if not h.path.startswith("/oauth2/"):
            return self._bearer(h, "/oauth2/token")
        form = {k: v[0] for k, v in urllib.parse.parse_qs(body.decode()).items()}
        if h.path == "/oauth2/exchange":
            right = {
                "grant_type": "access_token",
                "service": AZURE,
                "access_token": self.secrets[AZURE],
            }
            if right.items() <= form.items():
                return 200, {"refresh_token": "azure-refresh"}, {}
            return 401, self._errors("UNAUTHORIZED", "authentication required"), {}
        if (
            form.get("grant_type") == "refresh_token"
            and form.get("refresh_token") == "azure-refresh"
        ):
            return 200, {"access_token": f"for {h.host}"}, {}
        return 401, self._errors("UNAUTHORIZED", "authentication required"), {}
