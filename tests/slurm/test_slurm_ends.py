"""How jobs end by somebody else's doing: Slurm's limits, an administrator, a partition that preempts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Project
from waiting import wait_for

MIB = 1 << 20


@pytest.mark.slow
def test_limits(project: Project) -> None:
    """A job that reaches its time limit, and one that takes more memory than it has: for real."""
    hog = 'python3 -c "import time; x = bytearray(400 << 20); time.sleep(100)"'
    steps = {
        "slow": {"run": "sleep 300", "backend": {"slurm": {"time": "1"}}},
        "big": {"run": hog, "resources": {"memory": "100MiB"}},
    }  # fmt: skip
    document = project.document(steps, mode="continue_on_failure")
    done = project("run", document, "--with", "lab")
    assert done.returncode == 1
    told = project.show()["steps"]
    slow, big = (told[name]["error"] for name in ("slow", "big"))
    assert slow["class"] == "timeout" and "time limit" in slow["text"], slow
    assert big["class"] == "host_oom", big
    assert {told[name]["attempts"] for name in told} == {1}


def begun(tmp_path: Path, **more: Any) -> dict[str, Any]:
    run = (
        "[ $STOKER_ATTEMPT -gt 1 ] || { mkdir -p $STOKER_CHECKPOINT_DIR; echo 7 > $STOKER_CHECKPOINT_DIR/epoch; "
        f"touch {tmp_path}/begun; exec sleep 300; }}; echo resumed at $(cat $STOKER_CHECKPOINT_DIR/epoch)"
    )
    return {"a": {"run": run, **more}}


def requeue(project: Project, id: str) -> None:
    project.cluster.ask("scontrol", "update", f"JobId={id}", "Requeue=1")
    said = project.cluster.ask("scontrol", "requeue", id)
    assert said == "", said


def wait_for_checkpoint(project: Project) -> None:
    wait_for(lambda: list(project.share.glob("runs/*/a/0/checkpoints.json")), why=project.cluster.jobs)  # fmt: skip


@pytest.mark.parametrize("resumed", [False, True], ids=["", "while the engine is gone"])
def test_requeued(project: Project, tmp_path: Path, resumed: bool) -> None:
    """An administrator requeues the job: another attempt goes on from the checkpoint, uncharged."""
    engine = project.begin("run", project.document(begun(tmp_path)), "--with", "lab")
    job = project.cluster.wait_for_job("-a-0-1", "RUNNING")
    wait_for_checkpoint(project)
    if resumed:
        engine.kill()
        engine.communicate(timeout=60)
    requeue(project, job["id"])
    if resumed:
        project.cluster.wait_for_job("-a-0-1", "PENDING")
        engine = project.begin("resume", "latest", "--with", "lab")
    out, err = engine.communicate(timeout=200)
    assert engine.returncode == 0, out + err
    assert project.show()["steps"]["a"]["attempts"] == 2 and "resumed at 7" in project.logs()
    assert "requeued" in out + err + project("why", "latest", "a").stdout
    project.cluster.wait_for_job("-a-0-1", "CANCELLED")


def test_preempted_by_requeue(project: Project, tmp_path: Path) -> None:
    """A partition that requeues what it preempts."""
    options = {"partition": "spare", "flags": ["--nodelist=n3"]}
    steps = begun(tmp_path, resources={"cpu_count": 8}, backend={"slurm": options})
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for_checkpoint(project)
    urgent = ["sbatch", "--partition=urgent", "--nodelist=n3", "--exclusive", "--output=/dev/null", "--wrap=true"]  # fmt: skip
    project.cluster.ask(*urgent)
    out, err = engine.communicate(timeout=200)
    assert engine.returncode == 0, out + err
    assert project.show()["steps"]["a"]["attempts"] == 2 and "resumed at 7" in project.logs()


def test_granted(project: Project) -> None:
    """What a step that asks for nothing has is its job's, not the node's."""
    options = {"slurm": {"flags": ["--mem-per-cpu=123M"]}}
    done = project.run({"plain": {"run": "true"}, "flags": {"run": "true", "backend": options}})
    assert done.returncode == 0, done.stderr
    told = project.show()["steps"]
    assert told["plain"]["granted"]["cpu_count"] == 1, told["plain"]
    assert told["flags"]["granted"]["memory_bytes"] == 123 * MIB, told["flags"]
