"""Typical mistakes: each names the user's file and line, the wrong thing and a fix."""

from __future__ import annotations

import json
import re
import subprocess
import venv

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
    "missing parameter": (
        "@step\ndef a(x: int) -> None: pass\n@pipeline\ndef p(x: int):\n    a(x)",
        ["prog.py:", "'p'", "'x'", "--param x=VALUE"],
    ),
    "gpu": (
        "@step(gpu=2)\ndef a() -> None: pass\n@pipeline\ndef p(): a()",
        ["prog.py:2: ", "'a'", "'gpu'", "ResourceSettings(gpu_count=2)"],
    ),
    "method": (
        "class M:\n    @step\n    def a(self) -> None: pass\n@pipeline\ndef p(): M().a()",
        ["prog.py:6: ", "'a' is a method", "outside of the class"],
    ),
    "too many": (
        TRAIN + "@pipeline\ndef p(): train(1, 2)",
        ["prog.py:5: ", "'train'", "too many"],
    ),
    "load": (
        TRAIN + "@pipeline\ndef p(): train().load()",
        ["prog.py:5: ", "'train'", "doesn't exist yet", "inside of a step"],
    ),
    "unpacked": (
        TRAIN + "@pipeline\ndef p():\n    x, y = train()",
        ["prog.py:6: ", "'train'", "one output", "Tuple["],
    ),
    "no JSON": (
        BARE + "@pipeline\ndef p(): train(lambda: 1)",
        ["prog.py:5: ", "'train'", "'lr'", "ExternalArtifact(value=...)"],
    ),
    "arguments by star": (
        "@step\ndef a(*args) -> None: pass\n@pipeline\ndef p(): a(1)",
        ["prog.py:2: ", "'a'", "name the argument '*args'"],
    ),
    "after nobody": (
        TRAIN + "@pipeline\ndef p(): train(after='b')",
        ["prog.py:5: ", "'train'", "'b'"],
    ),
    "duration": (
        "@step(timeout='soon')\ndef a() -> None: pass\n@pipeline\ndef p(): a()",
        ["prog.py:2: ", "'a'", "'soon'", "'90s'"],
    ),
    "memory": (
        "@step(settings={'resources': ResourceSettings(memory='2 gigs')})\ndef a() -> None: pass\n"
        "@pipeline\ndef p(): a()",
        ["prog.py:2: ", "'2 gigs'", "'8GB'"],
    ),
    "resource": (
        "@step(settings={'resources': {'gpu': 2}})\ndef a() -> None: pass\n@pipeline\ndef p(): a()",
        ["prog.py:2: ", "'a'", "'gpu'", "did you mean 'gpu_count'?"],
    ),
    "option": (
        "@step(retrry=1)\ndef a() -> None: pass\n@pipeline\ndef p(): a()",
        ["prog.py:2: ", "'a'", "'retrry'", "did you mean 'retry'?"],
    ),
}

DOORS = ["python prog.py", "stoker run prog.py", "stoker run prog.py:p", "stoker plan prog.py:p"]


def by_door(cli: Cli, door: str, text: str) -> subprocess.CompletedProcess[str]:
    cli.write("prog.py", text)
    words = door.split()
    program = [PYTHON, words[1]]
    if words[0] == "stoker":
        program = [str(cli.binary), words[1], "--python", PYTHON, words[2]]
    return subprocess.run(
        program, cwd=cli.folder, env=cli.env, capture_output=True, text=True, timeout=60
    )


def sentence(cli: Cli, door: str, text: str, status: int) -> str:
    """The only line that a program which can't begin prints, by one of its doors."""
    done = by_door(cli, door, text)
    assert done.returncode == status and done.stdout == "", done.stderr
    [line] = done.stderr.splitlines()
    return line


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("door", DOORS)
def test_program(cli: Cli, name: str, door: str) -> None:
    text, parts = PROGRAMS[name]
    line = sentence(cli, door, HEAD + text + END, 2)
    assert line.startswith(f"stoker: {parts[0]}") and all(part in line for part in parts), line


IMPORTS = {
    "relative": ("from .utils import x", ["prog.py:2: ", "relative import", "from utils import x"]),
    "missing": (
        "import jsonn",
        ["prog.py:2: ", "'jsonn'", "did you mean 'json'?", "pip install jsonn"],
    ),
}


@pytest.mark.parametrize("name", IMPORTS)
@pytest.mark.parametrize("door", DOORS)
def test_import(cli: Cli, name: str, door: str) -> None:
    text, parts = IMPORTS[name]
    line = sentence(cli, door, f"{HEAD}{text}\n", 1)
    assert all(part in line for part in parts), line


@pytest.mark.parametrize("door", ["python prog.py", "stoker run prog.py"])
def test_an_exception_in_the_body(cli: Cli, door: str) -> None:
    """Python's traceback has the user's lines only."""
    text = f"{HEAD}{TRAIN}@pipeline\ndef p():\n    open('x', 'w').write(train())\n{END}"
    done = by_door(cli, door, text)
    places = re.findall('File "(.*)", line ([0-9]+)', done.stderr)
    assert [(path.rpartition("/")[2], line) for path, line in places] == [
        ("prog.py", "8"),
        ("prog.py", "6"),
    ]
    assert done.returncode == 1 and "must be str, not StepArtifact" in done.stderr


@pytest.mark.parametrize(
    "text", ["from zenml import stp", "import os\nfrom zenml.nothere import y"]
)
def test_what_a_stand_in_lacks(cli: Cli, text: str) -> None:
    cli.write("prog.py", text + "\n")
    done = cli("compat", "--", PYTHON, "prog.py", timeout=60)
    [line] = done.err.splitlines()
    assert done.code == 1 and line.startswith(f"stoker: prog.py:{len(text.splitlines())}: ")
    assert "Stoker's stand-in for zenml has no" in line


def test_a_client_that_finds_nothing(cli: Cli) -> None:
    """The step's log ends at the user's line."""
    cli.write(
        "prog.py",
        "from zenml import pipeline, step\nfrom zenml.client import Client\n@step\ndef a() -> None:\n"
        "    Client().get_artifact_version('nothing')\n@pipeline\ndef p(): a()\np()\n",
    )
    done = cli("compat", "--", PYTHON, "prog.py", timeout=60)
    assert done.code == 1 and "there is no artifact version 'nothing'" in done.err
    assert "prog.py" in done.err and "_zen" not in done.err, done.err


def test_a_step_of_a_module_that_is_not_there(cli: Cli) -> None:
    ran = cli.run({"a": {"python": "nomod:f"}}, "--python", PYTHON)
    assert ran.code == 1 and "module 'nomod' is not installed" in ran.cause("a")
    assert "importlib" not in ran.err + ran.text("a", "stderr"), ran.err


@pytest.mark.parametrize("name", ["prog.py", "p.yaml"])
def test_a_file_without_a_command(cli: Cli, name: str) -> None:
    done = cli(name)
    assert done.code == 2 and f"did you mean 'stoker run {name}'?" in done.err


def test_each_command_is_suggested(cli: Cli) -> None:
    for name in [one["command"] for one in json.loads(cli("help", "--json").out)["commands"]]:
        assert f"did you mean '{name}'?" in cli(f"{name}{name[-1]}").err, name


@pytest.mark.parametrize("door", [door for door in DOORS if door.startswith("stoker")])
@pytest.mark.parametrize("name", IMPORTS)
def test_import_above_that_of_stoker(cli: Cli, name: str, door: str) -> None:
    """`python FILE` can't: stoker isn't there yet."""
    text, parts = IMPORTS[name]
    line = sentence(cli, door, f"{text}\n{HEAD}", 1)
    assert all(part.replace(":2:", ":1:") in line for part in parts), line


def test_a_python_that_has_no_stoker(cli: Cli) -> None:
    venv.create(cli.folder / "bare", symlinks=True)
    cli.write("prog.py", HEAD)
    del cli.env["PYTHONPATH"]
    done = cli("run", "--python", cli.folder / "bare/bin/python", "prog.py")
    assert done.code == 1 and "pip install stoker" not in done.err
    assert "prog.py:1: module 'stoker' is not installed in " in done.err
    assert done.err.rstrip().endswith(
        "(install Stoker's wheel there, or name another Python: stoker run --python)"
    )


def test_a_program_finds_its_environment(cli: Cli) -> None:
    """Whatever `stoker run` sets for it: PYTHONPATH and a sitecustomize of the user's are as without."""
    cli.write("mine/sitecustomize.py", "import sys\nsys.mine = True\n")
    cli.write(
        "prog.py", "import os, sys\nprint([*sys.path[1:]], sorted(os.environ.items()), sys.mine)\n"
    )
    cli.env["PYTHONPATH"] = f"{cli.folder}/mine:{cli.env['PYTHONPATH']}"
    told = [
        subprocess.run(
            [*words, "prog.py"], cwd=cli.folder, env=cli.env, capture_output=True, text=True
        ).stdout
        for words in ([PYTHON], [str(cli.binary), "run", "--python", PYTHON])
    ]
    ours = re.compile(r"\('(STOKER_(RUN_OPTIONS|BIN)|_)', '.*?'\), ")
    assert "True" in told[0] and ours.sub("", told[1]) == ours.sub("", told[0])


FAILING = {
    "a str for an int": (
        "@step\ndef a() -> int:\n    return '12'\n",
        ["prog.py:2", "'a' returned '12', of type str", "'-> int'", "return int('12')"],
    ),
    "nothing": (
        "@step\ndef a() -> int:\n    x = 1\n",
        ["prog.py:2", "'a' returned nothing", "'-> int'", "'return'"],
    ),
    "one of two": (
        "from typing import Tuple\n@step\ndef a() -> Tuple[int, dict]:\n    return 1, 'x'\n",
        ["prog.py:3", "'a' returned 'x', of type str", "'output_1'", "'-> dict'"],
    ),
    "no such file": (
        "@step\ndef a() -> int:\n    return len(open('prog.pyy').read())\n",
        ["prog.py:4", "'prog.pyy'", "looked for in", "did you mean 'prog.py'?"],
    ),
    "no such file, by a library": (
        "import gzip\n@step\ndef a() -> int:\n    return len(gzip.open('x.gz').read())\n",
        ["prog.py:5", "'x.gz'", "the folder in which the program was started"],
    ),
    "time is over": (
        "import time\n@step(timeout=0.5)\ndef a() -> int:\n    while True: time.sleep(0.01)  # sleeps: it hangs\n",
        ["timeout", "500 ms", 'prog.py", line 5 in a'],
    ),
    "a question": (
        "@step\ndef a() -> int:\n    return int(input('how many? '))\n",
        ["prog.py:4", "EOFError", "as a parameter"],
    ),
    "Ctrl-C in a step": (
        "@step\ndef a() -> int:\n    raise KeyboardInterrupt\n",
        ["prog.py:4", "KeyboardInterrupt"],
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_python_step_that_fails(cli: Cli, name: str) -> None:
    """The error names the step and the user's line, and the next step doesn't start."""
    text, parts = FAILING[name]
    cli.write(
        "prog.py",
        f"{HEAD}{text}@step\ndef b() -> None: open('b', 'w')\n@pipeline\ndef p():\n    a()\n    b(after='a')\n{END}",
    )
    done = cli("run", "prog.py")
    assert done.code == 1 and not (cli.folder / "b").exists()
    shown = "".join(
        line for line in done.err.splitlines() if line.startswith(("✗ a failed", "    (at"))
    )
    assert all(part in shown for part in parts), shown
    ours = ("site-packages", "gzip.py", "stoker/_worker", "stoker/_engine")
    assert not any(path in done.err for path in ours), done.err


def test_a_step_with_a_timeout_may_fork(cli: Cli) -> None:
    """Its child has no thread that writes stacks, and waits for none; the step still has one."""
    text = (
        "import faulthandler, os, time\n@step(timeout=2)\ndef a() -> None:\n"
        "    if os.fork() == 0:\n        faulthandler.cancel_dump_traceback_later()\n        os._exit(0)\n"
        "    os.wait()\n    print('forked', flush=True)\n    while True: time.sleep(0.01)  # sleeps: it hangs\n"
    )
    cli.write("prog.py", f"{HEAD}{text}@pipeline\ndef p(): a()\n{END}")
    done = cli("run", "prog.py")
    assert done.out == "forked\n" and 'prog.py", line 10 in a' in done.err


RIGHT = {
    "float": "1",
    "Optional[int]": "None",
    "Union[int, str]": "'x'",
    "list": "(1, 2)",
    "List[int]": "[1]",
    "Dict[str, int]": "{'a': 1}",
    "bool": "True",
    "int": "True",
    "Any": "None",
    "object": "None",
    "Annotated[float, 'loss']": "2",
}


@pytest.mark.parametrize("annotation", RIGHT)
def test_what_a_step_may_return(cli: Cli, annotation: str) -> None:
    cli.write(
        "prog.py",
        "from typing import *\nfrom typing import Annotated\n"
        f"{HEAD}@step\ndef a() -> {annotation}:\n    return {RIGHT[annotation]}\n@pipeline\ndef p(): a()\n{END}",
    )
    assert cli("run", "prog.py").code == 0


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
    "after": ("  a: {run: 'true', after: b}", ["p.yaml:4: ", "'a'", "'after'", "list of steps"]),
    "outputs": ("  a: {run: 'true', outputs: m}", ["p.yaml:4: ", "'a'", "list of names", "'m'"]),
    "count": (
        "  a: {run: 'true', resources: {gpu_count: two}}",
        ["p.yaml:4: ", "'a'", "'resources.gpu_count'", "'two'"],
    ),
    "resource": (
        "  a: {run: 'true', resource: {gpu_count: 2}}",
        ["p.yaml:4: ", "'a'", "did you mean 'resources'?"],
    ),
    "duration": (
        "  a: {run: 'true', timeout: 10 minutes}",
        ["p.yaml:4: ", "'a'", "'timeout'", "10m"],
    ),
    "rank": ("  a: {run: 'true', gang: {rank: 4}}", ["p.yaml:4: ", "'gang'", "'ranks'"]),
    "no output": (
        "  a: {run: 'true', inputs: {x: {from: b.o}}}\n  b: {run: 'true'}",
        ["p.yaml:4: ", "'a'", "'b' declares no outputs"],
    ),
    "tab": ("  a:\n\trun: 'true'", ["p.yaml:5: ", "indent with spaces"]),
    "colon": ('  a:\n    run: echo "x: y"', ["p.yaml:5: ", "quote text that holds ': '"]),
    "a list": ("  - a: {run: 'true'}", ["p.yaml:4: ", "'steps'", "mapping"]),
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


@pytest.mark.parametrize("door", ["python prog.py", "stoker run prog.py"])
def test_a_home_that_is_no_absolute_path(cli: Cli, door: str) -> None:
    cli.env["HOME"] = "rel"
    done = by_door(cli, door, f"{HEAD}{TRAIN}@pipeline\ndef p(): train()\n{END}")
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
