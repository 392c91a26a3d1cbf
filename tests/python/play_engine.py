"""The engine's side of the fork-server protocol, for tests: a socket pair, a forked server, attempt directories."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Mapping

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 60.0  # far above what anything here takes


def make_attempt(base: Path, step: str, **task: Any) -> Path:
    """An attempt directory with its task.json, as the engine makes it."""
    directory = base / step / "0" / "1"
    directory.mkdir(parents=True)
    whole = {
        "stoker": 1,
        "run": "20260101-000000-test",
        "pipeline": "tested",
        "step": step,
        "task": 0,
        "attempt": 1,
        "last_attempt": True,
        "store": str(base / ".stoker"),
        "kind": "python",
        "entry": "",
        "isolation": "fork",
        "inputs": {},
        "outputs": [],
        "asked": {},
        "granted": {},
        "hooks": {},
        **task,
    }
    (directory / "task.json").write_text(json.dumps(whole))
    return directory


def result_of(directory: Path) -> dict[str, Any]:
    """The task's result.json."""
    return json.loads((directory / "result.json").read_text())


def artifact_of(directory: Path, name: str) -> dict[str, Any]:
    """An output as the engine gives it to the next step."""
    entry = dict(result_of(directory)["outputs"][name])
    if "path" in entry:
        entry["path"] = str(directory / entry["path"])
    return entry


class Engine:
    """A forked server and the engine's end of its socket."""

    def __init__(self, sock: socket.socket, pid: int) -> None:
        self.sock = sock
        self.pid = pid
        self.messages: list[dict[str, Any]] = []
        self.pidfds: dict[int, int] = {}
        self.i_spawn = 0
        self.sock.settimeout(WAIT_S)
        self.hello = self.wait_for("hello")

    @classmethod
    def forked(
        cls,
        registry: Mapping[str, Any],
        facts: dict[str, Any] | None = None,
        before: Callable[[], None] | None = None,
    ) -> Engine:
        """Fork the server as the front does; ``before`` runs in it first.

        What other tests of this process did with torch is forgotten, unless facts are given.
        """
        from stoker._worker import server

        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                ours.close()
                if facts is None:
                    sys.modules.pop("torch", None)
                    facts = {"os_threads": 1, "python_threads": []}
                if before is not None:
                    before()
                server.serve(theirs, registry, "main.py", facts=facts)
            finally:
                os._exit(99)
        theirs.close()
        return cls(ours, pid)

    @classmethod
    def clean(cls, main: Path | None = None, **options: Any) -> Engine:
        """Start the clean server as the engine does."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "stoker._worker.server", "--fd", str(theirs.fileno())]
        if main is not None:
            command += ["--main", str(main)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **options.pop("env", {})}
        process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=environment, **options)
        theirs.close()
        return cls(ours, process.pid)

    def send(self, message: dict[str, Any], fds: list[int] | None = None) -> None:
        raw = json.dumps(message).encode()
        ancillary = (
            [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))]
            if fds
            else []
        )
        self.sock.sendmsg([len(raw).to_bytes(4, "little") + raw], ancillary)

    def receive(self) -> dict[str, Any]:
        head, ancillary, _, _ = self.sock.recvmsg(4, socket.CMSG_SPACE(64))
        if not head:
            raise EOFError("the server closed its end")
        while len(head) < 4:
            head += self.sock.recv(4 - len(head))
        length, body = int.from_bytes(head, "little"), b""
        while len(body) < length:
            body += self.sock.recv(length - len(body))
        message = json.loads(body)
        for _, _, data in ancillary:
            self.pidfds[message["id"]] = struct.unpack("i", data)[0]
        self.messages.append(message)
        return message

    def wait_for(self, op: str, id: int | None = None) -> dict[str, Any]:
        for message in self.messages:
            if message["op"] == op and (id is None or message.get("id") == id):
                return message
        while True:
            message = self.receive()
            if message["op"] == op and (id is None or message.get("id") == id):
                return message

    def spawn(self, directory: Path, keep: list[int] | None = None, **more: Any) -> int:
        """Ask for a task; its logs go to the attempt directory."""
        self.i_spawn += 1
        out = os.open(directory / "stdout.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        err = os.open(directory / "stderr.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        message = {
            "op": "spawn",
            "id": self.i_spawn,
            "dir": str(directory),
            "env": {},
            "unset": [],
            **more,
        }
        self.send(message, [out, err, *(keep or [])])
        os.close(out)
        os.close(err)
        return self.i_spawn

    def run(self, directory: Path, **more: Any) -> dict[str, Any]:
        """Spawn and wait; returns the result."""
        ended = self.wait_for("ended", self.spawn(directory, **more))
        assert ended["status"] == 0, (ended, (directory / "stderr.log").read_text())
        return result_of(directory)

    def close(self) -> int:
        """Close the engine's end and reap the server: its wait status."""
        self.sock.close()
        for fd in self.pidfds.values():
            os.close(fd)
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return status
            time.sleep(0.005)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError("the server didn't end with its engine")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def has_ended(pidfd: int, timeout_s: float = WAIT_S) -> bool:
    """Has the process of this pidfd ended?"""
    return bool(select.select([pidfd], [], [], timeout_s)[0])
