"""A full file system: a step's failure names it, in a container and here, whatever its program
prints."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Iterator

import pytest
from run_tools import Project


@pytest.fixture
def project(tmp_path: Path, podman: Any) -> Iterator[Project]:
    """Its store is on a small file system with room for the run's record."""
    folder = tmp_path / "proj"
    store = folder / ".stoker"
    store.mkdir(parents=True)
    (folder / "stoker.yaml").write_text("")
    if (
        os.geteuid() != 0
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64m,mode=0755", "tmpfs", store]
        ).returncode
        != 0
    ):
        pytest.skip("needs the right to mount a small file system")
    yield Project(folder, podman)
    subprocess.run(["umount", "-l", store], check=True)


FILLS = "dd if=/dev/zero of=$STOKER_TASK_DIR/fill bs=65536 2> /dev/null; "
SAYS = (
    "cd $STOKER_TASK_DIR; e=$(dd if=/dev/zero of=fill bs=65536 2>&1); rm fill; echo $e >&2; exit 3"
)


@pytest.mark.parametrize(
    ("place", "script", "words"),
    [
        ("local", FILLS + "exit 120", "there is no room left in "),
        ("docker", FILLS + "exit 120", "there is no room left in "),
        ("local", SAYS, "No space left on device"),
        ("docker", SAYS, "No space left on device"),
    ],
    ids=["silent here", "silent in a container", "said here", "said in a container"],
)
def test_named(project: Project, debian: str, place: str, script: str, words: str) -> None:
    project.write(
        "p.yaml",
        json.dumps(
            {
                "stoker": 1,
                "name": "p",
                "cache": False,
                "docker": {"parent_image": debian},
                "steps": {"a": {"run": script, "backend": place}},
            }
        ),
    )
    done = project.stoker("run", "--json", "p.yaml", ok=False)
    if done.returncode == 3:  # not even the run's record
        assert "no space left on its file system; free some" in done.stderr
        return
    error = json.loads(done.stdout)["steps"]["a"]["error"]
    assert error["class"] == "disk_full", error
    assert words in error["text"] and "free space there" in error["text"], error
