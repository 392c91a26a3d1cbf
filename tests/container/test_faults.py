"""Faults around a run in containers: engines that go away, all of Stoker killed, containers left
behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from run_tools import STOKER, WAIT_S, Project, log_when_up, ours, wait_for


def test_engine_goes_away_in_mid_run(project: Project, debian: str) -> None:
    """The running step continues; the next one can't start and says why; resume continues the
    run."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: "echo up; while [ ! -e $STOKER_INPUT_go/now ]; do sleep 0.1; done; echo one > $STOKER_OUTPUT/x",
               outputs: [x], inputs: {{go: {{file: {project.folder.parent}/go}}}}}}
          b: {{run: "cat $STOKER_INPUT_x", inputs: {{x: {{from: a.x}}}}}}
        """,
    )
    go = project.folder.parent / "go"
    go.mkdir()
    engine = project.start("--with", "docker", "p.yaml")
    log = log_when_up(project, "a")
    state = log.with_name("container.json")
    wait_for(lambda: '"pid"' in state.read_text())  # its start has been answered
    project.podman.stop()
    try:
        (go / "now").write_text("")
        out, _ = engine.communicate(timeout=WAIT_S)
        assert engine.returncode == 1, out
        steps = project.show()["steps"]
        assert steps["a"]["status"] == "succeeded" and steps["b"]["status"] == "failed"
        error = steps["b"]["error"]
        assert error["class"] == "start", error
        assert str(project.podman.socket) in error["text"], error
    finally:
        project.podman.serve()
    project.stoker("resume", "latest")
    shown = project.show()
    assert shown["status"] == "succeeded" and project.log(shown["steps"]["b"]) == "one\n"
    wait_for(lambda: ours(project.podman, shown["run"]) == [])


def test_all_of_stoker_killed_at_once(project: Project, debian: str) -> None:
    """Engine, guard and `stoker contain` are killed: the container ends, its lock with it, and
    resume continues."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: "if [ $STOKER_ATTEMPT = 1 ]; then echo up; sleep 600; fi; echo again"}}
        """,
    )
    engine = project.start("--with", "docker", "p.yaml")
    log = log_when_up(project, "a")
    run = log.parts[-5]
    container = json.loads((log.parent / "container.json").read_text())
    ps = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout
    mine = [int(row.split()[0]) for row in ps.splitlines() if str(project.folder) in row]
    group = {engine.pid, *mine, *children(engine.pid)} - {os.getpid()}
    for pid in group:
        os.kill(pid, signal.SIGSTOP)  # so that none can clean up after another
    for pid in group:
        os.kill(pid, signal.SIGKILL)
    engine.wait()
    wait_for(lambda: not Path(f"/proc/{container['pid']}").exists())
    wait_for(lambda: ours(project.podman, run) == [])
    project.stoker("resume", "latest")
    shown = project.show()
    assert shown["status"] == "succeeded" and shown["steps"]["a"]["attempts"] == 2
    assert project.log(shown["steps"]["a"]) == "again\n"
    wait_for(lambda: ours(project.podman, run) == [])


def children(pid: int) -> set[int]:
    """All descendants of a process."""
    found: set[int] = set()
    for text in Path(f"/proc/{pid}/task").glob("*/children"):
        for word in text.read_text().split():
            found |= {int(word), *children(int(word))}
    return found


def test_what_an_engine_left_is_removed(project: Project, scratch: str) -> None:
    """A crash between create and start leaves a container with a run's labels that never
    started."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        docker: {{parent_image: {scratch}}}
        steps:
          a: {{run: [/probe, exit, "3"]}}
        """,
    )
    run = project.run("--with", "docker", ok=False)["run"]
    wait_for(lambda: ours(project.podman, run) == [])
    left = [f"stoker-{run}-a-{i}" for i in (1, 9)]
    for name in left:
        labels = ["--label", f"stoker.run={run}", "--label", "stoker.step=a"]
        project.podman("create", "--name", name, *labels, scratch)
    project.podman("create", "--name", f"other-{run}", scratch)
    try:
        project.stoker("resume", "latest", ok=False)
        wait_for(lambda: ours(project.podman, run) == [f"other-{run}"])
    finally:
        project.podman("rm", f"other-{run}")


def test_what_a_killed_attempt_left_is_removed(project: Project, scratch: str, debian: str) -> None:
    """A kill of `stoker contain` between create and start leaves one of a run that continues."""
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        retry: {{max_retries: 1}}
        docker: {{parent_image: {debian}}}
        steps:
          a: {{run: "echo up; if [ $STOKER_ATTEMPT = 1 ]; then while [ ! -e $STOKER_INPUT_go/now ]; do sleep 0.1; done; exit 1; fi",
               inputs: {{go: {{file: {project.folder.parent}/go}}}}}}
        """,
    )
    go = project.folder.parent / "go"
    go.mkdir()
    engine = project.start("--with", "docker", "p.yaml")
    log = log_when_up(project, "a")
    run = log.parts[-5]
    project.podman("create", "--name", f"stoker-{run}-a-9", "--label", f"stoker.run={run}", scratch)
    (go / "now").write_text("")
    out, _ = engine.communicate(timeout=WAIT_S)
    assert engine.returncode == 0, out
    wait_for(lambda: ours(project.podman, run) == [])


def test_image_removed_between_two_steps(project: Project, scratch: str) -> None:
    """It is checked before the first task; if it is missing later, the step says so and is
    retried."""
    tag = "localhost/stoker-test-goes:1"
    project.podman("tag", scratch, tag)
    project.write("Dockerfile", f"FROM {tag}\nENV MADE=here\n")
    project.write(
        "p.yaml",
        f"""
        stoker: 1
        name: p
        steps:
          a: {{run: "echo up; while [ ! -e {project.folder}/go ]; do sleep 0.1; done"}}
          b: {{run: [/probe, say, hi], after: [a], backend: docker, docker: {{dockerfile: Dockerfile}}}}
        """,
    )
    engine = project.start("p.yaml")
    log_when_up(project, "a")
    before = {one["Id"] for one in project.podman.api("GET", "/images/json?all=true")[1]}
    made = json.loads(project.stoker("plan", "--json", "p.yaml").stdout)["steps"][1]["image_id"]
    assert made in before
    project.podman("rmi", "-f", made)
    (project.folder / "go").write_text("")
    out, _ = engine.communicate(timeout=WAIT_S)
    assert engine.returncode == 1, out
    error = project.show()["steps"]["b"]["error"]
    assert error["class"] == "start" and made[7:19] in error["text"], error


def test_python_killed_while_it_waits(project: Project, debian: str) -> None:
    """SIGKILL ends the user's program during a run: nothing is left."""
    project.write(
        "flow.py",
        f"""
        import time
        from stoker import pipeline, step

        @step(step_operator="docker", settings={{"docker": {{"parent_image": "{debian}"}}}})
        def train() -> None:
            print("up", flush=True)
            time.sleep(600)

        @pipeline
        def flow():
            train()

        if __name__ == "__main__":
            flow()
        """,
    )
    front = subprocess.Popen(
        [sys.executable, "flow.py"], cwd=project.folder, env={**project.env, "STOKER_BIN": STOKER}
    )
    log = log_when_up(project, "train")
    run = log.parts[-5]
    assert len(ours(project.podman, run)) == 1
    for pid in [front.pid, *children(front.pid)]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    front.wait()
    wait_for(lambda: ours(project.podman, run) == [])


def test_a_registry_that_cannot_be_reached(project: Project) -> None:
    """It fails before anything runs, and the hint names mirrors."""
    project.write(
        "p.yaml",
        """
        stoker: 1
        name: p
        docker: {parent_image: "127.0.0.1:9/team/image:1"}
        steps:
          a: {run: touch ran}
        """,
    )
    done = project.stoker("run", "--with", "docker", "p.yaml", ok=False)
    assert "127.0.0.1:9/team/image" in done.stderr
    assert "is the registry reachable from here? image_map in stoker.yaml" in done.stderr
    assert not (project.folder / "ran").exists() and done.returncode == 3
