"""`stoker ui` of a test's store, and plain HTTP to it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from cli_tools import Cli
from waiting import WAIT_S


class Answer:
    def __init__(self, data: bytes) -> None:
        head, _, self.body = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1]) if lines[0] else 0
        pairs = [line.split(": ", 1) for line in lines[1:]]
        self.headers = {name.lower(): value for name, value in pairs}
        self.text = self.body.decode("utf-8", "replace")


class Ui:
    """A running server; `get` and `post` have its token in their cookie, as a browser has."""

    def __init__(self, cli: Cli, *options: str, **env: str) -> None:
        self.child: subprocess.Popen[str] = cli.start("ui", "--json", *options, env=env)
        assert self.child.stdout is not None and self.child.stderr is not None
        line = self.child.stdout.readline()
        assert line, self.child.stderr.read()
        self.url: str = json.loads(line)["url"]
        where = urlsplit(self.url)
        self.port: int = where.port or 0
        self.base, self.token = where.path, where.query.partition("=")[2]
        self.cookie = f"stoker-ui-{self.port}={self.token}"

    def send(self, data: bytes, timeout_s: float = WAIT_S) -> Answer:
        """What the server says to these bytes, until it closes the connection.

        It may close it before it has read them all: the answer is then what came, or none.
        """
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout_s) as s:
            with suppress(BrokenPipeError, ConnectionResetError):
                s.sendall(data)
            with suppress(ConnectionResetError):
                while piece := s.recv(1 << 16):
                    answer += piece
        return Answer(answer)

    def ask(self, method: str, page: str, body: str = "", **headers: str) -> Answer:
        """A request without a token, unless the headers have one; `Host` may be replaced."""
        said = {"Host": f"127.0.0.1:{self.port}", **headers}
        if body:
            said["Content-Type"] = "application/x-www-form-urlencoded"
            said["Content-Length"] = str(len(body.encode()))
        lines = [f"{method} {self.base}{page} HTTP/1.1"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in said.items()]
        return self.send(("\r\n".join(lines) + "\r\n\r\n" + body).encode())

    def get(self, page: str) -> Answer:
        return self.ask("GET", page, Cookie=self.cookie)

    def form(self, page: str) -> str:
        """The token of the forms on a page."""
        found = re.search(r'name="form" value="(\w+)"', self.get(page).text)
        assert found is not None, "the page has no form that changes something"
        return found[1]

    def post(self, act: str, run: str, **more: Any) -> Answer:
        headers = {"Cookie": self.cookie, "Origin": f"http://127.0.0.1:{self.port}"}
        headers |= more.pop("headers", {})
        form = more.pop("form", None) or self.form(f"run?run={run}")
        fields = {"form": form, "act": act, "run": run, **more}
        return self.ask("POST", "act", "&".join(f"{k}={v}" for k, v in fields.items()), **headers)
