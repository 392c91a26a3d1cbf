"""A command that changes its inputs doesn't change the store."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_tools import WAIT_S, Cli

SMALL, LARGE = 1000, 3_000_000


def can_mount() -> bool:
    return subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


def make(size: int) -> dict[str, Any]:
    return {
        "run": ["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x > $STOKER_OUTPUT/out"],
        "outputs": ["out"],
    }


FOLDER = {
    "run": [
        "sh",
        "-c",
        "mkdir -p $STOKER_OUTPUT/out/sub; for i in a sub/b; do echo x > $STOKER_OUTPUT/out/$i; done",
    ],
    "outputs": ["out"],
}
ONE = {"x": {"from": "make.out"}}
LIST = {"x": [{"from": "make.out"}, {"from": "other.out"}]}
WAYS = {
    "overwrites": "echo y > $F",
    "appends": "echo y >> $F",
    "truncates": "truncate -s 1 $F",
    "edits": "sed -i s/x/y/ $F",
    "packs": "gzip -f $F",
    "removes": "rm -f $F",
    "moves": "mv $F $F.old",
    "moves another there": "echo y > t; mv -f t $F",
    "opens it for writing first": "chmod u+w $F; echo y > $F",
    "changes what it is reached by": "chmod u+w $(dirname $F); echo y > t; mv -f t $F",
}


def content(store: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(store)): p.read_bytes()
        for p in sorted((store / "artifacts").rglob("*"))
        if p.is_file()
    }


def before(cli: Cli, steps: dict[str, Any]) -> dict[str, bytes]:
    """The store with the outputs of the steps, before a step reads them."""
    assert cli.run(steps).code == 0
    return content(cli.store)


def check(
    cli: Cli, steps: dict[str, Any], was: dict[str, bytes], command: str, inputs: dict[str, Any]
) -> None:
    step = {"run": ["sh", "-c", f"{command}\ntrue"], "inputs": inputs, "cache": False}
    run = cli.run({**steps, "hurts": step})
    assert run.code == 0, run.err
    assert content(cli.store) == was
    assert not (cli.store / "quarantine").exists()
    again = cli.run({**steps, "reads": {"run": ["true"], "inputs": inputs}})
    assert [s for n, s in again.statuses.items() if n != "reads"] == ["cached"] * len(steps)


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("way", WAYS)
def test_a_file(cli: Cli, way: str, size: int) -> None:
    if size == LARGE and os.geteuid() == 0 and not can_mount():
        pytest.skip("no mounts here: the change is found after the step")
    steps = {"make": make(size)}
    was = before(cli, steps)
    for place in ("$STOKER_INPUT_x", "$STOKER_INPUT/x"):
        check(cli, steps, was, f"F={place}; {WAYS[way]}", ONE)


@pytest.mark.parametrize("way", WAYS)
def test_a_file_in_a_folder(cli: Cli, way: str) -> None:
    if os.geteuid() == 0 and not can_mount():
        pytest.skip("no mounts here: the change is found after the step")
    steps = {"make": FOLDER}
    was = before(cli, steps)
    for name in ("a", "sub/b"):
        check(cli, steps, was, f"F=$STOKER_INPUT_x/{name}; {WAYS[way]}", ONE)


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_list(cli: Cli, size: int) -> None:
    if size == LARGE and os.geteuid() == 0 and not can_mount():
        pytest.skip("no mounts here: the change is found after the step")
    steps = {"make": make(size), "other": make(size + 1)}
    was = before(cli, steps)
    check(
        cli, steps, was, "for F in $STOKER_INPUT_x/*; do echo y > $F; sed -i s/x/y/ $F; done", LIST
    )


def test_what_is_its_own_it_may_change_and_another_sees_nothing_of_it(cli: Cli) -> None:
    edit = "sed -i s/x/y/ $STOKER_INPUT_x; head -c 1 $STOKER_INPUT_x"
    look = "head -c 1 $STOKER_INPUT_x"
    run = cli.run(
        {
            "make": make(SMALL),
            "edits": {"run": ["sh", "-c", edit], "inputs": ONE},
            "looks": {"run": ["sh", "-c", look], "inputs": ONE, "after": ["edits"]},
        }
    )
    assert run.code == 0
    assert (run.text("edits"), run.text("looks")) == ("y", "x")


def test_a_large_file_and_a_folder_can_be_read_as_before(cli: Cli) -> None:
    command = "cp -r $STOKER_INPUT_d $STOKER_OUTPUT/d; cp $STOKER_INPUT_f $STOKER_OUTPUT/f; find $STOKER_INPUT_d -type f | wc -l"
    run = cli.run(
        {
            "file": make(LARGE),
            "folder": FOLDER,
            "reads": {
                "run": ["sh", "-c", command],
                "inputs": {"f": {"from": "file.out"}, "d": {"from": "folder.out"}},
                "outputs": ["d", "f"],
            },
        }
    )
    assert run.code == 0, run.err
    assert run.text("reads").strip() == "2"
    outputs = {
        n: run.steps[s]["outputs"][o]["digest"]
        for n, s, o in [("f", "file", "out"), ("d", "folder", "out")]
    }
    assert {n: run.steps["reads"]["outputs"][n]["digest"] for n in "fd"} == outputs


def test_many_large_inputs(cli: Cli) -> None:
    steps = {f"m{i}": make(LARGE // 20 + i) for i in range(70)}
    inputs = {f"i{i}": {"from": f"m{i}.out"} for i in range(70)}
    was = before(cli, steps)
    check(cli, steps, was, "for F in $STOKER_INPUT/*; do echo y > $F; done", inputs)


@pytest.mark.parametrize("command", ["true", "false"])
def test_a_change_past_all_guards_is_found_and_named(cli: Cli, command: str) -> None:
    """By a program that finds the file outside the step's inputs."""
    done = "\n".join(
        [
            "import glob, os, sys",
            f"path, = [p for p in glob.glob({str(cli.store)!r} + '/artifacts/*/*') if os.path.getsize(p) == {LARGE}]",
            "os.chmod(path, 0o644)",
            "with open(path, 'r+b') as f: f.write(b'!')",
        ]
    )
    cli.write("hurt.py", done)
    hurt = f"echo > begun; while [ ! -e hurt ]; do sleep 0.01; done; {command}"
    name = cli.document({"make": make(LARGE), "reads": {"run": ["sh", "-c", hurt], "inputs": ONE}})
    run = cli.start("run", name)
    cli.until("begun", 60)
    subprocess.run([shutil.which("python3") or "python3", "hurt.py"], cwd=cli.folder, check=True)
    cli.write("hurt", "")
    assert run.wait(WAIT_S) == 1
    shown = cli.json("show", "latest")
    cause = shown["steps"]["reads"]["error"]["cause"]
    said = cause if command == "true" else cli("show", "latest").out
    assert "input 'x' was changed while the step ran" in said
    assert command == "true" or cause == "exit status 1"
    assert len(list((cli.store / "quarantine").iterdir())) == 1
    os.remove(cli.folder / "hurt")
    cli.write("hurt", "")
    assert cli("resume", "latest", timeout=60).code == (0 if command == "true" else 1)


def test_a_hook_sees_the_inputs_and_can_t_change_them_either(cli: Cli) -> None:
    steps = {"make": make(SMALL), "other": make(LARGE)}
    was = before(cli, steps)
    hook = {
        "run": "for F in $STOKER_INPUT_x $STOKER_INPUT_l; do head -c 1 $F >> seen; echo y > $F; done; true"
    }
    run = cli.run(
        {
            **steps,
            "reads": {
                "run": ["true"],
                "inputs": {"x": {"from": "make.out"}, "l": {"from": "other.out"}},
                "hooks": {"on_success": hook},
                "cache": False,
            },
        }
    )
    assert run.code == 0
    assert (cli.folder / "seen").read_text() == "xx"
    assert content(cli.store) == was
