"""A Debian built from its packages, as users' base images are, instead of one from this machine's
files."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from run_tools import Project
from test_run_python import image, python, write_flow

SUITE = "bookworm"
RECIPE = ["mmdebstrap", "--variant=minbase", "--include=python3"]


@pytest.fixture(scope="module")
def bookworm(podman: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Reference of a minimal Debian 12 with Python 3.11; made once (about 30 s, 50 MB of packages)."""
    recipe = hashlib.sha256(" ".join([*RECIPE, SUITE]).encode()).hexdigest()[:12]
    reference = f"localhost/stoker-test-{SUITE}:{recipe}"
    if not podman.has_image(reference):
        assert shutil.which(RECIPE[0]), "mmdebstrap is missing: make deps-test-all"
        tar = tmp_path_factory.mktemp(SUITE) / "root.tar"
        made = subprocess.run([*RECIPE, SUITE, str(tar)], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr[-3000:]
        podman("import", str(tar), reference)
        tar.unlink()
    return reference


def test_a_step_runs_in_it_as_it_is(project: Project, bookworm: str) -> None:
    write_flow(project, f'step_operator="docker", {image(bookworm)}')
    assert "report 6 outside outside" in python(project, "flow.py").stdout
    granted = {name: step["granted"] for name, step in project.show()["steps"].items()}
    assert granted["train"]["image"]["name"] == bookworm
    assert "image" not in granted["make"] and "image" not in granted["report"]


def test_commands_see_its_own_files(project: Project, bookworm: str) -> None:
    project.write(
        "p.yaml",
        f"""
stoker: 1
name: p
steps:
  look:
    run: . /etc/os-release; echo $VERSION_CODENAME > $STOKER_OUTPUT/code; dpkg-query -W libc6 > $STOKER_OUTPUT/libc
    outputs: [code, libc]
    backend: docker
    docker: {{parent_image: {bookworm}}}
""",
    )
    outputs = project.run()["steps"]["look"]["outputs"]
    assert Path(outputs["code"]["path"]).read_text() == f"{SUITE}\n"
    assert Path(outputs["libc"]["path"]).read_text().startswith("libc6:")


def test_doctor_says_what_it_holds(project: Project, bookworm: str) -> None:
    said = project.stoker("doctor", "--image", bookworm, "--inside", "--json").stdout
    python_s = [f["text"] for f in json.loads(said)["findings"] if f["topic"] == "python"]
    assert any("3.11" in text for text in python_s), said
