"""The driver against a fake Batch that answers like AWS: states, causes, logs, faults. Jobs are
local processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Callable

import pytest
from batch_tools import Drive
from fake_batch import FakeBatch

Start = Callable[..., Drive]
VOLUME: dict[str, Any] = {"carry": "volume", "carry_volume": "/opt/stoker"}


def sh(text: str) -> list[str]:
    return ["/bin/sh", "-c", text]


@pytest.fixture
def start(drive: Callable[..., Drive], fake_env: dict[str, str]) -> Start:
    """A driver whose jobs run the commands of the test (carry: volume)."""

    def begin(**words: Any) -> Drive:
        options = {"queue": "q", **words.pop("options", {})}
        return drive(fake_env, options, **{**VOLUME, **words})

    return begin


def test_states_and_logs(start: Start, fake: FakeBatch) -> None:
    """A job is queued and running, its lines appear while it runs, and it ends with its exit
    status."""
    d = start()
    d.submit(1, argv=sh("echo one; echo two; sleep 1; echo three; exit 3"))
    where = d.wait(lambda r: r["state"] == "running")
    assert "AWS Batch job" in where["text"]
    d.wait(lambda r: r["state"] == "log" and "two" in r["data"])
    assert fake.named("s-r1-a-1-1")[0].status == "RUNNING", "its log was followed while it ran"
    end = d.end_of(1)
    assert (end["state"], end["exit_status"], end["failure"]) == ("ended", 3, "none")
    assert d.log_of(1) == "one\ntwo\nthree\n"
    assert [r["state"] for r in d.seen if r["state"] != "log"] == ["queued", "running", "ended"]


def test_late_logs(start: Start, fake: FakeBatch) -> None:
    """CloudWatch has the last lines only some time after the end."""
    fake.log_lag_s = 1.0
    d = start()
    d.submit(1, argv=sh("echo why it failed; exit 1"))
    d.end_of(1)
    assert d.log_of(1) == "why it failed\n"


def test_our_own_text_says_why(start: Start, fake: FakeBatch) -> None:
    """What the script in the image prints before it exits with 78 is the failure."""
    d = start()
    d.submit(1, argv=sh("echo noise; echo 'stoker: this image has none of aws, curl' >&2; exit 78"))
    end = d.end_of(1)
    assert (end["state"], end["failure"]) == ("failed", "start")
    assert end["text"] == "this image has none of aws, curl"


@pytest.mark.parametrize(
    ("how", "failure", "says"),
    [
        ("reclaim", "preempted", "taken away"),
        ("run_out_of_memory", "host_oom", "more memory"),
        ("terminated", "cancelled", "terminated from outside (not needed)"),
    ],
)
def test_ended_from_outside(
    start: Start, fake: FakeBatch, how: str, failure: str, says: str
) -> None:
    d = start()
    d.submit(1, argv=["sleep", "1000"])
    job = fake.wait_for("s-r1-a-1-1", "RUNNING")
    if how == "terminated":
        fake._TerminateJob({"jobId": job.id, "reason": "not needed"})
    else:
        getattr(fake, how)(job)
    end = d.end_of(1)
    assert (end["state"], end["failure"]) == ("failed", failure)
    assert says in end["text"]
    assert end["oom"] == (failure == "host_oom")


def test_pull_error(start: Start, fake: FakeBatch) -> None:
    fake.pull_error = (
        "CannotPullContainerError: Error response from daemon: manifest for nowhere:1 not found"
    )
    d = start()
    d.submit(1, argv=["true"])
    end = d.end_of(1)
    assert (end["state"], end["failure"]) == ("failed", "start")
    assert "couldn't be pulled" in end["text"] and "nowhere:1" in end["text"]


def test_stuck(start: Start, fake: FakeBatch) -> None:
    """The reason for waiting is reported once; after the stack's time limit the job fails with it,
    and leaves the queue."""
    fake.hold = (
        "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Service cannot fulfill the capacity requested for "
        "instance type [p5.48xlarge]"
    )
    d = start(pending_ms=1500)
    d.submit(1, argv=["true"])
    d.wait(lambda r: r["state"] == "queued" and "no free instance of that kind" in r["text"])
    end = d.end_of(1)
    assert (end["state"], end["failure"]) == ("failed", "resources")
    assert "waited in queue 'q' for" in end["text"] and "p5.48xlarge" in end["text"]
    assert sum("no free instance" in r["text"] for r in d.seen if r["state"] == "queued") == 1
    assert fake.live() == []


def test_impossible(start: Start, fake: FakeBatch) -> None:
    """A job that no compute environment can hold fails before it is submitted."""
    fake.add_queue("gpus", instanceTypes=["g5.xlarge"], maxvCpus=8)
    d = start()
    d.submit(1, argv=["true"], options={"queue": "q", "gpu": 1})
    d.submit(2, argv=["true"], options={"queue": "gpus", "trainium": 1})
    d.submit(3, argv=["true"], options={"queue": "gpus", "cpu": 9})
    d.submit(4, argv=["true"], options={"queue": "gpus", "gpu": 1})
    ends = d.ends_of({1, 2, 3, 4})
    assert "'q-env' has no instances with NVIDIA GPUs" in ends[1]["text"]
    assert "'gpus-env' has no instances with Neuron devices" in ends[2]["text"]
    assert "smaller maximum of vCPUs (8)" in ends[3]["text"]
    assert {ends[i]["failure"] for i in (1, 2, 3)} == {"resources"}
    assert ends[4]["exit_status"] == 0
    assert fake.calls["SubmitJob"] == 1


def test_stop(start: Start, fake: FakeBatch) -> None:
    """A running job gets SIGTERM, a waiting one is cancelled, and one that isn't submitted stays
    so."""
    d = start()
    d.submit(1, argv=sh("trap 'echo saved; exit 9' TERM; echo ready; while :; do sleep 0.1; done"))
    d.wait(lambda r: r["state"] == "log" and "ready" in r["data"])
    fake.hold = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - none"
    d.submit(2, argv=["true"])
    fake.wait_for("s-r1-a-2-1", "RUNNABLE")
    d.send("stop", id=1, why="cancelled")
    d.send("stop", id=2, why="timeout")
    d.submit(3, argv=["true"])
    d.send("stop", id=3)
    d.send("stop", id=77)
    ends = d.ends_of({1, 2, 3})
    assert {i: (e["state"], e["failure"]) for i, e in ends.items()} == {
        1: ("failed", "cancelled"),
        2: ("failed", "timeout"),
        3: ("failed", "cancelled"),
    }
    assert "saved" in d.log_of(1)
    for i in (1, 2, 3):
        d.send("forget", id=i)
    assert d.close() == 0
    assert fake.live() == []


def test_lost_answers(start: Start, fake: FakeBatch) -> None:
    """Answers to submits are lost: each job exists once, and is watched to its end."""
    fake.cut_submits = 6
    d = start()
    for i in range(10):
        d.submit(i, argv=["true"])
    ends = d.ends_of(set(range(10)))
    assert {e["exit_status"] for e in ends.values()} == {0}
    assert [len(fake.named(f"s-r1-a-{i}-1")) for i in range(10)] == [1] * 10


def test_faults(start: Start, fake: FakeBatch) -> None:
    """Many calls answer 500: no job is lost or submitted twice."""
    d = start()
    fake.faults = 30
    for i in range(10):
        d.submit(i, argv=["true"])
    ends = d.ends_of(set(range(10)), timeout=200)
    assert {e["exit_status"] for e in ends.values()} == {0}, ends
    assert len(fake.jobs) == 10
    assert fake.faults == 0


def test_throttled(start: Start, fake: FakeBatch) -> None:
    """Batch accepts 10 jobs a second: all are submitted, with few rejected requests."""
    fake.submit_rate = 10.0
    d = start()
    began = time.monotonic()
    for i in range(100):
        d.submit(i, argv=["true"])
    ends = d.ends_of(set(range(100)), timeout=200)
    assert {e["exit_status"] for e in ends.values()} == {0}
    assert len(fake.jobs) == 100
    assert fake.calls["SubmitJob"] < 250, f"{fake.calls}, {time.monotonic() - began:.1f} s"


def test_killed_and_attached(start: Start, fake: FakeBatch) -> None:
    """The driver's process is killed: jobs continue, and another driver finds all of them by
    name."""
    d = start()
    for i in range(20):
        d.submit(i, argv=sh(f"sleep 2; echo over; exit {i}"))
    d.wait(lambda r: r["state"] == "running")
    d.process.kill()
    d.process.wait(30)
    time.sleep(0.5)  # sleeps: for the request in progress
    submitted = {job.name for job in fake.jobs.values()}
    d = start()
    for i in range(20):
        d.submit(i, argv=["not", "started", "again"], attach=1)
    ends = d.ends_of(set(range(20)))
    assert all("echo over" in str(job.request) for job in fake.jobs.values())
    late = {job.name for job in fake.jobs.values()} - submitted  # on a machine that is very busy
    for i, end in ends.items():
        if f"s-r1-a-{i}-1" in submitted:
            assert (end["state"], end["exit_status"]) == ("ended", i)
        else:
            assert end["failure"] == "lost" or f"s-r1-a-{i}-1" in late


def test_looked_for(start: Start, fake: FakeBatch) -> None:
    """A job that an earlier engine may have submitted is watched if it exists, else submitted."""
    d = start()
    d.submit(1, argv=sh("sleep 1; echo over; exit 7"))
    fake.wait_for("s-r1-a-1-1", "RUNNING")
    d.process.kill()
    d = start()
    d.submit(1, argv=["true"], look=1)
    d.submit(2, argv=["true"], look=1)
    ends = d.ends_of({1, 2})
    assert {i: e["exit_status"] for i, e in ends.items()} == {1: 7, 2: 0}
    assert len(fake.jobs) == 2


def test_many_looked_for(start: Start, fake: FakeBatch) -> None:
    """Many started jobs that may not be submitted are found by one list of the run's jobs, in pages
    of 100."""
    d = start(options={"array_min": 0})
    d.submit(0, argv=["true"])
    d.end_of(0)
    [request] = [job.request for job in fake.jobs.values()]
    for i in [*range(1, 120), 5]:
        fake._SubmitJob({**request, "jobName": f"s-r1-a-{i}-1"})
    fake.calls.clear()
    for i in range(1, 150):
        d.submit(i, argv=["true"], look=1)
    ends = d.ends_of(set(range(1, 150)))
    assert {e["exit_status"] for e in ends.values()} == {0}, ends[5]
    assert fake.calls["SubmitJob"] == 30
    assert fake.calls["TerminateJob"] == 1, "of one that was there twice"
    assert fake.calls["ListJobs"] <= 4 + 2 * 2, fake.calls


def test_nodes(start: Start, fake: FakeBatch) -> None:
    """A multi-node job has a log for each node, and ends as the first failed node does."""
    text = 'echo "node $AWS_BATCH_JOB_NODE_INDEX of $AWS_BATCH_JOB_NUM_NODES $AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"; sleep 1'
    d = start()
    d.submit(1, nodes=3, argv=sh(text))
    end = d.end_of(1)
    assert (end["state"], end["exit_status"]) == ("ended", 0), end
    assert d.log_of(1, 0) == "node 0 of 3 \n"
    assert d.log_of(1, 2) == "node 2 of 3 127.0.0.1\n"
    d.submit(2, nodes=2, argv=sh("sleep 0.5; echo over; exit 4"))
    assert d.end_of(2)["exit_status"] == 4


def test_no_right_to_read_logs(
    start: Start, fake: FakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run continues, with one note."""
    from fake_batch import Refused

    def denied(asked: Any) -> Any:
        raise Refused("AccessDeniedException", "not authorized to perform: logs:GetLogEvents", 400)

    monkeypatch.setattr(fake, "_GetLogEvents", denied)
    d = start()
    for i in range(3):
        d.submit(i, argv=sh("echo x; sleep 0.5"))
    assert {e["exit_status"] for e in d.ends_of({0, 1, 2}).values()} == {0}
    assert sum("can't follow" in r["text"] for r in d.seen if r["state"] == "note") == 1


def test_no_right_to_submit(start: Start, fake: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """All jobs fail with that sentence."""
    from fake_batch import Refused

    def denied(asked: Any) -> Any:
        raise Refused(
            "AccessDeniedException", "User ann is not authorized to perform: batch:SubmitJob", 403
        )

    monkeypatch.setattr(fake, "_SubmitJob", denied)
    d = start()
    d.submit(1, argv=["true"])
    said = d.wait(lambda r: "turn_error" in r)
    assert "not authorized to perform: batch:SubmitJob" in said["turn_error"]


def test_no_right_to_look(start: Start, fake: FakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is known before anything is submitted."""
    from fake_batch import Refused

    def denied(asked: Any) -> Any:
        raise Refused("AccessDeniedException", "not authorized to perform: batch:DescribeJobs", 403)

    monkeypatch.setattr(fake, "_DescribeJobs", denied)
    d = start()
    d.submit(1, argv=["sleep", "1000"])
    said = d.wait(lambda r: "turn_error" in r)
    assert "not authorized to perform: batch:DescribeJobs" in said["turn_error"]
    assert "SubmitJob" not in fake.calls


@pytest.mark.parametrize("may_end", [True, False])
def test_a_right_taken_away(
    start: Start, fake: FakeBatch, monkeypatch: pytest.MonkeyPatch, may_end: bool
) -> None:
    """A job that can't be watched any more is ended before its step fails, or reported as possibly
    alive."""
    from fake_batch import Refused

    def denied(asked: Any) -> Any:
        raise Refused("AccessDeniedException", "not authorized to perform: batch:X", 403)

    d = start()
    d.submit(1, argv=["sleep", "1000"])
    d.wait(lambda r: r["state"] == "running")
    if not may_end:
        monkeypatch.setattr(fake, "_TerminateJob", denied)
    monkeypatch.setattr(fake, "_DescribeJobs", denied)
    end = d.end_of(1)
    assert end["failure"] == "start" and "not authorized to perform: batch:X" in end["text"], end
    assert ("its job was terminated" in end["text"]) is may_end
    assert ("may still run: `aws batch terminate-job --job-id " in end["text"]) is not may_end
    assert "turn_error" in d.wait(lambda r: "turn_error" in r)
    assert fake.calls["TerminateJob"] == 1


def keys_in(path: Path, id: str) -> dict[str, str]:
    path.write_text(f"[default]\naws_access_key_id = {id}\naws_secret_access_key = s\n")
    named = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}
    return {**named, "AWS_SHARED_CREDENTIALS_FILE": str(path)}


def test_credentials_renewed_in_the_file(
    drive: Callable[..., Drive], fake_env: dict[str, str], fake: FakeBatch, tmp_path: Path
) -> None:
    """They expire while jobs run and are submitted: one note, then the new ones are read and the
    run continues."""
    env = {**fake_env, **keys_in(tmp_path / "keys", "OLD"), "STOKER_SHARE_WAIT": "45"}
    d = drive(env, {"queue": "q"}, **VOLUME)
    d.submit(1, argv=sh("sleep 1; echo over; exit 7"))
    d.wait(lambda r: r["state"] == "running")
    fake.expired = {"OLD"}
    for i in range(2, 20):
        d.submit(i, argv=["true"])
    note = d.wait(lambda r: r["state"] == "note")
    assert "credentials from profile 'default' have expired (ExpiredTokenException)" in note["text"]
    assert "renew the credentials (`aws sso login`" in note["text"]
    asked = sum(fake.calls.values())
    keys_in(tmp_path / "keys", "NEW")
    ends = d.ends_of(set(range(1, 20)))
    assert {i: e["exit_status"] for i, e in ends.items()} == {1: 7} | dict.fromkeys(range(2, 20), 0)
    assert sum(r["state"] == "note" for r in d.seen) == 1
    assert asked < 40, "one asks for all"


def test_credentials_that_stay_expired(
    drive: Callable[..., Drive], fake_env: dict[str, str], fake: FakeBatch, tmp_path: Path
) -> None:
    env = {**fake_env, **keys_in(tmp_path / "keys", "OLD"), "STOKER_SHARE_WAIT": "1"}
    d = drive(env, {"queue": "q"}, **VOLUME)
    d.submit(1, argv=["sleep", "1000"])
    d.wait(lambda r: r["state"] == "running")
    fake.expired = {"OLD"}
    said = d.wait(lambda r: "turn_error" in r)
    assert "credentials from profile 'default' have expired" in said["turn_error"]
    assert len(fake.live()) == 1, "its job isn't touched"


def test_nobody_there(drive: Callable[..., Drive], fake_env: dict[str, str]) -> None:
    """Before AWS has answered for the first time, a fault is waited out for a fifteenth of the
    time."""
    env = {**fake_env, "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "STOKER_SHARE_WAIT": "75"}
    d = drive(env, {"queue": "q"}, **VOLUME)
    d.submit(1, argv=["true"])
    note = d.wait(lambda r: r.get("state") == "note", timeout=100)
    assert "still retrying" in note["text"]
    said = d.wait(lambda r: "turn_error" in r or r.get("state") == "failed", timeout=200)
    assert "127.0.0.1" in str(said)
