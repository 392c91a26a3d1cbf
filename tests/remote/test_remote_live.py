"""What a step on another machine logs is seen here while it runs, and is here once after its end."""

# ruff: noqa: F401, F811 - the fixture of test_engine
from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from test_agent_s3_failpoints import DriveS3, on_s3
from test_engine import IMAGE, Project, project
from test_taken_over import Machine, other, wait_for_start
from waiting import wait_for

TRAIN = """
log() {{ echo '{{"step":'$1',"loss":0.'$1'}}' >> $STOKER_METRICS; }}
wait_for() {{ while [ ! -e {go}-$1 ]; do sleep 0.05; done; }}
log 1; wait_for 1; log 2; log 3; wait_for 2; log 4
"""


class Training:
    """A step that logs values and goes on when it is told to."""

    def __init__(self, project: Project) -> None:
        self.project, self.go = project, project.folder.parent / "go"
        self.words: list[str] = []
        self.document = project.document({"train": {"run": TRAIN.format(go=self.go)}})

    def go_on(self, stage: int) -> None:
        Path(f"{self.go}-{stage}").touch()

    def points(self) -> list[list[float]]:
        done = self.project("metrics", "latest", "--json", *self.words)
        found: list[dict[str, Any]] = json.loads(done.stdout) if done.returncode == 0 else []
        return [[step, value] for metric in found for step, _, value in metric["points"]]

    def wait_until(self, n: int) -> None:
        seen = wait_for(lambda: (p := self.points())[n - 1 :] and p, why="no value comes")
        assert seen == [[i, i / 10] for i in range(1, n + 1)]


@pytest.fixture
def training(project: Project) -> Training:
    return Training(project)


def left(project: Project) -> list[Path]:
    return [p for p in (project.folder.parent / "share").glob("runs/*/live/**/*") if p.is_file()]


def test_seen_while_it_runs(project: Project, training: Training) -> None:
    project.env |= {"STOKER_TRACKERS": "tensorboard", "STOKER_PYTHON": sys.executable}
    engine = project.begin("run", "--with", "prod", training.document)
    training.wait_until(1)
    run = project.show()["run"]
    board = project.folder / ".stoker/tensorboard"

    def scalars() -> list[tuple[int, float]]:
        many = EventMultiplexer().AddRunsFromDirectory(str(board)).Reload()
        try:
            return [(e.step, round(e.value, 3)) for e in many.Scalars(f"{run}/train", "loss")]
        except KeyError:
            return []

    wait_for(lambda: scalars() == [(1, 0.1)], why="TensorBoard has no value")
    training.go_on(1)
    training.wait_until(3)
    assert project.show()["steps"]["train"]["status"] == "running"
    training.go_on(2)
    _, err = engine.communicate(timeout=120)
    assert engine.returncode == 0, err
    training.wait_until(4)
    assert scalars() == [(i, i / 10) for i in range(1, 5)]
    assert left(project) == []


def test_by_s3(project: Project, training: Training, on_s3: DriveS3) -> None:
    stack = {"backend": "kubernetes", "store": on_s3.share, "default_image": IMAGE}
    project.write("stoker.yaml", json.dumps({"stacks": {"prod": stack}}))
    project.env |= {**on_s3.env, "AWS_MAX_ATTEMPTS": "3"}
    engine = project.begin("run", "--with", "prod", training.document)
    training.wait_until(1)
    assert any("/live/train/" in key for key in on_s3.objects("runs/"))
    training.go_on(1)
    training.wait_until(3)
    training.go_on(2)
    _, err = engine.communicate(timeout=120)
    assert engine.returncode == 0, err
    training.wait_until(4)
    assert not any("/live/" in key for key in on_s3.objects("runs/"))


@pytest.mark.tsan
def test_resumed(project: Project, training: Training) -> None:
    engine = project.begin("run", "--with", "prod", training.document)
    training.wait_until(1)
    engine.kill()
    engine.communicate(timeout=120)
    training.go_on(1)
    engine = project.begin("resume", "latest")
    training.wait_until(3)
    training.go_on(2)
    _, err = engine.communicate(timeout=120)
    assert engine.returncode == 0, err
    training.wait_until(4)
    assert project.show()["steps"]["train"]["attempts"] == 1
    assert left(project) == []


def test_from_another_machine(project: Project, training: Training, other: Machine) -> None:
    """`metrics --stack` has what was sent so far, then what is there at the end, each once."""
    engine = project.begin("run", "--with", "prod", training.document)
    training.wait_until(1)
    training.words = ["--stack", "prod"]
    with other:
        training.wait_until(1)
        training.go_on(1)
        training.wait_until(3)
        training.wait_until(3)
    training.go_on(2)
    _, err = engine.communicate(timeout=120)
    assert engine.returncode == 0, err
    with other:
        training.wait_until(4)


def test_tensorboard(project: Project, training: Training) -> None:
    """TensorBoard's files come while the step runs, in pieces that need not be whole records."""
    board = project.folder.parent / "board"
    writer = EventFileWriter(str(board))
    for i in range(1, 5):
        value = Summary.Value(tag="loss", simple_value=i / 10)
        writer.add_event(Event(step=i, wall_time=i, summary=Summary(value=[value])))
    writer.close()
    (file,) = board.iterdir()
    size = file.stat().st_size
    to = "$(dirname $STOKER_METRICS)/tensorboard/run"
    step = (
        f"wait_for() {{ while [ ! -e {training.go}-$1 ]; do sleep 0.05; done; }}; mkdir -p {to};"
        f"head -c {size - 30} {file} > {to}/{file.name}; wait_for 1;"
        f"tail -c 30 {file} >> {to}/{file.name}; wait_for 2"
    )
    document = project.document({"train": {"run": step}})
    engine = project.begin("run", "--with", "prod", document)

    def points() -> list[list[float]]:
        return [[i, round(value, 3)] for i, value in training.points()]

    wait_for(lambda: points() == [[i, i / 10] for i in range(1, 4)], why="no value comes")
    training.go_on(1)
    wait_for(lambda: points() == [[i, i / 10] for i in range(1, 5)], why="the last doesn't come")
    assert project.show()["steps"]["train"]["status"] == "running"
    training.go_on(2)
    _, err = engine.communicate(timeout=120)
    assert engine.returncode == 0, err
    assert points() == [[i, i / 10] for i in range(1, 5)] and left(project) == []


def test_taken_over(project: Project, training: Training, other: Machine) -> None:
    """Another machine's engine, which has none of it, gets all."""
    engine = project.begin("run", "--with", "prod", training.document)
    training.wait_until(1)
    run = project.show()["run"]
    engine.kill()
    engine.communicate(timeout=120)
    training.go_on(1)
    with other:
        engine = project.begin("resume", run, "--stack", "prod")
        training.wait_until(3)
        training.go_on(2)
        _, err = engine.communicate(timeout=120)
        assert engine.returncode == 0, err
        training.wait_until(4)
        assert project.show()["steps"]["train"]["attempts"] == 1


def test_of_a_lost_pod(project: Project, training: Training, cluster: Cluster) -> None:
    """Nothing but what it sent is there of it."""
    engine = project.begin("run", "--with", "prod", training.document)
    training.wait_until(1)
    cluster.pod("-train-").signal(signal.SIGKILL)
    training.go_on(1)
    training.go_on(2)
    _, err = engine.communicate(timeout=120)
    assert engine.returncode == 0 and "its pod was killed" in err, err
    [first] = project.folder.glob(".stoker/runs/*/train/0/1/metrics.jsonl")
    assert first.read_text() == '{"step":1,"loss":0.1}\n'
    training.wait_until(4)
    assert left(project) == []


def test_of_ranks(project: Project, training: Training) -> None:
    """A rank's file comes too."""
    text = (
        "echo '{\"loss\":'$RANK'}' >> $STOKER_TASK_DIR/rank-$RANK/metrics.jsonl; "
        f"while [ ! -e {training.go}-1 ]; do sleep 0.05; done"
    )
    step = {"run": f"test $RANK = 0 || {{ {text}; }}", "gang": {"ranks": 2}}
    engine = project.begin("run", "--with", "prod", project.document({"train": step}))
    wait_for(lambda: training.points() == [[None, 1]], why="no value of rank 1 comes")
    training.go_on(1)
    _, err = engine.communicate(timeout=120)
    assert engine.returncode == 0, err
    assert training.points() == [[None, 1]]
