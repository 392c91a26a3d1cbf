"""Artifacts by names that people know: in the store they are named by their digest."""

from __future__ import annotations

import os
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .tracker import Artifact

_ENDINGS = {"json": ".json", "numpy": ".npy", "safetensors": ".safetensors", "pickle": ".pkl"}


def ending(artifact: Artifact) -> str:
    """The ending that its format has."""
    return _ENDINGS.get(artifact.format, "")


class Named:
    """``with Named(artifact) as path``: a link to the artifact, by its output's name."""

    def __init__(self, artifact: Artifact) -> None:
        self._artifact = artifact
        self._folder = tempfile.TemporaryDirectory(prefix="stoker-tracker-")

    def __enter__(self) -> str:
        path = os.path.join(self._folder.name, self._artifact.name + ending(self._artifact))
        os.symlink(self._artifact.path, path)
        return path

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()
