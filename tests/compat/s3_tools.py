"""Runs ``s3_calls.py`` against moto's S3."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator

sys.path.insert(0, str(Path(__file__).parents[1] / "fakes"))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

CALLS = Path(__file__).with_name("s3_calls.py")
REGION = "us-east-1"


@contextmanager
def bucket(folder: Path) -> Iterator[dict[str, str]]:
    """A bucket named ``bkt``; gives the variables by which a program reaches it."""
    import boto3
    from moto_server import start_moto

    process, port = start_moto(folder / "moto.log")
    url = f"http://127.0.0.1:{port}"
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    try:
        s3 = boto3.client(
            "s3",
            endpoint_url=url,
            region_name=REGION,
            aws_access_key_id="x",
            aws_secret_access_key="y",
        )
        s3.create_bucket(Bucket="bkt")
        yield {
            **keys,
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ENDPOINT_URL": url,
            "METAFLOW_S3_ENDPOINT_URL": url,
            "METAFLOW_S3_RETRY_COUNT": "0",
            "METAFLOW_S3_TRANSIENT_RETRY_COUNT": "0",
        }
    finally:
        process.terminate()
        process.wait(30)


def calls(python: str, root: str, folder: Path, env: dict[str, str]) -> str:
    """What the program prints."""
    done = subprocess.run(
        [python, str(CALLS), root], cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def record(python: str, folder: Path) -> str:
    """What it prints with the real Metaflow."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "PYTHONPATH"))}
    with bucket(folder) as env:
        return calls(python, "s3://bkt/p/q", folder, {**clean, **env})
