"""`docker: {environment: …}` means the same as ENV in a Dockerfile, whether or not an image is
built."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_tools import Project, project_in

VALUES = {
    "PATH": "/opt/bin:$PATH",
    "FIRST": "${IMAGE_SAYS}!",
    "SECOND": "$FIRST${NONE:-?}${IMAGE_SAYS:+ yes}",
    "PRICE": r"\$5 and $ 6",
    "QUOTED": 'a "b" c:\\d',
    "NOBODY": "<$NONE>",
    "PYTHONPATH": "/opt/lib:$PYTHONPATH",
}
SEEN = {
    "FIRST": "hello!",
    "SECOND": "hello!? yes",
    "PRICE": "$5 and $ 6",
    "QUOTED": 'a "b" c:\\d',
    "NOBODY": "<>",
}


@pytest.fixture
def project(tmp_path: Path, engine: Any) -> Project:
    return project_in(tmp_path, engine)


def docker(debian: str, skips: bool, **more: Any) -> dict[str, Any]:
    return {"parent_image": debian, "skip_build": skips, "environment": VALUES, **more}


@pytest.mark.parametrize("skips", [False, True], ids=["built", "not built"])
def test_as_a_dockerfile(project: Project, debian: str, skips: bool) -> None:
    names = " ".join(VALUES)
    script = f"for n in {names}; do eval 'printf \"%s=%s\\n\" '$n' \"$'$n'\"'; done"
    document = {
        "stoker": 1,
        "name": "p",
        "cache": False,
        "docker": docker(debian, skips, runtime_environment={"LITERAL": "$PATH"}),
        "steps": {"a": {"run": script + "; echo LITERAL=$LITERAL"}},
    }
    project.write("p.yaml", json.dumps(document))
    shown = project.run("--with", "docker")
    said = dict(line.split("=", 1) for line in project.log(shown["steps"]["a"]).splitlines())
    assert {name: said[name] for name in SEEN} == SEEN
    assert said["PATH"].startswith("/opt/bin:/") and said["PATH"].count("/opt/bin") == 1
    assert said["PYTHONPATH"].rstrip(":") == "/opt/lib"
    assert said["LITERAL"] == "$PATH"


@pytest.mark.parametrize("skips", [False, True], ids=["built", "not built"])
def test_python_steps(project: Project, debian: str, skips: bool) -> None:
    """Set by the decorator; PYTHONPATH has our front and the project first."""
    project.write(
        "steps.py",
        """
        import os

        def look() -> str:
            return os.environ["PATH"] + " " + os.environ["PYTHONPATH"]
        """,
    )
    document = {
        "stoker": 1,
        "name": "p",
        "cache": False,
        "docker": docker(debian, skips),
        "steps": {"look": {"python": "steps:look", "outputs": ["output"]}},
    }
    project.write("p.yaml", json.dumps(document))
    shown = project.run("--with", "docker")
    path, python = json.loads(
        Path(shown["steps"]["look"]["outputs"]["output"]["path"]).read_text()
    ).split()
    assert path.startswith("/opt/bin:/") and path.count("/opt/bin") == 1
    assert python.rstrip(":") == f"/stoker/python:{project.folder}:/opt/lib"
