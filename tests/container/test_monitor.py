"""conmon or containerd-shim, the engine's process for a container, is killed: the container ends,
too."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from contain import Contained, wait_for
from run_tools import Project, log_when_up, ours


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("user", [None, "1234:4321"])
def test_its_container_ends_and_goes(engine: Any, scratch: str, tmp_path: Path, user: Any) -> None:
    folder = tmp_path / "run" / "step"
    mounts = [{"from": str(folder), "to": str(folder), "write": True}]
    task = Contained(
        engine, folder, scratch, "/probe", "say", "up", "--", "sleep", "600",
        mounts=mounts, **({"user": user, "owner": "0:0"} if user else {}),
    )  # fmt: skip
    task.says("up")
    runner = task.started()
    os.kill(parent(runner), signal.SIGKILL)
    assert task.end() == -signal.SIGKILL
    name = "conmon" if engine.is_podman else "containerd-shim"
    assert f"that monitors it ({name}" in task.err, task.err
    assert task.state["failed"] in task.err and "was removed" not in task.err
    wait_for(lambda: is_gone(runner))
    wait_for(task.is_gone)
    assert {path.stat().st_uid for path in (folder, *folder.rglob("*"))} == {0}


def test_a_run_names_it(engine: Any, debian: str, tmp_path: Path) -> None:
    folder = tmp_path / "proj"
    folder.mkdir()
    project = Project(folder, engine)
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: "echo up; sleep 600"}}
        """,
    )
    process = project.start("--with", "docker", "p.yaml")
    log = log_when_up(project, "a")
    task = Contained.__new__(Contained)
    task.folder = log.parent
    os.kill(parent(task.started()), signal.SIGKILL)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 1, out
    shown = project.show()
    assert "that monitors it" in shown["steps"]["a"]["error"]["text"], shown["steps"]["a"]
    wait_for(lambda: ours(engine, shown["run"]) == [])
