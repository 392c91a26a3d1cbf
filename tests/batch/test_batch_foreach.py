"""Whole runs of wide steps: arrays from the command line, and an engine that is killed at any
moment. Jobs are simulated: the test writes claim and end.json into the share as the agent does, so
that hundreds take seconds."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from batch_tools import ROOT, WAIT_S, Moto
from fake_batch import FakeBatch
from test_batch_engine import (
    Project,
    spaces,  # noqa: F401
)
from test_batch_engine import project as real  # noqa: F401

sys.path.insert(0, str(ROOT / "bench"))
from stand_in import play

KILLS = int(os.environ.get("STOKER_BATCH_KILLS", "4"))


def wide(n: int, m: int = 0) -> dict[str, Any]:
    """A list, a task for each of n items and a join, then the same with m items."""
    text = json.dumps(list(range(n)))
    here = {"backend": "local"}
    steps: dict[str, Any] = {
        "start": {
            "run": f"echo '{text}' > $STOKER_OUTPUT/todo",
            "outputs": ["todo"],
            "foreach": "todo",
            "next": "work",
            **here,
        },
        "work": {"run": "true", "next": "join"},
        "join": {"run": "true", "join": True, **here},
    }
    if m > 0:
        few = f"echo '{json.dumps(list(range(m)))}' > $STOKER_OUTPUT/todo"
        steps["join"] |= {"run": few, "outputs": ["todo"], "foreach": "todo", "next": "few"}
        steps["few"] = {"run": "true", "next": "end"}
        steps["end"] = {"run": "true", "join": True, **here}
    return steps


class Played:
    """What jobs do instead of running: ``seconds(key)`` later they have ended well."""

    def __init__(self, share: Path, seconds: Any) -> None:
        self.share, self.seconds = share, seconds
        self.began: list[str] = []
        self.lock = threading.Lock()

    def key(self, env: dict[str, str]) -> str:
        key = shlex.split(env["STOKER_ARGV"])[-1]
        if key.endswith(".json"):
            told = json.loads((self.share / key).read_text())
            assert len(told["keys"]) == int(env["AWS_BATCH_JOB_ARRAY_SIZE"])
            key = f"{told['at']}/{told['keys'][int(env['AWS_BATCH_JOB_ARRAY_INDEX'])]}"
        return key

    def __call__(self, env: dict[str, str]) -> None:
        key = self.key(env)
        with self.lock:
            self.began.append(key)
        time.sleep(self.seconds(key))  # sleeps: as long as a slow store would take
        play(str(self.share), key)


@pytest.fixture
def played(tmp_path: Path, moto: Moto) -> Any:
    made = []

    def make(seconds: Any, **options: Any) -> tuple[Project, Played]:
        (folder := tmp_path / f"project-{len(made)}").mkdir()
        share = tmp_path / f"share-{len(made)}"
        fake = FakeBatch(moto.url)
        fake.instead = jobs = Played(share, seconds)
        made.append(fake)
        return Project(folder, str(share), fake, moto.env, **options), jobs

    yield make
    for fake in made:
        fake.close()
        assert fake.failures == []


@pytest.mark.slow
def test_a_thousand(played: Any) -> None:
    """A foreach of 1,000 makes a few arrays: each task runs once, with no more requests than 1,000
    jobs take."""
    project, jobs = played(lambda key: 0.0)
    project.fake.slots, project.fake.step_s = 1000, 0.01
    words = ["--with", "aws", "--max-workers", "1000"]
    done = project("run", project.document(wide(1000)), *words)
    assert done.returncode == 0, done.stderr[-2000:]
    calls, arrays = project.fake.calls, project.fake.arrays()
    assert calls["SubmitJob"] < 60, calls
    children = sum(a.size for a in arrays)
    assert children + calls["SubmitJob"] - len(arrays) == 1000, "once each"
    assert len(project.fake.ran()) == len(set(jobs.began)) == len(jobs.began) == 1000
    assert {a.status for a in arrays} == {"SUCCEEDED"}
    assert sum(calls.values()) < 1000, f"fewer than SubmitJob alone was: {calls}"


def test_manifest(played: Any) -> None:
    """The plan shows that the tasks of a foreach would be children of an array."""
    project, _ = played(lambda key: 0.0)
    words = ["plan", "--manifest", "--with", "aws", project.document(wide(3)), "work"]
    _, _, submit = project(*words).stdout.split("---\n")
    told = json.loads(submit)
    assert told["arrayProperties"] == {"size": "(as many as are ready together)"}
    assert "-work-array-" in told["jobName"]
    assert "/arrays/" in json.dumps(told["containerOverrides"])
    project, _ = played(lambda key: 0.0, array_min=0)
    words = ["plan", "--manifest", "--with", "aws", project.document(wide(3)), "work"]
    assert "arrayProperties" not in project(*words).stdout


@pytest.mark.slow
def test_really_run(real: Project) -> None:  # noqa: F811
    """With children that are processes: the agent finds its task by the list; one is reclaimed and
    runs again, alone."""
    text = 'echo "item $STOKER_ITEM"; [ "$STOKER_ITEM$STOKER_ATTEMPT" = 21 ] && sleep 100; true'
    steps = wide(8)
    steps["work"]["run"] = text
    project = real
    process = project.begin("run", project.document(steps), "--with", "aws", "-j", "8")
    fake = project.fake
    child = fake.wait_for_step("work", "RUNNING")
    [array] = fake.arrays()
    fake.wait_until(lambda: [c.status for c in array.children].count("SUCCEEDED") == 7)
    [child] = [c for c in array.children if c.status == "RUNNING"]
    fake.reclaim(child)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, out + err
    assert [j.request.get("arrayProperties") for j in fake.ran() if j.parent is None] == [None]
    shown = project("logs", "latest").stdout
    assert all(f"item {i}" in shown for i in range(8))


def test_cancelled(played: Any) -> None:
    """SIGINT ends 60 running children by one TerminateJob, and nothing is left."""
    over = threading.Event()
    project, _ = played(lambda key: 0.0 * over.wait(WAIT_S))
    process = project.begin("run", project.document(wide(60)), "--with", "aws", "-j", "60")
    try:
        project.fake.wait_until(
            lambda: [j.status for j in project.fake.ran()].count("RUNNING") == 60
        )
        process.send_signal(signal.SIGINT)
        project.fake.wait_until(lambda: "TerminateJob" in project.fake.calls)
    finally:
        over.set()
    out, err = process.communicate(timeout=WAIT_S)
    assert process.returncode != 0, out + err
    assert project.fake.live() == []
    assert project.fake.calls["TerminateJob"] <= 2 * len(project.fake.arrays()), project.fake.calls


def live_and_die(project: Project, draw: random.Random, kills: int) -> tuple[int, str]:
    """Runs a document with up to `n` kills; returns how many there were, and the engine's last
    output."""
    done = 0
    engine = project.begin("run", project.document(wide(12, 3)), "--with", "aws", "-j", "20")
    while True:
        time.sleep(draw.uniform(0.02, 1.0))
        if done < kills and engine.poll() is None:
            engine.kill()
            done += 1
        out, err = engine.communicate(timeout=200)
        text = out + err
        over = engine.returncode == 0 or "has succeeded" in text
        anew = any(word in text for word in ("with 'stoker run'", "no run", "no store"))
        if over or not (anew or engine.returncode == -signal.SIGKILL):
            assert over, text
            return done, text
        words = ["run", "p.json", "-j", "20"] if anew else ["resume", "latest", "-j", "20"]
        engine = project.begin(*words, "--with", "aws")


def test_killed_at_any_moment(played: Any) -> None:
    """The engine is killed repeatedly (STOKER_BATCH_KILLS times): no task is lost or runs twice,
    and no job is left."""
    seed = int(os.environ.get("STOKER_SEED", time.time_ns() % 100000))
    print("STOKER_SEED", seed)
    draw = random.Random(seed)
    kills = 0
    while kills < KILLS:
        project, jobs = played(lambda key: random.Random(f"{seed}{key}").uniform(0.0, 0.8))
        project.fake.cut_submits = draw.choice([0, 0, 0, 1])
        n, _ = live_and_die(project, draw, min(KILLS - kills, draw.randint(2, 8)))
        kills += max(n, 1)
        keys = [key.split("/", 2)[2] for key in jobs.began]
        runs = {key.split("/")[1] for key in jobs.began}
        last = [key for key in jobs.began if key.split("/")[1] == max(runs)]
        assert len(keys) == len(set(jobs.began)), (seed, kills, sorted(keys))
        assert len(last) == 15, (seed, kills, sorted(keys))
        assert all(key.endswith("/1") for key in keys), (seed, kills, sorted(keys))
        assert project.fake.live() == [], (seed, kills)
    print(kills, "kills")
