"""Alike tasks of a foreach as arrays of a real Slurm: one sbatch for many, and each child on its own in everything
else."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from slurm_cluster import SYSTEM, Project
from waiting import wait_for


def foreach(project: Project, n: int, run: str, **work: Any) -> str:
    """A document whose step `work` has n tasks; its first and last step are this machine's."""
    here = {"backend": "local"}
    todo = f"seq 0 {n - 1} | paste -sd, | sed 's/.*/[&]/' > $STOKER_OUTPUT/todo"
    return project.document({
        "start": {"run": todo, "outputs": ["todo"], "foreach": "todo", "next": "work", **here},
        "work": {"run": run, "inputs": {"i": {"item": True}}, "next": "end", **work},
        "end": {"run": "true", "join": True, **here},
    })  # fmt: skip


def arrays(project: Project) -> dict[str, list[str]]:
    """The children's numbers of each array of the run, as Slurm has them."""
    lines = project.cluster.ask("squeue", "-h", "-r", "--states=all", "-o", "%F %K %k").splitlines()
    found: dict[str, list[str]] = {}
    comment = f"stoker run {project.show()['run']} step work"
    for number, index, said in (line.split(" ", 2) for line in lines):
        if said.startswith(comment):
            found.setdefault(number, []).append(index)
    return found


def test_many(project: Project, tmp_path: Path) -> None:
    """STOKER_SLURM_ARRAY tasks (1,000): none is lost, none doubled."""
    n = int(os.environ.get("STOKER_SLURM_ARRAY", "1000"))
    engine = project.begin(
        "run", foreach(project, n, f"echo $STOKER_ITEM >> {tmp_path}/ran"), "--with", "lab"
    )
    out, err = engine.communicate(timeout=840)
    assert engine.returncode == 0, out + err
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran, key=int) == [str(i) for i in range(n)]


def test_one_array(project: Project, tmp_path: Path) -> None:
    """Ten alike tasks are one job of Slurm; each has its own item, output, end and log."""
    (
        slow := tmp_path / "slow"
    ).mkdir()  # on a busy machine, too, the others come while the first goes
    (slow / "sbatch").write_text(f'#!/bin/sh\nsleep 2\nPATH={SYSTEM} exec sbatch "$@"\n')
    (slow / "sbatch").chmod(0o755)
    project.env["PATH"] = f"{slow}:{project.env['PATH']}"
    run = f"echo task $STOKER_ITEM of $SLURM_ARRAY_TASK_ID; echo $STOKER_ITEM >> {tmp_path}/ran"
    done = project("run", foreach(project, 10, run), "--with", "lab")
    assert done.returncode == 0, done.stderr
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran, key=int) == [str(i) for i in range(10)]
    found = arrays(project)
    assert sum(len(children) for children in found.values()) == 10 and len(found) < 10
    assert max(len(children) for children in found.values()) >= 8
    logs = project.logs()
    assert all(f"task {i} of" in logs for i in range(10)), logs
    assert len(list(project.share.glob("runs/*/arrays/*.json"))) == sum(len(c) > 1 for c in found.values())  # fmt: skip


def test_array_min(project: Project) -> None:
    """0: each task is a job of its own."""
    document = foreach(project, 9, "true", backend={"slurm": {"array_min": 0}})
    done = project("run", document, "--with", "lab")
    assert done.returncode == 0, done.stderr
    assert all(children == ["N/A"] for children in arrays(project).values())


def test_one_child_fails(project: Project, tmp_path: Path) -> None:
    """Its next attempt is a job again, and the others don't know of it."""
    run = f"echo $STOKER_ITEM >> {tmp_path}/ran; [ $STOKER_ITEM != 3 ] || [ $STOKER_ATTEMPT -gt 1 ] || exit 7"
    document = foreach(project, 9, run, retry={"max_retries": 1, "delay": "10ms"})
    done = project("run", document, "--with", "lab")
    assert done.returncode == 0, done.stderr
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran) == sorted([*map(str, range(9)), "3"])


def test_waiting_children(project: Project, tmp_path: Path) -> None:
    """Children that wait say why; cancel ends those that run and those that don't."""
    run = f"echo $STOKER_ITEM >> {tmp_path}/began; exec sleep 300"
    document = foreach(project, 12, run, resources={"cpu_count": 8})
    engine = project.begin("run", document, "--with", "lab")
    wait_for(lambda: (tmp_path / "began").exists() and len((tmp_path / "began").read_text().split()) == 3, why=project.cluster.jobs)  # fmt: skip
    wait_for(lambda: "(Resources)" in project("why", "latest").stdout + project("show", "latest").stdout, why=lambda: project("show", "latest").stdout + project.cluster.ask("squeue", "-r"))  # fmt: skip
    engine.send_signal(signal.SIGINT)
    engine.communicate(timeout=200)
    left = project.cluster.jobs(state="PENDING,RUNNING")
    assert left == [], left
    wait_for(lambda: not project.cluster.jobs(state="COMPLETING"), why=project.cluster.jobs)
    assert len((tmp_path / "began").read_text().split()) == 3


def test_killed_between_sbatch_and_its_word(project: Project, tmp_path: Path) -> None:
    """The array's number never reached the engine: `resume` knows the array by its name, and each child by the list."""
    project.env["STOKER_FAILPOINTS"] = "slurm.submit.after:1:kill"
    document = foreach(project, 10, f"echo $STOKER_ITEM >> {tmp_path}/ran")
    engine = project("run", document, "--with", "lab")
    assert engine.returncode == -signal.SIGKILL, engine.stderr
    del project.env["STOKER_FAILPOINTS"]
    resumed = project("resume", "latest", "--with", "lab")
    assert resumed.returncode == 0, resumed.stderr
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran, key=int) == [str(i) for i in range(10)]


def test_engine_killed(project: Project, tmp_path: Path) -> None:
    """Children that run, wait and have ended meanwhile: none is lost, none doubled."""
    go = tmp_path / "go"
    run = f"echo $STOKER_ITEM >> {tmp_path}/ran; [ $STOKER_ITEM -lt 3 ] || until [ -e {go} ]; do sleep 0.1; done"
    document = foreach(project, 12, run, resources={"cpu_count": 4, "memory": "500MB"})
    engine = project.begin("run", document, "--with", "lab")
    wait_for(lambda: (tmp_path / "ran").exists() and len((tmp_path / "ran").read_text().split()) >= 6, why=project.cluster.jobs)  # fmt: skip
    engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=60)
    resumed = project.begin("resume", "latest", "--with", "lab")
    go.touch()
    out, err = resumed.communicate(timeout=250)
    assert resumed.returncode == 0, out + err
    ran = (tmp_path / "ran").read_text().split()
    assert sorted(ran, key=int) == [str(i) for i in range(12)]


def test_controller_restarted(project: Project, tmp_path: Path) -> None:
    go = tmp_path / "go"
    run = f"echo $STOKER_ITEM >> {tmp_path}/ran; until [ -e {go} ]; do sleep 0.1; done"
    engine = project.begin(
        "run",
        foreach(project, 8, run, resources={"cpu_count": 1, "memory": "500MB"}),
        "--with",
        "lab",
    )
    wait_for(lambda: (tmp_path / "ran").exists() and len((tmp_path / "ran").read_text().split()) == 8, why=project.cluster.jobs)  # fmt: skip
    project.cluster.stop("slurmctld")
    go.touch()
    project.cluster.start_controller()
    out, err = engine.communicate(timeout=250)
    assert engine.returncode == 0, out + err
    assert len((tmp_path / "ran").read_text().split()) == 8


def test_gpus(project: Project, tmp_path: Path) -> None:
    """Each child has its own GPUs."""
    run = f"echo $CUDA_VISIBLE_DEVICES >> {tmp_path}/gpus"
    document = foreach(project, 8, run, resources={"gpu_count": 1, "gpu_class": "A100"})
    done = project("run", document, "--with", "lab")
    assert done.returncode == 0, done.stderr
    seen = (tmp_path / "gpus").read_text().split()
    assert len(seen) == 8 and all("," not in one for one in seen), seen
