"""`stoker runs`: parameters and metrics of runs, filtered and sorted."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import termios

import pytest
from cli_tools import PYTHON, WAIT_S, Cli

PROGRAM = """
import sys
from stoker import log_metadata, pipeline, step
@step
def train(lr: float, kind: str) -> float:
    log_metadata({"loss": 1 - lr, "model": kind, "curve": [1, 2]})
    return lr * 2
@step
def check(value: float) -> bool: return value > 0.3
@pipeline(enable_cache=False)
def p(lr: float = 0.1, kind: str = "mlp"): check(train(lr, kind))
@pipeline(enable_cache=False)
def other(n: int = 3): check(float(n))
if __name__ == "__main__":
    p(lr=0.1); p(lr=0.3, kind="tree"); p(lr=0.2); other()
"""


@pytest.fixture
def four(cli: Cli) -> Cli:
    cli.write("prog.py", PROGRAM)
    assert cli("run", "-q", "--python", PYTHON, "prog.py", timeout=120).code == 0
    return cli


def rates(cli: Cli, *words: str) -> list[float | None]:
    return [one["parameters"].get("lr") for one in json.loads(cli("runs", "--json", *words).out)]


def test_where_and_sort(four: Cli) -> None:
    assert rates(four) == [None, 0.2, 0.3, 0.1]
    for words, expected in {
        ("--where", "lr>0.15"): [0.2, 0.3],
        ("--where", "lr >= 0.2", "--where", "kind=mlp"): [0.2],
        ("--where", "kind!=mlp"): [0.3],
        ("--where", "train<=0.4"): [0.2, 0.1],
        ("--where", "train.loss<0.75"): [0.3],
        ("--where", "loss==0.9"): [0.1],
        ("--where", "check=false"): [0.1],
        ("--where", "pipeline=p", "--where", "status=succeeded", "--where", "duration<1h"): [0.2, 0.3, 0.1],
        ("--sort", "lr"): [0.1, 0.2, 0.3, None],
        ("--sort", "-train"): [0.3, 0.2, 0.1, None],
        ("--sort", "loss", "-n", "2"): [0.3, 0.2],
        ("--sort", "created", "p"): [0.1, 0.3, 0.2],
        ("--sort", "model", "-w", "lr>0"): [0.2, 0.1, 0.3],
        ("--where", "lr>7"): [],
    }.items():  # fmt: skip
        assert rates(four, *words) == expected, words
    assert "for which this holds" in four("runs", "--where", "lr>7").out
    for words, part in {
        ("--where", "losss>1"): "did you mean 'loss'?",
        ("--sort", "-lrr"): "did you mean 'lr'?",
        ("--where", "lr"): "--where 'lr'",
        ("--where", "lr=<3"): "--where 'lr=<3'",
        ("--where", ">3"): "--where '>3'",
        ("--where", "lr>"): "no value behind '>'",
    }.items():
        wrong = four("runs", *words)
        assert wrong.code == 2 and part in wrong.err and wrong.out == "", words


def test_metrics_of_all_attempts(cli: Cli) -> None:
    """An attempt that goes on from a checkpoint logs only what is new."""
    log = """echo '{"loss": %s}' >> $STOKER_METRICS"""
    run = f"test -e seen && exit 1; touch seen; {log % 0.25}; exit 1"
    cli.run({"a": {"run": f"cd {cli.folder}; {run}", "retry": {"max_retries": 1}}})
    (one,) = json.loads(cli("runs", "--json").out)
    assert one["metrics"] == {"a.loss": 0.25}


def test_a_name_of_two_values(cli: Cli) -> None:
    steps = {name: {"run": "echo '{\"loss\": 1}' >> $STOKER_METRICS"} for name in ("a", "b")}
    cli.run(steps)
    wrong = cli("runs", "--sort", "loss")
    assert wrong.code == 2 and "'loss' may be 'a.loss' or 'b.loss'; say which" in wrong.err
    assert cli("runs", "--sort", "b.loss").code == 0


def test_columns(four: Cli) -> None:
    head, *rows = four("runs", "p").out.splitlines()
    assert head.split()[:7] == ["run", "pipeline", "status", "started", "time", "lr", "kind"]
    assert len(rows) == 3 and all("0." in row for row in rows)
    named = four("runs", "--sort", "-loss", "--where", "model=mlp").out.splitlines()
    assert named[0].split()[5:7] == ["model", "loss"] and len(named) == 3
    first = json.loads(four("runs", "--json", "-n", "1", "p").out)[0]
    assert first["metrics"] == {
        "train.loss": 0.8,
        "train.model": "mlp",
        "train": 0.4,
        "check": True,
    }
    bare = json.loads(four("runs", "--json", "--no-values").out)
    assert len(bare) == 4 and "metrics" not in bare[0]


@pytest.mark.parametrize(
    "pipeline, columns, has_started",
    [("p", 80, True), ("long-" * 20, 80, False), ("long-" * 20, 140, True)],
)
def test_a_line_fits_the_terminal(cli: Cli, pipeline: str, columns: int, has_started: bool) -> None:
    """Where room is scarce the pipeline is cut, and the start, which an id has too, is left out."""
    cli.write("p.json", json.dumps({"stoker": 1, "name": pipeline, "steps": {"a": {"run": ":"}}}))
    assert cli("run", "p.json").code == 0
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    assert cli.start("runs", stdout=slave, env={"NO_COLOR": "1"}).wait(WAIT_S) == 0
    head, line = os.read(master, 65536).decode().splitlines()
    os.close(master)
    os.close(slave)
    assert max(len(head), len(line)) <= columns and " time " in f"{head} "
    assert ("started" in head) == has_started


def test_of_a_growing_run(cli: Cli) -> None:
    cli.write(
        "flow.py",
        "from stoker.flow import FlowSpec, Parameter, step\n"
        "class F(FlowSpec):\n"
        '    rate = Parameter("rate", default=0.5)\n'
        "    @step\n    def start(self):\n        self.parts = [1, 2, 3]\n"
        '        self.next(self.one, foreach="parts")\n'
        "    @step\n    def one(self):\n        self.x = self.input\n        self.next(self.join)\n"
        "    @step\n    def join(self, inputs):\n        self.total = sum(i.x for i in inputs)\n"
        "        self.next(self.end)\n"
        "    @step\n    def end(self): pass\n"
        'if __name__ == "__main__": F()\n',
    )
    assert cli("run", "-q", "--python", PYTHON, "flow.py", "run", timeout=120).code == 0
    (found,) = json.loads(cli("runs", "--json", "--where", "total=6").out)
    assert found["parameters"]["rate"] == 0.5
    assert not any(name.startswith("one.") for name in found["metrics"])
