"""What goes wrong around a run on a real Slurm: no task is lost, none runs twice, nothing is left running.

STOKER_SLURM_KILLS: how often test_killed_at_any_moment kills the engine (8); STOKER_SEED repeats one of its runs.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import SYSTEM, Cluster, Project
from waiting import wait_for

KILLS = int(os.environ.get("STOKER_SLURM_KILLS", "8"))
STEPS = int(os.environ.get("STOKER_SLURM_STEPS", "8"))
OPEN = "PENDING,RUNNING,COMPLETING,SUSPENDED,CONFIGURING"


def chains(ran: Path, n: int) -> dict[str, Any]:
    """Steps in two chains, a gang among them; each writes its number once."""
    steps: dict[str, Any] = {}
    for i in range(n):
        run = f"[ ${{RANK:-0}} = 0 ] || exit 0; echo {i} >> {ran}; echo {i} > $STOKER_OUTPUT/n"
        steps[f"s{i}"] = {"run": run, "outputs": ["n"], "after": [f"s{i - 2}"] if i >= 2 else []}
        if i % 8 == 3:
            steps[f"s{i}"]["gang"] = {"ranks": 1, "nodes": 2}
    return steps


def nothing_left(project: Project) -> None:
    wait_for(lambda: not project.cluster.jobs("s-", OPEN), why=project.cluster.jobs)


@pytest.mark.slow
def test_killed_at_any_moment(project: Project, tmp_path: Path) -> None:
    """The engine is killed again and again while steps run; each of them runs once."""
    seed = int(os.environ.get("STOKER_SEED", time.time_ns() % 100000))
    print("STOKER_SEED", seed)
    draw = random.Random(seed)
    ran = tmp_path / "ran"
    document = project.document(chains(ran, STEPS))
    engine, kills = project.begin("run", document, "--with", "lab"), 0
    while True:
        time.sleep(draw.uniform(0.05, 1.0))
        if kills < KILLS and engine.poll() is None:
            engine.kill()
            kills += 1
        out, err = engine.communicate(timeout=280)
        text = out + err
        over = engine.returncode == 0 or "has succeeded" in text  # before the kill
        anew = "no runs yet" in text or "no run 'latest'" in text  # it died before it had begun
        if over or not (anew or engine.returncode == -signal.SIGKILL):
            break
        words = ["run", document] if anew else ["resume", "latest"]
        engine = project.begin(*words, "--with", "lab")
    print("kills", kills)
    assert over, (seed, text)
    assert sorted(map(int, ran.read_text().split())) == list(range(STEPS)), seed
    told = project.show()["steps"]
    assert {(s["status"], s["attempts"]) for s in told.values()} == {("succeeded", 1)}, (seed, told)
    run = next(project.share.glob("runs/*")).name
    told_names = project.cluster.ask("squeue", "-h", "--states=all", "-o", "%k|%j").splitlines()
    names = [line.split("|")[1] for line in told_names if f"run {run} " in line]
    assert len(names) == len(set(names)) == STEPS, (seed, names)
    nothing_left(project)


def test_taken_over(project: Project, tmp_path: Path) -> None:
    """Another machine, with a folder and a store of its own, takes the run up and gets its results."""
    go, ran = tmp_path / "go", tmp_path / "ran"
    steps = {
        "a": {"run": f"echo a >> {ran}; until [ -e {go} ]; do sleep 0.1; done; echo 5 > $STOKER_OUTPUT/x", "outputs": ["x"]},
        "b": {"run": f"echo b >> {ran}; cat $STOKER_INPUT_x", "inputs": {"x": {"from": "a.x"}}},
    }  # fmt: skip
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for(ran.exists, why=project.cluster.jobs)
    engine.kill()
    engine.communicate(timeout=60)
    run = next(project.share.glob("runs/*")).name
    (elsewhere := tmp_path / "elsewhere").mkdir()
    other = Project(elsewhere, project.cluster, project.share)
    taker = other.begin("resume", run, "--stack", "lab")
    go.touch()
    out, err = taker.communicate(timeout=200)
    assert taker.returncode == 0, out + err
    assert ran.read_text() == "a\nb\n"
    assert "b | 5" in other("logs", run).stdout
    assert {s["attempts"] for s in other.show()["steps"].values()} == {1}
    nothing_left(project)


def test_slow_controller(project: Project, tmp_path: Path) -> None:
    """Each question takes seconds; the run takes longer and is right, and so is cancelling it."""
    (slow := tmp_path / "slow").mkdir()
    for name in ("squeue", "sbatch"):
        (slow / name).write_text(f'#!/bin/sh\nsleep 2\nPATH={SYSTEM} exec {name} "$@"\n')
        (slow / name).chmod(0o755)
    project.env["PATH"] = f"{slow}:{project.env['PATH']}"
    ran = tmp_path / "ran"
    steps = {**chains(ran, 3), "last": {"run": f"echo 3 >> {ran}", "after": ["s2"]}}
    done = project.run(steps)
    assert done.returncode == 0, done.stderr
    assert sorted(ran.read_text().split()) == ["0", "1", "2", "3"]
    engine = project.begin("run", project.document({"long": {"run": "sleep 300"}}), "--with", "lab")
    project.cluster.wait_for_job("-long-0-1", "RUNNING")
    assert project("cancel", "latest").returncode == 0
    engine.communicate(timeout=100)
    nothing_left(project)


def test_controller_refuses(project: Project, tmp_path: Path) -> None:
    """A queue that can't be read for another reason is told too, and the run goes on once it can be."""
    (programs := tmp_path / "programs").mkdir()
    (refuses := tmp_path / "refuses").touch()
    (programs / "squeue").write_text(
        f"#!/bin/sh\n[ ! -e {refuses} ] || {{ echo squeue: error: Access denied >&2; exit 1; }}\n"
        f'PATH={SYSTEM} exec squeue "$@"\n'
    )
    (programs / "squeue").chmod(0o755)
    project.env["PATH"] = f"{programs}:{project.env['PATH']}"
    engine = project.begin("run", project.document({"a": {"run": "true"}}), "--with", "lab")
    told = "Slurm's queue can't be read, and is asked again: squeue: Access denied"
    wait_for(lambda: told in project("show", "latest").stdout)
    refuses.unlink()
    out, err = engine.communicate(timeout=200)
    assert engine.returncode == 0, out + err


def test_controller_goes_away_in_between(project: Project, tmp_path: Path) -> None:
    """squeue doesn't list the job any more, and then nobody answers: that is no word on the job."""
    (programs := tmp_path / "programs").mkdir()
    away, go, ran = tmp_path / "away", tmp_path / "go", tmp_path / "ran"
    unable = "scontrol: error: Unable to contact slurm controller (connect failure)"
    for name, word in (("squeue", "exit 0"), ("scontrol", f"echo '{unable}' >&2; exit 1")):
        (programs / name).write_text(
            f'#!/bin/sh\n[ ! -e {away} ] || {{ {word}; }}\nPATH={SYSTEM} exec {name} "$@"\n'
        )
        (programs / name).chmod(0o755)
    project.env["PATH"] = f"{programs}:{project.env['PATH']}"
    run = f"echo >> {ran}; until [ -e {go} ]; do sleep 0.1; done; exit 3"
    engine = project.begin("run", project.document({"a": {"run": run}}), "--with", "lab")
    wait_for(ran.exists, why=project.cluster.jobs)
    away.touch()
    wait_for(lambda: "Slurm's controller is away" in project("show", "latest").stdout)
    away.unlink()
    go.touch()
    engine.communicate(timeout=200)
    step = project.show()["steps"]["a"]
    assert (step["attempts"], step["error"]["class"]) == (1, "exit"), step
    assert ran.read_text() == "\n"


def test_controller_away_at_first(project: Project) -> None:
    """A run that begins while the controller is away waits for it, and says so."""
    project.cluster.stop("slurmctld")
    engine = project.begin("run", project.document({"a": {"run": "echo here"}}), "--with", "lab")
    wait_for(lambda: "away" in project("show", "latest").stdout + project("why", "latest", "a").stdout)  # fmt: skip
    project.cluster.start_controller()
    out, err = engine.communicate(timeout=200)
    assert engine.returncode == 0, out + err
    run = next(project.share.glob("runs/*")).name
    comments = project.cluster.ask("squeue", "-h", "--states=all", "-o", "%k").splitlines()
    assert len([comment for comment in comments if f"run {run} " in comment]) == 1


def test_node_down_for_good(project: Project, tmp_path: Path) -> None:
    """slurmd dies with its node: the controller gives the job up, and another node goes on."""
    begun = tmp_path / "begun"
    run = f"[ $STOKER_ATTEMPT -gt 1 ] || {{ echo $SLURMD_NODENAME > {begun}; sleep 300; }}"
    engine = project.begin("run", project.document({"a": {"run": run}}), "--with", "lab")
    wait_for(lambda: begun.exists() and begun.read_text().strip(), why=project.cluster.jobs)
    node = begun.read_text().strip()
    project.cluster.stop(node)
    project.cluster.ask("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=gone")
    out, err = engine.communicate(timeout=200)
    project.cluster.start_node(node)
    assert engine.returncode == 0, out + err
    assert project.show()["steps"]["a"]["attempts"] == 2


@pytest.fixture
def small(slurm: Cluster, tmp_path: Path) -> Iterator[Project]:
    """A project whose share has 100 MB, which all nodes see."""
    (share := tmp_path / "share").mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "full", str(share)])
    assert done.returncode == 0
    (folder := tmp_path / "project").mkdir()
    slurm.restart_nodes()
    try:
        yield Project(folder, slurm, share)
        slurm.clear()
    finally:
        subprocess.run(["umount", "-l", str(share)], check=True)
        slurm.restart_nodes()


def test_full_share(small: Project, tmp_path: Path) -> None:
    """No room for an output: the step waits for room, and is right once there is some."""
    begun, go = tmp_path / "begun", tmp_path / "go"
    run = f"touch {begun}; until [ -e {go} ]; do sleep 0.1; done; head -c 2000000 /dev/zero > $STOKER_OUTPUT/x"
    steps = {
        "a": {"run": run, "outputs": ["x"]},
        "b": {"run": "wc -c < $STOKER_INPUT_x", "inputs": {"x": {"from": "a.x"}}},
    }
    engine = small.begin("run", small.document(steps), "--with", "lab")
    wait_for(begun.exists, why=small.show)
    room = os.statvfs(small.share)
    (small.share / "fill").write_bytes(bytes(room.f_bavail * room.f_frsize - 100_000))
    go.touch()
    wait_for(lambda: "is full" in small.logs(), why=small.logs)
    (small.share / "fill").unlink()
    out, err = engine.communicate(timeout=200)
    assert engine.returncode == 0, out + err
    assert "b | 2000000" in small.logs()
    assert {s["attempts"] for s in small.show()["steps"].values()} == {1}
