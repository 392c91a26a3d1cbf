"""@checkpoint, @model and @huggingface_hub: ``current.checkpoint``, ``current.model`` and
``current.huggingface_hub``, files that outlast their task."""

from __future__ import annotations

import os
from typing import Any, Dict, List

from .._current import current
from ..exception import MetaflowException
from ._base import StepDecorator

_POLICIES = ("fresh", "eager", "none")


class _Keeps(StepDecorator):
    """One whose object in ``current`` keeps files beside the task's checkpoints."""

    _made: Any

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        return {"keep_checkpoints": True}

    def task_end(self, running: Any) -> None:
        self._made._end()

    def task_failed(self, running: Any, error: Exception) -> bool:
        if hasattr(self, "_made"):
            self._made._end()
        return False


def _folder(running: Any) -> str:
    rank = running.attempt.rank
    return str(rank.own if rank is not None else running.attempt.directory)


class Checkpoint(_Keeps):
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

    def task_begin(self, running: Any) -> None:
        from .._checkpoints import UID, Checkpoints

        os.environ[UID] = f"{current.run_id}/{current.step_name}/{current.task_id}"
        self._made = Checkpoints(_folder(running), self.attributes["temp_dir_root"])
        current._add(checkpoint=self._made)
        self._made._begin(self.policy)


class Model(_Keeps):
    """``@model(load="my_model")``: ``current.model.save``, and in later steps
    ``current.model.loaded["my_model"]``.

    ``load``: names of artifacts with results of ``current.model.save`` (or
    ``current.checkpoint.save``), or pairs (name, folder). ``best_effort_load``: skips missing ones.
    """

    name = "model"
    defaults: Dict[str, Any] = {"load": None, "best_effort_load": False, "temp_dir_root": None}

    def task_begin(self, running: Any) -> None:
        from .._models import Models

        said = self.attributes
        self._made = Models(_folder(running), said["temp_dir_root"])
        current._add(model=self._made)
        self._made._begin(running.flow, said["load"], bool(said["best_effort_load"]))


class HuggingfaceHub(_Keeps):
    """``@huggingface_hub(load=["org/model"])``: ``current.huggingface_hub.snapshot_download``,
    ``load`` and ``loaded``.

    ``load``: names of repositories, mappings with the arguments of ``snapshot_download``, or pairs
    of one of these and a folder. ``cache_scope``: what is downloaded once for all runs of this
    step (``checkpoint``), of this flow (``flow``) or of the store (``global``).
    """

    name = "huggingface_hub"
    defaults: Dict[str, Any] = {"temp_dir_root": None, "load": None, "cache_scope": "checkpoint"}

    def init(self) -> None:
        from .._hub import SCOPES

        scope, load = self.attributes["cache_scope"], self.attributes["load"]
        if scope not in SCOPES:
            raise ValueError(
                f"@huggingface_hub: cache_scope is {scope!r}; it is one of {', '.join(SCOPES)}"
            )
        for one in load if isinstance(load, list) else [] if load is None else [None]:
            asked = one[0] if isinstance(one, tuple) and len(one) == 2 else one
            if not isinstance(asked, str) and not (isinstance(asked, dict) and "repo_id" in asked):
                raise ValueError(
                    f"@huggingface_hub: load is {load!r}; it is a list of names of repositories, of mappings with a "
                    "'repo_id', or of pairs of one of these and a folder"
                )

    def task_begin(self, running: Any) -> None:
        from .._hub import Hub

        said = self.attributes
        self._made = Hub(_folder(running), said["temp_dir_root"], said["cache_scope"])
        current._add(huggingface_hub=self._made)
        self._made._begin(said["load"])
