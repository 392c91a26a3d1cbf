"""``current.model``: Metaflow's words for models that are kept as files, beside the task's
checkpoints."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional

from .. import checkpoint
from ._checkpoints import MARK, record, unpack
from ._current import current
from .exception import MetaflowException


class Loaded(Mapping[str, str]):
    """Name → folder of a loaded model.

    Attributes:
        info: name → the result of ``save``.
    """

    def __init__(self) -> None:
        self._folders: Dict[str, str] = {}
        self.info: Dict[str, Dict[str, Any]] = {}

    def __getitem__(self, name: str) -> str:
        return self._folders[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._folders)

    def __len__(self) -> int:
        return len(self._folders)


class Models:
    """The object ``current.model``; ``loaded`` has the models that ``@model(load=…)`` and
    :meth:`load` have loaded."""

    def __init__(self, folder: str, temp_dir_root: Optional[str]) -> None:
        self._folder = os.path.join(folder, "models")
        if temp_dir_root is not None:
            import tempfile

            os.makedirs(temp_dir_root, exist_ok=True)
            self._folder = tempfile.mkdtemp(prefix="stoker-models-", dir=temp_dir_root)
        self.loaded = Loaded()

    def _begin(self, flow: Any, wanted: Any, best_effort: bool) -> None:
        wanted = [wanted] if isinstance(wanted, (str, tuple)) else list(wanted or ())
        for one in wanted:
            name, path = one if isinstance(one, tuple) else (one, None)
            reference = getattr(flow, name, None)
            if reference is None and not best_effort:
                raise MetaflowException(
                    f"step '{current.step_name}': @model(load='{name}'): no step before it sets self.{name} to what "
                    "current.model.save or current.checkpoint.save returned"
                )
            try:
                if reference is not None:
                    self._load(name, reference, path)
            except MetaflowException:
                if not best_effort:
                    raise

    def _end(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _load(self, name: str, reference: Any, path: Any) -> str:
        folder = os.path.join(self._folder, name) if path is None else os.fspath(path)
        self.loaded.info[name] = unpack(reference, folder)
        self.loaded._folders[name] = folder
        return folder

    def save(
        self,
        path: Any,
        label: Optional[str] = None,
        metadata: Optional[Dict[str, Any]] = None,
        storage_format: str = "tar",
    ) -> Optional[Dict[str, Any]]:
        """Save a file or a folder; returns a reference for :meth:`load` and ``@model(load=…)``.

        Args:
            label: letters, digits and ``_ . -``; None: FLOW_STEP.
            metadata: names and values with a JSON form. storage_format: accepted, without effect.

        Returns:
            None in all nodes except the first, which saves for all.

        Raises:
            MetaflowException: there is nothing at ``path``.
        """
        if not Path(path).exists():
            raise MetaflowException(f"current.model.save: there is nothing at '{path}'")
        name = label or f"{current.flow_name}_{current.step_name}"
        said = {**(metadata or {}), MARK: {"latest": False, "type": "model"}}
        saved = checkpoint.save(Path(path), name, metadata=said, keep=None)
        return None if saved is None else record(saved, "model")

    def load(self, reference: Any, path: Any = None) -> str:
        """Put a model's (or a checkpoint's) files into a folder, and return it.

        Args:
            reference: a result of ``save``, or its ``key``. path: None: a folder that lasts as long
                as the task.

        Raises:
            MetaflowException: the model doesn't exist (any more).
        """
        key = (
            reference["key"]
            if isinstance(reference, dict)
            else getattr(reference, "key", reference)
        )
        return self._load(str(key).replace("/", "-"), reference, path)


def load_model(reference: Any, path: Any) -> None:
    """Put the files of a model or checkpoint into a folder, in a step or outside.

    Raises:
        MetaflowException: the model doesn't exist (any more).
    """
    unpack(reference, os.fspath(path))
