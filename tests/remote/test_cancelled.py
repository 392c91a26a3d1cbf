"""`stoker cancel` of a run without an engine ends its jobs on other machines."""

# ruff: noqa: F401, F811 - the fixtures of test_engine and test_taken_over
from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster import Cluster
from test_engine import FLOW, HERE, Project, is_running, project, slow, spare_pods
from test_taken_over import Machine, other
from waiting import wait_for


def leave(project: Project, engine: subprocess.Popen[str]) -> None:
    """The engine is killed, the pods continue."""
    spare_pods(engine.pid)
    engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=120)


def has_begun(project: Project, n: int = 1) -> bool:
    """The share knows who runs so many attempts."""
    return len(list((project.folder.parent / "share").glob("runs/*/*/*/*/claim"))) == n


def jobs(cluster: Cluster) -> list[str]:
    """That the engine has been asked for, and not to forget."""
    return [
        path.stem for path in cluster.folder.glob("s-*.json") if path.stem not in cluster.forgotten
    ]


@pytest.mark.parametrize("words", [[], ["--now"]])
@pytest.mark.tsan
def test_what_runs_is_ended(project: Project, cluster: Cluster, words: list[str]) -> None:
    doc, gate = slow(project)
    engine = project.begin("run", "--with", "prod", doc)
    wait_for(lambda: is_running(project) and has_begun(project), why="no pod")
    wait_for((gate.parent / "began").exists, why="the step hasn't begun")
    leave(project, engine)
    told = project("cancel", *words)
    assert told.returncode == 0, told.stderr
    assert "ending what it left on kubernetes (stack 'prod'): step 'train'" in told.stderr
    assert told.stdout.endswith(": cancelled\n")
    assert not is_running(project) and len(cluster.history) == 1
    wait_for(lambda: not jobs(cluster), why="a job is left")
    shown = project.show()
    assert shown["status"] == "cancelled"
    assert {name: step["status"] for name, step in shown["steps"].items()} == {
        "train": "cancelled",
        "after": "cancelled",
    }
    assert Path(shown["steps"]["train"]["logs"]["stdout"]).read_text() == "began\n"
    again = project("cancel")
    assert again.returncode == 2 and "nothing to cancel" in again.stderr
    gate.touch()
    assert project("resume").returncode == 0
    assert project.show()["steps"]["train"]["status"] == "succeeded"


@pytest.mark.tsan
def test_what_waits_is_ended(project: Project, cluster: Cluster) -> None:
    """No agent has claimed it yet, but it exists."""
    cluster.pending["train"] = "no room"
    doc, _ = slow(project)
    engine = project.begin("run", "--with", "prod", doc)
    wait_for(lambda: jobs(cluster), why="no job")
    leave(project, engine)
    told = project("cancel", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["status"] == "cancelled"
    wait_for(lambda: not jobs(cluster), why="a job is left")
    assert not cluster.history, "a pod was made"


def test_what_was_never_asked_for(project: Project, cluster: Cluster) -> None:
    doc, _ = slow(project)
    project.env["STOKER_FAILPOINTS"] = "remote.stage.after:1:kill"
    assert project("run", "--with", "prod", doc).returncode == -signal.SIGKILL
    del project.env["STOKER_FAILPOINTS"]
    told = project("cancel")
    assert told.returncode == 0, told.stderr
    assert project.show()["status"] == "cancelled"
    assert not jobs(cluster) and not cluster.history


def test_what_has_ended_is_not_left(project: Project, cluster: Cluster, tmp_path: Path) -> None:
    mark = tmp_path / "began"
    doc = project.document(
        {
            "train": {"run": "true"},
            "after": {"run": f"touch {mark}; sleep 300", "after": ["train"], **HERE},
        }
    )
    engine = project.begin("run", "--with", "prod", doc)
    wait_for(mark.exists, why="the step here has not begun")
    leave(project, engine)
    told = project("cancel")
    assert told.returncode == 2 and "nothing to cancel" in told.stderr
    assert len(cluster.history) == 1


@pytest.mark.tsan
def test_from_another_machine(project: Project, cluster: Cluster, other: Machine) -> None:
    """That machine has neither the file nor its inputs."""
    project.write("table.csv", "1,2\n")
    step = {"run": "sleep 300", "inputs": {"table": {"file": "table.csv"}}}
    doc = project.document({"train": step, "gpus": {"run": "true", "resources": {"gpu_count": 64}, "after": ["train"], **HERE}})  # fmt: skip
    engine = project.begin("run", "--with", "prod", "--policy", "fit", doc)
    wait_for(lambda: is_running(project) and has_begun(project), why="no pod")
    leave(project, engine)
    doc.unlink()
    (project.folder / "table.csv").unlink()
    with other:
        assert project("cancel").returncode == 2, "its own store has nothing of it"
        told = project("cancel", "--stack", "prod")
        assert told.returncode == 0, told.stderr
        assert project.show()["status"] == "cancelled"
    assert not is_running(project)
    told = project("cancel")
    assert told.returncode == 2 and "nothing to cancel" in told.stderr, "the share knows"


def test_while_its_lock_is_held(project: Project, cluster: Cluster) -> None:
    """A killed engine holds it for a moment."""
    doc, _ = slow(project)
    engine = project.begin("run", "--with", "prod", doc)
    wait_for(lambda: is_running(project) and has_begun(project), why="no pod")
    leave(project, engine)
    with next((project.folder / ".stoker/runs").glob("*/lock")).open("r+") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        cancel = project.begin("cancel")
        time.sleep(0.5)  # sleeps: it would have failed by now
        assert cancel.poll() is None, cancel.communicate()
    _, said = cancel.communicate(timeout=120)
    assert cancel.returncode == 0, said
    assert project.show()["status"] == "cancelled" and not is_running(project)


def test_of_a_flow(project: Project, cluster: Cluster) -> None:
    """No part of its program runs again."""
    text = FLOW.replace("self.of = self.input**2", "import os; os.execlp('sleep', 'sleep', '300')")
    flow = project.write("flow.py", text)
    engine = subprocess.Popen(
        [sys.executable, "flow.py", "run"],
        cwd=project.folder, env=project.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for(lambda: has_begun(project, 2), why="no pods")
    id = wait_for(lambda: json.loads(project("runs", "--json").stdout or "[]"), why="no run")[0][
        "run"
    ]
    lock = next((project.folder / ".stoker/runs").glob("*/lock"))
    pid = int(lock.read_text().split()[0])
    spare_pods(pid)
    os.kill(pid, signal.SIGKILL)
    engine.wait(timeout=120)
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), why="it lives")
    flow.unlink()
    told = project("cancel", id)
    assert told.returncode == 0, told.stderr
    assert "step 'square/" in told.stderr and "and 1 more" in told.stderr
    states = [task["status"] for task in project.show()["tasks"] if task["step"] == "square"]
    assert states == ["cancelled", "cancelled"]
    assert len(cluster.history) == 2


def test_an_engine_that_cant_be_asked(project: Project, cluster: Cluster) -> None:
    """A job that may still run isn't recorded as cancelled; the next try ends it."""
    doc, _ = slow(project)
    engine = project.begin("run", "--with", "prod", doc)
    wait_for(lambda: is_running(project) and has_begun(project), why="no pod")
    leave(project, engine)
    broken = cluster.folder / "engine.broken"
    broken.write_text("the certificate has expired")
    cluster.is_deaf = True
    told = project("cancel")
    assert told.returncode != 0
    assert "could not be ended: the certificate has expired" in told.stderr, told.stderr
    assert "stoker cancel" in told.stderr
    assert project.show()["status"] == "interrupted" and is_running(project)
    broken.unlink()
    cluster.is_deaf = False
    assert project("cancel").returncode == 0
    assert project.show()["status"] == "cancelled" and not is_running(project)
