"""Steps with GPUs in pilots of a real Slurm: the tasks of a run share the GPUs of one job, and each has its own."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Cluster, Project
from test_slurm_arrays import foreach
from test_slurm_pilots import LIVE, all_ended, finish, flies, lines, pilots
from waiting import wait_for

PYTHON = """
import os
from stoker import ResourceSettings, pipeline, step

@step(settings={"resources": ResourceSettings(gpu_count=1, gpu_class="A100"), "orchestrator.slurm": {"pilot": 4}})
def train(i: int) -> int:
    print(os.environ["CUDA_VISIBLE_DEVICES"])
    return i

@pipeline
def p():
    for i in range(3):
        train(i)
"""
ONE = {"gpu_count": 1, "gpu_class": "A100"}


def holding(tmp_path: Path, then: str, at_once: int = 1) -> str:
    """A program that says so if more than `at_once` have one of its devices, and does `then` with them."""
    held = tmp_path / "held"
    held.mkdir(exist_ok=True)
    return f"""
        for gpu in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do
            mkdir -p {held}/$gpu; touch {held}/$gpu/$STOKER_ITEM
            [ $(ls {held}/$gpu | wc -l) -le {at_once} ] || echo $gpu:$(ls {held}/$gpu) >> {tmp_path}/twice
        done
        echo $STOKER_ITEM >> {tmp_path}/ran
        echo $CUDA_VISIBLE_DEVICES >> {tmp_path}/devices
        {then}
        for gpu in $(echo $CUDA_VISIBLE_DEVICES | tr , ' '); do rm {held}/$gpu/$STOKER_ITEM; done
    """


def begin(project: Project, n: int, run: str, resources: dict[str, Any], **options: Any) -> subprocess.Popen[str]:  # fmt: skip
    document = foreach(project, n, run, resources=resources, **flies(**options))
    return project.begin("run", document, "--with", "lab")


def asked(project: Project) -> list[str]:
    """The GPUs for which each pilot of the run asks."""
    ids = [job["id"] for job in pilots(project)]
    told = project.cluster.ask("squeue", "-h", "--states=all", "-o", "%b", "-j", ",".join(ids))
    return [line.removeprefix("gres:") for line in told.splitlines()]


def test_one_pilot(project: Project, tmp_path: Path) -> None:
    """Many small tasks, one job with all GPUs of a node: no two tasks have a device at the same time."""
    finish(begin(project, 24, holding(tmp_path, "sleep 0.2"), ONE))
    assert sorted(lines(tmp_path / "ran"), key=int) == [str(i) for i in range(24)]
    assert not (tmp_path / "twice").exists(), lines(tmp_path / "twice")
    assert set(lines(tmp_path / "devices")) == {f"GPU-n1-{i}" for i in range(4)}
    assert asked(project) == ["gpu:a100:4"] and project.cluster.jobs("-work-") == []
    granted = project.show()["steps"]["work"]
    assert "A100" in str(granted), granted
    all_ended(project)


def test_as_many_as_are_needed(project: Project, tmp_path: Path) -> None:
    """… by the tasks that are ready, and no more than `pilot_gpus`."""
    finish(begin(project, 3, holding(tmp_path, ""), ONE))
    assert asked(project) == ["gpu:a100:3"]
    finish(begin(project, 12, holding(tmp_path, "sleep 0.1"), ONE, pilot_gpus=2))
    assert asked(project) == ["gpu:a100:2"]
    assert not (tmp_path / "twice").exists(), lines(tmp_path / "twice")


def test_types(project: Project, tmp_path: Path) -> None:
    """Tasks of two classes are in two pilots, each with devices of its class."""
    seen = f"echo $CUDA_VISIBLE_DEVICES $SLURMD_NODENAME >> {tmp_path}/"
    done = project.run({
        "old": {"run": seen + "l4", "resources": {"gpu_count": 1, "gpu_class": "L4"}, **flies()},
        "new": {"run": seen + "a100", "resources": ONE, **flies()},
        "two": {"run": seen + "two", "resources": {**ONE, "gpu_count": 2}, **flies()},
    })  # fmt: skip
    assert done.returncode == 0, done.stderr + project.logs()
    assert sorted(asked(project)) == ["gpu:a100:3", "gpu:l4:1"]
    (l4, n2), (a100, n1) = lines(tmp_path / "l4"), lines(tmp_path / "a100")
    assert (l4, n2, n1) == ("GPU-n2-0", "n2", "n1") and a100.startswith("GPU-n1-")
    assert len(lines(tmp_path / "two")[0].split(",")) == 2


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"model": "NVIDIA H100 80GB HBM3"}, ["A100", "H100"]),
        ({"usable": False, "trouble": "it has fallen off the bus"}, ["it has fallen off the bus"]),
    ],
    ids=["another model", "out of order"],
)
def test_not_what_slurm_says(project: Project, slurm: Cluster, found: dict[str, Any], words: list[str]) -> None:  # fmt: skip
    """What Slurm calls an A100 isn't one, or is no use: the step fails and says so."""
    slurm.devices("n1", *(found for _ in range(4)))
    try:
        done = project.run({"a": {"run": "true", "resources": ONE, **flies()}})
    finally:
        slurm.devices("n1", *({} for _ in range(4)))
    why = project("why", "latest").stdout
    assert done.returncode != 0 and all(word in why for word in words), why


def test_too_many_for_one_task(project: Project) -> None:
    """No node has three: the step that asks for them fails alone."""
    steps = {
        name: {"run": "echo gpu $CUDA_VISIBLE_DEVICES", "resources": {"gpu_count": n, "gpu_class": "L4"}, **flies()}
        for name, n in (("three", 3), ("one", 1), ("two", 2))
    }  # fmt: skip
    done = project.run(steps)
    told = project.show()["steps"]
    assert done.returncode == 1 and told["three"]["error"]["class"] == "resources", done.stderr
    assert [told[name]["status"] for name in ("one", "two")] == ["succeeded"] * 2, done.stderr


def test_python(project: Project) -> None:
    """A Python step that runs three times gets a device each time."""
    project.say(options={**project.stack["options"], "python": sys.executable})
    (project.folder / "p.py").write_text(PYTHON)
    done = project("run", "p.py:p", "--with", "lab")
    assert done.returncode == 0, done.stderr + project.logs()
    assert asked(project) == ["gpu:a100:3"] and project.logs().count("GPU-n1-") == 3


def test_shares(project: Project, tmp_path: Path) -> None:
    """Tasks that ask for parts of a GPU's memory have one together, as many as fit."""
    go = tmp_path / "go"
    run = holding(tmp_path, f"until [ -e {go} ]; do sleep 0.1; done", at_once=2)
    engine = begin(project, 8, run, {"gpu_memory": "30GB", "gpu_class": "A100"}, pilot_gpus=2)
    wait_for(lambda: len(lines(tmp_path / "devices")) == 4, why=project.logs)
    assert set(Counter(lines(tmp_path / "devices")).values()) == {2}
    go.touch()
    finish(engine)
    assert not (tmp_path / "twice").exists() and asked(project) == ["gpu:a100:2"]


def test_too_large_a_share(project: Project) -> None:
    step = {"run": "true", "resources": {"gpu_memory": "90GB", "gpu_class": "A100"}, **flies()}
    done = project.run({"a": step})
    why = project("why", "latest").stdout
    assert done.returncode != 0 and "gpu_memory" in why and "90 GB" in why, why


def test_cancel(project: Project, tmp_path: Path) -> None:
    """Its devices are free again: the next run's pilot has them."""
    engine = begin(project, 12, holding(tmp_path, "exec sleep 300"), ONE)
    wait_for(lambda: len(lines(tmp_path / "ran")) == 4, why=project.cluster.jobs)
    engine.send_signal(signal.SIGINT)
    engine.communicate(timeout=200)
    all_ended(project)
    assert len(lines(tmp_path / "ran")) == 4
    (again := tmp_path / "again").mkdir()
    finish(begin(project, 8, holding(again, "sleep 0.1"), ONE))
    assert len(set(lines(again / "devices"))) == 4 and not (again / "twice").exists()


def test_pilot_dies(project: Project, tmp_path: Path) -> None:
    """Its tasks run again in another pilot, which has the devices of the dead one."""
    go = tmp_path / "go"
    run = holding(tmp_path, f"until [ -e {go} ]; do sleep 0.1; done")
    engine = begin(project, 6, run, ONE)
    wait_for(lambda: len(lines(tmp_path / "ran")) == 4, why=project.cluster.jobs)
    (job,) = pilots(project, "RUNNING")
    for held in (tmp_path / "held").glob("*/*"):
        held.unlink()
    project.cluster.ask("scancel", "--signal=KILL", "--full", job["id"])
    wait_for(lambda: not (mine := pilots(project, LIVE)) or mine[0]["id"] != job["id"])
    go.touch()
    finish(engine)
    ran = lines(tmp_path / "ran")
    assert sorted(set(ran), key=int) == [str(i) for i in range(6)] and len(ran) == 10
    assert not (tmp_path / "twice").exists(), lines(tmp_path / "twice")


@pytest.mark.parametrize("point", ["", "slurm.orders.after:1", "slurm.submit.after:1"])
def test_engine_killed(project: Project, tmp_path: Path, point: str) -> None:
    """No task is lost, none doubled, and no device has two."""
    go = tmp_path / "go"
    run = holding(tmp_path, f"[ $STOKER_ITEM -lt 2 ] || until [ -e {go} ]; do sleep 0.1; done")
    if point:
        project.env["STOKER_FAILPOINTS"] = f"{point}:kill"
    engine = begin(project, 12, run, ONE)
    if not point:
        wait_for(lambda: len(lines(tmp_path / "ran")) >= 4, why=project.cluster.jobs)
        engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=120)
    assert engine.returncode == -signal.SIGKILL
    project.env.pop("STOKER_FAILPOINTS", None)
    resumed = project.begin("resume", "latest", "--with", "lab")
    go.touch()
    finish(resumed)
    assert sorted(lines(tmp_path / "ran"), key=int) == [str(i) for i in range(12)]
    assert not (tmp_path / "twice").exists(), lines(tmp_path / "twice")
    all_ended(project)


def test_more_pilots(project: Project, tmp_path: Path) -> None:
    """Where work for long waits, there are more of them, up to `pilots`; each has GPUs of its own."""
    go = tmp_path / "go"
    run = holding(tmp_path, f"until [ -e {go} ]; do sleep 0.1; done")
    engine = begin(project, 24, run, {**ONE, "memory": "100MB"}, pilot=2, pilots=2, pilot_gpus=1)
    wait_for(lambda: len(set(lines(tmp_path / "devices"))) == 2, why=project.cluster.jobs)
    go.touch()
    finish(engine)
    assert asked(project) == ["gpu:a100:1"] * 2
    assert not (tmp_path / "twice").exists(), lines(tmp_path / "twice")


def test_used_by_others(project: Project, tmp_path: Path, slurm: Cluster) -> None:
    """A device that a program outside of Slurm uses is waited for, and `why` says who has it."""
    with subprocess.Popen(["sleep", "300"]) as other:
        try:
            slurm.devices("n1", *({"processes": {str(other.pid): 1 << 30}} for _ in range(4)))
            engine = begin(project, 2, holding(tmp_path, ""), ONE)
            said = wait_for(lambda: (told := project("why", "latest").stdout) and f"pid {other.pid}" in told and told, why=project.logs)  # fmt: skip
            assert "outside Stoker" in said, said
        finally:
            other.kill()
            slurm.devices("n1", *({} for _ in range(4)))
    finish(engine)
    assert sorted(lines(tmp_path / "ran")) == ["0", "1"]
