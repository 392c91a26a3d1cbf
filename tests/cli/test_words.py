"""Arguments on either side of a Python file: options of Stoker, of the program, and of neither."""

from __future__ import annotations

import json

import pytest
from cli_tools import PYTHON, Cli

PROGRAM = """
import os, sys
print(sys.argv[1:], os.environ["STOKER_RUN_OPTIONS"])
"""
FLOW = """
import os, sys
FlowSpec = object  # Parameter("mode")
print(sys.argv[1:], os.environ["STOKER_RUN_OPTIONS"])
"""
OPTIONS = [
    (["--policy", "strict"], {"policy": "strict"}),
    (["--no-cache"], {"no_cache": True}),
    (["-p", "lr=0.5"], {"params": {"lr": "0.5"}}),
    (["-plr=0.5", "--param=n=-1"], {"params": {"lr": "0.5", "n": "-1"}}),
    (["--with", "kubernetes"], {"with": "kubernetes"}),
    (["--stack=lab"], {"with": "lab"}),
    (["-j", "3"], {"max_workers": 3}),
    (["--max_workers=3"], {"max_workers": 3}),
    (["-q", "--echo"], {"quiet": True, "echo": True}),
    (["--mode", "fail_fast", "--run-name", "x"], {"mode": "fail_fast", "run_name": "x"}),
]


def options_of(text: str) -> tuple[list[str], dict[str, object]]:
    words, _, options = text.strip().partition("] ")
    return eval(words + "]"), json.loads(options)


@pytest.mark.parametrize(("words", "expected"), OPTIONS, ids=lambda p: " ".join(map(str, p)))
def test_either_side(cli: Cli, words: list[str], expected: dict[str, object]) -> None:
    cli.write("p.py", PROGRAM)
    python = ("--python", PYTHON)
    for line in (
        [*python, *words, "p.py"],
        [*python, "p.py", *words],
        ["p.py", *words, *python],
        ["p.py", *python, *words, "--", "--lr", "1", "--no-cache"],
    ):
        done = cli("run", *line)
        assert done.code == 0 and done.err == "", (line, done.err)
        own, options = options_of(done.out)
        assert own == (["--lr", "1", "--no-cache"] if "--" in line else [])
        assert {key: options[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--polcy", "strict"], ["'--polcy'", "'--policy'"]),
        (["--epochs", "3"], ["'--epochs'"]),
        (["-x"], ["'-x'"]),
        (["train"], ["'train'"]),
        (["--no-cache", "train"], ["'train'"]),
        (["lr=0.5"], ["'lr=0.5'", "--param lr=0.5"]),
        (["train", "--", "--epochs"], ["'train'"]),
    ],
)
def test_neither(cli: Cli, words: list[str], named: list[str]) -> None:
    cli.write("p.py", PROGRAM)
    done = cli("run", "p.py", *words)
    assert done.code == 2 and done.out == "" and len(done.err.splitlines()) == 1
    for text in [*named, "stoker run p.py -- "]:
        assert text in done.err, done.err


@pytest.mark.parametrize("command", ["plan", "build"])
@pytest.mark.parametrize("word", ["train", "--epochs", "lr=1"])
def test_neither_in_other_commands(cli: Cli, command: str, word: str) -> None:
    cli.write("p.py", PROGRAM)
    done = cli(command, "p.py", word)
    assert done.code == 2 and done.out == ""
    assert f"'{word}'" in done.err and f"stoker {command} p.py -- " in done.err
    assert ("--param" in done.err) == (command == "plan" and word == "lr=1")


def test_a_value_that_is_wrong(cli: Cli) -> None:
    cli.write("p.py", PROGRAM)
    for words in (["--policy", "nice"], ["-p", "lr"], ["-j", "0"], ["--run-name"]):
        before, behind = cli("run", *words, "p.py"), cli("run", "p.py", *words)
        assert behind.code == 2 and behind.out == ""
        if len(words) > 1:
            assert before.err == behind.err


def test_help_behind(cli: Cli) -> None:
    cli.write("p.py", "raise SystemExit('it ran')")
    for word in ("--help", "-h"):
        done = cli("run", "p.py", word)
        assert done.code == 0 and done.out == cli("run", "--help").out


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["run", "--alpha", "3"], ["run", "--alpha", "3"]),
        (["--alpha", "-3", "--no-cache"], ["--alpha", "-3"]),
        (["run", "--with", "retry", "--max-workers", "4"], None),
        (["run", "--help"], None),
        (["show", "--policy", "fit"], None),
        (["--", "--mode", "fast"], ["--mode", "fast"]),
    ],
)
def test_words_of_a_flow(cli: Cli, words: list[str], own: list[str] | None) -> None:
    cli.write("f.py", FLOW)
    done = cli("run", "--python", PYTHON, "f.py", *words)
    assert done.code == 0 and done.err == "", done.err
    assert options_of(done.out)[0] == (words if own is None else own)


def test_a_word_that_both_have(cli: Cli) -> None:
    """Stoker's option wins, with a note where to put the flow's parameter."""
    cli.write("f.py", FLOW)
    done = cli("run", "--python", PYTHON, "f.py", "--mode", "fail_fast")
    own, options = options_of(done.out)
    assert own == [] and options["mode"] == "fail_fast"
    assert "--mode" in done.err and "stoker run f.py -- --mode" in done.err
    assert cli("run", "--python", PYTHON, "--mode", "fail_fast", "f.py").err == ""
    assert cli("run", "--python", PYTHON, "f.py", "--mode", "fail_fast", "-q").err == ""


def test_no_such_file(cli: Cli) -> None:
    done = cli("run", "none.py", "--epochs", "3")
    assert done.code == 2 and "none.py" in done.err and "--epochs" not in done.err


REAL_FLOW = """
from stoker.flow import FlowSpec, step
class F(FlowSpec):
    @step
    def start(self): self.next(self.end)
    @step
    def end(self): pass
if __name__ == "__main__": F()
"""


def test_a_decorator_before_the_flow(cli: Cli) -> None:
    """Before the file `--with` names a stack."""
    cli.write("f.py", REAL_FLOW)
    for command in ("run", "plan"):
        done = cli(command, "--python", PYTHON, "--with", "retry:times=2", "f.py", timeout=60)
        assert done.code == 1 and "f.py --with retry:times=2" in done.err, done.err
        assert "'retry' is a decorator; write it after the file" in done.err
    assert cli("run", "--python", PYTHON, "f.py", "--with", "retry:times=2", timeout=60).code == 0
