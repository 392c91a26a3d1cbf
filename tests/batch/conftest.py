"""AWS as moto's server has it, and our driver of AWS Batch driven by hand.

`moto`    a server of this session: its URL, `moto.client("batch")` (boto3), `moto.queue()` (a new job queue with a compute
          environment of its own), `moto.config(…)`. Batch is in simple mode: a job has ended as soon as it is submitted.
`drive`   starts `batch_drive` (drive.c): `drive(options)` → Drive, closed at the end of the test.

Signatures are checked after the calls of the set-up (INITIAL_NO_AUTH_ACTION_COUNT) if a test asks
for a server of its own by `moto_server(…)`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
from batch_tools import DRIVE, Drive, Moto
from front_tools import cannot


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Moto]]:
    if importlib.util.find_spec("moto") is None:
        cannot("moto is not installed (tools/requirements-test.txt)")
    servers: list[Moto] = []

    def start(**env: str) -> Moto:
        servers.append(Moto(tmp_path_factory.mktemp("moto") / "log", **env))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def moto(moto_server: Callable[..., Moto]) -> Moto:
    server = moto_server()
    server.config(batch={"use_docker": False})
    return server


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Drive]]:
    assert DRIVE.exists(), f"{DRIVE} isn't built: ninja -C build"
    drives: list[Drive] = []

    def start(env: dict[str, str], options: dict[str, Any], **config: Any) -> Drive:
        options = {"poll": 0.05, **options}
        config = {"carry_digest": "0" * 64, "share_url": "s3://bucket/stoker", **config}
        path = tmp_path / f"config-{len(drives)}.json"
        drives.append(Drive(path, env, {"options": options, **config}))
        return drives[-1]

    yield start
    for one in drives:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait(30)


@pytest.fixture
def fake(moto: Moto) -> Iterator[Any]:
    """A FakeBatch (fake_batch.py), with moto for the other services; fails if a request of the test
    was wrong."""
    from fake_batch import FakeBatch

    one = FakeBatch(moto.url)
    yield one
    one.close()
    assert one.failures == []


@pytest.fixture
def fake_env(moto: Moto, fake: Any) -> dict[str, str]:
    return {**moto.env, "AWS_ENDPOINT_URL": fake.url}
