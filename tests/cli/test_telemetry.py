"""No telemetry: whole runs, and what looks at them, while a socket for the internet kills its maker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import FILTER, Cli

PROGRAM = """
from stoker import pipeline, step

@step
def make() -> int:
    return 20

@step
def double(x: int) -> int:
    return 2 * x

@pipeline
def p():
    double(make())

if __name__ == "__main__":
    p()
"""
FLOW = """
from stoker.flow import FlowSpec, step

class F(FlowSpec):
    @step
    def start(self):
        self.x = 1
        self.next(self.end)
    @step
    def end(self):
        print(self.x)

if __name__ == "__main__":
    F()
"""
STEPS = {
    "make": {"run": "echo 42 > $STOKER_OUTPUT/x", "outputs": ["x"]},
    "read": {"run": "grep -q 42 $STOKER_INPUT_x", "inputs": {"x": {"from": "make.x"}}},
    "bad": {"run": "exit 3"},
}
READERS = ["runs", "show latest", "why latest", "logs make", "card latest", "gpus", "store verify"]


@pytest.fixture
def offline(tmp_path: Path) -> Iterator[Cli]:
    terminal = Cli(tmp_path)
    terminal.env["STOKER_ACCEL"] = ""  # devices are searched for, as a user's are
    terminal.filter_calls("offline")
    yield terminal
    terminal.close()


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6"])
def test_the_filter_kills(family: str) -> None:
    code = f"import socket\nsocket.socket(socket.{family}, socket.SOCK_DGRAM)"
    command = [sys.executable, str(FILTER), "offline", sys.executable, "-c", code]
    assert subprocess.run(command).returncode == -signal.SIGSYS


def test_a_step_that_talks_is_caught(offline: Cli) -> None:
    code = "import socket; socket.socket(socket.AF_INET)"
    done = offline.run({"a": {"run": f'{sys.executable} -c "{code}"'}})
    assert done.code != 0 and done.statuses["a"] == "failed"


def test_commands_and_readers(offline: Cli) -> None:
    done = offline.run(STEPS)
    want = {"make": "succeeded", "read": "succeeded", "bad": "failed"}
    assert {name: done.statuses[name] for name in want} == want, done.err
    for words in READERS:
        assert offline(*words.split()).code == 0, words
    assert offline("plan", "p.json").code == 0


@pytest.mark.parametrize(("name", "text"), [("p.py", PROGRAM), ("flow.py", FLOW)])
def test_python(offline: Cli, name: str, text: str) -> None:
    offline.write(name, text)
    done = offline("run", name)
    assert done.code == 0, done.err
    done = offline("run", name)  # results that are there, and the sums over earlier runs
    assert done.code == 0, done.err


def test_the_front_alone(offline: Cli) -> None:
    """`python p.py`, where the front starts the engine."""
    program = offline.write("p.py", PROGRAM)
    command = [sys.executable, str(FILTER), "offline", sys.executable, str(program)]
    env = {**offline.env, "PATH": f"{offline.folder / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=env, cwd=offline.folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
