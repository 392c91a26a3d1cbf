"""Kills at any moment, on either side: no task is lost or done twice, and nothing is left
running."""

# ruff: noqa: F401, F811 - the fixture of test_engine
from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from cluster import Cluster
from conftest import ROOT, STOKER
from test_engine import Project, project
from test_taken_over import Machine, other, show, steps, three
from waiting import wait_for

POINTS = int(os.environ.get("STOKER_REMOTE_POINTS", "12"))  # `make crash` asks for more
AGENT_POINTS = [
    point
    for point in re.findall(r'X\("(agent\.[a-z.]+)"', (ROOT / "src/tbl/failpoints.def").read_text())
    # nobody has claimed the attempt there; pilots are Slurm's (tests/slurm)
    if point != "agent.begin" and not point.startswith("agent.pilot.")
]


def finish(project: Project, run: str, most: int = 3) -> str:
    """Resumes until it has succeeded; returns the output."""
    said = ""
    for _ in range(most):
        done = project("resume", run)
        said += done.stderr
        if done.returncode == 0:
            return said
    raise AssertionError(said)


def check(project: Project, cluster: Cluster, run: str) -> None:
    shown = show(project, run)
    assert steps(shown) == dict.fromkeys("abc", "succeeded")
    assert project("logs", f"{run}/c").stdout == "from a\n"
    assert len(cluster.history) == len(set(cluster.history)) == 3, "each attempt had one job"
    # what an engine that was killed could not clean up any more has ended: the cluster's own time
    # limit for what is finished removes it
    over = {*cluster.forgotten, *cluster.done}
    assert over >= set(cluster.history), "nothing is left running"


def count_passes(project: Project) -> int:
    """Points that an engine passes in such a run."""
    done = subprocess.run(
        [STOKER, "run", three(project, 0.1), "--with", "prod"], cwd=project.folder, text=True, capture_output=True,
        env=project.env | {"STOKER_FAILPOINTS": "*:1+:log"}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return len(re.findall(r"failpoint", done.stderr))


def test_engine_killed_anywhere(project: Project, cluster: Cluster) -> None:
    passes = count_passes(project)
    assert passes > 20
    shares = project.folder.parent / "share"
    for number in range(POINTS):
        at = 1 + number * (passes - 1) // POINTS
        cluster.history.clear()
        cluster.forgotten.clear()
        document = three(project, 0.1, cache=False)
        engine = subprocess.run(
            [STOKER, "run", document, "--with", "prod", "--no-cache"], cwd=project.folder, text=True,
            env=project.env | {"STOKER_FAILPOINTS": f"*:{at}:kill"}, capture_output=True, timeout=60,
        )  # fmt: skip
        listed = json.loads(project("runs", "--json").stdout)
        if engine.returncode == 0 or not listed or listed[0]["status"] == "succeeded":
            continue  # before there was a run, or after its end
        run = listed[0]["run"] if "run" in listed[0] else listed[0]["id"]
        try:
            finish(project, run)
            check(project, cluster, run)
        except AssertionError as e:
            raise AssertionError(f"killed at pass {at} of {passes}: {e}\n{engine.stderr}") from e
    assert shares.is_dir()


@pytest.mark.parametrize("point", AGENT_POINTS)
def test_agent_killed(project: Project, cluster: Cluster, point: str) -> None:
    """Its pod ends with it: the attempt is lost, and the next one does the work."""
    save = "mkdir -p $STOKER_CHECKPOINT_DIR; echo s > $STOKER_CHECKPOINT_DIR/s; sleep 0.5; head -c 200000 /dev/zero > $STOKER_TASK_DIR/large;"
    document = project.document(
        {"a": {"run": f"{save} echo from a > $STOKER_OUTPUT/x", "outputs": ["x"]}, "b": {"run": "cat $STOKER_INPUT_x", "inputs": {"x": {"from": "a.x"}}}}
    )  # fmt: skip
    cluster.env["STOKER_FAILPOINTS"] = f"{point}:1:exit"
    engine = project.begin("run", document, "--with", "prod")
    wait_for(lambda: cluster.history, why="the first pod was made")
    del cluster.env["STOKER_FAILPOINTS"]
    _, said = engine.communicate(timeout=120)
    assert engine.returncode == 0, said
    shown = show(project)
    assert shown["steps"]["a"]["attempts"] == 2 and shown["steps"]["b"]["status"] == "succeeded"
    assert project("logs", "latest/b").stdout == "from a\n"


def test_machines_by_turns(project: Project, cluster: Cluster, other: Machine) -> None:
    """Each engine is killed while the middle step runs; another machine takes the run each time."""
    engine = project.begin("run", three(project, 6), "--with", "prod")
    cluster.pod("-b-")
    run = show(project)["run"]
    wait_for(
        lambda: len(list((project.folder.parent / f"share/runs/{run}/log").glob("*"))) >= 3,
        why="its log",
    )
    engine.kill()
    engine.wait()
    with other:
        engine = project.begin("resume", run, "--stack", "prod")
        wait_for(lambda: (other.store / "runs" / run / "share.json").exists(), why="it is here")
        wait_for(
            lambda: '"owner":""' not in (other.store / "runs" / run / "share.json").read_text(),
            why="it is taken",
        )
        engine.kill()
        engine.wait()
    done = project("resume", run)
    assert done.returncode == 0, done.stderr
    assert steps(show(project, run)) == dict.fromkeys("abc", "succeeded")
    assert len(cluster.history) == len(set(cluster.history)) == 3
