"""Who reads a run from elsewhere, with `stoker logs --stack`: a gang's nodes, a run whose engine is dead, few rights."""

# ruff: noqa: F401, F811 - the fixtures of the other files
from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path

import pytest
from kube_client import JOBS
from test_follow import elsewhere, until_gate
from test_pipelines import Object, Project, carried, project

LOGS = ("logs", "-f", "--stack", "kubernetes", "latest")


class Output:
    """What a process has printed so far, both streams together."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.lines = process, list[str]()
        self.threads = [
            threading.Thread(target=self.lines.extend, args=(stream,), daemon=True)
            for stream in (process.stdout, process.stderr)
        ]
        for thread in self.threads:
            thread.start()

    def until(self, *parts: str) -> None:
        end = time.monotonic() + 100
        while not all(any(part in line for line in self.lines) for part in parts):
            assert time.monotonic() < end and self.process.poll() is None, self.lines
            time.sleep(0.05)

    def rest(self) -> list[str]:
        """All that it printed to its end, without the steps' names."""
        assert self.process.wait(100) == 0, self.lines
        for thread in self.threads:
            thread.join(10)
        return [line.rstrip("\n").split(" | ")[-1] for line in self.lines]


def test_nodes_of_one_task(project: Project, tmp_path: Path) -> None:
    """Both nodes' lines come while they run, each with its node, and each once."""
    run = f"echo up $RANK; touch {project.shared}/up$RANK; {until_gate(project, 'go')}; echo end $RANK"
    engine = project.begin(
        "run",
        "--with",
        "kubernetes",
        project.document({"a": {"run": run, "gang": {"ranks": 1, "nodes": 2}}}),
    )
    for rank in (0, 1):
        project.wait(f"up{rank}", lambda _: True)
    follows = Output(elsewhere(project, tmp_path, *LOGS))
    follows.until("up 0", "up 1")
    (project.shared / "go").touch()
    assert engine.wait(100) == 0
    lines = follows.rest()
    for rank in (0, 1):
        for word in ("up", "end"):
            found = [line for line in lines if f"{word} {rank}" in line]
            assert len(found) == 1 and f"[{rank}]" in found[0], lines
    project.nothing_left()


def test_engine_dies_and_another_goes_on(project: Project, tmp_path: Path) -> None:
    """The follower hears the pod without an engine, and the next step from the next engine."""
    run = f"echo one; touch {project.shared}/up; {until_gate(project, 'go')}; echo two"
    steps: Object = {"a": {"run": run}, "b": {"run": "echo three", "after": ["a"]}}
    engine = project.begin("run", "--with", "kubernetes", project.document(steps))
    project.wait("up", lambda _: True)
    follows = Output(elsewhere(project, tmp_path, *LOGS))
    follows.until("one")
    engine.kill()
    engine.wait()
    (project.shared / "go").touch()
    follows.until("two")
    project("resume", "latest")
    lines = follows.rest()
    assert lines == ["one", "two", "three"]
    project.nothing_left()


def test_may_not_read_logs(project: Project, tmp_path: Path) -> None:
    """Who may get pods but not their logs is told so, and gets them at the step's end, from the store."""
    run = f"echo one; touch {project.shared}/up; {until_gate(project, 'go')}; echo two"
    engine = project.begin("run", "--with", "kubernetes", project.document({"a": {"run": run}}))
    project.wait("up", lambda _: True)
    project.cluster.call(project.cluster.control.do_deny, "get", "pods/log")
    now = Output(elsewhere(project, tmp_path, *(w for w in LOGS if w != "-f")))
    assert any("pods/log" in line for line in now.rest()), now.lines
    follows = Output(elsewhere(project, tmp_path, *LOGS))
    follows.until("pods/log")
    (project.shared / "go").touch()
    assert engine.wait(100) == 0
    lines = follows.rest()
    assert [line for line in lines if "pods/log" not in line] == ["one", "two"]
    project.nothing_left()


@pytest.mark.parametrize("words", [("-f",), ()])
def test_of_a_step_that_prints_all_the_time(
    project: Project, tmp_path: Path, words: tuple[str, ...]
) -> None:
    """What it has printed is shown though it never falls silent: it prints for 15 s at most, and
    fails then."""
    seen = f"[ ! -e {project.shared}/seen ] || exit 0"
    run = f"for i in $(seq 150); do echo tick $i; touch {project.shared}/up; sleep 0.1; {seen}; done; exit 1"
    engine = project.begin("run", "--with", "kubernetes", project.document({"a": {"run": run}}))
    project.wait("up", lambda _: True)
    reader = elsewhere(project, tmp_path, "logs", *words, "--stack", "kubernetes", "latest/a")
    assert reader.stdout is not None and reader.stdout.readline() == "tick 1\n"
    (project.shared / "seen").touch()
    text, _ = engine.communicate(timeout=100)
    assert engine.returncode == 0, text
    reader.communicate(timeout=100)
    project.nothing_left()


def test_cancel_asks_which(project: Project, tmp_path: Path) -> None:
    """The newest run here isn't the stack's newest: neither is ended for the other."""
    project.run({"a": {"run": "true"}})
    document = project.document({"a": {"run": "true"}})
    elsewhere(project, tmp_path, "run", str(document)).wait(100)
    cancel = elsewhere(project, tmp_path, "cancel", "--stack", "kubernetes")
    _, err = cancel.communicate(timeout=100)
    newest = json.loads(project("runs", "--json"))[0]["run"]
    assert cancel.returncode == 2, err
    assert f"that of stack 'kubernetes' is {newest}; name the one to cancel" in err, err


def test_list_of_runs(project: Project, tmp_path: Path) -> None:
    """Newest first, whichever was brought first; one whose attempt left no file hides no other."""
    steps: Object = {"a": {"run": "true", "resources": {"gpu_count": 1}}}
    # fails in its pod before anything is written: the test's nodes have no devices
    project("run", "--with", "kubernetes", project.document(steps), rc=1)
    for n in range(2):
        listed = elsewhere(project, tmp_path, "runs", "--json", "--stack", "kubernetes")
        text, err = listed.communicate(timeout=100)
        assert listed.returncode == 0, err
        own = [one["run"] for one in json.loads(project("runs", "--json"))]
        assert [one["run"] for one in json.loads(text)] == own
        for word in ("x", "y"):
            project.run({"a": {"run": f"echo {word} {n}"}})
