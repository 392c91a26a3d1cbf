"""@checkpoint: ``current.checkpoint``, by which an attempt goes on where an earlier one was."""

from __future__ import annotations

from typing import Any, Dict, List

from .._current import current
from ..exception import MetaflowException
from ._base import StepDecorator

_POLICIES = ("fresh", "eager", "none")


class Checkpoint(StepDecorator):
    """``@checkpoint(load_policy="fresh")``.

    ``fresh``: an attempt begins with the newest checkpoint of an earlier attempt of its task; ``eager``: else with
    the newest of this step in any earlier run of the flow; ``none``: with nothing. Checkpoints stay after the task's
    success, since artifacts may refer to them; they go with their run.
    """

    name = "checkpoint"
    defaults: Dict[str, Any] = {"load_policy": "fresh", "show_card": True, "temp_dir_root": None}

    def init(self) -> None:
        policy = self.attributes["load_policy"] or "fresh"
        if policy not in _POLICIES:
            raise MetaflowException(
                f"@checkpoint: load_policy is {policy!r}; it is one of {', '.join(_POLICIES)}"
            )
        self.policy = policy

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        return {"keep_checkpoints": True}

    def task_begin(self, running: Any) -> None:
        from .._checkpoints import Checkpoints

        rank = running.attempt.rank
        folder = rank.own if rank is not None else running.attempt.directory
        self._made = Checkpoints(folder, self.attributes["temp_dir_root"])
        current._add(checkpoint=self._made)
        self._made._begin(self.policy)

    def task_end(self, running: Any) -> None:
        self._made._end()

    def task_failed(self, running: Any, error: Exception) -> bool:
        if hasattr(self, "_made"):
            self._made._end()
        return False
