"""The driver of AWS Batch against moto's server, which accepts, finds and ends what it registers
and submits."""

from __future__ import annotations

import json
import urllib.request
from typing import Any, Callable

import pytest
from batch_tools import Drive, Moto


def test_one(moto: Moto, drive: Callable[..., Drive]) -> None:
    """A job is registered, submitted with its environment, and watched to its end."""
    queue, s3 = moto.queue(), moto.client("s3")
    s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    s3.put_object(Bucket="bucket", Key=f"stoker/carry/{'0' * 64}.tar", Body=b"our program")
    d = drive(moto.env, {"queue": queue})
    d.submit(1, env=["STOKER_RUN=r1"], resources={"cpu_milli": 2000, "memory_bytes": 1 << 30})
    end = d.end_of(1)
    assert (end["state"], end["exit_status"], end["failure"]) == ("ended", 0, "none")
    assert [r["state"] for r in d.seen][:1] == ["queued"]
    batch = moto.client("batch")
    [job] = batch.list_jobs(
        jobQueue=queue, filters=[{"name": "JOB_NAME", "values": ["s-r1-a-1-1"]}]
    )["jobSummaryList"]
    told = batch.describe_jobs(jobs=[job["jobId"]])["jobs"][0]
    environment = {e["name"]: e["value"] for e in told["container"]["environment"]}
    assert environment["STOKER_RUN"] == "r1"
    assert environment["STOKER_CARRY"] == f"s3://bucket/stoker/carry/{'0' * 64}.tar"
    with urllib.request.urlopen(environment["STOKER_CARRY_LINK"]) as answer:
        assert answer.read() == b"our program"
    assert told["tags"]["stoker.step"] == "a"
    assert d.close() == 0


def test_definition_is_registered_once(moto: Moto, drive: Callable[..., Drive]) -> None:
    """Jobs of one step share it, also in later runs."""
    queue, batch = moto.queue(), moto.client("batch")
    before = {d["jobDefinitionArn"] for d in batch.describe_job_definitions()["jobDefinitions"]}
    for _ in range(2):
        d = drive(moto.env, {"queue": queue, "shared_memory": 77})
        for i in range(5):
            d.submit(i)
        ends = d.ends_of(set(range(5)))
        assert {e["state"] for e in ends.values()} == {"ended"}
        assert d.close() == 0
    after = {d["jobDefinitionArn"] for d in batch.describe_job_definitions()["jobDefinitions"]}
    assert len(after - before) == 1


def test_attach(moto: Moto, drive: Callable[..., Drive]) -> None:
    """Another driver finds the job by its name and submits no second one; a missing job is lost."""
    queue, batch = moto.queue(), moto.client("batch")
    d = drive(moto.env, {"queue": queue})
    d.submit(1)
    d.end_of(1)
    d.close()
    d = drive(moto.env, {"queue": queue})
    d.submit(1, attach=1)
    assert d.end_of(1)["state"] == "ended"
    d.submit(2, attach=1)
    end = d.end_of(2)
    assert (end["state"], end["failure"]) == ("failed", "lost")
    assert "no longer has job 's-r1-a-2-1'" in end["text"]
    assert len(batch.list_jobs(jobQueue=queue, jobStatus="SUCCEEDED")["jobSummaryList"]) == 1


@pytest.mark.parametrize(
    ("options", "words", "says"),
    [
        ({"queue": "nowhere"}, {}, "has no job queue 'nowhere'"),
        ({"queue": "q", "tpu": 1}, {}, "doesn't support 'tpu'"),
        ({}, {}, "no job queue of AWS Batch is named"),
        ({"queue": "q"}, {"secret": ["T=hunter2"]}, "secret 'T' can't be passed to AWS Batch"),
    ],
)
def test_refused(
    moto: Moto, drive: Callable[..., Drive], options: Any, words: Any, says: str
) -> None:
    d = drive(moto.env, {})
    d.submit(1, options=options, **words)
    end = d.end_of(1)
    text = end.get("refused") or end["text"]
    assert says in text
    assert "hunter2" not in json.dumps(d.seen)


def test_disabled_queue(moto: Moto, drive: Callable[..., Drive]) -> None:
    d = drive(moto.env, {"queue": (queue := moto.queue(state="DISABLED"))})
    d.submit(1)
    end = d.end_of(1)
    assert (end["state"], end["failure"]) == ("failed", "resources")
    assert f"queue '{queue}' is disabled" in end["text"]


def test_secrets(moto: Moto, drive: Callable[..., Drive]) -> None:
    """Secrets go to SSM for the run, never into a job, and are removed at the end."""
    queue, ssm = moto.queue(), moto.client("ssm")
    d = drive(moto.env, {"queue": queue, "secret_prefix": "ssm:/team"})
    d.submit(1, secret=["TOKEN=hunter2", "OTHER=swordfish"], step="train")
    assert d.end_of(1)["state"] == "ended"
    kept = ssm.get_parameter(Name="/team/r1/train/TOKEN", WithDecryption=True)["Parameter"]
    assert (kept["Value"], kept["Type"]) == ("hunter2", "SecureString")
    definitions = moto.client("batch").describe_job_definitions(status="ACTIVE")["jobDefinitions"]
    with_it = [
        d
        for d in definitions
        for s in d.get("containerProperties", {}).get("secrets", [])
        if s == {"name": "TOKEN", "valueFrom": "/team/r1/train/TOKEN"}
    ]
    assert with_it and "hunter2" not in json.dumps(definitions, default=str)
    assert d.close() == 0
    assert ssm.describe_parameters()["Parameters"] == []


def test_check(moto: Moto, drive: Callable[..., Drive]) -> None:
    queue, role = moto.queue(), moto.role("job-role")
    d = drive(moto.env, {"queue": queue, "iam_role": role, "execution_role": role + "-not"})
    d.send("check")
    d.wait(lambda r: "checked" in r)
    said = {r["check"]: r["good"] for r in d.seen if "check" in r}
    assert any(text.startswith("our identity is arn:aws:") and good for text, good in said.items())
    assert said[f"job queue '{queue}' is enabled"]
    assert any(f"compute environment '{queue}-env': ENABLED, VALID" in t for t in said), said
    assert said[f"iam_role {role} is there"]
    assert not said[f"execution_role {role}-not doesn't exist"]
    assert f"execution_role {role}-not doesn't exist" in d.seen[-1]["checked"]


def test_check_without_a_queue(moto: Moto, drive: Callable[..., Drive]) -> None:
    d = drive(moto.env, {"queue": "nowhere"})
    d.send("check")
    assert "has no job queue 'nowhere'" in d.wait(lambda r: "checked" in r)["checked"]


def test_wrong_keys(moto_server: Callable[..., Moto], drive: Callable[..., Drive]) -> None:
    """With a wrong secret key all jobs fail with one sentence, and none is submitted."""
    server = moto_server(INITIAL_NO_AUTH_ACTION_COUNT="12")
    server.config(batch={"use_docker": False})
    queue = server.queue()  # 3 calls
    iam = server.client("iam")
    iam.create_user(UserName="ann")
    policy = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}],
    }
    iam.put_user_policy(UserName="ann", PolicyName="all", PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName="ann")["AccessKey"]
    for _ in range(6):
        iam.list_users()
    keys = {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
    }
    good = drive({**server.env, **keys}, {"queue": queue})
    good.submit(1)
    assert good.end_of(1)["state"] == "ended", good.seen
    bad = drive({**server.env, **keys, "AWS_SECRET_ACCESS_KEY": "wrong"}, {"queue": queue})
    bad.submit(2)
    said = bad.wait(lambda r: "turn_error" in r or r.get("state") == "failed")
    assert "ignature" in (said.get("turn_error") or said["text"])
