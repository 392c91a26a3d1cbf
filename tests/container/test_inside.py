"""Stoker does the same for a step in a container as for one without: checkpoints, notices, hangs,
limits, profiles, metadata; and which image a step gets."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from run_tools import WAIT_S, Project, log_when_up, ours, wait_for
from test_run import failing
from test_run_python import image, python


def pipeline(body: str, call: str = "train()") -> str:
    return (
        "import os, sys, time\nfrom stoker import checkpoint, pipeline, step, log_metadata\n"
        f"{body}\n\n@pipeline\ndef flow():\n    {call}\n\nif __name__ == '__main__':\n    flow()\n"
    )


# ---------------------------------------------------------------------------- as on the machine itself


def test_preempted_saves_and_goes_on(project: Project, debian: str) -> None:
    """SIGTERM of the container's process reaches the step, which saves; its next attempt loads,
    without costing a retry."""
    body = f"""
@step(step_operator="docker", {image(debian)})
def train() -> int:
    last = checkpoint.latest()
    if last is not None:
        return last.load()["epoch"]
    print("up", flush=True)
    while not checkpoint.preempted():
        time.sleep(0.05)
    checkpoint.save({{"epoch": 7}}, step=7)
    checkpoint.stop("saved")
"""
    project.write("flow.py", pipeline(body))
    front = subprocess.Popen([sys.executable, "flow.py"], cwd=project.folder, env=project.env)
    log = log_when_up(project, "train")
    runner = json.loads((log.parent / "container.json").read_text())["pid"]
    os.kill(runner, signal.SIGTERM)
    assert front.wait(WAIT_S) == 0
    step = project.show()["steps"]["train"]
    assert step["attempts"] == 2 and step["outputs"]["output"]["value"] == 7


def test_a_notice_before_the_time_is_up(project: Project, debian: str) -> None:
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: "trap 'echo noticed; exit 9' TERM; echo up; sleep 600 & wait", timeout: 4, timeout_notice: 3}}
        """,
    )
    step = project.run("--with", "docker", ok=False)["steps"]["a"]
    assert project.log(step).split() == ["up", "noticed"]


def test_a_hang_is_noticed(project: Project, debian: str) -> None:
    """Python ranks inside: each one's stack shows where it waits, with the paths of the host."""
    body = f"""
@step(step_operator="docker", gang={{"ranks": 2, "hang": "2s"}}, {image(debian)})
def train() -> None:
    if os.environ["RANK"] == "1":
        stuck()
    time.sleep(600)

def stuck():
    time.sleep(600)
"""
    project.write("flow.py", pipeline(body))
    python(project, "flow.py", ok=False)
    shown = project.show()
    error = shown["steps"]["train"]["error"]
    assert error["class"] == "hang", error
    assert "nothing moved on 2 ranks" in error["text"]
    assert f'File "{project.folder}/flow.py", line' in error["traceback"]
    assert "in stuck" in error["traceback"]
    wait_for(lambda: ours(project.podman, shown["run"]) == [])


def test_a_rank_that_fails(project: Project, debian: str) -> None:
    body = f"""
@step(step_operator="docker", gang=2, {image(debian)})
def train() -> None:
    if os.environ["RANK"] == "1":
        raise ValueError("no data for me")
    time.sleep(600)
"""
    project.write("flow.py", pipeline(body))
    python(project, "flow.py", ok=False)
    error = project.show()["steps"]["train"]["error"]
    assert "rank 1" in error["text"] and "no data for me" in error["text"], error


@pytest.mark.parametrize("front", ["command", "python"])
def test_a_rank_out_of_memory(project: Project, debian: str, front: str) -> None:
    """The container's limit is that of the step: the kernel ends one rank, and the sentence names
    it."""
    hog = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.environ["RANK"] == "1":
    held = b"x" * 400_000_000
time.sleep(60)
"""
    project.write("hog.py", hog)
    project.write("work.py", "def hog():\n" + hog.replace("\n", "\n    ") + "\n")
    run = 'run: "python3 hog.py"' if front == "command" else 'python: "work:hog"'
    more = "resources: {memory: 120MB}, gang: {ranks: 3}, grace: 1"
    error = failing(project, debian, f"{run}, {more}")["error"]
    assert error["class"] == "host_oom" and error["rank"] == 1, error
    assert error["cause"].startswith("rank 1: host OOM: used "), error
    assert "of its 120 MB; 2 other ranks were ended because of it" in error["cause"], error


def test_limits_reach_the_program(project: Project, debian: str) -> None:
    """CPUs by their numbers, memory by the engine's group, processes and open files by ulimits."""
    code = (
        "import json, os, resource; print(json.dumps([sorted(os.sched_getaffinity(0)), "
        "resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.statvfs('/dev/shm').f_blocks * "
        "os.statvfs('/dev/shm').f_frsize]))"
    )
    project.write("limits.py", code)
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a:
            run: python3 limits.py
            resources: {{cpu_count: 1, memory: 200MB}}
            backend: {{docker: {{shm_size: 16m, ulimits: {{nofile: 321, nproc: 999}}}}}}
        """,
    )
    step = project.run()["steps"]["a"]
    cpus, files, shm = json.loads(project.log(step))
    assert (cpus, files, shm) == (step["granted"]["cpus"], 321, 16 << 20)
    attempt = Path(step["dir"])
    assert json.loads((attempt / "task.json").read_text())["container"]["memory_bytes"] == 200e6


def test_full_shm_is_why(project: Project, debian: str) -> None:
    """A DataLoader dies of a bus error; the error names its cause, a full /dev/shm."""
    project.write(
        "fill.py",
        "import mmap, os\nf = os.open('/dev/shm/x', os.O_CREAT | os.O_RDWR)\nos.ftruncate(f, 8 << 20)\n"
        "m = mmap.mmap(f, 8 << 20)\nfor i in range(0, 8 << 20, 4096): m[i] = 1\n",
    )
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: [python3, fill.py], backend: {{docker: {{shm_size: 1m}}}}}}
        """,
    )
    error = project.run(ok=False)["steps"]["a"]["error"]
    assert (
        error["class"] == "shm_full" and "/dev/shm was full (0 B left of 1.05 MB)" in error["text"]
    ), error


def test_metadata_and_large_values(project: Project, debian: str) -> None:
    """8 MiB go through the store in both directions; and the step's metadata."""
    body = f"""
@step
def make() -> bytes:
    return bytes(8 << 20)

@step(step_operator="docker", {image(debian)})
def train(data: bytes) -> bytes:
    log_metadata({{"n": len(data)}})
    return data[:-1] + b"x"

@step
def check(data: bytes) -> str:
    return f"{{len(data)}} {{data[-1:]}}"
"""
    project.write("flow.py", pipeline(body, "check(train(make()))"))
    python(project, "flow.py")
    steps = project.show()["steps"]
    assert steps["train"]["metadata"] == {"n": 8 << 20}
    assert steps["check"]["outputs"]["output"]["value"] == f"{8 << 20} b'x'"


# ---------------------------------------------------------------------------- whose image


def test_each_step_has_its_own_image(project: Project, debian: str, scratch: str) -> None:
    """The step's image overrides the pipeline's, which overrides the stack's."""
    project.write(
        "stoker.yaml",
        f"stacks: {{lab: {{backend: docker, default_image: {scratch}}}}}",
    )
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: [/probe, say, one], docker: {{parent_image: {scratch}}}}}
          b: {{run: echo $IMAGE_SAYS}}
        """,
    )
    steps = project.run("--with", "lab")["steps"]
    assert project.log(steps["a"]) == "one\n" and project.log(steps["b"]) == "hello\n"
    project.write("q.yaml", "stoker: 1\nname: q\nsteps:\n  a: {run: [/probe, say, of the stack]}\n")
    project.stoker("run", "--with", "lab", "q.yaml")
    assert project.log(project.show()["steps"]["a"]) == "of the stack\n"


@pytest.mark.parametrize("place", ["kubernetes", "batch"])
def test_a_clusters_image_in_code(project: Project, debian: str, place: str) -> None:
    """Code that names a cluster's image runs here as it is, and with --with docker in that image."""
    body = f"""
@step(settings={{"orchestrator.{place}": {{"image": "{debian}"}}}})
def train() -> None:
    print(os.environ.get("IMAGE_SAYS", "outside"))
"""
    project.write("flow.py", pipeline(body))
    python(project, "flow.py")
    shown = project.show()
    assert project.log(shown["steps"]["train"]) == "outside\n"
    project.stoker("run", "--with", "docker", "--python", sys.executable, "flow.py")
    step = project.show()["steps"]["train"]
    assert project.log(step) == "hello\n" and step["granted"]["image"]["name"] == debian


# ---------------------------------------------------------------------------- on either engine


@pytest.mark.parametrize("engine", ["docker"], indirect=True)
def test_a_pipeline_on_docker(tmp_path: Path, engine: Any, debian: str) -> None:
    """All other tests of runs are Podman's: the same pipeline on a real Docker, with a failure and what is left."""
    folder = tmp_path / "proj"
    folder.mkdir()
    (folder / "stoker.yaml").write_text("")
    project = Project(folder, engine)
    body = f"""
@step
def make() -> int:
    return 20

@step(step_operator="docker", gang=2, {image(debian)})
def train(n: int) -> str:
    print("rank", os.environ["RANK"])
    return os.environ["IMAGE_SAYS"] + str(n + 1)

@step
def check(data: str) -> str:
    return data + "!"
"""
    project.write("flow.py", pipeline(body, "check(train(make()))"))
    python(project, "flow.py")
    shown = project.show()
    assert shown["steps"]["check"]["outputs"]["output"]["value"] == "hello21!"
    assert sorted(project.log(shown["steps"]["train"]).split("\n")) == [
        "",
        "[0] rank 0",
        "[1] rank 1",
    ]
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: "exit 4"}}
        """,
    )
    failed = project.run("--with", "docker", ok=False)
    assert "exit status 4" in failed["steps"]["a"]["error"]["text"]
    wait_for(lambda: ours(engine, shown["run"]) + ours(engine, failed["run"]) == [])
