"""``current.checkpoint``: Metaflow's words for the task's checkpoints
(docs/decisions/0008-checkpoints.md).

A checkpoint consists of files: those in a folder of this attempt, :attr:`Checkpoints.directory`,
into which a loaded checkpoint is also put. They are stored where :mod:`stoker.checkpoint` keeps its
own, and that module lists and loads them too.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from .. import checkpoint
from .._engine.stored import stored_spec
from ._current import current
from .exception import MetaflowException

UID = "METAFLOW_CHECKPOINT_UID"  # variable of tasks with @checkpoint: RUN/STEP/TASK
# Key of our own in the metadata: {"latest": False}, {"type": "model"} or {"type": "huggingface"}.
MARK = "stoker"


class CheckpointArtifact:
    """Facts about a checkpoint; :meth:`to_dict` is the result of ``save``.

    Attributes:
        key: RUN/STEP/TASK/ENTRY, by which ``load`` finds it. url: its folder. pathspec: the task
            that saved it.
        attempt: the attempt that saved it, from 0. created_on: ISO 8601. name, metadata: as given
            to ``save``. size: bytes.
    """

    def __init__(self, values: Dict[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(f"a checkpoint has no '{name}'")
        return self._values[name]

    def to_dict(self) -> Dict[str, Any]:
        """As plain data."""
        return dict(self._values)

    def __repr__(self) -> str:
        return f"CheckpointArtifact({self._values['key']!r})"


class Checkpoints:
    """The object ``current.checkpoint``."""

    def __init__(self, folder: str, temp_dir_root: Optional[str]) -> None:
        self._root = temp_dir_root
        self._folder = os.path.join(folder, "checkpoint")
        self._loaded: Optional[CheckpointArtifact] = None

    def _begin(self, policy: str) -> None:
        if self._root is not None:
            import tempfile

            os.makedirs(self._root, exist_ok=True)
            self._folder = tempfile.mkdtemp(prefix="stoker-checkpoint-", dir=self._root)
        os.makedirs(self._folder, exist_ok=True)
        found = None
        if policy != "none":
            found = next(self._to_load(str(checkpoint.directory())), None)
        if found is None and policy == "eager":
            found = next(_of_earlier_runs(self), None)
        if found is not None:
            self.load(found)
            self._loaded = CheckpointArtifact(found)

    def _to_load(self, home: str) -> Iterator[Dict[str, Any]]:
        entries = _entries(home)
        return (record(one) for one in entries if one.metadata.get(MARK, {}).get("latest", True))

    def _end(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def directory(self) -> str:
        """Folder of this attempt: ``save()`` saves it, and loaded checkpoints are put there."""
        return self._folder

    @property
    def is_loaded(self) -> bool:
        """Whether the attempt began with a checkpoint."""
        return self._loaded is not None

    @property
    def info(self) -> Optional[CheckpointArtifact]:
        """The checkpoint that the attempt began with, or None."""
        return self._loaded

    def save(
        self,
        path: Any = None,
        name: Optional[str] = "mfchckpt",
        metadata: Optional[Dict[str, Any]] = None,
        latest: bool = True,
        storage_format: str = "files",
    ) -> Optional[Dict[str, Any]]:
        """Save a file, or everything in a folder.

        Args:
            path: the file or folder; None: :attr:`directory`.
            name: letters, digits and ``_ . -``.
            metadata: names and values with a JSON form.
            latest: False: later attempts don't begin with it.
            storage_format: accepted, without effect.

        Returns:
            A reference for :meth:`load`, also in later steps and runs; None in all nodes except the
            first, which saves for
                all.

        Raises:
            MetaflowException: there is nothing at ``path``.
        """
        source = Path(self._folder if path is None else path)
        if not source.exists():
            raise MetaflowException(f"current.checkpoint.save: there is nothing at '{source}'")
        said = dict(metadata or {})
        if not latest:
            said[MARK] = {"latest": False}
        saved = checkpoint.save(source, name or "mfchckpt", metadata=said, keep=None)
        return None if saved is None else record(saved)

    def load(self, reference: Any, path: Any = None) -> None:
        """Put a checkpoint's files into a folder.

        Args:
            reference: a result of :meth:`save` or :meth:`list`, :attr:`info`, or a ``key``.
            path: the folder, made if necessary; None: :attr:`directory`, which is emptied first.

        Raises:
            MetaflowException: the checkpoint doesn't exist (any more).
        """
        if path is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        unpack(reference, self._folder if path is None else os.fspath(path))

    def list(
        self,
        name: Optional[str] = None,
        task: Any = None,
        attempt: Optional[int] = None,
        full_namespace: bool = False,
    ) -> List[Dict[str, Any]]:
        """Checkpoints of this task, the newest first, each as :meth:`save` returned it.

        Args:
            name: only those with this name. attempt: only those of this attempt, from 0.
            task: those of another task: the client's object, or FLOW/RUN/STEP/TASK.
            full_namespace: also those of this step's other tasks, in this and earlier runs.
        """
        if task is None:
            found = [*map(record, _entries(str(checkpoint.directory())))]
        else:
            parts = str(getattr(task, "pathspec", task)).split("/")[-3:]
            found = [*map(record, _entries(os.path.join(_runs(), *parts, "checkpoints")))]
        if full_namespace:
            found += [*_of_earlier_runs(self)]
        return [
            one
            for one in found
            if name in (None, one["name"]) and attempt in (None, one["attempt"])
        ]


class Checkpoint(Checkpoints):
    """``from metaflow import Checkpoint``: checkpoints by hand, and those of other tasks.

    In a step with ``@checkpoint``, and in programs that it starts, :meth:`save` saves for the
    step's task. Outside of a step :meth:`list` takes a ``task``. As a context manager it has a ``directory``, removed at
    the end.
    """

    def __init__(self, temp_dir_root: Optional[str] = None, init_dir: bool = False) -> None:
        self._root = temp_dir_root
        self._folder = ""
        self._loaded = None
        if init_dir:
            self.__enter__()

    def __enter__(self) -> Checkpoint:
        if not self._folder:
            import tempfile

            self._folder = tempfile.mkdtemp(prefix="stoker-checkpoint-", dir=self._root)
        return self

    def __exit__(self, *_: Any) -> None:
        self._end()
        self._folder = ""

    @property
    def directory(self) -> Optional[str]:  # type: ignore[override]
        """The folder of the context manager; None outside of it."""
        return self._folder or None

    def save(self, path: Any = None, **more: Any) -> Optional[Dict[str, Any]]:  # type: ignore[override]
        """As :meth:`Checkpoints.save`.

        Raises:
            ValueError: there is neither ``path`` nor :attr:`directory`.
            MetaflowException: this is no step with ``@checkpoint``.
        """
        self._needs(path)
        if not os.environ.get(UID):
            raise MetaflowException(
                "Checkpoint.save saves for the task of a step with @checkpoint, but this is none"
            )
        return super().save(path, **more)

    def load(self, reference: Any, path: Any = None) -> None:
        """As :meth:`Checkpoints.load`, also outside of a step."""
        self._needs(path)
        super().load(reference, path)

    def _needs(self, path: Any) -> None:
        if path is None and not self._folder:
            raise ValueError("give a path, or use `with Checkpoint() as …`, which has a directory")

    def list(
        self,
        name: Optional[str] = None,
        task: Any = None,
        attempt: Optional[int] = None,
        full_namespace: bool = False,
    ) -> List[Dict[str, Any]]:
        """As :meth:`Checkpoints.list`.

        Raises:
            ValueError: this is no step, and ``task`` isn't given.
        """
        if not os.environ.get("STOKER_CHECKPOINT_DIR") and (task is None or full_namespace):
            raise ValueError(
                "Checkpoint.list outside of a step needs a task, and no full_namespace"
            )
        return super().list(name, task, attempt, full_namespace)


def unpack(reference: Any, target: str) -> Dict[str, Any]:
    """Put the files of a checkpoint or model into a folder; returns what ``save`` returned.

    Raises:
        MetaflowException: it doesn't exist (any more).
    """
    entry = _entry_of(reference)
    found = checkpoint._read(entry) if os.path.exists(entry) else None
    if found is None:
        raise MetaflowException(
            f"'{entry}' is missing or damaged: checkpoints and models are removed with their run "
            "(`stoker store gc`)"
        )
    os.makedirs(target, exist_ok=True)
    source = str(found.path)
    if os.path.isdir(source):
        merge(source, target)
    else:
        shutil.copyfile(source, os.path.join(target, os.path.basename(source)))
    return record(found, found.metadata.get(MARK, {}).get("type", "checkpoint"))


def merge(source: str, target: str) -> None:
    """Copy the files of a folder into another one, over those that are there."""
    for folder, _, files in os.walk(source, followlinks=True):
        to = os.path.join(target, os.path.relpath(folder, source))
        os.makedirs(to, exist_ok=True)
        for one in files:
            shutil.copyfile(os.path.join(folder, one), os.path.join(to, one))


def _runs() -> str:
    from ._records import store_path

    store = os.environ.get("STOKER_STORE") or store_path()
    if store is None:
        raise MetaflowException(
            f"there is no store at {os.getcwd()} or above it; go to the run's folder, or name it by STOKER_STORE"
        )
    return os.path.join(store, "runs")


def _entries(home: str, kind: str = "checkpoint") -> List[checkpoint.Checkpoint]:
    """Complete checkpoints in a task's folder, the newest first; or what else is kept as such."""
    try:
        entries = [one.path for one in os.scandir(home) if not one.name.startswith(".")]
    except OSError:
        return []
    found = [one for one in map(checkpoint._read, entries) if one is not None]
    found = [one for one in found if one.metadata.get(MARK, {}).get("type", "checkpoint") == kind]
    return sorted(found, key=lambda one: (one.number or 0, one.time), reverse=True)


def _of_earlier_runs(own: Checkpoints) -> Iterator[Dict[str, Any]]:
    """Checkpoints of the same step in runs of the same flow, without this task's, the newest run
    first."""
    mine = os.path.realpath(checkpoint.directory())
    for homes in homes_of_runs(str(current.step_name), str(current.flow_name)):
        found: List[Dict[str, Any]] = []
        for home in homes:
            if os.path.realpath(home) != mine:
                found += own._to_load(home)
        yield from sorted(found, key=lambda one: str(one["created_on"]), reverse=True)


def homes_of_runs(step: Optional[str], flow: Optional[str]) -> Iterator[List[str]]:
    """For each run, the newest first, the folders of its tasks' checkpoints; only those of a step
    and a flow, where these are given."""
    import glob

    here = _runs()
    for run in sorted(os.listdir(here), key=lambda one: _made_at(here, one), reverse=True):
        place = os.path.join(here, run)
        folder = os.path.join(glob.escape(place), glob.escape(step) if step else "*")
        homes = glob.glob(os.path.join(folder, "*", "checkpoints"))
        if homes and flow in (None, stored_spec(os.path.dirname(here), run).get("name")):
            yield homes


def _made_at(runs: str, run: str) -> int:
    """When the run was made, in ns: ids from the same second have no order."""
    try:
        return os.stat(os.path.join(runs, run, "spec.json")).st_mtime_ns
    except OSError:
        return 0


def record(one: checkpoint.Checkpoint, kind: str = "checkpoint") -> Dict[str, Any]:
    """The result of ``save`` for a checkpoint."""
    from datetime import datetime

    parts = os.path.relpath(one._entry, _runs()).split(os.sep)
    run, step, task = parts[:3]
    return {
        "type": kind,
        "key": "/".join([run, step, task, parts[-1]]),
        "url": str(one.path),
        "pathspec": f"{_flow_of(run)}/{run}/{step}/{task}",
        "attempt": (one.attempt or 1) - 1,
        "created_on": datetime.fromtimestamp(one.time).isoformat(),
        "metadata": {key: value for key, value in one.metadata.items() if key != MARK},
        "name": one.name,
        "size": one.size,
    }


def _flow_of(run: str) -> Any:
    return current.flow_name or stored_spec(os.path.dirname(_runs()), run).get("name")


def _entry_of(reference: Any) -> str:
    """The folder of a checkpoint in this store."""
    key = getattr(reference, "key", reference)
    key = key["key"] if isinstance(key, dict) else key
    parts = str(key).split("/")
    if len(parts) != 4 or not all(parts):
        raise MetaflowException(
            f"{reference!r} is neither a checkpoint nor a model: pass a result of save() or list(), or a key "
            "RUN/STEP/TASK/NAME"
        )
    return os.path.join(_runs(), *parts[:3], "checkpoints", parts[3])
