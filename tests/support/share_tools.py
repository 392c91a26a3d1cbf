"""What the tests of shared stores stand on: moto's S3 with signatures checked, a proxy that fails as it is told, and those
who give out credentials (an instance's metadata, a container's agent, STS)."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
import subprocess
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Callable, Dict, List, Optional, Tuple, Type

from moto_server import start_moto
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
REGION = "eu-west-1"
MIB = 1 << 20
CHUNK = 16 * MIB


def stoker() -> str:
    return str(find_binary())


# --- S3 ---


class Moto:
    """moto's server. From `start` on it checks every signature, of the two keys that it has made."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.keys: List[Tuple[str, str]] = []

    def start(self) -> None:
        import boto3

        # what makes the user, its two keys and its policy
        self.process, self.port = start_moto(self.log, INITIAL_NO_AUTH_ACTION_COUNT="4")
        self.url = f"http://127.0.0.1:{self.port}"
        iam = boto3.client(
            "iam",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id="x",
            aws_secret_access_key="x",
        )
        iam.create_user(UserName="tester")
        for _ in range(2):
            key = iam.create_access_key(UserName="tester")["AccessKey"]
            self.keys.append((key["AccessKeyId"], key["SecretAccessKey"]))
        allow = {"Effect": "Allow", "Action": ["s3:*", "sts:*", "iam:*"], "Resource": "*"}
        policy = {"Version": "2012-10-17", "Statement": [allow]}
        iam.put_user_policy(UserName="tester", PolicyName="all", PolicyDocument=json.dumps(policy))

    def client(self, service: str = "s3"):
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=self.keys[0][0],
            aws_secret_access_key=self.keys[0][1],
        )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


# --- faults ---


@dataclass
class Request:
    method: str
    path: str  # with the query
    headers: Dict[str, str]  # names in lower case
    n: int  # which one that the proxy sees, from 1

    def is_part(self) -> bool:
        return self.method == "PUT" and "partNumber=" in self.path

    def is_data(self) -> bool:
        return self.method == "GET" and "?" not in self.path


@dataclass
class Fault:
    """What happens to one request. By default it is passed on."""

    status: int = 0  # answered with this at once, without being passed on
    body: str = ""
    headers: Dict[str, str] = field(default_factory=dict)
    drop: bool = False  # the connection ends before it is passed on
    lose: bool = False  # … after it was, so the answer is lost
    cut: float = -1.0  # so much of the answer's body comes, then the connection ends
    slow_s: float = 0.0  # waits before it is passed on
    date: str = ""  # the answer's Date
    keep: float = 1.0  # so much of the answer's body comes, as if that were all
    flip: bool = False  # one byte of the answer's body is another


def error(code: str, status: int, **headers: str) -> Fault:
    body = f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>said by the proxy</Message></Error>'
    return Fault(status=status, body=body, headers=dict(headers))


SLOW_DOWN = error("SlowDown", 503)


class Served:
    """Answers HTTP on loopback, in threads, until it is stopped."""

    def begin(
        self,
        handler: Type[BaseHTTPRequestHandler],
        kind: Type[ThreadingHTTPServer] = ThreadingHTTPServer,
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        self.server = kind(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        if tls is not None:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass


class Proxy(Served):
    """In front of a server: passes requests on as `rule` says. `seen` is what came."""

    def __init__(self, target: str, tls: Optional[ssl.SSLContext] = None) -> None:
        self.host, self.port_of_target = target.split("//")[1].split(":")
        self.rule: Callable[[Request], Optional[Fault]] = lambda request: None
        self.seen: List[Request] = []
        self.lock = threading.Lock()
        proxy = self

        class Handler(Quiet):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (ConnectionError, socket.timeout):
                    self.close_connection = True

            def serve(self) -> None:
                proxy.serve(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_CONNECT = serve

        class Server(ThreadingHTTPServer):
            request_queue_size = 128

            def handle_error(self, *words: object) -> None:
                pass  # clients that were killed

        self.begin(Handler, Server, tls)

    def count(self, what: Callable[[Request], bool]) -> int:
        return sum(1 for request in list(self.seen) if what(request))

    def serve(self, h: BaseHTTPRequestHandler) -> None:
        headers = {name.lower(): value for name, value in h.headers.items()}
        with self.lock:
            request = Request(h.command, h.path, headers, len(self.seen) + 1)
            self.seen.append(request)
            fault = self.rule(request) or Fault()
        body = h.rfile.read(int(headers.get("content-length", 0)))
        time.sleep(fault.slow_s)  # sleeps: as a slow store
        if fault.drop:
            h.close_connection = True
            h.connection.shutdown(socket.SHUT_RDWR)
            return
        if fault.status:
            self.answer(h, fault.status, fault.headers, fault.body.encode(), fault)
            return
        onward = http.client.HTTPConnection(self.host, int(self.port_of_target), timeout=300)
        onward.putrequest(h.command, h.path, skip_host=True, skip_accept_encoding=True)
        for name, value in h.headers.items():
            onward.putheader(name, value)
        onward.endheaders(body)
        answer = onward.getresponse()
        data = answer.read()
        onward.close()
        if fault.lose:
            h.close_connection = True
            h.connection.shutdown(socket.SHUT_RDWR)
            return
        skipped = ("transfer-encoding", "connection", "content-length", "server")
        back = {n: v for n, v in answer.getheaders() if n.lower() not in skipped}
        length = answer.getheader("content-length") if h.command == "HEAD" else None
        self.answer(h, answer.status, back, data, fault, length)

    def answer(
        self,
        h: BaseHTTPRequestHandler,
        status: int,
        headers: Dict[str, str],
        data: bytes,
        fault: Fault,
        length: Optional[str] = None,
    ) -> None:
        data = data[: int(len(data) * fault.keep)]
        h.send_response_only(status)
        if fault.date:
            headers = {n: v for n, v in headers.items() if n.lower() != "date"}
            headers["Date"] = fault.date
        for name, value in headers.items():
            h.send_header(name, value)
        h.send_header("Content-Length", length or str(len(data)))
        h.end_headers()
        if h.command == "HEAD":
            return
        if fault.flip and data:
            middle = len(data) // 2
            data = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        if fault.cut >= 0:
            h.wfile.write(data[: int(len(data) * fault.cut)])
            h.wfile.flush()
            h.close_connection = True
            h.connection.shutdown(socket.SHUT_RDWR)
            return
        h.wfile.write(data)


class Plain(Served):
    """As much of S3 as moving one large object needs, on disk and quick: moto reads all of an object for each range."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.parts: Dict[int, Path] = {}
        self.complete = False
        plain = self

        class Handler(Quiet):
            protocol_version = "HTTP/1.1"

            def reply(self, status: int, text: str = "", size: int = -1) -> None:
                self.send_response_only(status)
                self.send_header("Content-Length", str(len(text) if size < 0 else size))
                self.send_header("ETag", '"x"')
                self.end_headers()
                self.wfile.write(text.encode())

            def do_PUT(self) -> None:
                n = int(re.search(r"partNumber=(\d+)", self.path).group(1))  # type: ignore[union-attr]
                left = int(self.headers["content-length"])
                with (folder / str(n)).open("wb") as file:
                    while left > 0:
                        data = self.rfile.read(min(left, MIB))
                        file.write(data)
                        left -= len(data)
                plain.parts[n] = folder / str(n)
                self.reply(200)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("content-length", 0)))
                plain.complete = "uploadId" in self.path
                self.reply(200, "<UploadId>one</UploadId>")

            def do_HEAD(self) -> None:
                there = plain.complete and not self.path.endswith((".x", ".tree"))
                size = sum(p.stat().st_size for p in plain.parts.values())
                self.reply(200 if there else 404, "", size if there else 0)

            def do_GET(self) -> None:
                if "range" not in self.headers:
                    self.reply(200, "<IsTruncated>false</IsTruncated>")
                    return
                first, last = map(int, self.headers["range"].split("=")[1].split("-"))
                self.reply(206, "", last + 1 - first)
                with plain.parts[first // CHUNK + 1].open("rb") as file:  # ranges are parts here
                    self.wfile.flush()
                    self.connection.sendfile(file, first % CHUNK, last + 1 - first)

        self.begin(Handler)


def make_certificate(folder: Path) -> Tuple[Path, ssl.SSLContext]:
    """For 127.0.0.1, signed by itself: its file, and what a server needs of it."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    path = folder / "ca.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = folder / "key.pem"
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path, private)
    return path, context


# --- who gives out credentials ---


class Giver(Served):
    """The metadata of an instance, a container's agent, and STS's AssumeRoleWithWebIdentity. What `keys` holds is given
    out, the first once, and the last one again and again; `asked` is who asked for what."""

    def __init__(self, keys: List[Tuple[str, str]], life_s: float = 3600) -> None:
        self.keys = list(keys)
        self.life_s = life_s
        self.asked: List[str] = []
        self.token = "the-container's"
        self.status = 0  # other than 0: answers with it
        giver = self

        class Handler(Quiet):
            protocol_version = "HTTP/1.1"

            def serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
                status, text = giver.answer(self.command, self.path, dict(self.headers), body)
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = serve

        self.begin(Handler)

    def take(self) -> Dict[str, str]:
        key, secret = self.keys.pop(0) if len(self.keys) > 1 else self.keys[0]
        end = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.life_s))
        return {"AccessKeyId": key, "SecretAccessKey": secret, "Token": "", "Expiration": end}

    def answer(self, method: str, path: str, headers: Dict[str, str], body: str) -> Tuple[int, str]:
        head = {name.lower(): value for name, value in headers.items()}
        self.asked.append(f"{method} {path}")
        if self.status:
            return self.status, ""
        if method == "PUT" and path == "/latest/api/token":
            return (
                (200, "imds-token") if "x-aws-ec2-metadata-token-ttl-seconds" in head else (400, "")
            )
        if path.startswith("/latest/"):
            if head.get("x-aws-ec2-metadata-token") != "imds-token":
                return 401, ""
            role = "/latest/meta-data/iam/security-credentials/"
            if path == "/latest/meta-data/placement/region":
                return 200, REGION
            if path == role:
                return 200, "the-role"
            return (
                (200, json.dumps({"Code": "Success", **self.take()}))
                if path == role + "the-role"
                else (404, "")
            )
        if path == "/container":
            if head.get("authorization") != self.token:
                return 401, ""
            return 200, json.dumps(self.take())
        if method == "POST" and "AssumeRoleWithWebIdentity" in body:
            if "WebIdentityToken=web-token" not in body or "authorization" in head:
                return (
                    400,
                    "<ErrorResponse><Error><Code>InvalidIdentityToken</Code></Error></ErrorResponse>",
                )
            keys = self.take()
            keys["SessionToken"] = keys.pop("Token")
            inner = "".join(f"<{name}>{value}</{name}>" for name, value in keys.items())
            return 200, f"<R><Credentials>{inner}</Credentials></R>"
        return 404, ""


# --- stoker ---


@dataclass
class Tool:
    """`stoker share` and `stoker store` with an environment of their own."""

    folder: Path
    env: Dict[str, str]

    def start(self, *words: str, **env: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [stoker(), *words],
            env={**self.env, **env},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [stoker(), *words],
            env={**self.env, **env},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )

    def __call__(self, *words: str, **env: str) -> str:
        done = self.run(*words, **env)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def fails(self, *words: str, **env: str) -> str:
        """The sentence of its failure."""
        done = self.run(*words, **env)
        assert done.returncode not in (0, 101, -6, -11), f"{words}: {done.returncode} {done.stdout}"
        return done.stderr

    def add(self, store: Path, content: Path) -> str:
        """Puts a file or folder into a store; its digest."""
        answer = json.loads(self("artifact", "add", str(content), STOKER_STORE=str(store)))
        return str(answer["digest"])

    def content(self, store: Path, digest: str) -> Path:
        return Path(self("artifact", "path", digest, STOKER_STORE=str(store)).strip())


def peak_kib(process: subprocess.Popen[bytes]) -> int:
    """Waits for a program's good end; the most memory that it had, in KiB. (Its ru_maxrss would be at least ours.)"""
    peak = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        peak = max(peak, int(found.group(1)) if found else 0)
        time.sleep(0.01)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    assert peak > 0
    return peak


def write_random(path: Path, size: int) -> Path:
    """Content that is different in every chunk, quickly."""
    block = os.urandom(MIB)
    with path.open("wb") as file:
        for i in range(0, size, MIB):
            file.write(i.to_bytes(8, "little") + block[8 : min(MIB, size - i)])
    return path
