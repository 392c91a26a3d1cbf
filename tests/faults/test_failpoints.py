"""Each place of store, share and agent that opens or reads a file or a folder fails once, in each way that fits: the
error is a sentence, nothing is lost or deleted, and a second try works."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
STOKER = find_binary()
POINTS = ("sys.open", "sys.read", "sys.dir.open", "sys.dir.read")
WAYS = {"sys.open": "emfile", "sys.read": "eio", "sys.dir.open": "eacces", "sys.dir.read": "enomem"}
ENV = {"STOKER_SYNC": "0", "STOKER_SHARE_WAIT": "1"}
PASS = re.compile(r"^failpoint (\S+) (\d+)$", re.M)

DOCUMENT = {
    "stoker": 1,
    "name": "p",
    "steps": {
        "make": {
            "run": "mkdir $STOKER_OUTPUT/tree; echo one > $STOKER_OUTPUT/tree/a; echo two > $STOKER_OUTPUT/tree/b; "
            "echo three > $STOKER_OUTPUT/file",
            "outputs": ["tree", "file"],
        },
        "use": {
            "run": 'cat "$STOKER_INPUT_tree/a" "$STOKER_INPUT_file" > $STOKER_OUTPUT/all',
            "inputs": {"tree": {"from": "make.tree"}, "file": {"from": "make.file"}},
            "outputs": ["all"],
        },
    },
}


class Place:
    """A project, a share and a second project, made once and copied for each failure."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.share = folder, folder / "share"
        self.here, self.there = folder / "here", folder / "there"

    def stoker(
        self, *words: str | Path, at: Path | None = None, failpoints: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [STOKER, *words], cwd=at or self.here, text=True, capture_output=True, timeout=120,
            env=os.environ | ENV | {"STOKER_FAILPOINTS": failpoints} | env,
        )  # fmt: skip

    def copy(self, folder: Path) -> Place:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder, symlinks=True)
        return Place(folder)


def made(folder: Path) -> Place:
    place = Place(folder)
    for project in (place.here, place.there):
        project.mkdir(parents=True)
        (project / "stoker.yaml").write_text("stacks: {}\n")
        (project / "p.json").write_text(json.dumps(DOCUMENT))
    return place


def outputs(place: Place) -> dict[str, str]:
    """Digests of the last run's outputs, by step and name."""
    shown = place.stoker("show", "latest", "--json")
    assert shown.returncode == 0, shown.stderr
    steps = json.loads(shown.stdout)["steps"]
    return {
        f"{step}.{name}": output["digest"]
        for step, about in steps.items()
        for name, output in about["outputs"].items()
    }


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One run has been made here; its outputs are in the share."""
    place = made(tmp_path_factory.mktemp("ready"))
    (place.there / "p.json").write_text('{"stoker":1,"name":"q","steps":{"t":{"run":"true"}}}')
    for project in (place.here, place.there):
        ran = place.stoker("run", "p.json", at=project)
        assert ran.returncode == 0, ran.stderr
    for digest in outputs(place).values():
        assert place.stoker("share", "push", place.share, digest).returncode == 0
    yield place


def verify(place: Place, at: Path) -> None:
    said = place.stoker("store", "verify", at=at)
    assert said.returncode == 0, said.stdout + said.stderr


def places_of(log: str) -> dict[str, int]:
    """Each failpoint that was passed, and how often."""
    passed: dict[str, int] = {}
    for name, _ in PASS.findall(log):
        passed[name] = passed.get(name, 0) + 1
    return passed


# What is done → the words, and the project that it is done in.
COMMANDS = {
    "run": (("run", "p.json"), "here"),
    "run again": (("run", "--no-cache", "p.json"), "here"),
    "gc": (("store", "gc"), "here"),
    "verify": (("store", "verify"), "here"),
    "push": (("share", "push", "SHARE", "TREE"), "here"),
    "pull": (("share", "pull", "SHARE", "TREE"), "there"),
    "pull file": (("share", "pull", "SHARE", "FILE"), "there"),
    "ls": (("share", "ls", "SHARE"), "here"),
    "get": (("share", "get", "SHARE", "artifacts/KEY", "got"), "here"),
    "put": (("share", "put", "SHARE", "a/b", "p.json"), "here"),
    "rm": (("share", "rm", "SHARE", "artifacts/KEY"), "here"),
    "show": (("show", "latest", "--json"), "here"),
}


def is_clear(done: subprocess.CompletedProcess[str]) -> bool:
    """Whether it ended by itself, with a sentence if it failed."""
    said = PASS.sub("", done.stdout + done.stderr).strip()
    return done.returncode == 0 or (0 < done.returncode < 126 and len(said) > 20)


@pytest.mark.parametrize("what", COMMANDS)
def test_each_place_fails_once(ready: Place, tmp_path: Path, what: str) -> None:
    words, project = COMMANDS[what]
    of = outputs(ready)
    key = of["make.file"][:2] + "/" + of["make.file"][2:]
    names = {"TREE": of["make.tree"], "FILE": of["make.file"], "artifacts/KEY": f"artifacts/{key}"}

    def begin(place: Place, failpoints: str) -> subprocess.CompletedProcess[str]:
        own = [str(place.share) if w == "SHARE" else names.get(w, w) for w in words]
        return place.stoker(*own, at=place.folder / project, failpoints=failpoints)

    def fresh() -> Place:
        place = ready.copy(tmp_path / "place")
        if what == "push":
            shutil.rmtree(place.share)
        return place

    log = begin(fresh(), ",".join(f"{point}:1+:log" for point in POINTS))
    assert log.returncode == 0, log.stderr
    passed = places_of(log.stderr)
    assert len(passed) >= 2, passed
    for name, n in sorted(passed.items()):
        for at in {1, n}:
            place = fresh()
            before = outputs(place)
            done = begin(place, f"{name}:{at}:{WAYS[name.split('/')[0]]}")
            where = (what, name, at, done.returncode, done.stderr)
            assert is_clear(done), where
            second = begin(place, "")
            assert second.returncode == 0, (*where, second.stderr)
            verify(place, place.folder / project)
            for digest in before.values():  # nothing that was there is gone
                below = f"{digest[:2]}/{digest[2:]}"
                assert (place.here / ".stoker/artifacts" / below).exists(), where
                in_share = place.share / "artifacts" / below
                is_there = in_share.exists() or in_share.with_name(digest[2:] + ".tree").exists()
                assert is_there or what in ("rm", "push"), where
            assert "run" in what or outputs(place) == before, where
    print(f"{what}: {len(passed)} places")
