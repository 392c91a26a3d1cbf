"""The image that brings our program into pods (`make runner-image`), by a real Podman."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STOKER = os.environ.get("STOKER_BIN", str(ROOT / ".venv" / "bin" / "stoker"))
NAME = "localhost/stoker-runner:test"


def same(a: Path, b: Path) -> bool:
    names = sorted(str(p.relative_to(a)) for p in a.rglob("*"))
    files = [n for n in names if (a / n).is_file()]
    return names == sorted(str(p.relative_to(b)) for p in b.rglob("*")) and filecmp.cmpfiles(
        a, b, files, shallow=False
    ) == (files, [], [])


def test_it_copies_itself(podman: Any, tmp_path: Path) -> None:
    """Built as the Makefile says."""
    carried, volume = tmp_path / "runner/stoker", tmp_path / "volume"
    subprocess.run([STOKER, "carry", carried], check=True)
    recipe = re.search(r"printf '(FROM scratch.*?)' >", (ROOT / "Makefile").read_text())
    assert recipe is not None
    text = recipe[1].replace("\\n", "\n")
    (carried.parent / "Dockerfile").write_text(text)
    podman("build", "-t", NAME, str(carried.parent))
    volume.mkdir()
    for _ in range(2):  # an init container that is started again
        podman("run", "--rm", "-v", f"{volume}:/carried", NAME, "carry", "/carried")
        assert same(carried, volume)
    shutil.rmtree(carried)  # what was copied runs where nothing else is
    done = podman("run", "--rm", "-v", f"{volume}:/stoker", NAME, "help")
    assert "run" in done.stdout


@pytest.fixture(autouse=True)
def remove(podman: Any) -> Any:
    yield
    podman("rmi", "-f", NAME)
