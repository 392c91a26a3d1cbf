"""Whole runs with steps on the cluster of cluster.py: input, behaviour and output of `stoker
run`."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cluster import Cluster
from conftest import ROOT, STOKER
from waiting import wait_for

IMAGE = "127.0.0.1:1/img:1"  # of whose registry nobody hears


class Project:
    """A user's folder with a stack for the cluster."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.folder, self.cluster = folder, cluster
        stack = {
            "backend": "kubernetes",
            "store": str(folder.parent / "share"),
            "default_image": IMAGE,
        }
        self.write("stoker.yaml", json.dumps({"stacks": {"prod": stack}}))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
        self.env |= {
            "STOKER_REMOTE_FAKE": str(cluster.folder),
            "STOKER_BIN": str(STOKER),
            "STOKER_LEASE_DIR": str(folder / "leases"),
            "PYTHONPATH": str(ROOT / "python"),
            "STOKER_SYNC": "0",
        }

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def document(self, steps: dict[str, Any], **more: Any) -> Path:
        return self.write("p.json", json.dumps({"stoker": 1, "name": "p", "steps": steps, **more}))

    def __call__(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [STOKER, *words],
            cwd=self.folder,
            env=self.env,
            text=True,
            capture_output=True,
            timeout=120,
        )

    def begin(self, *words: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [STOKER, *words], cwd=self.folder, env=self.env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def show(self) -> dict[str, Any]:
        return json.loads(self("show", "latest", "--json").stdout)


@pytest.fixture
def project(tmp_path: Path, cluster: Cluster) -> Iterator[Project]:
    folder = tmp_path / "project"
    folder.mkdir()
    yield Project(folder, cluster)
    schema = json.loads((ROOT / "schema/task.schema.json").read_text())
    for path in folder.glob(".stoker/runs/*/*/*/*/task.json"):
        jsonschema.validate(json.loads(path.read_text()), schema)


HERE = {"backend": "local"}
TRAIN = {
    "run": 'cat "$STOKER_INPUT_table" "$STOKER_INPUT_words" > "$STOKER_OUTPUT/model"; pwd; ls; echo $STOKER_PARAM_lr',
    "inputs": {
        "table": {"file": "table.csv"},
        "words": {"from": "prep.words"},
        "lr": {"param": "lr"},
    },
    "outputs": ["model"],
    "resources": {"cpu_count": 1},
}


@pytest.mark.tsan
def test_there_and_back(project: Project) -> None:
    """Here, there, and here again: files, outputs and parameters pass in both directions; nothing
    is left."""
    project.write("table.csv", "1,2\n")
    steps = {
        "prep": {"run": "echo w > $STOKER_OUTPUT/words", "outputs": ["words"], **HERE},
        "train": TRAIN,
        "report": {"run": "cat $STOKER_INPUT_m", "inputs": {"m": {"from": "train.model"}}, **HERE},
    }
    doc = project.document(steps, parameters={"lr": 0.5})
    done = project("run", "--stack", "prod", doc)
    assert done.returncode == 0, done.stderr
    shown = project.show()
    train = shown["steps"]["train"]
    assert train["granted"]["backend"] == "kubernetes" and train["granted"]["stack"] == "prod"
    assert train["granted"]["image"]["name"] == IMAGE
    assert train["granted"]["cpu_count"] >= 1 and train["granted"]["devices"] == []
    out = Path(train["logs"]["stdout"]).read_text().splitlines()
    assert out[0] == str(project.folder) and "table.csv" in out and out[-1] == "0.5"
    assert Path(shown["steps"]["report"]["logs"]["stdout"]).read_text() == "1,2\nw\n"
    assert shown["policy"] == "strict"
    assert len(project.cluster.history) == 1
    wait_for(
        lambda: project.cluster.forgotten == project.cluster.history,
        why="something was left behind",
    )
    again = project("run", "--stack", "prod", doc)
    assert again.returncode == 0, again.stderr
    assert all(step["status"] == "cached" for step in project.show()["steps"].values())
    assert len(project.cluster.history) == 1


def test_prints_come_while_the_step_runs_there(project: Project) -> None:
    """Each line appears once, although the final logs replace the one that arrived meanwhile."""
    go = project.folder.parent / "go"
    wait = f"while [ ! -e {go} ]; do sleep 0.05; done"
    run = f"echo one; echo two; echo err >&2; {wait}; echo two; echo three; echo err2 >&2"
    engine = project.begin("run", "--with", "prod", project.document({"a": {"run": run}}))
    assert engine.stdout is not None
    first = [engine.stdout.readline(), engine.stdout.readline()]
    assert first == ["one\n", "two\n"]
    go.touch()
    out = engine.stdout.read()
    _, err = engine.communicate(timeout=120)
    lines = [*first, *out.splitlines(True), *err.splitlines(True)]
    assert engine.returncode == 0
    for line, n in {"one": 1, "two": 2, "three": 1, "err": 1, "err2": 1}.items():
        assert lines.count(line + "\n") == n, (line, out, err)


def test_prints_of_short_steps_there(project: Project) -> None:
    steps = {f"s{i}": {"run": f"echo out {i}; echo err {i} >&2"} for i in range(3)}
    done = project("run", "--with", "prod", project.document(steps))
    assert done.returncode == 0
    for i in range(3):
        assert done.stdout.count(f"out {i}\n") + done.stderr.count(f"out {i}\n") == 1
        assert done.stdout.count(f"err {i}\n") + done.stderr.count(f"err {i}\n") == 1


def test_plan_knows_what_only_the_share_has(project: Project) -> None:
    doc = project.document({"a": {"run": "echo w > $STOKER_OUTPUT/words", "outputs": ["words"]}})
    assert project("run", "--with", "prod", doc).returncode == 0
    [step] = json.loads(project("plan", "--json", "--with", "prod", doc).stdout)["steps"]
    assert step["cached"] and step["miss"] is None


class Registry:
    """One image with changing content."""

    def __init__(self, *archs: str) -> None:
        self.content = "first"
        self.asked: list[str] = []
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                config = json.dumps(
                    {
                        "architecture": archs[-1] if archs else "amd64",
                        "os": "linux",
                        "config": {
                            "Env": ["PYTHONPATH=/of/the/image"],
                            "Labels": {"is": registry.content},
                        },
                    }
                ).encode()
                digest = "sha256:" + hashlib.sha256(config).hexdigest()
                manifest = {
                    "schemaVersion": 2,
                    "config": {"digest": digest, "size": len(config)},
                    "layers": [],
                }
                registry.asked.append(self.path)
                body = config if "/blobs/" in self.path else json.dumps(manifest).encode()
                if len(archs) > 1 and "sha256:" not in self.path:
                    digest = "sha256:" + hashlib.sha256(body).hexdigest()
                    several = [
                        {"digest": digest, "platform": {"os": "linux", "architecture": arch}}
                        for arch in archs
                    ]
                    body = json.dumps({"schemaVersion": 2, "manifests": several}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.image = f"127.0.0.1:{self.server.server_port}/team/img"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def test_image_by_content(project: Project) -> None:
    """The image that the registry has under the name runs, and its digest is in the cache key."""
    registry = Registry()
    step = {"run": "echo $PYTHONPATH", "docker": {"parent_image": registry.image + ":1"}}
    doc = project.document({"a": step})
    images = []
    for content, status in [("first", "succeeded"), ("first", "cached"), ("other", "succeeded")]:
        registry.content = content
        done = project("run", "--with", "prod", doc)
        assert done.returncode == 0, done.stderr
        assert project.show()["steps"]["a"]["status"] == status
        images.append(
            json.loads(project("plan", "--json", "--with", "prod", doc).stdout)["steps"][0][
                "image_id"
            ]
        )
    assert all(image.startswith(registry.image + "@sha256:") for image in images)
    assert images[0] == images[1] != images[2]
    asked = [
        json.loads(p.read_text())["image"] for p in sorted(project.cluster.folder.glob("s-*.json"))
    ]
    granted = project.show()["steps"]["a"]["granted"]["image"]
    assert granted == {"name": registry.image + ":1", "pinned": images[2]}
    assert not asked or set(asked) <= set(images)  # those that were forgotten are gone
    registry.server.shutdown()


ARM = {"node_selector": {"kubernetes.io/arch": "arm64"}}


@pytest.mark.parametrize(
    ("archs", "step", "refusal"),
    [
        (["amd64"], {"backend": {"kubernetes": ARM}}, "img:1 is for amd64"),
        (["amd64", "s390x"], {"backend": {"kubernetes": ARM}}, "it has: linux/amd64, linux/s390x"),
        (["amd64"], {"resources": {"gpu_count": 1, "gpu_class": "GH200"}}, "img:1 is for amd64"),
        (["amd64", "arm64"], {"backend": {"kubernetes": ARM}}, None),
        (["arm64"], {"backend": {"kubernetes": ARM}}, None),
        (["arm64"], {}, None),  # which machines these are nobody said
    ],
)
def test_image_for_the_machines(
    project: Project, archs: list[str], step: Any, refusal: Any
) -> None:
    """`plan` shows it, and `run` refuses it before anything is submitted."""
    registry = Registry(*archs)
    image = {"docker": {"parent_image": registry.image + ":1"}}
    doc = project.document({"a": {"run": "true", **image, **step}})
    for word in ["plan", "run"] if refusal else ["plan"]:
        done = project(word, "--with", "prod", doc)
        said = done.stdout + done.stderr
        assert (done.returncode != 0) == bool(refusal), said
        if refusal:
            assert "step 'a' runs on arm64 machines of stack 'prod'" in said and refusal in said
    assert not project.cluster.history
    registry.server.shutdown()


def test_program_for_the_machines(project: Project) -> None:
    """The image fits, but the image that brings our program doesn't."""
    runner, registry = Registry("amd64"), Registry("amd64", "arm64")
    doc = json.loads((project.folder / "stoker.yaml").read_text())
    doc["stacks"]["prod"] |= {
        "runner_image": runner.image + ":1",
        "default_image": registry.image + ":1",
    }
    step = {"a": {"run": "true", "backend": {"kubernetes": ARM}}}
    for more, why in [({}, "img:1 isn't"), ({"carry": "store"}, "whose Stoker is carried there")]:
        doc["stacks"]["prod"] |= more
        project.write("stoker.yaml", json.dumps(doc))
        told = project("plan", "--with", "prod", project.document(step))
        assert told.returncode != 0 and why in told.stderr, told.stdout + told.stderr
    for one in (runner, registry):
        one.server.shutdown()


def test_image_nobody_can_look_at(project: Project) -> None:
    """One short note for each image."""
    doc = project.document({"a": {"run": "true"}, "b": {"run": "true"}})
    done = project("run", "--with", "prod", doc)
    note = f"image {IMAGE} isn't checked: 127.0.0.1:1 can't be reached from here"
    assert done.returncode == 0, done.stderr
    assert project.show()["notes"] == [note]


def test_python(project: Project) -> None:
    project.write("steps.py", "def double(x: int) -> int:\n    return 2 * x\n")
    steps = {"a": {"python": "steps:double", "inputs": {"x": 21}, "outputs": ["output"]}}
    done = project("run", "--with", "prod", project.document(steps))
    assert done.returncode == 0, done.stderr
    assert project.show()["steps"]["a"]["outputs"]["output"]["value"] == 42


def test_read_afterwards(project: Project) -> None:
    """Artifacts that only the share has are fetched when they are read."""
    steps = {"a": {"run": "echo deep > $STOKER_OUTPUT/m", "outputs": ["m"]}}
    assert project("run", "--with", "prod", project.document(steps)).returncode == 0
    path = Path(project.show()["steps"]["a"]["outputs"]["m"]["path"])
    assert not path.exists()
    assert project("store", "verify").returncode == 0
    got = project("artifact", "get", "latest/a.m")
    assert got.returncode == 0, got.stderr
    assert Path(got.stdout.strip()) == path and path.read_text() == "deep\n"
    code = "from stoker import Client; print(Client().get_pipeline_run('latest').steps['a'].outputs['m'][0].uri)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project.folder,
        env=project.env,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(path)


def test_share_within_the_project(project: Project) -> None:
    text = (project.folder / "stoker.yaml").read_text()
    share = str(project.folder.parent / "share")
    project.write("stoker.yaml", text.replace(share, str(project.folder / "share")))
    done = project("run", "--with", "prod", project.document({"a": {"run": "true"}}))
    assert done.returncode != 0
    assert "each of its machines has its own copy of that folder" in done.stderr


def test_a_failure_is_told(project: Project) -> None:
    done = project("run", "--with", "prod", project.document({"a": {"run": "echo no >&2; exit 3"}}))
    assert done.returncode == 1
    error = project.show()["steps"]["a"]["error"]
    assert error["class"] == "exit" and "exit status 3" in error["text"]


def slow(project: Project) -> tuple[Path, Path]:
    """A step that goes on until the file is there, and one after it."""
    gate = project.folder.parent / "gate"
    gate.mkdir()
    project.cluster.keep.append(str(gate))
    steps = {
        "train": {
            "run": f"echo began; touch {gate}/began; until [ -e {gate}/open ]; do sleep 0.05; done; echo ended"
        },
        "after": {"run": "true", "after": ["train"], **HERE},
    }
    return project.document(steps), gate / "open"


def is_running(project: Project) -> bool:
    pods = [pod for pods in project.cluster.jobs.values() for pod in pods]
    return len(pods) == 1 and pods[0].is_agent()


def spare_pods(engine: int) -> None:
    """The engine's guardian ends what bears the run's mark on this machine; the pods here do, real ones aren't here."""
    children = Path(f"/proc/{engine}/task/{engine}/children").read_text().split()
    for pid in children:
        if "guard" in Path(f"/proc/{pid}/comm").read_text():
            os.kill(int(pid), signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.tsan
def test_outlives_its_engine(project: Project, number: signal.Signals) -> None:
    doc, gate = slow(project)
    engine = project.begin("run", "--with", "prod", doc)
    wait_for(lambda: is_running(project), why="no pod")
    time.sleep(0.3)  # sleeps: usually its pod is known as running by then
    if number == signal.SIGKILL:
        spare_pods(engine.pid)
    engine.send_signal(number)
    _, err = engine.communicate(timeout=120)
    if number == signal.SIGTERM:
        assert engine.returncode == 143, err
        assert "step 'train' goes on running on kubernetes (stack 'prod')" in err
    assert is_running(project)
    assert project.show()["status"] == "interrupted"
    gate.touch()
    done = project("resume", "latest")
    assert done.returncode == 0, done.stderr
    shown = project.show()["steps"]["train"]
    assert shown["attempts"] == 1 and shown["status"] == "succeeded"
    assert Path(shown["logs"]["stdout"]).read_text() == "began\nended\n"
    assert len(project.cluster.history) == 1


@pytest.mark.parametrize("point", ["exec.launch.before", "exec.settle.before", "exec.settle.after"])
def test_killed_in_between(project: Project, point: str) -> None:
    """Whenever the engine dies, the step runs once, and its result counts."""
    journal = project.folder.parent / "journal"
    journal.mkdir()
    project.cluster.keep.append(str(journal))
    run = f"echo x >> {journal}/ran; echo made > $STOKER_OUTPUT/m"
    doc = project.document(
        {"a": {"run": run, "outputs": ["m"]}, "b": {"run": "true", "after": ["a"], **HERE}}
    )
    project.env["STOKER_FAILPOINTS"] = f"{point}:1:kill"
    assert project("run", "--with", "prod", doc).returncode == -signal.SIGKILL
    del project.env["STOKER_FAILPOINTS"]
    done = project("resume", "latest")
    assert done.returncode == 0, done.stderr
    assert (journal / "ran").read_text() == "x\n"
    shown = project.show()["steps"]["a"]
    assert shown["status"] == "succeeded" and shown["outputs"]["m"]["size"] == 5
    assert len(project.cluster.history) == 1


def test_the_end_that_the_share_lacks(project: Project) -> None:
    """`resume` puts it there, as the failed engine announces."""
    share = project.folder.parent / "share"
    away = f"mv {share}/runs {share}/away; touch {share}/runs"
    doc = project.document({"a": {"run": "true"}, "b": {"run": away, "after": ["a"], **HERE}})
    done = project("run", "--with", "prod", doc)
    assert done.returncode == 0 and "'stoker resume" in done.stderr, done.stderr
    (share / "runs").unlink()
    (share / "away").rename(share / "runs")

    def shared() -> str:
        shown = project("show", "latest", "--stack", "prod", "--json")
        return str(json.loads(shown.stdout)["status"])

    assert shared() == "running"
    told = project("resume", "latest")
    assert told.returncode == 0 and "has succeeded" in told.stderr and "share" in told.stderr, (
        told.stderr
    )
    assert shared() == "succeeded"
    again = project("resume", "latest")
    assert again.returncode == 2 and "nothing to resume" in again.stderr


@pytest.mark.parametrize("point", ["remote.log.before", "remote.log.after"])
def test_killed_as_the_share_was_told_of_it(project: Project, point: str) -> None:
    """It is on record here, with its stack: it goes on there. What the share has of it is known as ours."""
    doc = project.document({"a": {"run": "touch ran-here"}})
    project.env["STOKER_FAILPOINTS"] = f"{point}:1:kill"
    assert project("run", "--with", "prod", doc).returncode == -signal.SIGKILL
    assert not project.cluster.history
    del project.env["STOKER_FAILPOINTS"]
    done = project("resume", "latest")
    assert done.returncode == 0, done.stderr
    assert not list(project.folder.rglob("ran-here")) and len(project.cluster.history) == 1
    shared = json.loads(project("show", "latest", "--stack", "prod", "--json").stdout)
    assert shared["status"] == "succeeded" and shared["steps"]["a"]["status"] == "succeeded"


@pytest.mark.tsan
def test_cancel(project: Project) -> None:
    doc, _ = slow(project)
    engine = project.begin("run", "--with", "prod", doc)
    share = project.folder.parent / "share"
    wait_for(lambda: list(share.glob("runs/*/*/*/*/claim")), why="no pod that hears signals")
    assert project("cancel", "latest").returncode == 0
    _, err = engine.communicate(timeout=60)
    assert engine.returncode == 130, err
    wait_for(lambda: not is_running(project), why="the pod goes on")
    assert project.show()["steps"]["train"]["status"] == "cancelled"


def test_gang(project: Project) -> None:
    """Two nodes at the same time, two ranks on each."""
    run = 'echo "rank $RANK of $WORLD_SIZE on node $NODE_RANK"'
    gang = {"ranks": 2, "nodes": 2}
    done = project("run", "--with", "prod", project.document({"train": {"run": run, "gang": gang}}))
    assert done.returncode == 0, done.stderr
    dir = Path(project.show()["steps"]["train"]["dir"])
    for rank in range(4):
        said = (dir / f"rank-{rank}/stdout.log").read_text()
        assert said == f"rank {rank} of 4 on node {rank // 2}\n"
    of_node_1 = sorted((dir / "node-1/stdout.log").read_text().splitlines())
    assert of_node_1 == [f"[{r}] rank {r} of 4 on node 1" for r in (2, 3)]
    lines = sorted(project("logs", "latest").stdout.splitlines())
    assert len(lines) == 4, lines
    for r, line in enumerate(lines):
        assert f"[{r}] rank {r} of 4 on node {r // 2}" in line, lines
    for _ in range(2):  # and on another machine, also when it asks again
        there = project("logs", "latest", "--stack", "prod")
        assert sorted(there.stdout.splitlines()) == lines, there.stderr
    # a node whose end comes late is added then
    cache = project.env.get("XDG_CACHE_HOME") or f"{project.env['HOME']}/.cache"
    [mirror] = Path(cache).glob(f"stoker/shared/*/runs/{dir.parts[-4]}/train/*/1")
    shutil.rmtree(mirror / "node-1")
    late = sorted(project("logs", "latest", "--stack", "prod").stdout.splitlines())
    assert late == lines


def test_grown_gang(project: Project) -> None:
    """num_parallel: each rank has a node of its own, and the join sees what each of them made."""
    work = (
        "to=$STOKER_OUTPUT; [ $RANK = 0 ] || to=$STOKER_RANK_DIR/out; mkdir -p $to; "
        'echo "$RANK of $WORLD_SIZE" > $to/part'
    )
    steps = {
        "start": {"run": "true", "next": "work", "num_parallel": 2, **HERE},
        "work": {"run": work, "outputs": ["part"], "next": "join"},
        "join": {
            "run": "cat $STOKER_INPUT_parts/*",
            "join": True,
            "inputs": {"parts": {"from": "work.part"}},
            **HERE,
        },
    }
    done = project("run", "--with", "prod", project.document(steps))
    assert done.returncode == 0, done.stderr
    [join] = [task for task in project.show()["tasks"] if task["step"] == "join"]
    assert Path(join["logs"]["stdout"]).read_text() == "0 of 2\n1 of 2\n"


SEEDED = """
import random
from stoker import pipeline, step

@step(enable_cache=False)
def draw() -> float:
    return random.random()

@pipeline
def one():
    draw()

if __name__ == "__main__":
    random.seed(1)
    one()
"""


def test_a_seeded_program_draws_the_same_elsewhere(project: Project) -> None:
    """The seed is in the document, not in an imported file."""
    program = project.write("seeded.py", SEEDED)
    drawn = []
    for where in ((), ("--with", "prod")):
        done = project("run", *where, program)
        assert done.returncode == 0, done.stderr
        drawn.append(project.show()["steps"]["draw"]["outputs"]["output"]["value"])
    assert drawn[0] == drawn[1]
    assert len(project.cluster.history) == 1


FLOW = """
from stoker.flow import FlowSpec, kubernetes, step


class Squares(FlowSpec):
    @step
    def start(self):
        self.numbers = [3, 4]
        self.note = "kept here"
        self.next(self.square, foreach="numbers")

    @kubernetes(cpu=1)
    @step
    def square(self):
        self.of = self.input**2
        self.big = b"x" * 200000
        self.next(self.join)

    @step
    def join(self, inputs):
        self.sum = sum(one.of for one in inputs) + len(inputs[0].big)
        self.merge_artifacts(inputs, include=["note"])
        self.next(self.end)

    @step
    def end(self):
        print("sum", self.sum, self.note)


if __name__ == "__main__":
    Squares()
"""


def test_flow(project: Project) -> None:
    """Tasks of one step of a flow are pods, the others are here; artifacts go both ways."""
    project.write("flow.py", FLOW)
    done = subprocess.run(
        [sys.executable, "flow.py", "run"],
        cwd=project.folder,
        env=project.env,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = project.show()
    tasks = {task["step"]: task for task in shown["tasks"]}
    assert "sum 200025 kept here" in Path(tasks["end"]["logs"]["stdout"]).read_text()
    assert len(project.cluster.history) == 2


@pytest.mark.tsan
def test_secrets_and_checkpoints(project: Project) -> None:
    """A secret goes by the engine's own way; an attempt goes on from what the one before had saved elsewhere."""
    project.env["STOKER_SECRET_token"] = "s3cret-word"
    run = (
        'c=$STOKER_CHECKPOINT_DIR; [ "$token" = s3cret-word ] || exit 9; '
        "if [ -e $c/one ]; then echo again from $(cat $c/one); else mkdir -p $c; echo 7 > $c/one; exit 75; fi"
    )
    done = project(
        "run", "--with", "prod", project.document({"a": {"run": run, "secrets": ["token"]}})
    )
    assert done.returncode == 0, done.stderr
    step = project.show()["steps"]["a"]
    assert step["attempts"] == 2
    assert "again from 7" in Path(step["logs"]["stdout"]).read_text()
    kept = [p.read_text() for p in project.cluster.folder.glob("s-*.json")]
    assert not any("s3cret-word" in text.split('"secret"')[0] for text in kept)


def test_checkpoints_go_with_success(project: Project) -> None:
    """As here: gone once the step has succeeded, unless they are to be kept; there while it hasn't."""
    run = "c=$STOKER_CHECKPOINT_DIR; [ -e $c/one ] || { mkdir -p $c; echo 7 > $c/one; exit 75; }; echo 8 > $c/two"
    kept = {"run": run, "keep_checkpoints": True}
    failing = {"run": run + "; exit 3", "after": ["a", "b"]}
    done = project(
        "run", "--with", "prod", project.document({"a": {"run": run}, "b": kept, "c": failing})
    )
    assert done.returncode != 0
    shown = project.show()
    assert {n: s["status"] for n, s in shown["steps"].items()} == {
        "a": "succeeded", "b": "succeeded", "c": "failed",
    }  # fmt: skip
    folder = project.folder.parent / "share/runs" / shown["run"]
    names = {step: [p.name for p in folder.glob(f"{step}/*/checkpoints*")] for step in "abc"}
    assert names["a"] == []
    for step in "bc":
        assert sorted(names[step]) == ["checkpoints", "checkpoints.json"]
        [listed] = folder.glob(f"{step}/*/checkpoints.json")
        assert set(json.loads(listed.read_text())) == {"one", "two"}


@pytest.mark.tsan
def test_carried_by_the_store(project: Project) -> None:
    doc = json.loads((project.folder / "stoker.yaml").read_text())
    doc["stacks"]["prod"]["carry"] = "store"
    project.write("stoker.yaml", json.dumps(doc))
    for _ in range(2):
        done = project(
            "run", "--with", "prod", "--no-cache", project.document({"a": {"run": "true"}})
        )
        assert done.returncode == 0, done.stderr
    [tar] = (project.folder.parent / "share/carry").iterdir()
    digest = hashlib.sha256(tar.read_bytes()).hexdigest()
    assert tar.name == f"{digest}.tar"


@pytest.mark.tsan
def test_max_jobs(project: Project) -> None:
    """No more jobs at once than the stack allows; `why` names what the others wait for."""
    text = (project.folder / "stoker.yaml").read_text()
    doc = json.loads(text)
    doc["stacks"]["prod"]["max_jobs"] = 1
    project.write("stoker.yaml", json.dumps(doc))
    gate = project.folder.parent / "gate"
    gate.mkdir()
    project.cluster.keep.append(str(gate))
    run = f"until [ -e {gate}/open ]; do sleep 0.05; done"
    engine = project.begin(
        "run", "--with", "prod", project.document({"a": {"run": run}, "b": {"run": run + "; :"}})
    )
    wait_for(lambda: is_running(project), why="no pod")
    why = wait_for(lambda: project("why", "latest", "b").stdout, why="nothing to say")
    assert "waits for a place on kubernetes (stack 'prod' has at most 1 jobs at once)" in why, why
    (gate / "open").touch()
    engine.communicate(timeout=60)
    assert engine.returncode == 0
    assert len(project.cluster.history) == 2


def test_private_files_stay_here(project: Project) -> None:
    """They aren't in the share; a named one is, and keeps its mode."""
    project.write("code.txt", "code\n")
    for name in (".env", ".ssh/id_rsa", "mine.txt"):
        project.write(name, f"secret of {name}\n").chmod(0o600)
    project.write(".stokerignore", "!mine.txt\n")
    project.folder.chmod(0o755)
    script = "cat code.txt; stat -c '%a' mine.txt; ls -A"
    done = project("run", "--json", "--with", "prod", project.document({"a": {"run": script}}))
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    said = Path(shown["steps"]["a"]["logs"]["stdout"]).read_text().split()
    assert said[:2] == ["code", "400"]
    assert ".env" not in said and ".ssh" not in said
    (note,) = [note for note in shown["notes"] if "private" in note]
    assert note.startswith("left out of the project's code as private: .env, .ssh/;")
    share = project.folder.parent / "share"
    held = [path.read_bytes() for path in share.rglob("*") if path.is_file()]
    assert b"secret of mine.txt\n" in held
    assert not any(b"secret of .env" in one or b"secret of .ssh" in one for one in held)


def test_environment_is_made_of_the_images(project: Project) -> None:
    """As a Dockerfile's ENV would, where no image is built that has it; what the step says itself is a literal."""
    values = {
        "PATH": "/opt/bin:$PATH",
        "FIRST": "${NONE:-one}",
        "SECOND": "$FIRST-two",
        "OWN": "$FIRST",
    }
    docker = {"parent_image": IMAGE, "skip_build": True, "environment": values}
    script = 'printf "%s\\n" "$PATH" "$SECOND" "$OWN"'
    step = {"run": script, "docker": docker, "environment": {"OWN": "$PATH"}}
    done = project("run", "--json", "--with", "prod", project.document({"a": step}))
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    path, second, own = Path(shown["steps"]["a"]["logs"]["stdout"]).read_text().splitlines()
    assert path.startswith("/opt/bin:/") and "$" not in path
    assert (second, own) == ("one-two", "$PATH")
