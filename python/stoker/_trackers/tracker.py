"""What a tracker is, and what it gets."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, NamedTuple, Optional

    class Value(NamedTuple):
        """One value of a metric."""

        task: str
        rank: int
        name: str
        value: float
        step: Optional[int]
        time_s: float

    class Artifact(NamedTuple):
        """An output of a task."""

        task: str
        name: str
        path: str
        size: int
        format: str
        digest: str
else:
    from collections import namedtuple

    Value = namedtuple("Value", "task rank name value step time_s")
    Artifact = namedtuple("Artifact", "task name path size format digest")

ARTIFACT_BYTES = 100 << 20  # a larger artifact is named, not copied


class Tracker:
    """What each tracker does."""

    title = ""
    package = ""

    def begin(self, run: Dict[str, Any]) -> None:
        """Open the run, new or resumed, with its parameters."""
        raise NotImplementedError

    def metrics(self, values: List[Value]) -> None:
        """Log values."""
        raise NotImplementedError

    def artifact(self, artifact: Artifact) -> None:
        """Log an output."""

    def end(self, status: Optional[str], error: Optional[str]) -> None:
        """Close the run; ``status`` None: the engine died."""
        raise NotImplementedError


def missing(title: str, package: str) -> ImportError:
    """The sentence for a tracker that isn't installed."""
    return ImportError(
        f"{title} isn't installed for {sys.executable}, which would log this run to it: "
        f"pip install {package}"
    )
