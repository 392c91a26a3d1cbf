"""Engines with unusual answers, in the shapes of the API."""

from __future__ import annotations

import json
import os
import shutil
import socketserver
import struct
import subprocess
import threading
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace

import pytest
from conftest import HERE, static_program
from contain import Contained
from stoker_binary import find_binary


def frame(text: str) -> bytes:
    return struct.pack(">BxxxI", 2, len(text)) + text.encode()


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


@pytest.fixture
def engine(tmp_path):
    """engine(**answers): path's last word → (status, JSON or bytes), None: the connection is cut, or a function of what
    was sent to one of these; asked: what came."""
    servers = []

    def make(**answers):
        asked = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path = self.path.split("?")[0]
                asked.append(f"{self.command} {path}")
                word = "delete" if self.command == "DELETE" else path.rsplit("/", 1)[1]
                found = answers.get(word, (200, "OK"))
                if callable(found):
                    found = found(sent)
                if found is None:
                    self.connection.close()
                    return
                body = found[1] if isinstance(found[1], bytes) else json.dumps(found[1]).encode()
                self.send_response(found[0])
                self.send_header("Api-Version", "1.41")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                pass

            def address_string(self) -> str:
                return "unix"

        path = tmp_path / "engine.sock"
        server = Server(str(path), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        env = {**os.environ, "DOCKER_HOST": f"unix://{path}"}
        return SimpleNamespace(socket=path, env=env, asked=asked, as_user={})

    yield make
    for server in servers:
        server.shutdown()
        server.server_close()


MADE = (201, {"Id": "c0ffee", "Warnings": []})
RUNS = (200, {"State": {"Running": True}})


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"create": (500, {"message": "no space left on device"})}, "no space left on device"),
        ({"create": (201, {"Warnings": []})}, "made a container without an id"),
        ({"create": (201, b"[1,")}, "invalid JSON"),
        ({"create": None}, "the connection was cut"),
        ({"create": MADE, "start": (500, {"message": "OCI runtime error"})}, "OCI runtime error"),
        ({"create": MADE, "start": (404, b"gone")}, "gone"),
        (
            {"create": MADE, "start": (204, b""), "json": (404, {"message": "no such container"}), "logs": (404, b"")},
            "ended before the program began",
        ),
        (
            {"create": MADE, "start": (204, b""), "json": (200, {"State": {"Running": False}}), "logs": (200, frame("exec x: exec") + frame(" format error\n"))},
            "ended before the program began: exec x: exec format error",
        ),
        (
            {"create": MADE, "start": (204, b""), "json": RUNS, "logs": (200, frame("stk-runner: can't reach /stoker/contain.sock: Permission denied\n"))},
            "didn't connect to its task before the program began: stk-runner: can't reach /stoker/contain.sock: Permission denied",
        ),
    ],
)  # fmt: skip
def test_never_ran(engine, tmp_path, answers, words):
    odd = engine(**answers)
    task = Contained(odd, tmp_path / "step", "img:1", "/prog")
    assert task.end(20) == 125
    assert words in task.err and task.err.count("\n") == 1, task.err
    assert task.state["failed"] in task.err
    removed = any(line.startswith("DELETE") and line.endswith("/c0ffee") for line in odd.asked)
    assert removed == (answers["create"] == MADE), odd.asked
    assert not list(task.folder.glob("contain.*")), "the socket's folder was left"


def test_what_could_not_be_removed_is_said(engine, tmp_path):
    answers = {
        "create": MADE,
        "start": (500, {"message": "broken"}),
        "delete": (500, {"message": "device busy"}),
    }
    task = Contained(engine(**answers), tmp_path / "step", "img:1", "/prog")
    assert task.end(20) == 125
    assert "broken" in task.err and "was removed" in task.err and "device busy" in task.err


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a namespace of processes")
def test_the_runner_needs_nothing_but_itself(engine, tmp_path):
    """PID 1 in a root without /proc and /dev: signals, leftover processes, and the status."""
    tree = tmp_path / "tree"
    (tree / "stoker").mkdir(parents=True)
    static_program(HERE / "probe.c", tree / "probe")

    def create(sent: bytes):
        for mount in json.loads(sent)["HostConfig"]["Mounts"]:
            link = shutil.copy if mount["Target"].endswith("stk-runner") else os.link
            link(mount["Source"], str(tree) + mount["Target"])
        return MADE

    def start(_: bytes):
        words = [
            "unshare",
            "--pid",
            "--fork",
            "chroot",
            str(tree),
            "/stoker/stk-runner",
            "/stoker/contain.sock",
        ]
        runners.append(subprocess.Popen(words, stdin=subprocess.DEVNULL))
        return 204, b""

    runners = []
    odd = engine(create=create, start=start)
    task = Contained(
        odd,
        tmp_path / "step",
        "img:1",
        "/probe",
        "stat",
        "/proc",
        "--",
        "orphan",
        "--",
        "term",
        "5",
    )
    task.says("waiting")
    assert task.out == "(none)\nwaiting\n"
    task.kill()
    assert task.end(20) == 5, task.err
    assert runners[0].wait(10) == 5


@pytest.mark.parametrize("n_faults", [0, 2, 99])
def test_a_list_that_fails_once(engine, n_faults):
    """Podman's list fails if a container is removed at the same time: it is requested again."""
    asked = []

    def answer(_):
        asked.append(1)
        if len(asked) <= n_faults:
            return 500, {
                "cause": "no such container",
                "message": "no such container",
                "response": 500,
            }
        return 200, [{"Id": "c0ffee", "Labels": {"stoker.run": "r"}}]

    place = engine(json=answer, delete=(204, b""), info=(200, {}))
    done = subprocess.run(
        [str(find_binary()), "contain", "--remove", "stoker.run=r"],
        env=place.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if n_faults == 99:
        assert done.returncode != 0 and "no such container" in done.stderr
    else:
        assert done.returncode == 0 and done.stdout.startswith("1 removed"), done.stderr
        assert any(one.startswith("DELETE ") and "c0ffee" in one for one in place.asked)
