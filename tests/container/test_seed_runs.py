"""ZenML's GPU pages (tests/data/seeds) unchanged, in containers: `image_map` puts a local image in the place of theirs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from image_tools import pip_tree, wheel
from test_run import ROOT, Project

sys.path.insert(0, str(ROOT / "tests" / "compat"))
sys.path.insert(0, str(ROOT / "tests" / "python"))
from test_seeds import IMAGE, PRELUDES, REQUIREMENTS, program

TAIL = """
if __name__ == "__main__":
    run = my_pipeline(lr=4)
    print(json.dumps([run.steps["training_step"].output.load(), run.notes]))
"""


@pytest.fixture(scope="session")
def parent(podman: Any, debian: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What stands for pytorch/pytorch: pip, and a wheel that is called torchvision."""
    reference = "localhost/stoker-test-seeds-uv:" + debian.rpartition(":")[2]
    if not podman.has_image(reference):
        folder = tmp_path_factory.mktemp("seeds")
        pip_tree(folder / "tree")
        wheel(folder / "tree" / "wheels", "torchvision", "0.1", {"torchvision.py": ""})
        stand_in = (
            folder / "tree" / "usr" / "local" / "bin" / "uv"
        )  # their default installer isn't in our wheelhouse
        stand_in.parent.mkdir(parents=True, exist_ok=True)
        stand_in.write_text(
            '#!/bin/sh\n[ "$1 $2 $3" = "pip install --python" ] || exit 2\nshift 4\nexec python3 -m pip install "$@"\n'
        )
        stand_in.chmod(0o755)
        (folder / "Dockerfile").write_text(
            f"FROM {debian}\nCOPY tree /\nENV PIP_NO_INDEX=1 PIP_FIND_LINKS=/wheels PIP_BREAK_SYSTEM_PACKAGES=1\n"
        )
        podman("build", "-q", "-t", reference, str(folder))
    return reference


@pytest.mark.parametrize("block", PRELUDES)
def test_blocks_run_in_containers(
    tmp_path: Path, podman: Any, debian: str, parent: str, block: str
) -> None:
    folder = tmp_path / "proj"
    folder.mkdir()
    project = Project(folder, podman)
    image = parent if block in REQUIREMENTS else debian
    project.write(
        "stoker.yaml",
        f"stacks:\n  lab: {{backend: docker, image_map: {{'{IMAGE}': '{image}'}}}}\n",
    )
    (folder / "prog.py").write_text(program(block, TAIL))
    shim = ROOT / "python" / "stoker" / "_compat"
    project.env["PYTHONPATH"] = os.pathsep.join([str(shim), str(ROOT / "python")])
    project.env["STOKER_ACCEL"] = "none"
    done = project.stoker("run", "--with", "lab", "--python", sys.executable, "prog.py")
    value, notes = json.loads(done.stdout.strip().splitlines()[-1])
    assert value == 8.0
    assert any("GPU" in note for note in notes), notes
    step = project.show()["steps"]["training_step"]
    assert step["granted"]["image"]["name"] == IMAGE
    built = step["granted"]["image"]["id"] != podman.api("GET", f"/images/{image}/json")[1]["Id"]
    assert built == (block in REQUIREMENTS)
