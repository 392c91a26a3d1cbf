"""@checkpoint and @model: ``current.checkpoint`` and ``current.model``, files that outlast their
task."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from .._current import current
from ..exception import MetaflowException
from ._base import StepDecorator

_POLICIES = ("fresh", "eager", "none")


class Checkpoint(StepDecorator):
    """``@checkpoint(load_policy="fresh")``.

    ``fresh``: an attempt begins with the newest checkpoint of an earlier attempt of its task;
    ``eager``: if there is none, with the newest of this step in any earlier run of the flow;
    ``none``: without one. Checkpoints stay after the task's success, because artifacts may refer to
    them; they are removed with their run.
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
        from .._checkpoints import UID, Checkpoints

        os.environ[UID] = f"{current.run_id}/{current.step_name}/{current.task_id}"
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


class Model(StepDecorator):
    """``@model(load="my_model")``: ``current.model.save``, and in later steps
    ``current.model.loaded["my_model"]``.

    ``load``: names of artifacts with results of ``current.model.save`` (or
    ``current.checkpoint.save``), or pairs (name, folder). ``best_effort_load``: skips missing ones.
    """

    name = "model"
    defaults: Dict[str, Any] = {"load": None, "best_effort_load": False, "temp_dir_root": None}

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        return {"keep_checkpoints": True}

    def task_begin(self, running: Any) -> None:
        from .._models import Models

        said, rank = self.attributes, running.attempt.rank
        folder = rank.own if rank is not None else running.attempt.directory
        self._made = Models(folder, said["temp_dir_root"])
        current._add(model=self._made)
        self._made._begin(running.flow, said["load"], bool(said["best_effort_load"]))

    def task_end(self, running: Any) -> None:
        self._made._end()

    def task_failed(self, running: Any, error: Exception) -> bool:
        if hasattr(self, "_made"):
            self._made._end()
        return False
