"""Records of the store: named JSON objects of a kind, changed without losing another's change."""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from .._base.binary import json_of, output_of
from .._base.errors import EngineError
from .._worker import context
from .errors import EntityExistsError

_TRIES = 20
LATER = "later_metadata"  # a kind: what was logged for a run that goes on, or for RUN/STEP of it
_NAMES = uuid.UUID("0b6f5b8e-3a52-4f0e-9a43-6c1d2f7f6a11")  # of ids that are made from names


class Record(NamedTuple):
    """One record; ``body`` has its ``id``."""

    name: str
    revision: int
    created_ms: int
    updated_ms: int
    body: Dict[str, Any]


def no_store(error: EngineError) -> bool:
    """Whether a command failed because there is no store yet.

    Raises:
        RuntimeError: there is none, and a step asks: it runs on another machine, or in a container.
    """
    text = str(error)
    missing = "can't open store" in text and "No such file" in text
    missing = missing or "no store (.stoker)" in text or "its store.db isn't there" in text
    missing = missing or "no pipeline has run here yet" in text  # the first run is making it
    step = context._current
    if missing and step is not None:
        raise RuntimeError(
            f"step '{step.step_name}' runs where the store isn't, so it can neither "
            "read nor save there: pass to it what it needs, and return what should be kept"
        ) from error
    return missing


def listed(kind: str, name: Optional[str] = None) -> List[Record]:
    """Records of a kind in order of creation; none without a store."""
    words = ["record", "list", kind, *([] if name is None else [name])]
    try:
        answer = json_of(words)
    except EngineError as bad:
        if no_store(bad):
            return []
        raise
    return [
        Record(r["name"], r["revision"], r["created_ms"], r["updated_ms"], r["body"])
        for r in answer
    ]


def get(kind: str, name: str) -> Optional[Record]:
    """The record, or None."""
    return next(iter(listed(kind, name)), None)


def create(kind: str, name: str, body: Dict[str, Any]) -> Record:
    """Make a record with an id of its own.

    Raises:
        EntityExistsError: there is one of this name.
    """
    body = {"id": str(uuid.uuid4()), **body}
    try:
        output_of(["record", "put", kind, name, "--revision", "0"], text=json.dumps(body))
    except EngineError as bad:
        if "exists already" in str(bad):
            raise EntityExistsError(f"{kind} '{name}' exists already") from None
        raise
    made = get(kind, name)
    assert made is not None
    return made


def change(kind: str, name: str, how: Callable[[Dict[str, Any]], None]) -> Record:
    """Let ``how`` change the body; makes the record if there is none.

    Raises:
        EngineError: other processes changed it each time.
    """
    for attempt in range(_TRIES):
        known = get(kind, name)
        body = {"id": str(uuid.uuid4())} if known is None else dict(known.body)
        how(body)
        revision = "0" if known is None else str(known.revision)
        try:
            output_of(["record", "put", kind, name, "--revision", revision], text=json.dumps(body))
            break
        except EngineError as bad:
            late = "exists already" in str(bad) or "at the same time" in str(bad)
            if not late or attempt == _TRIES - 1:
                raise
    changed = get(kind, name)
    assert changed is not None
    return changed


def remove(kind: str, name: str) -> None:
    """Remove a record; a missing one is no error."""
    try:
        output_of(["record", "rm", kind, name])
    except EngineError as bad:
        if "there is no" not in str(bad):
            raise


def later_metadata(place: str) -> Dict[str, Any]:
    """What was logged for a run that goes on, or for ``RUN/STEP`` of it, from elsewhere."""
    record = get(LATER, place)
    return {} if record is None else dict(record.body["metadata"])


def id_of(kind: str, key: str) -> uuid.UUID:
    """The id of what the store names otherwise, such as a run."""
    return uuid.uuid5(_NAMES, f"{kind}:{key}")


def store_folder() -> Optional[str]:
    """The store's folder: ``STOKER_STORE``, else the nearest ``.stoker`` above; None: none yet."""
    if os.environ.get("STOKER_STORE"):
        return os.path.abspath(os.environ["STOKER_STORE"])
    here = os.getcwd()
    while not os.path.isdir(os.path.join(here, ".stoker")):
        above = os.path.dirname(here)
        if above == here:
            return None
        here = above
    return os.path.join(here, ".stoker")


def now_ms() -> int:
    """The time as the store keeps it."""
    return int(time.time() * 1000)
