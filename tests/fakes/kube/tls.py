"""Certificates for a cluster with TLS, made by ``openssl``: authority, server, administrator."""

from __future__ import annotations

import functools
import multiprocessing.util
import shutil
import ssl
import subprocess
import tempfile
from pathlib import Path


class Pki:
    """Keys and certificates in a folder: ca.crt, server.*, client.*."""

    def __init__(self, folder: Path, host: str, user: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self._run(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=fake-ca",
            "-keyout",
            "ca.key",
            "-out",
            "ca.crt",
        )
        self._issue("server", "/CN=kube-apiserver", f"subjectAltName=IP:{host},DNS:localhost")
        self._issue("client", f"/O=system:masters/CN={user}", "extendedKeyUsage=clientAuth")
        self.ca_pem = (folder / "ca.crt").read_text()

    def _run(self, *args: str) -> None:
        subprocess.run(["openssl", *args], cwd=self.folder, check=True, capture_output=True)

    def _issue(self, name: str, subject: str, extension: str) -> None:
        self._run(
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            subject,
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.csr",
        )
        (self.folder / f"{name}.ext").write_text(extension + "\n")
        self._run(
            "x509",
            "-req",
            "-in",
            f"{name}.csr",
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            f"{name}.ext",
            "-out",
            f"{name}.crt",
        )

    def context(self) -> ssl.SSLContext:
        """Return the server's TLS context; clients may show a certificate of this authority."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "server.crt", self.folder / "server.key")
        context.load_verify_locations(self.folder / "ca.crt")
        context.verify_mode = ssl.CERT_OPTIONAL
        return context


@functools.cache
def pki(host: str, user: str) -> Pki:
    """Return certificates for a host, which are made once per process."""
    folder = tempfile.mkdtemp(prefix="kube-pki-")
    # not atexit, which the processes of a pool skip
    multiprocessing.util.Finalize(None, shutil.rmtree, (folder, True), exitpriority=0)
    return Pki(Path(folder) / "pki", host, user)
