"""Starts moto's server, which answers as AWS does (S3, Batch, IAM, STS and more)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from ports import free_port
from waiting import wait_for


def start_moto(log: Path, **env: str) -> tuple[subprocess.Popen[bytes], int]:
    """The process and its port on 127.0.0.1, once it listens. The caller ends it."""
    port = free_port()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **env},
        )

    def listens() -> bool:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            return False
        return True

    wait_for(listens, why=lambda: f"moto's server: {log.read_text()}")
    return process, port
