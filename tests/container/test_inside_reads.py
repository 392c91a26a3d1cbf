"""What steps in containers read: nobody outside sees it, so `stoker why` says it of each hit, and
`track: strict` caches nothing. What is said to the container is in the cache key."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from run_tools import Project
from test_run_python import python

FLOW = """
import os
from stoker import CachePolicy, pipeline, step

@step(step_operator="docker", cache_policy=CachePolicy(track={track!r}), settings={{
      "docker": {{"parent_image": {image!r}}}, "step_operator.local_docker": {options!r}}})
def read() -> str:
    return {body}

@pipeline
def flow():
    read()

if __name__ == "__main__":
    flow()
"""


def old(path: Path) -> None:
    """The time of a file that has just changed is never trusted."""
    then = time.time_ns() - 3_600_000_000_000
    os.utime(path, ns=(then, then))


def write(
    project: Project, image: str, body: str, track: bool | str = True, **options: object
) -> None:
    text = FLOW.format(image=image, options=options, body=body, track=track)
    old(project.write("flow.py", text))


def status(project: Project) -> str:
    python(project, "flow.py")
    return str(project.show()["steps"]["read"]["status"])


@pytest.mark.parametrize("where", ["the project", "a volume", "a volume elsewhere"])
@pytest.mark.parametrize("track", [True, "strict"])
def test_a_hit_says_that_nobody_saw(
    project: Project, debian: str, tmp_path: Path, where: str, track: bool | str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    to = "/data" if where == "a volume elsewhere" else str(folder)
    file = folder / "file"
    options: dict[str, object] = {"volumes": [f"{folder}:{to}:ro"]}
    name = f"{to}/file"
    if where == "the project":
        file, options, name = project.folder / "file", {}, "file"
    file.write_text("1\n")
    old(file)
    write(project, debian, f"open({name!r}).read()", track, **options)
    assert status(project) == "succeeded"
    file.write_text("2\n")
    old(file)
    second = status(project)
    if track == "strict":
        assert second == "succeeded"
    else:
        assert second == "succeeded" or "can't see" in project.stoker("why", "read").stdout


def test_variables_of_the_container_are_in_the_key(project: Project, debian: str) -> None:
    for colour in ("red", "blue"):
        write(project, debian, "os.environ.get('COLOUR', '')", environment={"COLOUR": colour})
        assert [status(project), status(project)] == ["succeeded", "cached"]
