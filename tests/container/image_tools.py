"""A real registry behind a proxy that can misbehave, wheels built on the fly, and `stoker` with a
test's Podman."""

from __future__ import annotations

import base64
import hashlib
import http.client
import http.server
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ports import free_port
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
STOKER = find_binary()
START_S = 60.0
# bcrypt of "secret", which is all that docker-registry takes
HTPASSWD = "ann:$2b$12$4D2X/ERIkxYEH5xmwcYkruiibDHq1Gs0nPWN3RSu1Yd5hWF5kikem\n"


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        return " ".join((self.out + self.err).split())

    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Stoker:
    """The command line in its own folder, with the test's Podman and a home without credentials."""

    folder: Path
    env: dict[str, str]
    more: dict[str, str] = field(default_factory=dict)

    def __call__(self, *words: str | Path, **env: str) -> Done:
        done = subprocess.run(
            [STOKER, *map(str, words)],
            cwd=self.folder,
            env=self.env | self.more | env,
            capture_output=True,
            text=True,
            timeout=300,
            stdin=subprocess.DEVNULL,
        )
        print(
            f"$ stoker {' '.join(map(str, words))} → {done.returncode}\n{done.stdout}{done.stderr}"
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def pipeline(self, docker: dict[str, Any], **step: Any) -> Path:
        doc = {
            "stoker": 1,
            "name": "p",
            "docker": docker,
            "steps": {"train": {"run": "true", **step}},
        }
        return self.write("p.yaml", json.dumps(doc))

    def build(self, docker: dict[str, Any], *words: str, step: Any = None, **env: str) -> Done:
        return self("build", "--json", *words, self.pipeline(docker, **(step or {})), **env)

    def built(self, docker: dict[str, Any], *words: str, **env: str) -> dict[str, Any]:
        """The only image of `stoker build --json`."""
        done = self.build(docker, *words, **env)
        assert done.code == 0, done.said
        (image,) = done.json()["images"]
        return dict(image)

    def findings(self, *words: str, **env: str) -> dict[str, list[dict[str, Any]]]:
        """Of `stoker doctor --json`, by topic."""
        report = self("doctor", "--json", *words, **env).json()
        found: dict[str, list[dict[str, Any]]] = {}
        for one in report["findings"]:
            found.setdefault(one["topic"], []).append(one)
        return found

    def gpus(self, *capabilities: str, driver: str = "580.65.06", cuda: int = 13000) -> None:
        """A host with NVIDIA's driver and these GPUs."""
        devices = [
            {
                "uuid": f"GPU-{i}",
                "model": "NVIDIA H100 80GB HBM3",
                "cc": cc,
                "memory_bytes": 1 << 33,
            }
            for i, cc in enumerate(capabilities or ("9.0",))
        ]
        doc = {"driver": driver, "cuda_version": cuda, "devices": devices}
        self.more["STOKER_ACCEL"] = f"fake:{self.write('devices.json', json.dumps(doc))}"

    def login(self, registry: str, user: str, secret: str) -> None:
        auth = base64.b64encode(f"{user}:{secret}".encode()).decode()
        self.write("home/.docker/config.json", json.dumps({"auths": {registry: {"auth": auth}}}))


class Registry:
    """docker-registry, with or without a password, and the door to it at `address` (plain HTTP).

    `door.fault` is what the door does: None (passes on), a status to answer, "cut" (a layer breaks off in the middle,
    `door.n_cut` counts), "token" (only who has fetched a token of /token as ann:secret may pass).
    """

    def __init__(self, folder: Path, address: str) -> None:
        self.address = address
        self.folder = folder
        self._open = self._start("open", "")
        self._closed = self._start(
            "closed", f"auth: {{htpasswd: {{realm: test, path: {folder}/htpasswd}}}}\n"
        )
        self.door = _Door(address, self._open[1])

    def _start(self, name: str, more: str) -> tuple[subprocess.Popen[bytes], int]:
        port = free_port()
        (self.folder / "htpasswd").write_text(HTPASSWD)
        config = self.folder / f"{name}.yml"
        config.write_text(
            f"version: 0.1\nlog: {{level: error}}\n"
            f"storage: {{filesystem: {{rootdirectory: {self.folder}/data}}, delete: {{enabled: true}}}}\n"
            f"http: {{addr: 127.0.0.1:{port}}}\n{more}"
        )
        log = open(self.folder / f"{name}.log", "wb")
        process = subprocess.Popen(["docker-registry", "serve", config], stdout=log, stderr=log)
        log.close()
        until = time.monotonic() + START_S
        while time.monotonic() < until and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return process, port
            except OSError:
                time.sleep(0.05)
        raise RuntimeError((self.folder / f"{name}.log").read_text())

    def want_password(self, wanted: bool) -> None:
        self.door.upstream = self._closed[1] if wanted else self._open[1]

    def digest(self, name: str, tag: str) -> str:
        """The digest that the registry gives."""
        connection = http.client.HTTPConnection("127.0.0.1", self._open[1])
        accept = "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json"
        connection.request("HEAD", f"/v2/{name}/manifests/{tag}", headers={"Accept": accept})
        answer = connection.getresponse()
        return answer.getheader("Docker-Content-Digest", "")

    def tags(self, name: str) -> list[str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._open[1])
        connection.request("GET", f"/v2/{name}/tags/list")
        return list(json.loads(connection.getresponse().read())["tags"])

    def close(self) -> None:
        self.door.close()
        for process in (self._open[0], self._closed[0]):
            process.kill()
            process.wait()


class _Door:
    def __init__(self, address: str, upstream: int) -> None:
        self.upstream = upstream
        self.fault: int | str | None = None
        self.n_cut = 0
        self.tokens: list[str] = []  # scopes that were asked for
        door = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def do_GET(self) -> None:
                door.answer(self)

            do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

        host, port = address.split(":")
        self.server = http.server.ThreadingHTTPServer((host, int(port)), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def _say(self, h: Any, status: int, body: bytes, *headers: tuple[str, str]) -> None:
        h.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            h.send_header(name, value)
        h.end_headers()
        if h.command != "HEAD":
            h.wfile.write(body)

    def _may_pass(self, h: Any) -> bool:
        given = h.headers.get("Authorization", "")
        if h.path.startswith("/token"):
            right = given == "Basic " + base64.b64encode(b"ann:secret").decode()
            self.tokens.append(h.path)
            body = (
                b'{"token": "T0KEN"}' if right else b'{"details": "incorrect username or password"}'
            )
            self._say(h, 200 if right else 401, body)
            return False
        if given == "Bearer T0KEN":
            return True
        realm = f'Bearer realm="http://{h.headers["Host"]}/token",service="door"'
        self._say(h, 401, b"{}", ("WWW-Authenticate", realm))
        return False

    def answer(self, h: Any) -> None:
        length = int(h.headers.get("Content-Length") or 0)
        chunked = h.headers.get("Transfer-Encoding", "").lower() == "chunked"
        body = _chunks(h.rfile) if chunked else h.rfile.read(length)
        if isinstance(self.fault, int) and h.path != "/v2/":
            words = json.dumps(
                {"errors": [{"code": "X", "message": f"the door says {self.fault}"}]}
            )
            self._say(h, self.fault, words.encode(), ("Retry-After", "7"))
            return
        if self.fault == "token" and not self._may_pass(h):
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self.upstream, timeout=60)
        drop = {"transfer-encoding", "connection", "content-length"}
        if self.fault == "token":
            drop.add("authorization")
        upstream.putrequest(h.command, h.path, skip_host=True, skip_accept_encoding=True)
        for name, value in h.headers.items():  # Go says Accept several times
            if name.lower() not in drop:
                upstream.putheader(name, value)
        upstream.putheader("Content-Length", str(len(body)))
        upstream.endheaders(body)
        got = upstream.getresponse()
        data = got.read()
        size = got.getheader("Content-Length") or str(len(data))
        h.send_response(got.status)
        for name, value in got.getheaders():
            if name.lower() not in drop:
                h.send_header(name, value)
        h.send_header("Content-Length", size)
        h.end_headers()
        cut = self.fault == "cut" and "/blobs/" in h.path and len(data) > 100_000
        h.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.n_cut += 1
            h.close_connection = True
            h.connection.shutdown(socket.SHUT_RDWR)
        upstream.close()


def _chunks(stream: Any) -> bytes:
    data = b""
    while (size := int(stream.readline().split(b";")[0], 16)) > 0:
        data += stream.read(size)
        stream.readline()
    stream.readline()
    return data


def wheel(folder: Path, name: str, version: str, files: dict[str, str], *requires: str) -> Path:
    """A wheel of pure Python."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {r}\n" for r in requires)
    content = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(
        f"{n},sha256={base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).rstrip(b'=').decode()},{len(t)}\n"
        for n, t in content.items()
    )
    with zipfile.ZipFile(path, "w") as z:
        for n, t in content.items():
            z.writestr(n, t)
        z.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
    return path


def torch(version: str, cuda: str | None) -> dict[str, str]:
    """The files that show how a torch was built."""
    return {
        "torch/__init__.py": "",
        "torch/version.py": f"__version__ = {version!r}\ncuda = {cuda!r}\nhip = None\n",
    }


def pip_tree(tree: Path) -> None:
    """pip and a wheelhouse, in a tree to put over the Debian-like image."""
    import pip

    site = tree / "usr/local/lib/python3.11/dist-packages"
    source = Path(pip.__file__).parent
    shutil.copytree(source, site / "pip", ignore=shutil.ignore_patterns("__pycache__"))
    info = site / f"pip-{pip.__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: pip\nVersion: {pip.__version__}\n"
    )
    wheels = tree / "wheels"
    wheels.mkdir()
    wheel(wheels, "tinypkg", "1.0", {"tinypkg.py": "VALUE = 42\n"})
    wheel(wheels, "tinypkg", "2.0", {"tinypkg.py": "VALUE = 43\n"})
    wheel(wheels, "torch", "2.9.0+cpu", torch("2.9.0+cpu", None))
    wheel(wheels, "torch", "2.9.0+cu130", torch("2.9.0+cu130", "13.0"))
    wheel(wheels, "oldvision", "0.1", {"oldvision.py": ""}, "torch==2.9.0+cpu")
    wheel(wheels, "goodvision", "0.1", {"goodvision.py": ""}, "torch>=2.9")


def environment(podman_env: dict[str, str], home: Path) -> dict[str, str]:
    drop = ("STOKER_", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_", "CUDA_VISIBLE")
    kept = {k: v for k, v in podman_env.items() if not k.startswith(drop)}
    home.mkdir(parents=True, exist_ok=True)
    return kept | {
        "HOME": str(home),
        "STOKER_ACCEL": "none",
        "TMPDIR": os.environ.get("TMPDIR", "/tmp"),
    }
