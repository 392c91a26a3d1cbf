"""@parallel: a step that is several nodes at once, all started by ``self.next(…, num_parallel=N)``."""

from __future__ import annotations

import os
from typing import Any, Dict

from .._current import Parallel, current
from ._base import StepDecorator


class ParallelDecorator(StepDecorator):
    """``@parallel``: ``current.parallel`` tells each node its place."""

    name = "parallel"
    defaults: Dict[str, Any] = {}
    IS_PARALLEL = True

    def task_begin(self, running: Any) -> None:
        variables = os.environ
        current._add(
            parallel=Parallel(
                variables.get("MASTER_ADDR") or "127.0.0.1",
                int(variables.get("WORLD_SIZE") or 1),
                int(variables.get("RANK") or 0),
                str(running.task.get("task")),
            )
        )
