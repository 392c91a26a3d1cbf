"""A real docker-registry: plain or TLS, with any configuration."""

from __future__ import annotations

import gzip
import http.client
import io
import json
import ssl
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

from ports import free_port

START_S = 60.0
Object = dict[str, Any]


def certificate(key: Path, cert: Path, name: str) -> None:
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-keyout", key, "-out", cert, "-subj", f"/CN={name}",
            "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost",
        ],
        check=True, capture_output=True,
    )  # fmt: skip


class Shop:
    """One docker-registry at `address`; `config` is more of its configuration."""

    def __init__(self, folder: Path, config: Object, tls: Path | None = None) -> None:
        self.address, self.tls = f"127.0.0.1:{free_port()}", tls
        listen: Object = {"addr": self.address}
        if tls is not None:
            certificate(folder / "shop.key", tls, "shop")
            listen["tls"] = {"certificate": str(tls), "key": str(folder / "shop.key")}
        whole = {
            "version": 0.1,
            "log": {"level": "error"},
            "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
            "http": listen,
            **config,
        }
        (folder / "shop.yml").write_text(json.dumps(whole))
        log = open(folder / "shop.log", "wb")
        self.process = subprocess.Popen(
            ["docker-registry", "serve", folder / "shop.yml"], stdout=log, stderr=log
        )
        log.close()
        until = time.monotonic() + START_S
        while True:
            try:
                self.connect().connect()
                return
            except OSError:
                assert self.process.poll() is None and time.monotonic() < until, (
                    folder / "shop.log"
                ).read_text()
                time.sleep(0.05)

    def connect(self) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection(self.address)
        context = ssl.create_default_context(cafile=str(self.tls))
        return http.client.HTTPSConnection(self.address, context=context)

    def get(self, name: str, path: str, authorization: str = "") -> bytes:
        connection = self.connect()
        headers = {"Accept": "application/vnd.oci.image.manifest.v1+json"}
        if authorization:
            headers["Authorization"] = authorization
        where = f"{name}/{path}" if name else path
        connection.request("GET", f"/v2/{where}", headers=headers)
        answer = connection.getresponse()
        data = answer.read()
        assert answer.status == 200, data
        return data

    def put(self, name: str, path: str, data: bytes, kind: str) -> None:
        connection = self.connect()
        connection.request("PUT", f"/v2/{name}/{path}", data, {"Content-Type": kind})
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()

    def unpack(self, name: str, tag: str, folder: Path) -> None:
        """The files of an image of one layer."""
        (layer,) = json.loads(self.get(name, f"manifests/{tag}"))["layers"]
        data = gzip.decompress(self.get(name, f"blobs/{layer['digest']}"))
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            tar.extractall(folder)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
