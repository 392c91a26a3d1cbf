"""Requests on objects: those of buckets go to the engine, those of folders are answered here.

The form of requests and answers is in docs/formats/engine-command-line.md.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Dict, List, Mapping, Sequence

from ..._base.binary import find
from ._folder import SCHEME
from ._folder import answer as answer_here
from ._objects import (
    MetaflowS3AccessDenied,
    MetaflowS3Exception,
    MetaflowS3InsufficientDiskSpace,
    MetaflowS3InvalidRange,
    MetaflowS3NotFound,
)

_ERRORS = {
    "denied": MetaflowS3AccessDenied,
    "range": MetaflowS3InvalidRange,
    "no_bucket": MetaflowS3NotFound,
    "full": MetaflowS3InsufficientDiskSpace,
}


def answers(
    asked: Sequence[Mapping[str, Any]],
    endpoint: str = "",
    missing: bool = False,
    role: str = "",
) -> List[Dict[str, Any]]:
    """The answers to requests, in their order.

    Args:
        endpoint: URL of the service; "": as AWS's own tools find it.
        role: ARN of a role to assume; "": none.
        missing: an absent object's answer is ``{"error": "not_found", …}``, not an exception.

    Raises:
        MetaflowException: one failed; the text says which and why.
    """
    if not asked:
        return []
    local = asked[0]["url"].startswith(SCHEME)
    given = [answer_here(one) for one in asked] if local else _of_engine(asked, endpoint, role)
    for one, answer in zip(asked, given):
        error = answer.get("error")
        if error == "not_found" and not missing:
            raise MetaflowS3NotFound(str(one["url"]))
        if error not in (None, "not_found"):
            raise _ERRORS.get(error, MetaflowS3Exception)(f"{one['url']}: {answer['text']}")
    return given


def _of_engine(
    asked: Sequence[Mapping[str, Any]], endpoint: str, role: str
) -> List[Dict[str, Any]]:
    told = {"AWS_ENDPOINT_URL_S3": endpoint, "STOKER_AWS_ROLE": role}
    environment = {**os.environ, **{name: value for name, value in told.items() if value}}
    text = "\n".join(json.dumps(one) for one in asked)
    done = subprocess.run(
        [find(), "share", "answer"],
        input=text.encode(),
        capture_output=True,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise MetaflowS3Exception(said or f"the engine ended with status {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines() if line]
