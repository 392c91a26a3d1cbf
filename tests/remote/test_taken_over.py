"""A run's record in the store that machines share: read, and taken over, by another machine (another
`.stoker` folder on the same share)."""

# ruff: noqa: F401, F811 - the fixture of test_engine
from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from test_engine import Project, project
from waiting import wait_for


def wait_for_start(project: Project, run: str) -> None:
    """Until what the engine has recorded of b's start is in the share, too."""
    log = project.folder.parent / f"share/runs/{run}/log"
    wait_for(lambda: len(list(log.glob("*"))) >= 3, why="b's start isn't in the share")


class Machine:
    """Another machine with the same project and the same share."""

    def __init__(self, project: Project, name: str) -> None:
        self.project, self.store = project, project.folder.parent / name / ".stoker"
        self.store.parent.mkdir()

    def __enter__(self) -> None:
        self.project.env["STOKER_STORE"] = str(self.store)

    def __exit__(self, *exc: object) -> None:
        del self.project.env["STOKER_STORE"]


@pytest.fixture
def other(project: Project) -> Machine:
    return Machine(project, "other")


def three(project: Project, sleep: float = 3, **more: Any) -> Path:
    return project.document(
        {
            "a": {"run": "echo from a > $STOKER_OUTPUT/x", "outputs": ["x"]},
            "b": {"run": f"echo began; sleep {sleep}; cat $STOKER_INPUT_x > $STOKER_OUTPUT/y", "inputs": {"x": {"from": "a.x"}}, "outputs": ["y"]},
            "c": {"run": "cat $STOKER_INPUT_y", "inputs": {"y": {"from": "b.y"}}},
        },
        **more,
    )  # fmt: skip


def steps(shown: dict[str, Any]) -> dict[str, str]:
    return {name: step["status"] for name, step in shown["steps"].items()}


def show(project: Project, *words: str) -> dict[str, Any]:
    done = project("show", *words, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_read_elsewhere(project: Project, other: Machine) -> None:
    done = project("run", three(project, 0), "--with", "prod", "--run-name", "mine")
    assert done.returncode == 0, done.stderr
    own = show(project, "mine")
    with other:
        there = show(project, "mine", "--stack", "prod")
        assert steps(there) == steps(own) == dict.fromkeys("abc", "succeeded")
        assert there["run"] == own["run"] and there["status"] == "succeeded"
        logs = project("logs", "mine/c", "--stack", "prod")
        assert logs.returncode == 0 and "from a" in logs.stdout, logs.stderr
        listed = json.loads(project("runs", "--stack", "prod", "--json").stdout)
        assert [run["name"] for run in listed] == ["mine"]
        nothing = project("show", "mine")
        assert nothing.returncode == 2, "its own store has nothing of it"
        wrong = project("show", "nobodys", "--stack", "prod")
        assert wrong.returncode == 2 and "no run 'nobodys' in" in wrong.stderr
        here = project("show", "mine", "--stack", "local")
        assert "shares no store with other machines" in here.stderr


def test_read_while_it_runs(project: Project, cluster: Cluster, other: Machine) -> None:
    engine = project.begin("run", three(project), "--with", "prod")
    cluster.pod("-b-")
    with other:
        shown = wait_for(
            lambda: (
                (s := show(project, "latest", "--stack", "prod"))["steps"]["b"]["status"]
                == "running"
                and s
            ),
            why="b runs",
        )
        assert shown["status"] == "running" and steps(shown)["a"] == "succeeded"
    assert engine.wait(120) == 0


def test_taken_over_after_its_engine_died(
    project: Project, cluster: Cluster, other: Machine
) -> None:
    engine = project.begin("run", three(project), "--with", "prod")
    cluster.pod("-b-")
    run = show(project)["run"]
    wait_for_start(project, run)
    engine.kill()
    engine.wait()
    with other:
        done = project("resume", run, "--stack", "prod")
        assert done.returncode == 0, done.stderr
        shown = show(project, run)
        assert steps(shown) == dict.fromkeys("abc", "succeeded")
        assert shown["steps"]["b"]["attempts"] == 1, "attached"
        assert len([name for name in cluster.history if "-b-" in name]) == 1, "it ran once"
        assert len(cluster.history) == 3
        again = project("run", project.folder / "p.json", "--with", "prod")
        assert again.returncode == 0, again.stderr
        assert steps(show(project)) == dict.fromkeys("abc", "cached"), "also what ran over there"
    assert len(cluster.history) == 3
    # where it began nobody may go on as if nothing had happened
    back = project("resume", run)
    assert back.returncode != 0 and (
        "has succeeded" in back.stderr or "the shared store lacks" in back.stderr
    ), back.stderr


def test_who_runs_it(project: Project, cluster: Cluster, other: Machine) -> None:
    """`show` where the engine died: nobody, then the machine that has taken the run over, also after its end."""
    engine = project.begin("run", three(project), "--with", "prod")
    cluster.pod("-b-")
    run = show(project)["run"]
    wait_for_start(project, run)
    engine.kill()
    engine.wait()
    assert "taken_over_by" not in show(project, run)
    assert f"stoker resume {run}" in project("show", run).stdout
    cluster.pending["-c-"] = "no room yet"
    with other:
        takes = project.begin("resume", run, "--stack", "prod")
    who = wait_for(lambda: show(project, run).get("taken_over_by"), why="it is told here")
    assert who.endswith(f" on {socket.gethostname()}"), who
    told = project("show", run).stdout
    assert who in told and f"stoker show {run} --stack prod" in told
    assert "stoker resume" not in told
    del cluster.pending["-c-"]
    assert takes.wait(120) == 0
    assert show(project, run)["taken_over_by"] == who
    assert project("tag", run, "--add", "mine").returncode == 0  # fetches what was done there
    assert show(project, run)["status"] == "succeeded"


def test_the_old_engine_is_told(project: Project, cluster: Cluster, other: Machine) -> None:
    engine = project.begin("run", three(project, 6), "--with", "prod")
    cluster.pod("-b-")
    run = show(project)["run"]
    wait_for_start(project, run)
    engine.send_signal(signal.SIGSTOP)  # cut off, not dead
    with other:
        done = project("resume", run, "--stack", "prod")
        assert done.returncode == 0, done.stderr
    engine.send_signal(signal.SIGCONT)
    _, said = engine.communicate(timeout=120)
    assert engine.returncode == 3 and f"run {run} was taken over by " in said, said
    assert len(cluster.history) == 3, "nothing was run twice"
    assert not any((cluster.folder / f"{name}.stop").exists() for name in cluster.history), (
        "no job of it was touched"
    )


def test_to_and_fro(project: Project, cluster: Cluster, other: Machine) -> None:
    """Interrupted here, taken up there, interrupted there, taken up here."""
    cluster.pending["-c-"] = "no room yet"
    engine = project.begin("run", three(project, 0.5), "--with", "prod")
    wait_for(lambda: list(cluster.folder.glob("s-*-c-*.json")), why="c was submitted")
    run = show(project)["run"]
    engine.send_signal(signal.SIGTERM)
    assert engine.wait(120) == 143
    with other:
        engine = project.begin("resume", run, "--stack", "prod")
        taken = other.store / "runs" / run / "share.json"
        wait_for(lambda: taken.exists() and '"owner":""' not in taken.read_text(), why="it is here")
        wait_for(lambda: show(project, run)["status"] == "running", why="it goes on")
        engine.send_signal(signal.SIGTERM)
        assert engine.wait(120) == 143, engine.stderr.read()
    del cluster.pending["-c-"]
    done = project("resume", run)
    assert done.returncode == 0, done.stderr
    assert len(cluster.history) == 3


def test_tags_and_metadata_by_commands(project: Project, cluster: Cluster, other: Machine) -> None:
    """Tags and metadata that are added during or after the run reach the share, too."""

    def add(*words: str) -> str:
        done = project(*words)
        assert done.returncode == 0, done.stderr
        return done.stderr

    engine = project.begin("run", three(project, 2), "--with", "prod")
    cluster.pod("-b-")
    run = show(project)["run"]
    add("tag", run, "--add", "during")
    assert engine.wait(120) == 0
    with other:
        assert show(project, run, "--stack", "prod")["tags"] == ["during"]
    assert add("tag", run, "--add", "after") == ""
    assert add("metadata", f"{run}/a", '{"checked": "by hand"}') == ""
    with other:
        there = show(project, run, "--stack", "prod")
        assert there["tags"] == ["during", "after"]
        assert there["steps"]["a"]["metadata"]["checked"] == "by hand"
    share = project.folder.parent / "share"
    share.rename(share.with_name("away"))
    share.write_text("no folder")
    assert f"only this machine has what was added to run {run}: " in add("tag", run, "--add", "x")
    share.unlink()
    share.with_name("away").rename(share)
    assert add("tag", run, "--add", "y") == ""
    with other:
        assert show(project, run, "--stack", "prod")["tags"] == ["during", "after", "x", "y"]


def test_secrets_are_in_no_object(project: Project, cluster: Cluster) -> None:
    secret = "correct-horse-battery"
    project.env["STOKER_SECRET_TOKEN"] = secret
    document = project.document(
        {
            "a": {
                "run": 'echo "$TOKEN"; test -n "$TOKEN"; echo x > $STOKER_OUTPUT/x',
                "secrets": ["TOKEN"],
                "outputs": ["x"],
            }
        }
    )
    done = project("run", document, "--with", "prod")
    assert done.returncode == 0, done.stderr
    for path in (project.folder.parent / "share").rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
