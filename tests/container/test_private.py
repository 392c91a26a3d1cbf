"""A project's private files go into no container or image unless the user names them, and keep
their modes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_tools import Project

NAMES = [".env", ".ssh/id_rsa", "mine.txt", "keys/server.pem"]


@pytest.fixture
def project(tmp_path: Path, engine: Any) -> Project:
    folder = tmp_path / "proj"
    folder.mkdir()
    folder.chmod(0o755)
    project = Project(folder, engine)
    project.write("stoker.yaml", "")
    project.write("code.txt", "code\n")
    for name in NAMES:
        project.write(name, "-----BEGIN PRIVATE KEY-----\n", 0o600)
    return project


def pipeline(project: Project, debian: str, *more: str) -> None:
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        cache: false
        steps:
          a: {{run: 'cat code.txt; for f in {" ".join(NAMES)}; do [ -e $f ] && stat -c "%n %a" $f; done; true'}}
        """,
    )


def test_left_out_with_a_note(project: Project, debian: str) -> None:
    pipeline(project, debian)
    shown = project.run("--with", "docker")
    assert project.log(shown["steps"]["a"]) == "code\n"
    notes = [note for note in shown["notes"] if "private" in note]
    assert notes == [
        "left out of the project's code as private: .env, .ssh/, keys/server.pem, mine.txt; "
        "to include one, add a line with '!' and its name to .stokerignore"
    ]
    found = [
        path for path in (project.folder / ".stoker").rglob("*") if path.name in (".env", "id_rsa")
    ]
    assert found == []


def test_taken_along_and_shut(project: Project, debian: str) -> None:
    pipeline(project, debian)
    project.write(".stokerignore", "!.env\n!.ssh\n")
    shown = project.run("--with", "docker")
    assert project.log(shown["steps"]["a"]) == "code\n.env 400\n.ssh/id_rsa 400\n"
    code = project.folder / ".stoker/runs" / shown["run"] / "code"
    assert code.stat().st_mode & 0o777 == 0o700
    for path in (project.folder / ".stoker").rglob("*"):
        if path.name in (".env", "id_rsa") and path.is_file():
            assert path.stat().st_mode & 0o077 == 0, path
    (note,) = [note for note in shown["notes"] if "private" in note]
    assert ".env" not in note and "mine.txt" in note


def test_a_python_program(project: Project, debian: str) -> None:
    """The Python front passes its project to the same engine."""
    project.write(
        "flow.py",
        f"""
        import os
        from stoker import pipeline, step

        @step(step_operator="docker", settings={{"docker": {{"parent_image": "{debian}"}}}})
        def look() -> str:
            names = {NAMES!r}
            return repr([name for name in names if os.path.exists(name)])

        @pipeline(enable_cache=False)
        def flow():
            look()

        if __name__ == "__main__":
            flow()
        """,
    )
    env = {**project.env, "PYTHONPATH": project.env["PYTHONPATH"]}
    done = subprocess.run(
        [sys.executable, "flow.py"], cwd=project.folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "left out of the project's code as private: .env" in done.stderr + done.stdout
    shown = project.show()
    assert Path(shown["steps"]["look"]["outputs"]["output"]["path"]).read_text() == '"[]"'


def test_not_in_an_image(project: Project, debian: str) -> None:
    """local_project_install_command puts the project's files into the image itself."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}, local_project_install_command: "true"}}
        cache: false
        steps:
          a: {{run: 'ls -A /app /app/keys'}}
        """,
    )
    shown = project.run("--with", "docker")
    said = project.log(shown["steps"]["a"])
    assert "code.txt" in said and ".stokerignore" not in said
    for name in (".env", ".ssh", "mine.txt", "server.pem"):
        assert name not in said.split()
    assert any("left out of the image as private: " in note for note in shown["notes"])
