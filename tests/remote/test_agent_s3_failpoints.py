"""Each kind of question that an agent asks of S3 fails once, or is answered by half: what was saved stays there, and a
second try works."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster
from conftest import Drive
from front_tools import cannot
from share_tools import REGION, Moto
from test_agent_failpoints import SAVES
from waiting import wait_for

POINTS = ("look", "get", "list", "put", "delete", "short")


class DriveS3(Drive):
    """As Drive, with a bucket of moto's."""

    def __init__(self, tmp_path: Path, cluster: Cluster, moto: Moto) -> None:
        super().__init__(tmp_path, cluster)
        self.s3 = moto.client()
        self.s3.create_bucket(
            Bucket="agents", CreateBucketConfiguration={"LocationConstraint": REGION}
        )
        self.share = "s3://agents/some/where"  # type: ignore[assignment]
        self.env = {
            "AWS_ACCESS_KEY_ID": moto.keys[0][0],
            "AWS_SECRET_ACCESS_KEY": moto.keys[0][1],
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": moto.url,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",  # a fault that is tried again within is none
            "STOKER_SHARE_WAIT": "3",
        }

    def objects(self, below: str = "") -> dict[str, bytes]:
        prefix = "some/where/" + below
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket="agents", Prefix=prefix)
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return {
            key[len("some/where/") :]: self.s3.get_object(Bucket="agents", Key=key)["Body"].read()
            for key in keys
        }

    def once(self, task: int, failpoints: str, gate: Path, attempt: int = 1) -> dict:
        self.cluster.env |= {**self.env, "STOKER_FAILPOINTS": failpoints}
        script = SAVES.replace("$GATE", str(gate))
        job = self.task(script, task=task, id=task, attempt=attempt, outputs=["x"])
        process = self.begin(job, env={**self.env, "AWS_MAX_ATTEMPTS": "3"})
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        return [json.loads(line) for line in out.splitlines()][-1]

    def saved(self, task: int) -> list[str]:
        """Names of its checkpoints; what the list names is there."""
        below = f"runs/{self.run}/train/{task}/"
        there = self.objects(below)
        listed = json.loads(there.get(below + "checkpoints.json", b"{}"))
        for about in listed.values():
            digest = about["digest"]
            key = f"{below}checkpoints/{digest}/{digest[:2]}/{digest[2:]}"
            assert key in there or key + ".tree" in there, (listed, list(there))
        return list(listed)


@pytest.fixture
def on_s3(tmp_path: Path, cluster: Cluster) -> Iterator[DriveS3]:
    if importlib.util.find_spec("moto") is None:
        cannot("moto is not installed (tools/requirements-test.txt)")
    moto = Moto(tmp_path / "moto.log")
    moto.start()
    drive = DriveS3(tmp_path, cluster, moto)
    yield drive
    moto.stop()


def test_each_question_fails_once(on_s3: DriveS3, tmp_path: Path) -> None:
    drive, gate = on_s3, tmp_path / "gate"
    logs: list[str] = []
    forget = drive.cluster._forget

    def keep_log(name: str) -> None:
        logs.append((drive.cluster.folder / f"{name}.log").read_text())
        forget(name)

    drive.cluster._forget = keep_log  # type: ignore[method-assign]
    gate.touch()
    end = drive.once(0, ",".join(f"share.s3.{point}:1+:log" for point in POINTS), gate)
    assert end["ok"], end
    assert drive.saved(0) == ["a"]
    wait_for(lambda: logs)
    passes = {p: len(re.findall(rf"^failpoint share.s3.{p} ", logs[0], re.M)) for p in POINTS}
    assert min(passes[p] for p in ("look", "get", "put", "short")) > 0, passes
    before = drive.objects()
    task = n_failed = 0
    for point, n in passes.items():
        for i in range(1, n + 1):
            task += 1
            end = drive.once(task, f"share.s3.{point}:{i}:eio", gate)
            assert end["ok"] or len(end["text"]) > 20, (point, i, end)
            if end["ok"]:
                assert drive.saved(task) == ["a"], (point, i, end)
            else:
                n_failed += 1
                kept = drive.saved(task)
                again = drive.once(task, "", gate, attempt=2)
                assert again["ok"] and drive.saved(task) == ["a"], (point, i, end, again, kept)
    assert n_failed > 0
    after = drive.objects()
    assert before == {key: after.get(key) for key in before}  # nobody else's is touched
    # However often it fails from some moment on, what is in the share stays.
    for point in POINTS:
        task += 1
        assert drive.once(task, "", gate)["ok"] and drive.saved(task) == ["a"]
        drive.once(task, f"share.s3.{point}:3+:eio", gate, attempt=2)
        assert drive.saved(task) == ["a"], point
    print(f"{sum(passes.values())} questions, {n_failed} failed attempts")
