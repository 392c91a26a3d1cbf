"""Typical mistakes: each names the user's file and line, the wrong thing and a fix."""

from __future__ import annotations

import subprocess

import pytest
from cli_tools import PYTHON, Cli

HEAD = "from stoker import pipeline, step, ResourceSettings\n"
END = "\nif __name__ == '__main__': p()\n"
TRAIN = "@step\ndef train(lr: float = 0.1) -> float: return lr\n"
BARE = "@step\ndef train(lr: float) -> float: return lr\n"

PROGRAMS = {
    "condition": (
        TRAIN + "@pipeline\ndef p():\n    loss = train()\n    if loss > 1: train()",
        ["prog.py:7: ", "'train'", "compared", "inside of a step"],
    ),
    "truth": (
        TRAIN + "@pipeline\ndef p():\n    if train(): train()",
        ["prog.py:6: ", "'train'", "condition", "inside of a step"],
    ),
    "sum": (
        TRAIN + "@pipeline\ndef p():\n    a = 1 + train()",
        ["prog.py:6: ", "'train'", "calculated with", "inside of a step"],
    ),
    "item": (
        TRAIN + "@pipeline\ndef p():\n    a = train()[0]",
        ["prog.py:6: ", "'train'", "taken apart", "inside of a step"],
    ),
    "keyword": (
        TRAIN + "@pipeline\ndef p():\n    train(rate=0.1)",
        ["prog.py:6: ", "'train'", "'rate'", "it takes 'lr'"],
    ),
    "missing argument": (
        BARE + "@pipeline\ndef p():\n    train()",
        ["prog.py:6: ", "'train'", "'lr'", "train(lr=...)"],
    ),
    "gpu": (
        "@step(gpu=2)\ndef a() -> None: pass\n@pipeline\ndef p(): a()",
        ["prog.py:2: ", "'a'", "'gpu'", "ResourceSettings(gpu_count=2)"],
    ),
    "option": (
        "@step(retrry=1)\ndef a() -> None: pass\n@pipeline\ndef p(): a()",
        ["prog.py:2: ", "'a'", "'retrry'", "did you mean 'retry'?"],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("door", ["stoker run", "python"])
def test_program(cli: Cli, name: str, door: str) -> None:
    text, parts = PROGRAMS[name]
    cli.write("prog.py", HEAD + text + END)
    program = [str(cli.binary), "run", "--python", PYTHON] if door == "stoker run" else [PYTHON]
    done = subprocess.run(
        [*program, "prog.py"],
        cwd=cli.folder,
        env=cli.env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2 and done.stdout == "", done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith(f"stoker: {parts[0]}") and all(part in line for part in parts), line


def document(steps: str) -> str:
    return f"stoker: 1\nname: p\nsteps:\n{steps}"


DOCUMENTS = {
    "undeclared parameter": (
        "  a: {run: 'echo $STOKER_PARAM_lr'}",
        ["p.yaml:4: ", "'a'", "$STOKER_PARAM_lr", "inputs: {lr: {param: lr}}"],
    ),
    "in braces": ("  a: {run: 'echo ${STOKER_PARAM_lr}'}", ["p.yaml:4: ", "$STOKER_PARAM_lr"]),
    "two of one name": (
        "  a: {run: 'true'}\n  a: {run: 'false'}",
        ["p.yaml:5: ", "'a'", "line 4", "keep one"],
    ),
    "indentation": (
        "  a:\n    run: echo hi\n   outputs: [x]",
        ["p.yaml:6: ", "line 4"],
    ),
    "key": ("  a: {rnu: 'true'}", ["p.yaml:4: ", "'a'", "'rnu'", "did you mean 'run'?"]),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document(cli: Cli, name: str) -> None:
    steps, parts = DOCUMENTS[name]
    cli.write("p.yaml", document(steps))
    done = cli("run", "p.yaml")
    assert done.code == 2 and not cli.store.exists()
    [line] = done.err.splitlines()
    assert line.startswith(f"stoker: {parts[0]}") and all(part in line for part in parts), line


@pytest.mark.parametrize(
    "run",
    [
        "echo ${STOKER_PARAM_lr:-0.1} ${STOKER_PARAM_lr-0.1} STOKER_PARAM_lr",
        "STOKER_PARAM_x=1 env",
        "echo $STOKER_PARAM_n",
    ],
)
def test_parameters_that_are_no_mistake(cli: Cli, run: str) -> None:
    cli.write(
        "p.yaml",
        f"stoker: 1\nname: p\nparameters: {{n: 3}}\nsteps:\n"
        f"  a: {{run: '{run}', inputs: {{n: {{param: n}}}}}}\n",
    )
    assert cli("run", "p.yaml").code == 0


def test_a_step_that_fails(cli: Cli) -> None:
    for step, parts in (
        ({"run": "true", "outputs": ["model"]}, ["'model'", "$STOKER_OUTPUT/model"]),
        ({"run": ["trian", "--x"]}, ["'trian'", "no such program in PATH"]),
        ({"run": "sleep 9", "timeout": 0.2}, ["timeout", "200 ms"]),
    ):
        done = cli.run({"a": step})
        assert done.code == 1
        [line] = [line for line in done.err.splitlines() if line.startswith("✗ a failed")]
        assert all(part in line for part in parts), line
