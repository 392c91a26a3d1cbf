"""The image that brings our program into pods (`stoker carry --image`), in a real Podman."""

from __future__ import annotations

import filecmp
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stoker_binary import find_binary

STOKER = str(find_binary())
NAME = "localhost/stoker-runner:test"


def same(a: Path, b: Path) -> bool:
    names = sorted(str(p.relative_to(a)) for p in a.rglob("*"))
    files = [n for n in names if (a / n).is_file()]
    return names == sorted(str(p.relative_to(b)) for p in b.rglob("*")) and filecmp.cmpfiles(
        a, b, files, shallow=False
    ) == (files, [], [])


@pytest.fixture(scope="module")
def carried(podman: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image, loaded from its file; the folder that is in it."""
    folder = tmp_path_factory.mktemp("runner") / "stoker"
    image = folder.parent / "image.tar"
    subprocess.run([STOKER, "carry", folder], check=True)
    subprocess.run([STOKER, "carry", "--image", NAME, "--tar", image], check=True)
    podman("load", "-i", str(image))
    yield folder
    podman("rmi", "-f", NAME)


def test_it_copies_itself(podman: Any, carried: Path, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    for _ in range(2):  # an init container that is started again
        podman("run", "--rm", "-v", f"{volume}:/carried", NAME, "carry", "/carried")
        assert same(carried, volume)
    image = json.loads(podman("image", "inspect", NAME).stdout)[0]
    assert image["Config"]["Entrypoint"] == ["/stoker/bin/stoker"]
    assert len(image["RootFS"]["Layers"]) == 1  # nothing but what was copied


@pytest.mark.parametrize("of", ["debian", "scratch"])
def test_as_a_pod_has_it(
    podman: Any, carried: Path, request: pytest.FixtureRequest, tmp_path: Path, of: str
) -> None:
    """Nobody's rights, nothing to write but volumes: the init container, then the program in the step's own image."""
    image = request.getfixturevalue(of)  # one has a shell and a libc, the other neither
    volume, work = tmp_path / "volume", tmp_path / "work"
    for folder in (volume, work):
        folder.mkdir()
        folder.chmod(0o777)
    nobody = ["run", "--rm", "--user", "65534:65534", "--read-only", "--read-only-tmpfs=false"]
    podman(*nobody, "-v", f"{volume}:/carried", NAME, "carry", "/carried")
    assert same(carried, volume)
    mounts = ["-v", f"{volume}:/stoker:ro", "-v", f"{work}:/work"]
    program = [*nobody, *mounts, "--entrypoint", "/stoker/bin/stoker", image]
    carried.rename(carried.with_name("away"))  # what was copied runs where nothing else is
    try:
        assert "run" in podman(*program, "help").stdout
        with pytest.raises(RuntimeError, match=r"'runs/r/a/0/1/job\.json' isn't in store '/work'"):
            podman(*program, "agent", "/work", "runs/r/a/0/1")  # as far as it gets without one
    finally:
        carried.with_name("away").rename(carried)
