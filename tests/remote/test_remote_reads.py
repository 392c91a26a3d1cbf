"""What steps on other machines read: nobody here sees it, so `stoker why` says it of each hit, and
`track: strict` caches nothing."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from test_engine import Project, project  # noqa: F401

FLOW = """
import os
from stoker import CachePolicy, pipeline, step

@step(cache_policy=CachePolicy(track={track!r}))
def read() -> str:
    return {body}

@pipeline
def flow():
    read()

if __name__ == "__main__":
    flow()
"""
READERS = ["open('data.csv').read()", "str(os.listdir('data'))", "open({there!r}).read()"]


def old(path: Path) -> None:
    """The time of a file that has just changed is never trusted."""
    then = time.time_ns() - 3_600_000_000_000
    os.utime(path, ns=(then, then))


def status(project: Project) -> str:  # noqa: F811
    done = project("run", "--with", "prod", "--python", sys.executable, "flow.py")
    assert done.returncode == 0, done.stderr
    return str(project.show()["steps"]["read"]["status"])


@pytest.mark.parametrize("body", READERS)
@pytest.mark.parametrize("track", [True, "strict"])
def test_a_hit_says_that_nobody_saw(
    project: Project,  # noqa: F811
    tmp_path: Path,
    body: str,
    track: bool | str,
) -> None:
    there, here = tmp_path / "there", project.write("data.csv", "1\n")
    there.write_text("1\n")
    old(project.write("data/a", ""))
    body = body.format(there=str(there))
    old(project.write("flow.py", FLOW.format(body=body, track=track)))
    assert status(project) == "succeeded"
    for path in (there, here):
        path.write_text("2\n")
        old(path)
    project.write("data/b", "")
    second = status(project)
    if track == "strict":
        assert second == "succeeded"
    else:
        assert second == "succeeded" or "can't see" in project("why", "read").stdout
