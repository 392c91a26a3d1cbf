"""``current.huggingface_hub``: repositories of the Hugging Face Hub, downloaded once and kept beside
the checkpoints of each task that asks for them, as hard links."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from .. import checkpoint
from .._base.digest import sha256
from ._checkpoints import MARK, _entries, homes_of_runs, record, unpack
from ._current import current
from ._models import Loaded
from .exception import MetaflowException

SCOPES = ("checkpoint", "flow", "global")
_KIND = "huggingface"
# What decides which files there are. Other arguments (a token) say only how they are got.
_FILES = ("repo_id", "repo_type", "revision", "allow_patterns", "ignore_patterns")


class Hub:
    """The object ``current.huggingface_hub``; ``loaded`` has what ``@huggingface_hub(load=…)`` has
    loaded: the name of a repository → its folder."""

    def __init__(self, folder: str, temp_dir_root: Optional[str], scope: str) -> None:
        self._root = temp_dir_root
        self._folder = os.path.join(folder, "huggingface")
        self._scope = scope
        self.loaded = Loaded()

    def _begin(self, wanted: Any) -> None:
        if self._root is not None:
            os.makedirs(self._root, exist_ok=True)
            self._folder = tempfile.mkdtemp(prefix="stoker-huggingface-", dir=self._root)
        for one in wanted or ():
            asked, path = one if isinstance(one, tuple) else (one, None)
            asked = dict(asked) if isinstance(asked, dict) else {"repo_id": asked}
            name = asked["repo_id"]
            folder = (
                os.path.join(self._folder, *name.split("/")) if path is None else os.fspath(path)
            )
            self.loaded.info[name] = self._got(asked, folder)
            self.loaded._folders[name] = folder

    def _end(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def snapshot_download(self, **asked: Any) -> Dict[str, Any]:
        """Download a repository, unless it is kept already; returns a reference for
        ``@model(load=…)``, ``current.model.load`` and ``load_model``.

        Args:
            asked: those of ``huggingface_hub.snapshot_download``.

        Raises:
            ValueError: there is no ``repo_id``.
            MetaflowException: huggingface_hub isn't installed.
        """
        return self._got(asked)

    @contextlib.contextmanager
    def load(
        self,
        repo_id: Optional[str] = None,
        path: Any = None,
        repo_type: str = "model",
        **asked: Any,
    ) -> Iterator[str]:
        """A folder with a repository's files; without a ``path`` it lasts as long as the block.

        Raises:
            ValueError: there is no ``repo_id``.
            MetaflowException: huggingface_hub isn't installed.
        """
        asked = {**asked, "repo_id": repo_id, "repo_type": repo_type or "model"}
        if path is not None:
            self._got(asked, os.fspath(path))
            yield os.fspath(path)
        else:
            with self._place() as folder:
                self._got(asked, folder)
                yield folder

    @contextlib.contextmanager
    def _place(self) -> Iterator[str]:
        os.makedirs(self._folder, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as folder:
            yield folder

    def _got(self, asked: Dict[str, Any], folder: Optional[str] = None) -> Dict[str, Any]:
        """What is kept of a repository, downloaded if necessary; its files are put into ``folder``."""
        if not asked.get("repo_id"):
            raise ValueError("repo_id is missing: which repository of the hub is it?")
        said = {"repo_type": "model", "revision": "main"}
        said.update({k: asked[k] for k in _FILES if asked.get(k) is not None})
        endpoint = (
            asked.get("endpoint") or os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        )
        key = repr([*sorted(said.items()), endpoint.rstrip("/")])
        name = "hf-" + sha256(key.encode()).hexdigest()[:16]
        with self._place() as own, _one_at_a_time(name):
            kept = None if asked.get("force_download") else self._kept(name)
            if kept is None:
                _download(asked, own)
                metadata = {"registry": "huggingface", MARK: {"latest": False, "type": _KIND}}
                kept = checkpoint._keep_folder(Path(own), name, {**said, **metadata})
        reference = record(kept)
        if folder is not None:
            unpack(reference, folder)
        return reference

    def _kept(self, name: str) -> Optional[checkpoint.Checkpoint]:
        """This task's own, which is made of another task's: that may be removed with its run."""
        mine = os.path.realpath(checkpoint.directory())
        step = str(current.step_name) if self._scope == "checkpoint" else None
        flow = None if self._scope == "global" else str(current.flow_name)
        for homes in itertools.chain([[mine]], homes_of_runs(step, flow)):
            found = [one for home in homes for one in _entries(home, _KIND) if one.name == name]
            for one in sorted(found, key=lambda one: one.time, reverse=True):
                if homes == [mine]:
                    return one
                with contextlib.suppress(OSError):  # its run is being removed
                    return checkpoint._keep_folder(one.path, name, one.metadata)
        return None


def _download(asked: Dict[str, Any], folder: str) -> None:
    try:
        import huggingface_hub
    except ModuleNotFoundError as bad:
        raise MetaflowException(
            f"step '{current.step_name}': @huggingface_hub needs the package huggingface_hub, which {sys.executable} "
            f"lacks ({bad}): `pip install huggingface_hub`, or name it in the step's @pypi"
        ) from None
    print(f"@huggingface_hub: downloading {asked['repo_id']}", file=sys.stderr)
    given = {k: v for k, v in asked.items() if k not in ("local_dir", "local_dir_use_symlinks")}
    huggingface_hub.snapshot_download(**given, local_dir=folder)
    shutil.rmtree(os.path.join(folder, ".cache"), ignore_errors=True)  # its own notes


@contextlib.contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Of the tasks of this machine that want the same files, one downloads them."""
    import fcntl

    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.path.join(cache, "stoker", "huggingface")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"{name}.lock"), "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
