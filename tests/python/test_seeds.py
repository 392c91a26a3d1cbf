"""Random numbers: a seeded program draws the same ones in each run, wherever its steps run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from front_tools import environment, needed, needs_engine, run_python

pytestmark = needs_engine

DRAWS = """
import os
from typing import Any
from stoker import pipeline, step, torchrun
import random
{more}
{seed}

def draws() -> list:
    found = [random.random()]
    {draw}
    return found
"""
PIPELINE = """
@step(enable_cache=False{options})
def first() -> list:
    return draws()

{decorator}
@step(enable_cache=False{options})
def second() -> list:
    return draws()

@pipeline(enable_cache=False)
def one():
    first()
    second()

if __name__ == "__main__":
    {guarded}
    run = one()
    print("drawn", [run.steps[name].output.load() for name in ("first", "second")])
"""
NUMPY = ("import numpy", "numpy.random.seed(3)", "found.append(float(numpy.random.rand()))")
TORCH = ("import torch", "torch.manual_seed(4)", "found.append(float(torch.rand(1)))")


def drawn(folder: Path, text: str) -> Any:
    """The numbers that the program's steps drew."""
    out = run_python(folder, text).stdout
    return json.loads(next(x for x in out.split("\n") if x.startswith("drawn"))[6:])


def program(seed: bool, guarded: bool = False, libraries: Any = (), **kinds: str) -> str:
    more = "\n".join(one[0] for one in libraries)
    seeds = ["random.seed(42)", *(one[1] for one in libraries)] if seed else []
    draw = "; ".join(one[2] for one in libraries) or "pass"
    head = DRAWS.format(more=more, seed="" if guarded else "\n".join(seeds), draw=draw)
    body = {"options": "", "decorator": "", **kinds}
    return head + PIPELINE.format(guarded="; ".join(seeds) if guarded else "pass", **body)


# What makes each of them: a fork of the program, a fresh interpreter, a clean server, ranks.
THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"
WAYS: dict[str, dict[str, Any]] = {
    "fork": {},
    "guarded": {"guarded": True},
    "spawn": {"options": ', isolation="spawn"'},
    "spawn guarded": {"options": ', isolation="spawn"', "guarded": True},
    "clean": {"libraries": [(THREAD, "pass", "pass")], "guarded": True},
    "ranks": {"decorator": "@torchrun(nproc_per_node=2)"},
}


@pytest.mark.parametrize("way", WAYS)
def test_a_seeded_program_draws_the_same(tmp_path: Path, way: str) -> None:
    """At each run, with other numbers in each step; and others at each run where nothing was seeded."""
    runs = [drawn(tmp_path, program(True, **WAYS[way])) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]
    other = [drawn(tmp_path, program(False, **WAYS[way])) for _ in range(2)]
    assert len({tuple(one) for run in (*runs[:1], *other) for one in run}) == 6


def test_all_ways_draw_the_same(tmp_path: Path) -> None:
    """The numbers don't depend on where a step runs."""
    assert len({str(drawn(tmp_path, program(True, **given))) for given in WAYS.values()}) == 1


@pytest.mark.parametrize("guarded", [False, True])
def test_numpy(tmp_path: Path, guarded: bool) -> None:
    needed("numpy")
    both = [
        drawn(tmp_path, program(True, guarded, [NUMPY], options=options))
        for options in ("", ', isolation="spawn"')
    ]
    assert both[0] == both[1] and both[0][0] != both[0][1]
    free = [drawn(tmp_path, program(False, guarded, [NUMPY])) for _ in range(2)]
    assert len({one[1] for run in free for one in run}) == 4


@pytest.mark.torch
def test_torch(tmp_path: Path) -> None:
    """Loaded by the program, and by the step alone where it is a fresh interpreter."""
    needed("torch")
    both = [
        drawn(tmp_path, program(True, True, [NUMPY, TORCH], options=options))
        for options in ("", ', isolation="spawn"')
    ]
    assert both[0] == both[1] and both[0][0] != both[0][1]
    free = [drawn(tmp_path, program(False, False, [TORCH])) for _ in range(2)]
    assert len({one[1] for run in free for one in run}) == 4


RETRIED = """
import os, random
from stoker import StepRetryConfig, pipeline, step
random.seed(1)
@step(enable_cache=False, retry=StepRetryConfig(max_retries=1, delay=0))
def tried() -> None:
    print(random.random(), file=open("drawn", "a"))
    assert os.environ["STOKER_ATTEMPT"] == "2"
@pipeline
def one():
    tried()
if __name__ == "__main__":
    one()
"""


def test_a_retry_draws_the_same(tmp_path: Path) -> None:
    run_python(tmp_path, RETRIED)
    first, second = (tmp_path / "drawn").read_text().split()
    assert first == second


CACHED = """
import random
from stoker import pipeline, step
{seed}
@step
def draw() -> float:
    return random.random()
@pipeline
def one():
    draw()
if __name__ == "__main__":
    done = one().steps["draw"]
    print("state", done.status, done.body.get("miss"))
"""


def test_the_seed_is_part_of_the_key(tmp_path: Path) -> None:
    """With another seed the results are others, and the reason says so; without any all is as ever."""

    def state(seed: str) -> str:
        return run_python(tmp_path, CACHED.format(seed=seed)).stdout.split("state ")[1]

    assert "cached" not in state("random.seed(1)")
    assert "cached" in state("random.seed(1)")
    assert "random seeds" in state("random.seed(2)")
    assert "cached" not in state("")
    assert "cached" in state("")


FLOW = """
import random
from stoker.flow import FlowSpec, step
{seed}
class Draws(FlowSpec):
    @step
    def start(self):
        self.items = [1, 2, 3]
        self.next(self.work, foreach="items")
    @step
    def work(self):
        self.drawn = random.random()
        self.next(self.join)
    @step
    def join(self, inputs):
        self.all = [one.drawn for one in inputs]
        self.n, self.rounds = 0, []
        self.next(self.again)
    @step
    def again(self):
        self.n += 1
        self.rounds = [*self.rounds, random.random()]
        self.more = "yes" if self.n < 3 else "no"
        self.next({{"yes": self.again, "no": self.end}}, condition="more")
    @step
    def end(self):
        open("drawn", "a").write(repr([*self.all, *self.rounds]) + "\\n")
if __name__ == "__main__":
    Draws()
"""


def test_flows(tmp_path: Path) -> None:
    """Tasks of a foreach and rounds of a loop have different streams, which are the same at each run."""
    for seed in ("random.seed(1)", "random.seed(1)", "", ""):
        (tmp_path / "flow.py").write_text(FLOW.format(seed=seed))
        done = subprocess.run(
            [sys.executable, "flow.py", "run"],
            cwd=tmp_path,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    runs = [json.loads(one) for one in (tmp_path / "drawn").read_text().split("\n")[:-1]]
    assert runs[0] == runs[1]
    assert len({one for run in runs[1:] for one in run}) == 18


def test_a_program_that_draws_only_is_not_seeded(tmp_path: Path) -> None:
    text = """
    import random, stoker
    from stoker._worker import seeds
    random.random(); random.shuffle([1, 2])
    print(seeds.seeded())
    random.seed(5); print(sorted(seeds.seeded()))
    random.seed(); print(seeds.seeded())
    """
    assert run_python(tmp_path, text).stdout.split("\n")[:3] == ["{}", "['random']", "{}"]


def test_import_loads_no_library(tmp_path: Path) -> None:
    text = (
        "import sys, stoker\nprint([m for m in ('random', 'numpy', 'torch') if m in sys.modules])"
    )
    assert run_python(tmp_path, text).stdout.strip() == "[]"
