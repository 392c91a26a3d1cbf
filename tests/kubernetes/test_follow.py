"""`stoker logs --stack` on a machine without the run's engine: what a running step prints, and nothing is touched."""

# ruff: noqa: F401, F811 - the fixtures of the other files
from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

from kube_client import JOBS
from test_pipelines import STOKER, Object, Project, carried, project


def elsewhere(project: Project, tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    """A command on another machine with the same stoker.yaml."""
    folder = tmp_path / "other"
    folder.mkdir(exist_ok=True)
    (folder / "stoker.yaml").write_text((project.folder / "stoker.yaml").read_text())
    return subprocess.Popen(
        [STOKER, *words],
        cwd=folder,
        env={**project.env, "STOKER_HOME": str(tmp_path / "other-home")},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def until_gate(project: Project, gate: str) -> str:
    return f"until [ -e {project.shared}/{gate} ]; do sleep 0.1; done"


def test_live(project: Project, tmp_path: Path) -> None:
    run = f"echo one; echo two >&2; touch {project.shared}/up; {until_gate(project, 'go')}; echo three"
    steps: Object = {"a": {"run": run}, "b": {"run": "echo four", "after": ["a"]}}
    engine = project.begin("run", "--with", "kubernetes", project.document(steps))
    project.wait("up", lambda _: True)
    shown = ""
    end = time.monotonic() + 60
    while shown.split() != ["one", "two"]:
        assert time.monotonic() < end, shown
        now = elsewhere(project, tmp_path, "logs", "--stack", "kubernetes", "latest/a")
        shown = now.communicate(timeout=100)[0]
        assert now.returncode == 0
    follows = elsewhere(project, tmp_path, "logs", "-f", "--stack", "kubernetes", "latest")
    assert follows.stdout is not None
    assert {follows.stdout.readline() for _ in range(2)} == {"a | one\n", "a | two\n"}
    assert len(project.api.ask("GET", JOBS).json["items"]) == 1
    (project.shared / "go").touch()
    text, _ = engine.communicate(timeout=100)
    assert engine.returncode == 0, text
    rest, err = follows.communicate(timeout=100)
    assert rest.splitlines() == ["a | three", "b | four"], err
    project.nothing_left()


def test_of_a_job_that_waits(project: Project, tmp_path: Path) -> None:
    """Who reads removes nothing, has no use for the right to, and says what can't be followed."""
    steps: Object = {"a": {"run": "true", "resources": {"gpu_count": 64}}}
    engine = project.begin("run", "--with", "kubernetes", project.document(steps))
    project.api.until(JOBS, lambda o: o["items"])
    reader = elsewhere(project, tmp_path, "logs", "--stack", "kubernetes", "latest")
    assert reader.wait(100) == 0
    assert project.api.ask("GET", JOBS).json["items"]
    assert engine.poll() is None
    asked = [a for a in project.cluster.asked if a.startswith("DELETE")]
    assert asked == []
    engine.send_signal(signal.SIGINT)
    engine.communicate(timeout=100)
    project.nothing_left()
