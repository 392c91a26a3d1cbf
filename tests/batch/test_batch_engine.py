"""Whole runs on AWS Batch, from the command line. Jobs are processes in separate mount namespaces,
which get their program, inputs and code only from the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_tools import ROOT, Moto
from fake_batch import FakeBatch
from front_tools import cannot
from stoker_binary import find_binary
from typed_page import type_page

STOKER = find_binary()
IMAGE = "127.0.0.1:1/img:1"  # of whose registry nobody hears


class Project:
    """A user's folder with a stack for the test's Batch."""

    def __init__(
        self, folder: Path, store: str, fake: FakeBatch, env: dict[str, str], **options: Any
    ):
        self.folder, self.fake = folder, fake
        stack = {
            "backend": "batch",
            "store": store,
            "default_image": IMAGE,
            "options": {"queue": "q", "poll": 0.1, **options},
        }
        (folder / "stoker.yaml").write_text(json.dumps({"stacks": {"aws": stack}}))
        self.env = {
            **{k: v for k, v in env.items() if not k.startswith("STOKER_")},
            "AWS_ENDPOINT_URL": fake.url,
            "STOKER_BIN": str(STOKER),
            "STOKER_LEASE_DIR": str(folder / "leases"),
            "PYTHONPATH": str(ROOT / "python"),
            "STOKER_SYNC": "0",
        }

    def document(self, steps: dict[str, Any], **more: Any) -> str:
        (self.folder / "p.json").write_text(
            json.dumps({"stoker": 1, "name": "p", "steps": steps, **more})
        )
        return "p.json"

    def begin(self, *words: str, program: Any = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*(program or [STOKER]), *words],
            cwd=self.folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def __call__(self, *words: str, program: Any = None) -> subprocess.CompletedProcess[str]:
        process = self.begin(*words, program=program)
        out, err = process.communicate(timeout=280)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def show(self) -> dict[str, Any]:
        return json.loads(self("show", "latest", "--json").stdout)


@pytest.fixture
def spaces(moto: Moto) -> Iterator[FakeBatch]:
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        cannot(
            "this machine lets nobody make a mount namespace: no job could have a /stoker of its own"
        )
    fake = FakeBatch(moto.url, namespaces=True)
    yield fake
    fake.close()
    assert fake.failures == []


@pytest.fixture
def project(tmp_path: Path, spaces: FakeBatch, moto: Moto) -> Project:
    (folder := tmp_path / "project").mkdir()
    return Project(folder, str(tmp_path / "share"), spaces, moto.env)


def test_s3(tmp_path: Path, spaces: FakeBatch, moto: Moto) -> None:
    """Inputs and outputs go through S3, with the credentials of the job's role."""
    bucket = f"bucket-{os.getpid()}"
    location = {"LocationConstraint": "eu-west-1"}
    moto.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=location)
    (folder := tmp_path / "project").mkdir()
    role = "arn:aws:iam::123456789012:role/job"
    project = Project(folder, f"s3://{bucket}/stoker", spaces, moto.env, iam_role=role)
    (folder / "words.txt").write_text("from the project\n")
    steps = {
        "a": {"run": "cat words.txt; env; echo 42 > $STOKER_OUTPUT/x", "outputs": ["x"]},
        "b": {"run": "cat $STOKER_INPUT_x", "inputs": {"x": {"from": "a.x"}}},
    }
    done = project("run", project.document(steps), "--with", "aws")
    assert done.returncode == 0, done.stderr + done.stdout
    logs = project("logs", "latest").stdout
    assert "from the project" in logs and "b | 42" in logs
    assert "AWS_SECRET_ACCESS_KEY" not in logs
    assert {job.request["tags"]["stoker.step"] for job in spaces.jobs.values()} == {"a", "b"}
    assert not (Path("/stoker") / "bin").exists(), "the jobs had one of their own"
    again = project("run", "p.json", "--with", "aws")
    assert again.returncode == 0 and len(spaces.jobs) == 2, "the second run is cached"


def test_logs_elsewhere(project: Project, tmp_path: Path) -> None:
    """Another machine with the same stoker.yaml shows what a running job prints, and registers nothing for that."""
    go = tmp_path / "go"
    run = f"echo one; until [ -e {go} ]; do sleep 0.1; done; echo two"
    engine = project.begin("run", project.document({"a": {"run": run}}), "--with", "aws")
    (other := tmp_path / "other").mkdir()
    (other / "stoker.yaml").write_text((project.folder / "stoker.yaml").read_text())
    there = Project.__new__(Project)
    there.folder, there.env = other, project.env
    shown, end = "", time.monotonic() + 100
    while shown != "one\n":
        assert time.monotonic() < end and engine.poll() is None, shown
        shown = there("logs", "--stack", "aws", "latest/a").stdout
    follows = there.begin("logs", "-f", "--stack", "aws", "latest/a")
    assert follows.stdout is not None and follows.stdout.readline() == "one\n"
    go.touch()
    assert follows.communicate(timeout=100)[0] == "two\n"
    engine.communicate(timeout=100)
    assert engine.returncode == 0 and len(project.fake.jobs) == 1


def test_failures(project: Project) -> None:
    """The exit status is the program's; losing the machine doesn't count as an attempt."""
    steps = {
        "bad": {"run": "echo no >&2; exit 9"},
        "spot": {"run": "echo $STOKER_ATTEMPT; [ $STOKER_ATTEMPT = 2 ] || sleep 100"},
    }
    process = project.begin("run", project.document(steps), "--with", "aws")
    job = project.fake.wait_for_step("spot", "RUNNING")
    project.fake.reclaim(job)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 1, out + err
    told = project.show()["steps"]
    assert (told["bad"]["error"]["class"], told["bad"]["attempts"]) == ("exit", 1)
    assert "exit status 9" in told["bad"]["error"]["text"]
    assert (told["spot"]["status"], told["spot"]["attempts"]) == ("succeeded", 2)


def test_no_such_queue(project: Project) -> None:
    done = project(
        "run",
        project.document({"a": {"run": "true", "backend": {"batch": {"queue": "nowhere"}}}}),
        "--with",
        "aws",
    )
    assert done.returncode == 1
    error = project.show()["steps"]["a"]["error"]
    assert (error["class"], "has no job queue 'nowhere'" in error["text"]) == ("resources", True)


def test_credentials_that_stay_expired(project: Project) -> None:
    """Running jobs fail with that sentence, as if a right were refused."""
    project.env["STOKER_SHARE_WAIT"] = "1"
    steps = {"a": {"run": "sleep 1000"}, "b": {"run": "true", "after": ["a"]}}
    process = project.begin("run", project.document(steps), "--with", "aws")
    project.fake.wait_for_step("a", "RUNNING")
    project.fake.expired = {"testing"}
    out, err = process.communicate(timeout=100)
    assert process.returncode == 1, out + err
    assert err.count("note      step 'a': AWS says that the credentials") == 1, err
    error = project.show()["steps"]["a"]["error"]
    assert error["class"] == "start", error
    assert "the credentials from the environment have expired" in error["text"]


@pytest.mark.parametrize("option", [{"queu": "q"}, {"tpu": 1}, {"memory": "much"}])
def test_refused_before_anything_starts(project: Project, option: dict[str, Any]) -> None:
    steps = {"a": {"run": "true"}, "b": {"run": "true", "backend": {"batch": option}}}
    done = project("run", project.document(steps), "--with", "aws")
    assert done.returncode == 2
    assert next(iter(option)) in done.stderr and "step 'b'" in done.stderr
    assert project.fake.calls == {}


def test_gang(project: Project) -> None:
    """Two nodes are one multi-node job, and find each other by the variables of Batch."""
    text = "echo rank $RANK of $WORLD_SIZE on node $GROUP_RANK; sleep 0.5"
    steps = {"g": {"run": text, "gang": {"nodes": 2, "ranks": 2}}}
    done = project("run", project.document(steps), "--with", "aws")
    assert done.returncode == 0, done.stdout + done.stderr + project("logs", "latest").stdout
    [job] = project.fake.jobs.values()
    assert len(job.nodes) == 2
    said = ["\n".join(node.lines) for node in job.nodes]
    for rank, node in ((0, 0), (1, 0), (2, 1), (3, 1)):
        assert f"rank {rank} of 4 on node {node}" in said[node], said


@pytest.mark.tsan
def test_cancel(project: Project) -> None:
    """SIGINT: nothing is left running."""
    steps = {f"s{i}": {"run": "echo here; sleep 1000"} for i in range(4)}
    process = project.begin("run", project.document(steps), "--with", "aws")
    for i in range(4):
        project.fake.wait_for_step(f"s{i}", "RUNNING")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode != 0, out + err
    assert project.fake.live() == []
    assert {s["status"] for s in project.show()["steps"].values()} == {"cancelled"}


MOMENTS: dict[str, Callable[[FakeBatch], bool]] = {
    "a job is submitted": lambda fake: len(fake.jobs) >= 1,
    "half of them are": lambda fake: len(fake.jobs) >= 3,
    "one runs": lambda fake: any(j.status == "RUNNING" for j in list(fake.jobs.values())),
    "one has ended": lambda fake: any(j.status == "SUCCEEDED" for j in list(fake.jobs.values())),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_and_resumed(project: Project, moment: str) -> None:
    """The engine is killed at any moment: resume finds running jobs; no task is lost or runs
    twice."""
    steps = {f"s{i}": {"run": f"sleep 1; echo {i}"} for i in range(6)}
    steps["last"] = {"run": "echo over", "after": list(steps)}
    process = project.begin("run", project.document(steps), "--with", "aws")
    while not MOMENTS[moment](project.fake):
        assert process.poll() is None, process.communicate()
        time.sleep(0.005)
    process.kill()
    process.wait(300)
    done = project("resume", "latest", "--with", "aws")
    assert done.returncode == 0, done.stderr + done.stdout
    told = project.show()
    assert told["status"] == "succeeded"
    names = [job.name for job in project.fake.jobs.values()]
    assert len(names) == len(set(names)), "a job was submitted twice"
    ended_well = [j for j in project.fake.jobs.values() if j.status == "SUCCEEDED"]
    assert len({j.request["tags"]["stoker.step"] for j in ended_well}) == 7
    assert project.fake.live() == []


def test_killed_and_cancelled(project: Project) -> None:
    """Jobs of the dead engine are terminated by name; nothing is submitted."""
    steps = {f"s{i}": {"run": "echo here; exec sleep 1000"} for i in range(2)}
    process = project.begin("run", project.document(steps), "--with", "aws")
    for name in steps:
        project.fake.wait_for_step(name, "RUNNING")
    process.kill()
    process.wait(30)
    done = project("cancel")
    assert done.returncode == 0, done.stderr
    assert project.fake.live() == [] and len(project.fake.jobs) == 2
    told = project.show()
    assert told["status"] == "cancelled"
    assert {s["status"] for s in told["steps"].values()} == {"cancelled"}


def test_storm(project: Project) -> None:
    """40 tasks with throttling, answers of 500 and lost answers: each runs once."""
    fake = project.fake
    fake.submit_rate, fake.faults, fake.cut_submits = 10.0, 20, 5
    steps = {f"s{i}": {"run": "true"} for i in range(40)}
    done = project("run", project.document(steps), "--with", "aws")
    assert done.returncode == 0, done.stderr + done.stdout
    succeeded = [j.name for j in fake.jobs.values() if j.status == "SUCCEEDED"]
    assert len(set(succeeded)) == 40
    assert fake.live() == []


FLOW = """
from stoker.flow import FlowSpec, batch, step

class F(FlowSpec):
    @batch(queue="q", cpu=2, memory=600, shared_memory=64)
    @step
    def start(self):
        import os
        self.items = list(range(5))
        self.where = os.environ.get("AWS_BATCH_JOB_ID")
        self.next(self.work, foreach="items")

    @batch(queue="q")
    @step
    def work(self):
        import os
        self.where = os.environ.get("AWS_BATCH_JOB_ID")
        self.square = self.input ** 2
        self.next(self.join)

    @step
    def join(self, inputs):
        self.total = sum(i.square for i in inputs)
        self.places = len({i.where for i in inputs})
        self.next(self.end)

    @step
    def end(self):
        print("total", self.total, "places", self.places)

if __name__ == "__main__":
    F()
"""


def test_flow_with(project: Project) -> None:
    """--with batch:… runs all steps on Batch, with these arguments."""
    import sys

    (project.folder / "flow.py").write_text(FLOW.replace('@batch(queue="q")', ""))
    words = ["flow.py", "run", "--with", "batch:queue=q,shared_memory=77"]
    done = project(*words, program=[sys.executable])
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert "total 30 places 5" in text
    assert len(project.fake.jobs) == 8, "start has its own @batch; end and join are there too"
    sizes = {
        d["containerProperties"]["linuxParameters"].get("sharedMemorySize")
        for revisions in project.fake.definitions.values()
        for d in revisions
    }
    assert sizes == {64, 77}


def test_flow(project: Project) -> None:
    """A flow with @batch: tasks are jobs, and artifacts come back."""
    import sys

    (project.folder / "flow.py").write_text(FLOW)
    done = project("flow.py", "run", program=[sys.executable])
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert "total 30 places 5" in text
    definitions = [d for revisions in project.fake.definitions.values() for d in revisions]
    asked = {
        tuple(
            sorted(
                (r["type"], r["value"]) for r in d["containerProperties"]["resourceRequirements"]
            )
        )
        for d in definitions
    }
    assert (("MEMORY", "600"), ("VCPU", "2")) in asked


def test_page_typed(tmp_path: Path, spaces: FakeBatch, moto: Moto) -> None:
    """The commands of docs/batch.md, as they stand there."""
    bucket = f"page-{os.getpid()}"
    location = {"LocationConstraint": "eu-west-1"}
    moto.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=location)
    (folder := tmp_path / "project").mkdir()
    store = f"s3://{bucket}/stoker"
    project = Project(folder, store, spaces, moto.env)
    values = {"store": store, "default_image": IMAGE}
    role = moto.role("job-of-the-page")
    said = type_page("docs/batch.md", __file__, project, values, queue="q", iam_role=role, poll=0.1)
    assert "typed" in said and "queue" in said
