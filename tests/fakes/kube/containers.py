"""The server's interface to the runtime: starting containers, their ends, their logs."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Optional

Object = dict[str, Any]
MAX_LOG = 10 * 1024 * 1024  # the kubelet's containerLogMaxSize; older lines are dropped


class Log:
    """What a container wrote, in lines with their times; followers wait for ``more``."""

    def __init__(self) -> None:
        self.lines: list[tuple[float, bytes]] = []
        self.dropped = 0  # lines dropped from the beginning
        self.size = 0
        self.open = True
        self.changed = asyncio.Event()
        self._partial = b""

    def feed(self, at: float, data: bytes) -> None:
        *whole, self._partial = (self._partial + data).split(b"\n")
        for line in whole:
            self._add(at, line + b"\n")
        if whole:
            self.wake()

    def _add(self, at: float, line: bytes) -> None:
        self.lines.append((at, line))
        self.size += len(line)
        while self.size > MAX_LOG:
            self.size -= len(self.lines.pop(0)[1])
            self.dropped += 1

    def close(self, at: float) -> None:
        if self._partial:
            self._add(at, self._partial)
            self._partial = b""
        self.open = False
        self.wake()

    def wake(self) -> None:
        old, self.changed = self.changed, asyncio.Event()
        old.set()

    def tail(self, size: int, lines: int) -> str:
        """Return the last lines, which may replace a missing termination message."""
        text = b"".join(line for _, line in self.lines[-lines:])
        return text[-size:].decode(errors="replace")


@dataclasses.dataclass
class End:
    """How a container ended. ``failed`` says why it never started."""

    code: int
    oom: bool = False
    failed: Optional[str] = None


class Container:
    """One run of a container: each restart makes a new one."""

    def __init__(self, number: int) -> None:
        self.id = str(number)
        self.log = Log()
        self.pid = 0
        self.started: asyncio.Future[Optional[str]] = asyncio.get_running_loop().create_future()
        self.ended: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        self.forced_oom = False


class Containers:
    """All containers of a cluster, run by one runtime process."""

    def __init__(self, time_of: Any) -> None:
        self.time_of = time_of
        self.known: dict[str, Container] = {}
        self.count = 0
        self.folder = Path(tempfile.mkdtemp(prefix="kube-"))
        self.root = self.folder / "root"
        self.root.mkdir()
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._socket: Optional[socket.socket] = None
        self._buffer = b""
        self._out: list[tuple[bytes, list[int]]] = []

    def start_runtime(self) -> None:
        """Start the runtime. Raises OSError with a message if namespaces aren't allowed."""
        if os.geteuid() != 0 or not hasattr(os, "pidfd_open"):
            raise OSError("pods are processes in namespaces of their own: that needs root on Linux")
        mine, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-I",
                    "-S",
                    str(Path(__file__).with_name("runtime.py")),
                    str(theirs.fileno()),
                ],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        mine.setblocking(False)
        self._socket = mine
        asyncio.get_running_loop().add_reader(mine, self._readable)

    def stop_runtime(self) -> None:
        """End every container and the runtime."""
        import shutil

        if self._socket:
            asyncio.get_running_loop().remove_reader(self._socket)
            asyncio.get_running_loop().remove_writer(self._socket)
            self._socket.close()
        if self._process:
            try:
                self._process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, spec: Object) -> Container:
        """Start a container. ``spec`` is that of ``start`` in runtime.py, without id and root."""
        self.count += 1
        c = Container(self.count)
        self.known[c.id] = c
        out, write = os.pipe()
        os.set_blocking(out, False)
        asyncio.get_running_loop().add_reader(out, self._log_readable, out, c)
        message = {"op": "start", "id": c.id, "root": str(self.root), **spec}
        self._send(json.dumps(message).encode() + b"\n", [write])
        return c

    def signal(self, c: Container, number: int) -> None:
        if not c.ended.done():
            self._send(
                json.dumps({"op": "signal", "id": c.id, "signal": number}).encode() + b"\n", []
            )

    def kill(self, c: Container) -> None:
        self.signal(c, signal.SIGKILL)

    def _send(self, data: bytes, fds: list[int]) -> None:
        self._out.append((data, fds))
        self._flush()

    def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        assert self._socket
        while self._out:
            data, fds = self._out[0]
            try:
                sent = (
                    socket.send_fds(self._socket, [data], fds) if fds else self._socket.send(data)
                )
            except BlockingIOError:
                loop.add_writer(self._socket, self._flush)
                return
            for fd in fds:
                os.close(fd)
            if sent < len(data):
                self._out[0] = (data[sent:], [])
            else:
                self._out.pop(0)
        loop.remove_writer(self._socket)

    def _readable(self) -> None:
        assert self._socket
        try:
            data = self._socket.recv(1 << 16)
        except BlockingIOError:
            return
        if not data:
            asyncio.get_running_loop().remove_reader(self._socket)
            for c in self.known.values():
                self._tell(
                    c, {"failed": "the runtime has ended"} if not c.pid else {"exit": 137, "oom": 0}
                )
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            self._tell(self.known[message["id"]], message)

    def _tell(self, c: Container, message: Object) -> None:
        if "started" in message:
            c.pid = message["started"]
            c.started.set_result(None)
        elif "failed" in message:
            if not c.started.done():
                c.started.set_result(message["failed"])
            if not c.ended.done():
                c.ended.set_result(End(128, False, message["failed"]))
        elif not c.ended.done():
            c.ended.set_result(End(message["exit"], bool(message["oom"]) or c.forced_oom))

    def _log_readable(self, fd: int, c: Container) -> None:
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return
        if data:
            c.log.feed(self.time_of(), data)
            return
        asyncio.get_running_loop().remove_reader(fd)
        os.close(fd)
        c.log.close(self.time_of())
