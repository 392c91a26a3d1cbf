"""Steps on other machines: a folder as share, and the cluster of cluster.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
from cluster import Cluster
from front_tools import cannot, carried
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
STOKER = find_binary()
DRIVE = ROOT / "build/tests/remote/remote_drive"


@pytest.fixture(scope="session")
def carry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if subprocess.run(["unshare", "-m", "-p", "-f", "true"], capture_output=True).returncode != 0:
        cannot("this machine lets nobody make a mount namespace, so there are no pods")
    return carried(tmp_path_factory.mktemp("carry") / "stoker", STOKER)


@pytest.fixture
def cluster(tmp_path: Path, carry: Path) -> Iterator[Cluster]:
    c = Cluster(tmp_path / "cluster", carry, f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    yield c
    c.close()


class Drive:
    """The remote backend alone, driven as exec does it (drive.c)."""

    def __init__(self, tmp_path: Path, cluster: Cluster) -> None:
        self.store, self.share = tmp_path / ".stoker", tmp_path / "share"
        self.cluster = cluster
        self.run = "20261122-010203-abcdef"

    def task(
        self, script: str, step: str = "train", outputs: list[str] | None = None, **more: object
    ) -> dict:
        """A command step in the form of exec."""
        task, attempt = more.get("task", 0), more.get("attempt", 1)
        dir = self.store / "runs" / self.run / step / str(task) / str(attempt)
        doc = {
            "stoker": 1, "run": self.run, "pipeline": "p", "step": step, "task": task, "attempt": attempt,
            "store": str(self.store), "kind": "command", "command": ["/bin/sh", "-c", script],
            "inputs": more.pop("inputs", {}), "outputs": outputs or [], "granted": {},
        }  # fmt: skip
        env = [f"STOKER_OUTPUT={dir}/out", f"STOKER_TASK_DIR={dir}", f"STOKER_RUN={self.run}"]
        env.append(f"STOKER_CHECKPOINT_DIR={dir.parent}/checkpoints")
        return {
            "step": step, "argv": ["/bin/sh", "-c", script], "task_json": doc, "id": task,
            "checkpoints": f"{dir.parent}/checkpoints", **more, "env": env + list(more.get("env", [])),
        }  # fmt: skip

    def dir(self, step: str = "train", task: int = 0, attempt: int = 1) -> Path:
        return self.store / "runs" / self.run / step / str(task) / str(attempt)

    def key(self, step: str = "train", task: int = 0, attempt: int = 1) -> Path:
        return self.share / "runs" / self.run / step / str(task) / str(attempt)

    def begin(
        self, *jobs: dict, env: dict[str, str] | None = None, **more: object
    ) -> subprocess.Popen:
        document = {
            "store": str(self.store),
            "share": str(self.share),
            "run": self.run,
            "jobs": jobs,
            **more,
        }
        process = subprocess.Popen(
            [DRIVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=os.environ | {"STOKER_REMOTE_FAKE": str(self.cluster.folder)} | (env or {}),
        )  # fmt: skip
        process.stdin.write(json.dumps(document))
        process.stdin.close()
        process.stdin = None
        return process

    def finish(self, process: subprocess.Popen, timeout: float = 120) -> list[dict]:
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == 0, err
        for kind in ("job", "end"):  # whatever crossed is what the schemas say
            schema = json.loads((ROOT / f"schema/{kind}.schema.json").read_text())
            for path in self.share.glob(f"runs/*/*/*/*/{kind}*.json"):
                jsonschema.validate(json.loads(path.read_text()), schema)
        return [json.loads(line) for line in out.splitlines()]

    def __call__(self, *jobs: dict, **more: object) -> list[dict]:
        return self.finish(self.begin(*jobs, **more))

    def end(self, *jobs: dict, **more: object) -> dict:
        ends = [report for report in self(*jobs, **more) if report["kind"] == "ended"]
        assert len(ends) == 1
        return ends[0]


@pytest.fixture
def drive(tmp_path: Path, cluster: Cluster) -> Drive:
    return Drive(tmp_path, cluster)
