"""`-j N` runs N steps at once if they asked for no CPUs, however few CPUs there are."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from cli_tools import PYTHON, Cli

N = 30
# Ends once N steps run at the same time; a step that waits for a CPU never arrives.
MEET = """
import os, sys, time
def meet(folder, name, n):
    open(os.path.join(folder, name), "w").close()
    while len(os.listdir(folder)) < n:
        time.sleep(0.01)
"""
PIPELINE = """
from stoker import pipeline, step
from meet import meet
@step
def one(folder: str, name: str, n: int) -> None: meet(folder, name, n)
@pipeline
def p(folder: str, n: int):
    for i in range(n): one(folder, str(i), n)
"""
FLOW = """
from metaflow import FlowSpec, Parameter, step
from meet import meet
class F(FlowSpec):
    folder = Parameter("folder")
    n = Parameter("n", type=int)
    @step
    def start(self):
        self.names = [str(i) for i in range(self.n)]
        self.next(self.one, foreach="names")
    @step
    def one(self):
        meet(self.folder, self.input, self.n)
        self.next(self.join)
    @step
    def join(self, inputs): self.next(self.end)
    @step
    def end(self): pass
if __name__ == "__main__": F()
"""


@pytest.fixture
def folder(cli: Cli, tmp_path: Path) -> Path:
    cli.write("meet.py", MEET + "if __name__ == '__main__': meet(*sys.argv[1:3], int(sys.argv[3]))")
    cli.write(
        "prog.py",
        PIPELINE
        + "if __name__ == '__main__':\n    import sys\n    p(sys.argv[1], int(sys.argv[2]))\n",
    )
    cli.write("flow.py", FLOW.replace("metaflow", "stoker.flow"))
    made = tmp_path / "met"
    made.mkdir()
    return made


def steps(folder: Path, n: int) -> dict[str, object]:
    run = shlex.join([PYTHON, "meet.py", str(folder), "NAME", str(n)])
    return {f"s{i}": {"run": run.replace("NAME", str(i)), "timeout": 60} for i in range(n)}


@pytest.mark.parametrize("door", ["document", "python", "python behind", "flow"])
def test_all_at_once(cli: Cli, folder: Path, door: str) -> None:
    python = ("--python", PYTHON)
    if door == "document":
        done = cli.run(steps(folder, N), "-j", str(N))
    elif door == "python":
        done = cli("run", "-j", str(N), *python, "prog.py", "--", folder, str(N), timeout=120)
    elif door == "python behind":
        done = cli("run", "prog.py", *python, "-j", str(N), "--", folder, str(N), timeout=120)
    else:
        words = ["--max-workers", str(N), "--folder", folder, "--n", str(N)]
        done = cli("run", *python, "flow.py", "run", *words, timeout=120)
    assert done.code == 0, done.err
    assert len(list(folder.iterdir())) == N


def test_asked_for(cli: Cli, folder: Path) -> None:
    """A CPU that a step asked for belongs to it, also with -j."""
    n_cpus = len(os.sched_getaffinity(0))
    run = f"touch {folder}/NAME; sleep 0.2; ls {folder} | wc -l; rm {folder}/NAME"
    names = [f"s{i}" for i in range(n_cpus + 2)]
    asked = {
        name: {"run": run.replace("NAME", name), "resources": {"cpu_count": 1}} for name in names
    }
    done = cli.run(asked, "-j", str(N))
    assert done.code == 0, done.err
    assert all(1 <= int(done.text(name)) <= n_cpus for name in names)
