"""Inputs can't be changed: by an unprivileged user, by ranks, by the user's own loaders."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import ROOT, Cli
from stoker_binary import find_binary
from test_inputs_kept import FOLDER, LARGE, LIST, ONE, SMALL, WAYS, before, can_mount, check, make

NOBODY = 65534


class Unprivileged(Cli):
    """`stoker` as an unprivileged user, with a copy of the engine in a folder of that user."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        shutil.copy(self.binary, folder / "stoker")
        self.binary = folder / "stoker"
        words = ["--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups"]
        self.as_user = ["setpriv", *words, "--inh-caps=-all", "--no-new-privs"]
        script = f'#!/bin/sh\nexec {" ".join(self.as_user)} {folder}/engine "$@"\n'
        self.binary.rename(folder / "engine")
        self.binary.write_text(script)
        self.binary.chmod(0o755)
        self.env["HOME"] = str(folder)

    def write(self, name: str, text: str) -> Path:
        path = super().write(name, text)
        os.chown(path, NOBODY, NOBODY)
        return path


@pytest.fixture
def nobody() -> Iterator[Unprivileged]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can be another user, by setpriv")
    folder = Path(tempfile.mkdtemp(prefix="stoker-inputs-"))
    os.chown(folder, NOBODY, NOBODY)
    made = Unprivileged(folder)
    yield made
    made.close()
    shutil.rmtree(folder)


def test_who_it_is(nobody: Unprivileged) -> None:
    run = nobody.run({"who": {"run": ["sh", "-c", "id -u; grep CapEff /proc/self/status"]}})
    assert run.code == 0, run.err
    assert run.text("who").split() == [str(NOBODY), "CapEff:", "0" * 16]
    assert nobody.store.stat().st_uid == NOBODY


# A user may change the modes of their files: these changes reach linked files, and are found after
# the step.
OPENS = ("opens it for writing first",)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("way", [way for way in WAYS if way not in OPENS])
def test_a_file(nobody: Unprivileged, way: str, size: int) -> None:
    steps = {"make": make(size)}
    was = before(nobody, steps)
    for place in ("$STOKER_INPUT_x", "$STOKER_INPUT/x"):
        check(nobody, steps, was, f"F={place}; {WAYS[way]}", ONE)


@pytest.mark.parametrize("way", ["overwrites", "appends", "truncates", "edits", "removes", "moves"])
def test_a_file_in_a_folder(nobody: Unprivileged, way: str) -> None:
    steps = {"make": FOLDER}
    was = before(nobody, steps)
    for name in ("a", "sub/b"):
        check(nobody, steps, was, f"F=$STOKER_INPUT_x/{name}; {WAYS[way]}", ONE)


def test_a_list(nobody: Unprivileged) -> None:
    steps = {"make": make(LARGE), "other": make(SMALL)}
    was = before(nobody, steps)
    check(nobody, steps, was, "for F in $STOKER_INPUT_x/*; do echo y > $F; done", LIST)


@pytest.mark.parametrize("made", [make(LARGE), FOLDER], ids=["a large file", "a folder"])
def test_who_opens_it_first_is_found_out(nobody: Unprivileged, made: dict) -> None:
    """The user owns the store, so only a mount could forbid it; the step fails and says so."""
    assert nobody.run({"make": made}).code == 0
    hurt = "F=$STOKER_INPUT_x; [ -d $F ] && F=$F/a; chmod u+w $(dirname $F) $F; echo y >> $F"
    steps = {"make": made, "hurts": {"run": ["sh", "-c", hurt], "inputs": ONE}}
    run = nobody.run(steps)
    assert run.code == 1
    assert "input 'x' was changed while the step ran" in run.cause("hurts")
    assert len(list((nobody.store / "quarantine").iterdir())) == 1
    again = nobody.run({"make": made, "reads": {"run": ["true"], "inputs": ONE}})
    assert again.statuses == {"make": "succeeded", "reads": "succeeded"}


# --- ranks ---


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("way", ["overwrites", "appends", "edits", "removes", "moves another there"])  # fmt: skip
def test_ranks(cli: Cli, way: str, size: int) -> None:
    """Each rank in turn, and all at once: they share the step's files, which aren't those of the
    store."""
    if size == LARGE and os.geteuid() == 0 and not can_mount():
        pytest.skip("no mounts here: the change is found after the step")
    steps = {"make": make(size)}
    was = before(cli, steps)
    hurt = WAYS[way].replace("> t;", "> t$RANK;").replace(" t $F", " t$RANK $F")
    for who in ('[ "$RANK" = 1 ] || exit 0', ":"):
        step = {
            "run": ["sh", "-c", f"{who}; F=$STOKER_INPUT_x; {hurt}\ntrue"],
            "inputs": ONE,
            "gang": {"ranks": 2},
            "cache": False,
        }
        run = cli.run({**steps, "hurts": step}, timeout=120)
        assert run.code == 0, run.err
    check(cli, steps, was, "true", ONE)


# --- Python ---

PROGRAM = """
import os, sys
from stoker import pipeline, step
import stoker.materializers as materializers

class Graph:
    def __init__(self, text): self.text = text

class GraphMaterializer(materializers.BaseMaterializer):
    ASSOCIATED_TYPES = (Graph,)
    def save(self, data):
        with open(os.path.join(self.uri, "graph"), "w") as f: f.write(data.text)
    def load(self, data_type):
        path = os.path.join(self.uri, "graph")
        with open(path) as f: text = f.read()
        if os.environ.get("HURTS") == "1" or os.environ.get("RANK") == "1":
            os.chmod(path, 0o644)
            with open(path, "a") as f: f.write("!")
        return Graph(text)

@step
def make() -> Graph:
    return Graph("abc")

@step(enable_cache=False{more})
def read(graph: Graph) -> int:
    return len(graph.text)

@pipeline
def p():
    read(make())

if __name__ == "__main__":
    p()
"""


def of_python(cli: Cli, more: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    cli.write("prog.py", PROGRAM.replace("{more}", more))
    return subprocess.run(
        [sys.executable, "prog.py"],
        cwd=cli.folder,
        env={**cli.env, "STOKER_BIN": str(find_binary()), "PYTHONPATH": str(ROOT / "python"), **env},
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip


def is_found(cli: Cli, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode != 0
    shown = cli.json("show", "latest")
    said = json.dumps(shown["steps"]["read"]["error"])
    assert "input 'graph' was changed while the step ran" in said, said
    assert len(list((cli.store / "quarantine").iterdir())) == 1


def test_a_loader_that_writes_is_found_out(cli: Cli) -> None:
    """The user's own materializer gets the stored path."""
    assert of_python(cli).returncode == 0
    assert cli.json("show", "latest")["steps"]["read"]["status"] == "succeeded"
    is_found(cli, of_python(cli, HURTS="1"))
    assert of_python(cli).returncode == 0  # the input is made again
    shown = cli.json("show", "latest")["steps"]
    assert shown["make"]["status"] == "succeeded"
    assert Path(shown["read"]["outputs"]["output"]["path"]).read_text() == "3"


def test_a_rank_whose_loader_writes_is_found_out(cli: Cli) -> None:
    more = ", gang=2"
    is_found(cli, of_python(cli, more))
