"""A pipeline in the user's home folder: what it imports goes into the container, and not all of home."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_tools import WAIT_S, Project

FLOW = """
import helper
from stoker import pipeline, step
from things.deep import value

@step
def look() -> str:
    import late, os
    here = os.path.dirname(os.path.abspath(__file__))
    return " ".join([str(helper.two() + value + late.x), *sorted(os.listdir(here))])

@pipeline(settings={"docker": {"parent_image": "%s"}})
def flow():
    look()

if __name__ == "__main__":
    print(flow().steps["look"].output.load())
"""


@pytest.fixture
def home(tmp_path: Path, podman: Any) -> Project:
    """A home folder with much in it, and no mark of a project."""
    folder = tmp_path / "ann"
    folder.mkdir()
    made = Project(folder, podman)
    made.env["HOME"] = str(folder)
    made.write("helper.py", "def two():\n    return 2\n")
    made.write("late.py", "x = 10\n")
    made.write("things/__init__.py", "")
    made.write("things/deep.py", "value = 100\n")
    made.write("unused.py", "raise SystemExit\n")
    made.write("notes.txt", "mine")
    with open(folder / "film.mkv", "wb") as film:
        film.truncate(300 << 20)
    return made


def packed(home: Project) -> list[str]:
    """The files of the run's code, as a record keeps them."""
    (code,) = home.folder.glob(".stoker/runs/*/code")
    return sorted(str(p.relative_to(code)) for p in code.rglob("*") if p.is_file())


def test_what_a_program_imports(home: Project, debian: str) -> None:
    home.write("flow.py", FLOW % debian)
    done = subprocess.run(
        [sys.executable, "-m", "stoker", "run", "--with", "docker", "flow.py"],
        cwd=home.folder, env=home.env, capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    code = ["flow.py", "helper.py", "late.py", "things/__init__.py", "things/deep.py"]
    assert packed(home) == code
    shown = home.show()
    assert not any("film" in note or "private" in note for note in shown["notes"])
    seen = json.loads(Path(shown["steps"]["look"]["outputs"]["output"]["path"]).read_text())
    assert seen.split()[0] == "112" and "notes.txt" not in seen


def test_a_marked_home_is_a_project(home: Project, debian: str) -> None:
    """Who writes a stoker.yaml there means all of it."""
    home.write("stoker.yaml", "")
    home.write("flow.py", FLOW % debian)
    done = home.stoker("run", "--with", "docker", "--python", sys.executable, "flow.py", ok=False)
    assert "film.mkv" in done.stderr and "more than the" in done.stderr


def test_what_commands_name(home: Project, debian: str) -> None:
    home.write("tool.sh", "#!/bin/sh\necho tool; cat notes.txt || echo no notes\n", 0o755)
    step = {"run": ["./tool.sh"], "backend": "docker"}
    text = {"stoker": 1, "name": "p", "docker": {"parent_image": debian}, "steps": {"a": step}}
    home.write("p.yaml", json.dumps(text))
    shown = home.run()
    assert home.log(shown["steps"]["a"]).splitlines() == ["tool", "no notes"]
    assert packed(home) == ["tool.sh"]
