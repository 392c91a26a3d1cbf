"""Checkpoints: state that one attempt of a step leaves for the next, and notice of preemption.

::

    from stoker import checkpoint

    state = checkpoint.load(default={"epoch": 0, "model": None})
    for epoch in range(state["epoch"], epochs):
        …
        checkpoint.save({"epoch": epoch + 1, "model": model.state_dict()}, step=epoch)

A retry, a restart of the ranks and ``stoker resume`` continue from the last checkpoint; another run
starts fresh. When the step succeeds, its checkpoints are removed (unless ``keep_checkpoints``). A
step that is preempted (SIGTERM) may save once more: :func:`on_preemption`, or :func:`preempted` and
:func:`stop`. The whole contract is in docs/formats/task-directory.md, "Checkpoints".

The module needs only ``STOKER_CHECKPOINT_DIR``, so programs of command steps and ranks can use it
too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time as _time
import warnings
from contextlib import contextmanager
from pathlib import Path

from ._worker import preemption
from ._worker.context import plain_metadata
from ._worker.preemption import Preempted, directory, on_preemption, preempted, stop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Optional

    _List = List  # `list` is a function of this module

__all__ = [
    "Checkpoint",
    "Preempted",
    "directory",
    "latest",
    "list",
    "load",
    "on_preemption",
    "preempted",
    "save",
    "saving",
    "stop",
]

_MANIFEST = "checkpoint.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_POLL_S = 0.02
_rounds: Dict[str, int] = {}  # calls of saving(), by name: the same on all ranks


class Checkpoint:
    """One complete checkpoint.

    Attributes:
        name: as given to :func:`save`, or the file's name if a command made it.
        step: the step or epoch given to :func:`save`, or None.
        number: counts the task's checkpoints, from 1; None if a command made it.
        time: seconds since the epoch.
        size: of its content in bytes.
        attempt: the attempt that saved it, from 1; None if a command made it.
        metadata: as given to :func:`save`.
        path: the file or directory that holds it.
    """

    def __init__(self, entry: str, manifest: Optional[Dict[str, Any]]) -> None:
        given = manifest or {}
        found = os.lstat(entry)
        self.path = Path(entry) / given.get("path", "") if manifest else Path(entry)
        self.name: str = given.get("name", os.path.basename(entry))
        self.step: Optional[int] = given.get("step")
        self.number: Optional[int] = given.get("number")
        self.time: float = given.get("time", found.st_mtime)
        self.size: int = given["size"] if manifest else _size(entry)
        self.attempt: Optional[int] = given.get("attempt")
        self.metadata: Dict[str, Any] = given.get("metadata") or {}
        self._entry = entry
        self._value: Optional[Dict[str, Any]] = given.get("value")

    def load(self) -> Any:
        """The saved value; for a file or directory its ``Path``, which you must only read.

        Raises:
            LoadError: it can't be read.
        """
        if self._value is None:
            return self.path
        from .materializers import _artifact

        value = dict(self._value)
        if "path" in value:
            value["path"] = os.path.join(self._entry, value["path"])
        return _artifact.load(value)

    def __repr__(self) -> str:
        return f"Checkpoint({self.name!r}, step={self.step!r}, path={str(self.path)!r})"


# ---------------------------------------------------------------------------- save


def save(
    value: Any,
    name: str = "checkpoint",
    *,
    step: Optional[int] = None,
    metadata: Optional[Dict[str, Any]] = None,
    keep: Optional[int] = 2,
    materializer: Any = None,
) -> Optional[Checkpoint]:
    """Save a checkpoint atomically: other code sees all of it or nothing.

    Args:
        value: anything that can be a step's output (tensors, arrays, a dictionary of them, a model
            …), or the ``Path`` of a file or directory, which is copied.
        name: its series, such as ``"best"``.
        step: the progress, for :attr:`Checkpoint.step`.
        metadata: names and values with a JSON form.
        keep: how many of this name to keep, the last ones; None: all.
        materializer: the one to use, as for an output; None: the usual choice.

    Returns:
        The checkpoint; None on all ranks except rank 0, which saves for all.

    Raises:
        RuntimeError: no step is running here.
        TypeError: the value is a text, which could mean a path; or metadata has no JSON form.
        SerializeError: it can't be stored.
        Preempted: SIGTERM arrived during the save; the checkpoint is complete.
    """
    home = directory()
    _check(name, keep)
    if isinstance(value, str):
        raise TypeError(
            f"checkpoint.save('{value[:80]}'): a text isn't a checkpoint; "
            "for a file or directory give Path(…), for a text {'text': …}"
        )
    if _rank():
        return None
    with preemption.deferred():
        partial = _partial(home, name, f"{os.getpid()}")
        if isinstance(value, os.PathLike):
            manifest: Dict[str, Any] = {"path": _copy(os.fspath(value), partial)}
        else:
            manifest = {"path": "data", "value": _store(value, partial, materializer)}
        saved = _commit(home, partial, name, step, metadata, manifest)
        _prune(name, keep)
    return saved


@contextmanager
def saving(
    name: str = "checkpoint",
    *,
    step: Optional[int] = None,
    metadata: Optional[Dict[str, Any]] = None,
    keep: Optional[int] = 2,
    timeout: float = 600.0,
) -> Iterator[Path]:
    """A folder to write a checkpoint into; complete at the end of the block. All ranks must enter
    the block.

    >>> with checkpoint.saving(step=epoch) as folder:
    ...     torch.save(shard, folder / f"rank-{rank}.pt")

    If the block raises, nothing is saved. :func:`load` returns the folder's ``Path``.

    Args:
        timeout: seconds that rank 0 waits for the other ranks at the end of the block.

    Raises:
        RuntimeError: no step is running here.
        TimeoutError: a rank did not reach the end of its block.
    """
    home = directory()
    _check(name, keep)
    rank, world = _rank(), _world()
    _rounds[name] = _rounds.get(name, 0) + 1
    with preemption.deferred():
        partial = _partial(home, name, _round(name) if world > 1 else f"{os.getpid()}", world > 1)
        folder = os.path.join(partial, "data")
        os.makedirs(folder, exist_ok=True)
        try:
            yield Path(folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        if rank:
            _touch(os.path.join(partial, f".rank-{rank}"))
            return
        _gather(partial, world, timeout)
        _commit(home, partial, name, step, metadata, {"path": "data"})
        _prune(name, keep)


def _keep_folder(source: Path, name: str, metadata: Dict[str, Any]) -> Checkpoint:
    """A folder as a checkpoint of this task, from whichever rank: its files are hard links where
    the file system allows that, so nothing may write into them."""
    home = directory()
    with preemption.deferred():
        partial = _partial(home, name, f"{_rank()}-{os.getpid()}")
        try:
            shutil.copytree(source, os.path.join(partial, "data"), True, copy_function=_link)
            return _commit(home, partial, name, None, metadata, {"path": "data"})
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _check(name: str, keep: Optional[int]) -> None:
    if not _NAME.match(name):
        raise ValueError(
            f"a checkpoint can't be named {name!r}: letters, digits and _ . - only, at most 128"
        )
    if keep is not None and keep < 1:
        raise ValueError(f"keep={keep}: at least the last checkpoint is kept; None keeps all")


def _rank() -> int:
    """This process's rank in the step's gang; 0 without a gang, even if the engine itself runs in
    one."""
    return int(os.environ.get("RANK") or 0) if os.environ.get("STOKER_RANK_DIR") else 0


def _world() -> int:
    return int(os.environ.get("WORLD_SIZE") or 1) if os.environ.get("STOKER_RANK_DIR") else 1


def _round(name: str) -> str:
    """A text that is the same on all ranks and never repeats: attempt, restart, number of saves."""
    parts = [os.environ.get(key, "0") for key in ("STOKER_ATTEMPT", "TORCHELASTIC_RESTART_COUNT")]
    return "-".join(["ranks", *parts, str(_rounds[name])])


def _partial(home: Path, name: str, mark: str, shared: bool = False) -> str:
    path = os.path.join(home, f".{name}.{mark}")
    if not shared and os.path.lexists(path):
        shutil.rmtree(path)
    os.makedirs(path, exist_ok=shared)
    return path


def _touch(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))


def _gather(partial: str, world: int, timeout: float) -> None:
    """Wait for the marks of the other ranks, and remove them."""
    end = _time.monotonic() + timeout
    for k in range(1, world):
        mark = os.path.join(partial, f".rank-{k}")
        while not os.path.exists(mark):
            if _time.monotonic() > end:
                raise TimeoutError(
                    f"checkpoint.saving: rank {k} of {world} did not finish its part within "
                    f"{timeout:g} s; every rank must enter the block"
                )
            _time.sleep(_POLL_S)
        os.unlink(mark)


def _copy(source: str, partial: str) -> str:
    """Copy the file or directory under its name; returns the name."""
    name = os.path.basename(os.path.normpath(os.path.abspath(source)))
    name = name if name != _MANIFEST else "data.json"
    target = os.path.join(partial, name)
    if os.path.isdir(source):
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copyfile(source, target)
    return name


def _store(value: Any, partial: str, materializer: Any) -> Dict[str, Any]:
    from .materializers import _artifact

    entry, _ = _artifact.store(value, os.path.join(partial, "data"), materializer)
    entry.pop("digest", None)
    if "path" in entry:
        entry["path"] = "data"
    return entry


def _commit(
    home: Path,
    partial: str,
    name: str,
    step: Optional[int],
    metadata: Optional[Dict[str, Any]],
    more: Dict[str, Any],
) -> Checkpoint:
    """Sync the checkpoint to the disk, then rename it into place."""
    number = 1 + max((_number(entry) for entry in os.listdir(home)), default=0)
    manifest = {
        "stoker": 1,
        "name": name,
        "number": number,
        "step": None if step is None else int(step),
        "time": _time.time(),
        "attempt": int(os.environ.get("STOKER_ATTEMPT") or 1),
        "size": _size(partial),
        "metadata": plain_metadata(metadata or {}, "checkpoint.save"),
        **more,
    }
    with open(os.path.join(partial, _MANIFEST), "w", encoding="ascii") as stream:
        json.dump(manifest, stream)
    for folder, _, files in os.walk(partial):
        for one in files:
            path = os.path.join(folder, one)
            if not os.path.islink(path):
                _sync(path)
        _sync(folder)
    entry = os.path.join(home, f"{name}.{number:06d}")
    try:
        os.rename(partial, entry)
    except OSError:
        if not os.path.isdir(entry):
            raise
        return _commit(home, partial, name, step, metadata, more)  # another rank has that number
    _sync(str(home))
    return Checkpoint(entry, manifest)


def _sync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _number(entry: str) -> int:
    digits = entry.rpartition(".")[2]
    return int(digits) if digits.isdigit() and len(digits) >= 6 and entry[0] != "." else 0


def _size(path: str) -> int:
    if not os.path.isdir(path):
        return os.lstat(path).st_size
    return sum(
        os.lstat(os.path.join(folder, one)).st_size
        for folder, _, files in os.walk(path)
        for one in files
        if one != _MANIFEST
    )


def _prune(name: str, keep: Optional[int]) -> None:
    """Remove old checkpoints: each is renamed first, so that no reader sees a part."""
    mine = [one for one in list(name) if one.number is not None]
    for old in mine[: len(mine) - keep] if keep is not None else ():
        folder, base = os.path.split(old._entry)
        aside = os.path.join(folder, f".old-{base}")
        os.rename(old._entry, aside)
        shutil.rmtree(aside, ignore_errors=True)


# ---------------------------------------------------------------------------- load


def list(name: Optional[str] = None) -> _List[Checkpoint]:
    """The complete checkpoints of this task, of all its attempts, oldest first.

    Args:
        name: only those of this name.

    Raises:
        RuntimeError: no step is running here.
    """
    found = []
    with os.scandir(directory()) as entries:
        for entry in entries:
            one = None if entry.name.startswith(".") else _read(entry.path)
            if one is not None and name in (None, one.name):
                found.append(one)
    return sorted(found, key=lambda one: (one.number or 0, one.time))


def _read(entry: str) -> Optional[Checkpoint]:
    manifest = os.path.join(entry, _MANIFEST)
    try:
        if not os.path.exists(manifest):
            return Checkpoint(entry, None)
        with open(manifest, encoding="ascii") as stream:
            one = Checkpoint(entry, json.load(stream))
        size = _size(entry)
        if size != one.size:
            raise ValueError(f"it has {size} bytes, {one.size} were saved")
        return one
    except (OSError, ValueError, KeyError, TypeError) as exc:
        if not os.path.exists(manifest):
            return None  # rank 0 has removed it meanwhile
        warnings.warn(f"checkpoint '{entry}' is damaged and ignored: {exc}", stacklevel=3)
        return None


def latest(name: str = "checkpoint") -> Optional[Checkpoint]:
    """The last complete checkpoint of this name, or None.

    Raises:
        RuntimeError: no step is running here.
    """
    found = list(name)
    return found[-1] if found else None


def load(name: str = "checkpoint", default: Any = None) -> Any:
    """The last value saved under this name; ``default`` if there is none.

    If a checkpoint can't be loaded, warns and tries the one before it.

    Raises:
        RuntimeError: no step is running here.
    """
    from .materializers._artifact import LoadError

    for one in reversed(list(name)):
        try:
            return one.load()
        except LoadError as exc:
            warnings.warn(f"{exc}; continuing with the checkpoint before it", stacklevel=2)
    return default
