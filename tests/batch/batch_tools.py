"""AWS by moto's server, and our driver of AWS Batch, driven by hand (see conftest.py)."""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Callable

from moto_server import start_moto

ROOT = Path(__file__).resolve().parents[2]
DRIVE = Path(
    os.environ.get("STOKER_BATCH_DRIVE", ROOT / "build" / "tests" / "batch" / "batch_drive")
)
START_S = 60.0
WAIT_S = 120.0
REGION = "eu-west-1"
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "ecs-tasks.amazonaws.com"},
                "Action": "sts:AssumeRole",
            }
        ],
    }
)
_numbers = itertools.count(1)


class Moto:
    """A server of moto, and its boto3 clients."""

    def __init__(self, log: Path, **env: str) -> None:
        self.keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
        self._process, port = start_moto(log, **self.keys, **env)
        self.url = f"http://127.0.0.1:{port}"

    def api(self, method: str, path: str, body: Any = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            self.url + path, data, {"Content-Type": "application/json"}, method=method
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read() or b"null")

    def config(self, **settings: Any) -> None:
        self.api("POST", "/moto-api/config", settings)

    @property
    def env(self) -> dict[str, str]:
        """The environment for programs that use this AWS."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "METAFLOW_"))}
        return {
            **kept,
            **self.keys,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        }

    def client(self, service: str) -> Any:
        import boto3

        return boto3.client(
            service,
            region_name=REGION,
            endpoint_url=self.url,
            aws_access_key_id=self.keys["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=self.keys["AWS_SECRET_ACCESS_KEY"],
        )

    def role(self, name: str) -> str:
        made = self.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=TRUST)
        return str(made["Role"]["Arn"])

    def queue(self, state: str = "ENABLED") -> str:
        """The name of a new job queue of an unmanaged compute environment."""
        name = f"queue-{next(_numbers)}-{os.getpid()}"
        batch = self.client("batch")
        environment = batch.create_compute_environment(
            computeEnvironmentName=f"{name}-env",
            type="UNMANAGED",
            state="ENABLED",
            serviceRole=self.role(f"{name}-role"),
        )
        batch.create_job_queue(
            jobQueueName=name,
            state=state,
            priority=1,
            computeEnvironmentOrder=[
                {"order": 1, "computeEnvironment": environment["computeEnvironmentArn"]}
            ],
        )
        return name

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)


class Drive:
    """batch_drive with its reports."""

    def __init__(self, path: Path, env: dict[str, str], config: dict[str, Any]) -> None:
        path.write_text(json.dumps(config))
        self.seen: list[dict[str, Any]] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.process = subprocess.Popen(
            [str(DRIVE), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def send(self, do: str, **words: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **words}) + "\n")
        self.process.stdin.flush()

    def stop(self, ids: Iterable[int]) -> None:
        """Sent in one write, as the engine does, so that the driver sees all of them in one
        turn."""
        assert self.process.stdin is not None
        lines = [json.dumps({"do": "stop", "id": i}) + "\n" for i in ids]
        self.process.stdin.write("".join(lines))
        self.process.stdin.flush()

    def submit(self, id: int, step: str = "a", **words: Any) -> None:
        words.setdefault("name", f"s-r1-{step}-{id}-1")
        words.setdefault("argv", ["/stoker/bin/stoker", "agent", "s3://bucket/x", "key"])
        self.send("submit", id=id, step=step, **words)

    def wait(
        self, is_it: Callable[[dict[str, Any]], bool], timeout: float = WAIT_S
    ) -> dict[str, Any]:
        """The first unread report for which `is_it` is true."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                line = self._lines.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no such report within {timeout} s of {self.seen}") from None
            if line is None:
                assert self.process.stderr is not None
                raise AssertionError(f"it has ended: {self.process.stderr.read()} {self.seen}")
            self.seen.append(json.loads(line))
            if is_it(self.seen[-1]):
                return self.seen[-1]

    def end_of(self, id: int, timeout: float = WAIT_S) -> dict[str, Any]:
        return self.wait(
            lambda r: (
                r.get("id") == id and (r.get("state") in ("ended", "failed") or "refused" in r)
            ),
            timeout,
        )

    def ends_of(self, ids: set[int], timeout: float = WAIT_S) -> dict[int, dict[str, Any]]:
        ends: dict[int, dict[str, Any]] = {}
        while set(ends) != ids:
            end = self.wait(lambda r: r.get("state") in ("ended", "failed"), timeout)
            assert end["id"] not in ends, f"two ends of one job: {ends[end['id']]}, {end}"
            ends[end["id"]] = end
        return ends

    def log_of(self, id: int, node: int = 0) -> str:
        return "".join(
            r["data"]
            for r in self.seen
            if r.get("state") == "log" and (r["id"], r["node"]) == (id, node)
        )

    def close(self) -> int:
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()
        return self.process.wait(30)
