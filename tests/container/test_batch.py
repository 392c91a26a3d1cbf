"""Steps on AWS Batch as containers: moto's server runs the jobs by the tests' Podman, what crosses is S3 alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "batch"))
from batch_tools import Moto  # noqa: E402

STOKER = str(find_binary())

pytest.importorskip("moto", reason="moto is in tools/requirements-test.txt")


@pytest.fixture(scope="module")
def aws(podman: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    log = tmp_path_factory.mktemp("moto") / "log"
    server = Moto(log, DOCKER_HOST=podman.env["DOCKER_HOST"], MOTO_DOCKER_NETWORK_MODE="host")
    yield server
    server.close()


@pytest.fixture(scope="module")
def image(podman: Any, debian: str) -> str:
    """Moto gives jobs no role's credentials: they stand in the image. Python is all that it can fetch by."""
    made = podman("create", debian).stdout.strip()
    words = ["-c", "ENV AWS_ACCESS_KEY_ID=role", "-c", "ENV AWS_SECRET_ACCESS_KEY=role"]
    podman("commit", "-q", *words, made, "localhost/batch-image:1")
    podman("rm", made)
    return "localhost/batch-image:1"


def test_steps_are_containers(aws: Any, image: str, podman: Any, tmp_path: Path) -> None:
    bucket = f"bucket-{os.getpid()}"
    location = {"LocationConstraint": "eu-west-1"}
    aws.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=location)
    stack = {
        "backend": "batch",
        "store": f"s3://{bucket}/stoker",
        "default_image": image,
        "options": {"queue": aws.queue(), "poll": 0.2, "iam_role": aws.role(f"job-{os.getpid()}")},
    }
    (tmp_path / "stoker.yaml").write_text(json.dumps({"stacks": {"aws": stack}}))
    (tmp_path / "words.txt").write_text("of the project\n")
    steps = {
        "a": {
            "run": "cat words.txt; echo $IMAGE_SAYS; echo 42 > $STOKER_OUTPUT/x",
            "outputs": ["x"],
        },
        "b": {"run": "cat $STOKER_INPUT_x; exit 4", "inputs": {"x": {"from": "a.x"}}},
    }
    (tmp_path / "p.json").write_text(json.dumps({"stoker": 1, "name": "p", "steps": steps}))
    env = {**aws.env, "PYTHONPATH": str(ROOT / "python"), "STOKER_SYNC": "0"}

    def stoker(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [STOKER, *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280
        )

    done = stoker("run", "p.json", "--with", "aws")
    logs = stoker("logs", "latest").stdout
    told = json.loads(stoker("show", "latest", "--json").stdout)
    assert told["steps"]["a"]["status"] == "succeeded", done.stdout + done.stderr + logs
    assert "of the project" in logs and "hello" in logs and "b | 42" in logs
    assert "exit status 4" in told["steps"]["b"]["error"]["text"]
