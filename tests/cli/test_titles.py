"""Several calls of one step: people read what differs between them, and may type it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cli_tools import PYTHON, Cli

SWEEP = """
from stoker import pipeline, step

@step
def load() -> int:
    return 3

@step
def fit(data: int, lr: float, depth: int = 2) -> float:
    print("rate", lr)
    if lr > 0.6:
        raise ValueError("diverged")
    return data * lr * depth

@step
def score(m: float) -> float:
    return m

@pipeline
def sweep(last: float = 0.3):
    data = load()
    fits = [fit(data, lr=lr) for lr in (0.1, 0.2)]
    fits.append(fit(data, lr=last))
    for one in fits:
        score(one)

if __name__ == "__main__":
    sweep()
"""

TITLES = {
    "load": "load",
    "fit": "fit[lr=0.1]",
    "fit_2": "fit[lr=0.2]",
    "fit_3": "fit[lr=0.7]",
    "score": "score[fit]",
    "score_2": "score[fit_2]",
    "score_3": "score[fit_3]",
}


@pytest.fixture
def swept(cli: Cli) -> Cli:
    cli.write("sweep.py", SWEEP)
    return cli


def test_titles_are_shown(swept: Cli) -> None:
    plan = swept("plan", "sweep.py", "-p", "last=0.7")
    assert all(f"  {title} " in plan.out for title in TITLES.values()), plan.out
    planned = swept.json("plan", "sweep.py", "-p", "last=0.7")
    assert {s["step"]: s["title"] for s in planned["steps"]} == TITLES

    done = swept("run", "sweep.py", "-p", "last=0.7")
    assert done.code == 1
    assert "failed    fit[lr=0.7]" in done.err and "start     score[fit_2]" in done.err
    assert "fit[lr=0.7] failed: ValueError" in done.err
    assert "because of 'fit[lr=0.7]'" in done.err
    assert "stoker logs fit_3 · stoker why fit_3" in done.err  # commands have the name

    shown = swept.json("show", "latest")
    assert {name: step["title"] for name, step in shown["steps"].items()} == TITLES
    assert "'fit[lr=0.7]' failed" in shown["error"]
    assert "✓ fit[lr=0.2] " in swept("show").out
    assert "'fit[lr=0.7]' failed" in swept("why").out
    assert "fit[lr=0.1] | rate 0.1" in swept("logs").out
    assert "fit[lr=0.7]" in Path(swept("card").out.strip()).read_text()


def test_titles_are_understood(swept: Cli) -> None:
    swept("run", "sweep.py", "-p", "last=0.7")
    run = swept.json("show", "latest")["run"]
    assert swept("logs", "fit[lr=0.2]").out == "rate 0.2\n"
    assert swept("logs", f"{run}/fit[lr=0.2]").out == "rate 0.2\n"
    assert swept("logs", run, "fit[lr=0.2]").out == "rate 0.2\n"
    assert swept("show", "fit[lr=0.2]").out.startswith("✓ fit[lr=0.2] (fit_2) succeeded")
    assert swept("show", "score[fit_2]").out.startswith("✓ score[fit_2] (score_2) succeeded")
    assert "'fit[lr=0.7]' failed" in swept("why", "fit[lr=0.7]").out
    assert swept.json("why", "fit[lr=0.7]")["step"] == "fit_3"
    assert "fit_2" in swept("card", "fit[lr=0.2]").out
    same = [swept("artifact", "path", f"{run}/{s}.output").out for s in ("fit_2", "fit[lr=0.2]")]
    assert same[0] == same[1] != ""
    wrong = swept("logs", "fit[lr=0.3]")
    assert wrong.code != 0 and "fit[lr=0." in wrong.err.partition("did you mean")[2]


def test_titles_in_python(swept: Cli) -> None:
    swept.write(
        "ask.py",
        "from sweep import sweep\nrun = sweep()\nstep = run.steps['fit[lr=0.2]']\n"
        "print('found', step.name, step.title, run.steps['fit_2'].title)\n",
    )
    env = {**swept.env, "STOKER_BIN": str(swept.binary), "STOKER_PRINTS": "off"}
    out = subprocess.check_output([PYTHON, "ask.py"], cwd=swept.folder, env=env, text=True)
    assert "found fit_2 fit[lr=0.2] fit[lr=0.2]" in out


def test_titles_among_runs(swept: Cli) -> None:
    swept("run", "sweep.py")
    swept("run", "sweep.py", "-p", "last=0.4")
    newest = swept("runs", "--where", "fit[lr=0.4]>2", "--sort", "fit[lr=0.4]").out.splitlines()
    assert len(newest) == 2 and "fit[lr=0.4]" in newest[0]
    found = swept.json("runs", "--where", "fit[lr=0.4] > 2")
    assert [run["parameters"]["last"] for run in found] == [0.4]
    assert found[0]["metrics"]["fit_3"] == found[0]["metrics"]["score_3"]  # JSON has names


SMALL = """
from stoker import pipeline, step

@step
def f(x: int) -> int:
    return x

@pipeline
def p(x: int = 2):
    f(1)
    f(x)

if __name__ == "__main__":
    p()
"""


def test_columns_are_titles(cli: Cli) -> None:
    cli.write("p.py", SMALL)
    cli("run", "p.py")
    cli("run", "p.py", "-p", "x=3")
    head, newest, oldest = cli("runs").out.splitlines()
    # the newest run's first; f_2 would be another call in each
    assert head.split()[-3:] == ["x", "f[x=3]", "f[x=2]"]
    assert [word.replace("–", "-") for word in newest.split()[-3:]] == ["3", "3", "-"]
    assert [word.replace("–", "-") for word in oldest.split()[-3:]] == ["2", "-", "2"]
