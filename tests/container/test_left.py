"""Engine and guardians are killed at once: no process is left to end their container."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from contain import wait_for
from run_tools import WAIT_S, Project, log_when_up, ours

HOLDS = """
import fcntl, os, time
go = os.environ["STOKER_INPUT_go"]
lock = open(go + "/lock")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("twice")
print("up", flush=True)
if not os.path.exists(go + "/now"):
    time.sleep(600)
"""


@pytest.fixture
def left(tmp_path: Path, engine: Any, debian: str) -> tuple[Project, str]:
    """A project with a run whose container outlives them."""
    folder = tmp_path / "proj"
    folder.mkdir()
    project = Project(folder, engine)
    go = tmp_path / "go"
    go.mkdir()
    (go / "lock").touch()  # who is in the container has it
    project.write("holds.py", HOLDS)
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: python3 holds.py, inputs: {{go: {{file: {go}}}}}}}
        """,
    )
    process = project.start("--with", "docker", "p.yaml")
    log = log_when_up(project, "a")
    assert log.read_text() == "up\n", log.with_name("stderr.log").read_text()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    guards = [int(p) for p in children if "guard" in Path(f"/proc/{p}/comm").read_text()]
    assert len(guards) == 2
    os.kill(process.pid, signal.SIGSTOP)  # or it would begin another guardian
    for guard in guards:
        os.kill(guard, signal.SIGKILL)
    process.kill()
    process.communicate(timeout=WAIT_S)
    run = log.parts[-5]
    (go / "now").write_text("")
    return project, run


def test_it_ends_without_them(left: tuple[Project, str]) -> None:
    project, run = left
    wait_for(lambda: ours(project.podman, run) == [])
    assert project.show()["status"] == "interrupted"


def test_resume_is_never_beside_it(left: tuple[Project, str]) -> None:
    project, run = left
    project.stoker("resume", "latest")
    shown = project.show()
    assert shown["run"] == run and shown["steps"]["a"]["attempts"] == 2
    assert project.log(shown["steps"]["a"]) == "up\n"
    wait_for(lambda: ours(project.podman, run) == [])


def test_the_next_run_is_its_own(left: tuple[Project, str]) -> None:
    project, run = left
    shown = project.run("--with", "docker")
    assert shown["run"] != run and shown["steps"]["a"]["attempts"] == 1
    wait_for(lambda: ours(project.podman, run) == [])
