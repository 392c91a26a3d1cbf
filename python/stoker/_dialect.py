"""Names of the ZenML dialect that only the compatibility shim offers."""

from __future__ import annotations

import enum
import json
import os
from typing import Any, Dict, Optional

from .materializers import BaseMaterializer, _artifact


class ByteUnit(str, enum.Enum):
    """Units of memory sizes."""

    KB = "KB"
    KIB = "KiB"
    MB = "MB"
    MIB = "MiB"
    GB = "GB"
    GIB = "GiB"
    TB = "TB"
    TIB = "TiB"
    PB = "PB"
    PIB = "PiB"


class Tag(str):
    """A tag: its name, a color, whether only the latest run of a pipeline (or version of an
    artifact) has it, and whether what a run makes gets it too."""

    color: Optional[str]
    exclusive: Optional[bool]
    cascade: Optional[bool]

    def __new__(
        cls,
        name: str,
        color: Any = None,
        exclusive: Optional[bool] = None,
        cascade: Optional[bool] = None,
    ) -> Tag:
        made = super().__new__(cls, name)
        made.color = None if color is None else str(getattr(color, "value", color))
        made.exclusive, made.cascade = exclusive, cascade
        return made

    @property
    def name(self) -> str:
        """The tag itself."""
        return str(self)


class ComponentSettings:
    """Settings of a stack component that Stoker doesn't know; kept with the run's record."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def model_dump(self, **_: Any) -> Dict[str, Any]:
        """The fields that were given."""
        return dict(self.__dict__)


class StandardMaterializer(BaseMaterializer):
    """Stores a value as Stoker does without a materializer; stands for ZenML's built-in ones."""

    ASSOCIATED_ARTIFACT_TYPE = "DataArtifact"

    def save(self, data: Any) -> None:
        """Write the value and its format."""
        entry, _ = _artifact.store(data, os.path.join(self.uri, "data"), None, [], "data")
        entry.pop("path", None)
        with open(os.path.join(self.uri, "entry.json"), "w", encoding="utf-8") as stream:
            json.dump(entry, stream)

    def load(self, data_type: Any) -> Any:
        """Read the value back."""
        with open(os.path.join(self.uri, "entry.json"), encoding="utf-8") as stream:
            entry = json.load(stream)
        if "value" not in entry:
            entry["path"] = os.path.join(self.uri, "data")
        return _artifact.load(entry)


def makedirs(path: str) -> None:
    """Make a directory and its parents, unless it exists."""
    os.makedirs(path, exist_ok=True)


def copy(source: str, destination: str, overwrite: bool = False) -> None:
    """Copy a file.

    Raises:
        FileExistsError: the destination exists and ``overwrite`` is false.
    """
    import shutil

    if not overwrite and os.path.exists(destination):
        raise FileExistsError(f"'{destination}' exists; pass overwrite=True to replace it")
    shutil.copyfile(source, destination)
