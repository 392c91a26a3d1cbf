"""Fixtures of the tests of shared stores.

`moto`   moto's server, of the session, which checks signatures; `moto.client()` is boto3's.
`bucket` a bucket of its own in it.
`proxy`  a proxy before it (`proxy.rule` says what fails); `tool` talks to it.
`tool`   runs `stoker` with the credentials of moto's user and nothing else of this machine's AWS; `url` is the store.
"""

from __future__ import annotations

import importlib.util
import os
import uuid
from pathlib import Path
from typing import Iterator

import pytest
from front_tools import cannot
from share_tools import REGION, Moto, Proxy, Tool
from ssh_hosts import all_hosts, lab  # noqa: F401


@pytest.fixture(scope="session")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moto]:
    if importlib.util.find_spec("moto") is None:
        cannot("moto is not installed (tools/requirements-test.txt)")
    server = Moto(tmp_path_factory.mktemp("moto") / "log")
    server.start()
    yield server
    server.stop()


@pytest.fixture
def bucket(moto: Moto) -> Iterator[str]:
    name = f"b-{uuid.uuid4().hex[:12]}"
    s3 = moto.client()
    s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    yield name
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=name):  # it is all in memory
        entries = [{"Key": entry["Key"]} for entry in page.get("Contents", [])]
        if entries:
            s3.delete_objects(Bucket=name, Delete={"Objects": entries, "Quiet": True})


@pytest.fixture
def proxy(moto: Moto) -> Iterator[Proxy]:
    between = Proxy(moto.url)
    yield between
    between.stop()


@pytest.fixture
def url(bucket: str) -> str:
    return f"s3://{bucket}/some/where"


@pytest.fixture
def tool(moto: Moto, proxy: Proxy, tmp_path: Path) -> Tool:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    home = tmp_path / "home"
    home.mkdir()
    env.update(
        HOME=str(home),
        AWS_ACCESS_KEY_ID=moto.keys[0][0],
        AWS_SECRET_ACCESS_KEY=moto.keys[0][1],
        AWS_REGION=REGION,
        AWS_ENDPOINT_URL=proxy.url,
        AWS_EC2_METADATA_DISABLED="true",
        STOKER_SYNC="0",
    )
    return Tool(tmp_path, env)
