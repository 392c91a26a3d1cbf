"""``stoker share answer`` with wrong requests; right ones are in tests/compat/test_flow_s3.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import pytest
from stoker_binary import find_binary


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        '{"op": "look"}',
        '{"op": "drop", "url": "s3://b/k"}',
        '{"op": "get", "url": "s3://b/k"}',
        '{"op": "look", "url": "/a/folder"}',
    ],
)
def test_not_a_request(line: str) -> None:
    done = subprocess.run(
        [str(find_binary()), "share", "answer"], input=line, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stdout == ""
    assert f"'{line}' isn't a request on an object of S3" in done.stderr


def test_no_request_no_answer() -> None:
    done = subprocess.run(
        [str(find_binary()), "share", "answer"], input="", capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "")
