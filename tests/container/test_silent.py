"""Engines that accept a connection and never answer: nothing waits for ever, and signals are
answered at once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Iterator

import pytest
from contain import Contained, wait_for
from run_tools import ROOT, STOKER, Project

HEAD = b"HTTP/1.1 200 OK\r\nApi-Version: 1.41\r\nContent-Length: %d\r\n\r\n%s"
AT_ONCE_S = 25.0  # fewer than the limits whose waiting would be seen otherwise
LONG_S = 100.0


class Silent:
    """Answers what `answers` has by the path's last word, and nothing else; takes every connection."""

    def __init__(self, path: Path, answers: dict[str, Any]) -> None:
        self.name, self.as_user = "podman", {}  # type: tuple[str, dict[str, Any]]
        self.socket, self.answers, self.asked = path, answers, []  # type: Any
        self.env = {**os.environ, "DOCKER_HOST": f"unix://{path}"}
        self._held: list[socket.socket] = []
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(str(path))
        self._door.listen(50)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                one, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(one,), daemon=True).start()

    def _answer(self, one: socket.socket) -> None:
        head = one.recv(65536).split(b"\r\n")[0].decode().split(" ")
        word = "delete" if head[0] == "DELETE" else head[1].split("?")[0].rsplit("/", 1)[1]
        self.asked.append(word)
        body = self.answers.get(word)
        if body is None:
            self._held.append(one)
            return
        data = json.dumps(body).encode()
        one.sendall(HEAD % (len(data), data))
        one.close()

    def close(self) -> None:
        self._door.close()
        for one in self._held:
            one.close()


@pytest.fixture
def silent(tmp_path: Path) -> Iterator[Any]:
    made: list[Silent] = []

    def make(**answers: Any) -> Silent:
        made.append(Silent(tmp_path / "engine.sock", answers))
        return made[-1]

    yield make
    for one in made:
        one.close()


def project_of(tmp_path: Path, engine: Silent) -> Project:
    folder = tmp_path / "proj"
    folder.mkdir()
    (folder / "stoker.yaml").write_text("")
    project = Project(folder, engine)
    project.write(
        "p.yaml",
        """
        stoker: 1
        name: p
        docker: {parent_image: "localhost/x:1"}
        steps:
          a: {run: "touch ran"}
        """,
    )
    return project


def test_run_says_so(tmp_path: Path, silent: Any) -> None:
    """It ends by itself within its limit, before anything runs."""
    engine = silent()
    project = project_of(tmp_path, engine)
    done = project.stoker("run", "--with", "docker", "p.yaml", ok=False)
    assert done.returncode == 2, done.stderr
    assert f"{engine.socket} (DOCKER_HOST): " in done.stderr and "for 10 s" in done.stderr
    assert not (project.folder / "ran").exists()


@pytest.mark.slow
def test_it_falls_silent_later(tmp_path: Path, silent: Any) -> None:
    """The engine answers at first. The error names the engine that stopped answering."""
    engine = silent()
    engine.answers = {"_ping": "OK"}
    project = project_of(tmp_path, engine)
    process = project.start("--with", "docker", "p.yaml")
    wait_for(lambda: "info" in engine.asked)
    engine.answers = {}
    out, _ = process.communicate(timeout=LONG_S * 4)
    assert process.returncode == 3, out
    assert f"has stopped answering at {engine.socket}: no answer for 40 s" in out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("answers", [{}, {"_ping": "OK"}], ids=["ping", "info"])
def test_signals_while_it_is_silent(
    tmp_path: Path, silent: Any, answers: dict[str, Any], number: int
) -> None:
    engine = silent(**answers)
    process = project_of(tmp_path, engine).start("--with", "docker", "p.yaml")
    wait_for(lambda: ("info" if answers else "_ping") in engine.asked)
    began = time.monotonic()
    process.send_signal(number)
    out, _ = process.communicate(timeout=LONG_S)
    assert time.monotonic() - began < AT_ONCE_S
    assert process.returncode == (130 if number == signal.SIGINT else 143)
    word = "cancelled" if number == signal.SIGINT else "interrupted"
    assert out == f"stoker: {word} before the first task\n"


def test_ctrl_c_in_a_python_program(tmp_path: Path, silent: Any) -> None:
    engine = silent()
    project = project_of(tmp_path, engine)
    project.write(
        "flow.py",
        """
        from stoker import pipeline, step

        @step(step_operator="docker", settings={"docker": {"parent_image": "localhost/x:1"}})
        def train() -> None:
            pass

        @pipeline
        def flow():
            train()

        if __name__ == "__main__":
            flow()
        """,
    )
    env = {**project.env, "PYTHONPATH": str(ROOT / "python"), "STOKER_BIN": STOKER}
    program = subprocess.Popen(
        [sys.executable, "flow.py"],
        cwd=project.folder,
        env=env,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(lambda: "_ping" in engine.asked)
    began = time.monotonic()
    os.killpg(program.pid, signal.SIGINT)
    _, err = program.communicate(timeout=LONG_S)
    assert time.monotonic() - began < AT_ONCE_S, err
    assert program.returncode != 0
    assert "KeyboardInterrupt" in err or "cancelled before the first task" in err, err


@pytest.mark.parametrize("word", ["_ping", "create", "start"])
def test_a_task_is_told_to_end(tmp_path: Path, silent: Any, word: str) -> None:
    """`stoker contain` ends by the signal, whatever it waits for, and tries to leave nothing."""
    engine = silent(_ping="OK", create={"Id": "c0ffee"}, delete={})
    engine.answers.pop(word, None)
    task = Contained(engine, tmp_path / "run" / "step", "img:1", "/prog")
    wait_for(lambda: word in engine.asked)
    began = time.monotonic()
    task.kill(signal.SIGTERM)
    assert task.end(LONG_S) == -signal.SIGTERM, task.err
    assert time.monotonic() - began < 2 * AT_ONCE_S
    assert word == "_ping" or "delete" in engine.asked
    assert not list(task.folder.glob("contain.*"))
