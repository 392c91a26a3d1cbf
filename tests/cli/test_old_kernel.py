"""Whole runs on Linux 4.18 (support/system_calls.py), which lacks pidfds, close_range and openat2."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import FILTER, Cli, alive, wait_for

PIPELINE = """
import os
from stoker import pipeline, step

@step
def make() -> int:
    return 20

@step
def double(x: int) -> int:
    open("twice", "a").write("x")
    if not os.path.exists("mended"):
        raise ValueError("broken")
    return 2 * x

@pipeline
def p():
    double(make())

if __name__ == "__main__":
    print("answer", p().steps["double"].output.load())
"""


@pytest.fixture
def old(tmp_path: Path) -> Iterator[Cli]:
    """Every `stoker` of this terminal and its children see the old kernel."""
    terminal = Cli(tmp_path)
    terminal.filter_calls("old")
    yield terminal
    terminal.close()


def test_the_filter_holds(tmp_path: Path) -> None:
    ask = "import os\ntry: os.pidfd_open(os.getpid())\nexcept OSError as e: print(e.errno)"
    command = [sys.executable, str(FILTER), "old", sys.executable, "-c", ask]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == "38", done.stderr


def test_steps(old: Cli) -> None:
    """Commands in sequence, in parallel and failing; a hit; artifacts with several files."""
    steps = {
        "make": {"run": "mkdir $STOKER_OUTPUT/d && echo 42 > $STOKER_OUTPUT/d/x", "outputs": ["d"]},
        "read": {"run": "grep -q 42 $STOKER_INPUT_d/x", "inputs": {"d": {"from": "make.d"}}},
        **{f"side{i}": {"run": "true"} for i in range(8)},
    }
    done = old.run(steps)
    assert done.code == 0, done.err
    assert old.run(steps).steps["read"]["cached"]
    failed = old.run({"bad": {"run": "exit 3"}, "big": {"run": "kill -9 $$"}})
    assert failed.code != 0 and set(failed.statuses.values()) == {"failed"}


def test_no_descriptor_passes(old: Cli) -> None:
    """Descriptors that the engine inherits without CLOEXEC don't reach a step."""
    null = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(null, True)
    old.document({"a": {"run": f"echo $$ > pid; [ ! -e /proc/$$/fd/{null} ]"}})
    child = old.start("run", "p.json", pass_fds=[null])
    os.close(null)
    assert child.communicate(timeout=120) and child.returncode == 0


def test_python_steps_and_resume(old: Cli) -> None:
    old.write("p.py", PIPELINE)
    first = old("run", "p.py")
    assert first.code != 0 and "broken" in first.err
    old.write("mended", "")
    done = old("resume")
    assert done.code == 0, done.err
    assert (old.folder / "twice").read_text() == "xx"
    assert done.statuses["make"] == "succeeded"


def test_gang(old: Cli) -> None:
    done = old.run({"a": {"run": "echo $RANK of $WORLD_SIZE", "gang": {"ranks": 3}}})
    assert done.code == 0, done.err
    assert sorted(done.text("a").splitlines()) == [f"[{k}] {k} of 3" for k in range(3)]
    run = "[ $RANK != 1 ] || exit 7; exec sleep 1000"
    failed = old.run({"b": {"run": run, "gang": {"ranks": 2}}})
    assert failed.code != 0 and failed.statuses["b"] == "failed"


def test_cancel(old: Cli) -> None:
    old.document({"a": {"run": "echo $$ > pid; exec sleep 1000"}})
    child = old.start("run", "p.json")
    pid = int(old.until("pid"))
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=120)
    assert child.returncode != 0 and not alive(pid)


def test_engine_killed_and_resumed(old: Cli) -> None:
    """The guardians close inherited descriptors and end the task; `resume` continues."""
    old.document({"a": {"run": "[ -e go ] || { echo $$ > pid; exec sleep 1000; }"}})
    child = old.start("run", "p.json")
    pid = int(old.until("pid"))
    os.kill(child.pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid), why="the guardians to end the task")
    old.write("go", "")
    assert old("resume").code == 0


def test_secrets_are_hidden(old: Cli) -> None:
    """The process that hides secrets is watched, too."""
    steps = {"a": {"run": "echo is $TOKEN", "secrets": ["TOKEN"]}}
    done = old.run(steps, env={"STOKER_SECRET_TOKEN": "abcdefgh1234"})
    assert done.code == 0, done.err
    assert "abcdefgh1234" not in done.text("a")


def test_timeout(old: Cli) -> None:
    done = old.run({"a": {"run": "sleep 1000", "timeout": "1s"}})
    assert done.code != 0 and done.statuses["a"] == "failed"
