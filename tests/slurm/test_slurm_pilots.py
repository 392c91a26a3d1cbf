"""Pilots on a real Slurm: one job in which many tasks run, each with an end, a log and a fate of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Project
from test_slurm_arrays import foreach
from waiting import wait_for

LIVE = "PENDING,RUNNING,COMPLETING"


def pilots(project: Project, state: str = "all") -> list[dict[str, str]]:
    comment = f"stoker run {project.show()['run']} pilot"
    lines = project.cluster.ask(
        "squeue", "-h", f"--states={state}", "-o", "%A|%T|%N|%k"
    ).splitlines()
    found = [dict(zip(("id", "state", "nodes", "comment"), line.split("|"))) for line in lines]
    return [job for job in found if job["comment"] == comment]


def flies(**more: Any) -> dict[str, Any]:
    return {"backend": {"slurm": {"pilot": 8, "pilot_idle": 1, **more}}}


def lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def begin(project: Project, n: int, run: str, **work: Any) -> subprocess.Popen[str]:
    return project.begin("run", foreach(project, n, run, **{**flies(), **work}), "--with", "lab")


def finish(engine: subprocess.Popen[str]) -> None:
    out, err = engine.communicate(timeout=250)
    assert engine.returncode == 0, out + err


def all_ended(project: Project) -> None:
    """Nothing is left running: an idle pilot ends by itself."""
    wait_for(lambda: not project.cluster.jobs(state=LIVE), why=project.cluster.jobs)


def test_one_pilot(project: Project, tmp_path: Path) -> None:
    """Forty tasks, one job: each has its own item, output, log and end."""
    run = f"echo task $STOKER_ITEM; echo $STOKER_ITEM >> {tmp_path}/ran"
    document = foreach(project, 40, run, **flies())
    done = project("run", document, "--with", "lab")
    assert done.returncode == 0, done.stderr
    assert sorted(lines(tmp_path / "ran"), key=int) == [str(i) for i in range(40)]
    assert len(pilots(project)) == 1 and project.cluster.jobs("-work-") == []
    logs = project.logs()
    assert all(f"task {i}\n" in logs for i in range(40)), logs
    assert len(list(project.share.glob("runs/*/work/*/1/end.json"))) == 40
    all_ended(project)


def test_values_and_code(project: Project) -> None:
    """The project's code and a step's values get there, and what a task makes comes back."""
    (project.folder / "add.sh").write_text(
        "echo $(($(cat $STOKER_INPUT_x) + 1)) > $STOKER_OUTPUT/x\n"
    )
    steps = {
        "a": {"run": "echo 1 > $STOKER_OUTPUT/x", "outputs": ["x"], **flies()},
        "b": {"run": "sh add.sh", "inputs": {"x": {"from": "a.x"}}, "outputs": ["x"], **flies()},
        "c": {"run": "test $(cat $STOKER_INPUT_x) = 2", "inputs": {"x": {"from": "b.x"}}, **flies()},
    }  # fmt: skip
    done = project.run(steps)
    assert done.returncode == 0, done.stderr + project.logs()
    assert len(pilots(project)) == 1


def test_each_fails_alone(project: Project, tmp_path: Path) -> None:
    """A task that fails, one that exceeds its time, one that is killed: the others don't hear of it."""
    run = (
        "case $STOKER_ITEM in 1) exit 7;; 2) exec sleep 100;; 3) kill -9 $$;; *) echo $STOKER_ITEM >> "
        + f"{tmp_path}/ran;; esac"
    )
    engine = begin(project, 8, run, timeout="3s", grace="1s")
    engine.communicate(timeout=200)
    assert engine.returncode != 0
    why = project("why", "latest").stdout + project("show", "latest", "--json").stdout
    for word in ('"exit"', '"timeout"', '"signal"'):
        assert word in why, why
    assert len(pilots(project)) == 1


def test_cancel(project: Project, tmp_path: Path) -> None:
    """What runs is told, what waits never begins, and the pilot goes."""
    engine = begin(project, 30, f"echo $STOKER_ITEM >> {tmp_path}/began; exec sleep 300")
    wait_for(lambda: len(lines(tmp_path / "began")) == 8, why=project.cluster.jobs)
    engine.send_signal(signal.SIGINT)
    engine.communicate(timeout=200)
    all_ended(project)
    assert len(lines(tmp_path / "began")) == 8


@pytest.mark.parametrize(
    "point", ["", "slurm.orders.before:1", "slurm.orders.after:1", "slurm.submit.after:1"]
)
def test_engine_killed(project: Project, tmp_path: Path, point: str) -> None:
    """No task is lost, none doubled, whatever the pilot knows when the engine dies."""
    go = tmp_path / "go"
    run = f"echo $STOKER_ITEM >> {tmp_path}/ran; [ $STOKER_ITEM -lt 3 ] || until [ -e {go} ]; do sleep 0.1; done"
    if point:
        project.env["STOKER_FAILPOINTS"] = f"{point}:kill"
    engine = begin(project, 20, run)
    if not point:
        wait_for(lambda: len(lines(tmp_path / "ran")) >= 8, why=project.cluster.jobs)
        engine.send_signal(signal.SIGKILL)
    engine.communicate(timeout=120)
    assert engine.returncode == -signal.SIGKILL
    project.env.pop("STOKER_FAILPOINTS", None)
    resumed = project.begin("resume", "latest", "--with", "lab")
    go.touch()
    finish(resumed)
    assert sorted(lines(tmp_path / "ran"), key=int) == [str(i) for i in range(20)]
    all_ended(project)


def test_pilot_dies(project: Project, tmp_path: Path) -> None:
    """Its tasks run again in another pilot, which costs them nothing."""
    lost = tmp_path / "lost"
    run = (
        f"echo $STOKER_ITEM >> {tmp_path}/ran;"
        f" until [ -s {lost} ] && [ $(cat {lost}) != $SLURM_JOB_ID ]; do sleep 0.1; done"
    )
    engine = begin(project, 12, run)
    wait_for(lambda: len(lines(tmp_path / "ran")) == 8, why=project.cluster.jobs)
    (job,) = pilots(project, "RUNNING")
    project.cluster.ask(
        "scontrol", "update", f"NodeName={job['nodes']}", "State=DOWN", "Reason=test"
    )
    lost.write_text(job["id"])
    finish(engine)
    project.cluster.ask("scontrol", "update", f"NodeName={job['nodes']}", "State=RESUME")
    ran = lines(tmp_path / "ran")
    assert sorted(set(ran), key=int) == [str(i) for i in range(12)] and len(ran) == 20


def test_program_is_told_before_its_pilot(project: Project, tmp_path: Path) -> None:
    """Slurm's SIGTERM ends a program before the pilot hears of it: that is no failure of the step."""
    first, go = tmp_path / "first", tmp_path / "go"
    run = (
        f"[ -e {first} ] && exit; echo $$ > {first}.new; mv {first}.new {first};"
        f" until [ -e {go} ]; do sleep 0.1; done; kill -TERM $$"
    )
    engine = begin(project, 1, run)
    wait_for(first.exists, why=project.cluster.jobs)
    (job,) = pilots(project, "RUNNING")
    program = Path("/proc", first.read_text().strip())
    agents = [
        int(one.parent.name)
        for one in Path("/proc").glob("[0-9]*/cmdline")
        if is_agent_of(one.parent, job["id"])
    ]
    go.touch()
    wait_for(lambda: not program.exists())
    for agent in agents:
        os.kill(agent, signal.SIGTERM)
    finish(engine)
    assert agents and len(pilots(project)) == 2


def is_agent_of(process: Path, job: str) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        has_job = f"SLURM_JOB_ID={job}".encode() in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return has_job and b"agent" in words[1:2]


def test_pilot_reaches_its_time(project: Project, tmp_path: Path) -> None:
    """It is told before: what runs counts as preempted and goes on in another pilot, what waits is untouched."""
    go = tmp_path / "go"
    run = f"echo $STOKER_ATTEMPT >> {tmp_path}/ran; until [ -e {go} ]; do sleep 0.1; done"
    engine = begin(project, 10, run, **flies(time="30:00"))
    wait_for(lambda: len(lines(tmp_path / "ran")) == 8, why=project.cluster.jobs)
    (job,) = pilots(project, "RUNNING")
    project.cluster.ask("scancel", "--signal=TERM", "--batch", job["id"])
    wait_for(lambda: job not in pilots(project, "RUNNING"), why=project.cluster.jobs)
    go.touch()
    finish(engine)
    assert lines(tmp_path / "ran").count("1") == 10


def test_controller_restarted(project: Project, tmp_path: Path) -> None:
    """Tasks go on being given and ended without Slurm's controller, as long as the pilot lives."""
    run = f"echo $STOKER_ITEM >> {tmp_path}/ran; sleep 0.1"
    engine = begin(project, 200, run, backend={"slurm": {"pilot": 8, "pilot_idle": 60}})
    wait_for(lambda: len(lines(tmp_path / "ran")) >= 8, why=project.cluster.jobs)
    project.cluster.stop("slurmctld")
    wait_for(lambda: len(lines(tmp_path / "ran")) == 200)
    project.cluster.start_controller()
    finish(engine)


def test_chain_while_controller_is_away(project: Project, tmp_path: Path) -> None:
    """Each task is given as soon as the one before has ended, although queries get no answer, and a pilot that has
    nothing to do for longer than pilot_idle stays, because there would be no other one."""
    go, ran = tmp_path / "go", tmp_path / "ran"
    head = f"echo 0 >> {ran}; until [ -e {go} ]; do sleep 0.1; done"
    steps = {"s0": {"run": head, **flies()}}
    for i in range(1, 12):
        steps[f"s{i}"] = {"run": f"echo {i} >> {ran}", "after": [f"s{i - 1}"], **flies()}
    steps["s6"] = {"run": f"echo 6 >> {ran}; sleep 4", "after": ["s5"], "backend": "local"}
    engine = project.begin("run", project.document(steps), "--with", "lab")
    wait_for(ran.exists, why=project.cluster.jobs)
    project.cluster.stop("slurmctld")
    wait_for(lambda: "away" in project("show", "latest").stdout, why=project.logs)
    go.touch()
    wait_for(lambda: len(lines(ran)) == 12, why=lambda: f"{lines(ran)}")
    out, err = engine.communicate(timeout=250)
    assert engine.returncode == 0, out + err
    project.cluster.start_controller()
    assert lines(ran) == [str(i) for i in range(12)] and len(pilots(project)) == 1
    orders = next(project.share.glob("runs/*/pilots/*/orders")).read_text()
    assert '{"stay_ms":60000}' in orders and '{"end":true}' in orders
    all_ended(project)


def test_metrics_come_while_it_runs(project: Project, tmp_path: Path) -> None:
    """Of each task of a pilot, and each value once."""
    go = tmp_path / "go"
    log = 'log() { echo "{\\"step\\":$1,\\"loss\\":$STOKER_ITEM}" >> $STOKER_METRICS; }'
    engine = begin(project, 3, f"{log}; log 1; until [ -e {go} ]; do sleep 0.1; done; log 2")

    def points() -> list[list[float]]:
        done = project("metrics", "latest", "--json")
        found = json.loads(done.stdout) if done.returncode == 0 else []
        return sorted([value, step] for metric in found for step, _, value in metric["points"])

    wait_for(lambda: points() == [[0, 1], [1, 1], [2, 1]], why=lambda: f"{points()}")
    go.touch()
    finish(engine)
    assert points() == [[0, 1], [0, 2], [1, 1], [1, 2], [2, 1], [2, 2]]
    all_ended(project)


def test_secrets(project: Project) -> None:
    project.env["STOKER_SECRET_TOKEN_OF_MINE"] = "very-secret-indeed"
    run = 'echo $TOKEN_OF_MINE; test "$(printf %s "$TOKEN_OF_MINE" | rev)" = deedni-terces-yrev'
    done = project.run({"a": {"run": run, "secrets": ["TOKEN_OF_MINE"], **flies()}, "b": {"run": 'test -z "$TOKEN_OF_MINE"', **flies()}})  # fmt: skip
    assert done.returncode == 0, done.stderr + project.logs()
    assert "very-secret" not in project.logs() and len(pilots(project)) == 2
    found = [p for p in project.share.rglob("*") if p.is_file() and b"very-secret" in p.read_bytes()]  # fmt: skip
    assert found == []


def test_own_jobs(project: Project) -> None:
    """Steps with licences or a gang have jobs of their own."""
    gang = {"run": "true", "gang": {"ranks": 1, "nodes": 2}, **flies()}
    done = project.run({"gang": gang, "licence": {"run": "true", **flies(licenses="matlab:1")}})
    assert done.returncode == 0, done.stderr
    assert pilots(project) == [] and len(project.cluster.jobs("-gang-0-1")) == 1


def test_no_room(project: Project) -> None:
    """A pilot that no node can hold says so, and its tasks fail with that."""
    project.say(pending="3s")
    done = project.run({"a": {"run": "true", **flies(pilot=100)}})
    assert done.returncode != 0 and "(PartitionConfig)" in project("why", "latest").stdout, done
    all_ended(project)


def test_room(project: Project, tmp_path: Path) -> None:
    """No more programs run at once than the pilot has CPUs for, although more of them are set up."""
    running = tmp_path / "running"
    running.mkdir()
    run = (
        f"touch {running}/$STOKER_ITEM; ls {running} | wc -l >> {tmp_path}/seen; "
        f"sleep 0.2; rm {running}/$STOKER_ITEM"
    )
    engine = begin(project, 16, run, resources={"cpu_count": 2}, **flies(pilot=4))
    finish(engine)
    seen = [int(line) for line in lines(tmp_path / "seen")]
    assert len(seen) == 16 and max(seen) == 2, seen


def test_more_pilots(project: Project, tmp_path: Path) -> None:
    """Where work for long waits, there are more of them, up to `pilots`."""
    go = tmp_path / "go"
    run = f"echo $SLURM_JOB_ID >> {tmp_path}/ran; until [ -e {go} ]; do sleep 0.1; done"
    engine = begin(project, 24, run, resources={"cpu_count": 1, "memory": "100MB"}, **flies(pilot=2, pilots=2))  # fmt: skip
    wait_for(lambda: len(set(lines(tmp_path / "ran"))) == 2, why=project.cluster.jobs)
    go.touch()
    finish(engine)
    assert len(pilots(project)) == 2


def test_thousand(project: Project, tmp_path: Path) -> None:
    """1,000 tasks: one pilot, none lost, none doubled."""
    began = time.monotonic()
    engine = begin(project, 1000, f"echo $STOKER_ITEM >> {tmp_path}/ran")
    finish(engine)
    print(f"1000 tasks in {time.monotonic() - began:.1f} s")
    assert sorted(lines(tmp_path / "ran"), key=int) == [str(i) for i in range(1000)]
    assert len(pilots(project)) == 1
