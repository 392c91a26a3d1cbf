"""A pipeline or a flow that is ready to run, and where it comes from: what the engine is started with."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple, Optional

from .._base.errors import SettingsError

if TYPE_CHECKING:
    from .._definition.types import ExternalArtifact
    from .._worker.entry import Entry


class External(NamedTuple):
    """An external artifact that must be stored before the run: where its digest goes, and itself."""

    inputs: Dict[str, Any]
    key: str
    artifact: ExternalArtifact


class Compiled(NamedTuple):
    """A pipeline call, ready to run."""

    spec: Dict[str, Any]
    registry: Dict[str, Entry]
    externals: List[External]
    run_name: Optional[str]


def main_file() -> Optional[str]:
    """The file that the process runs, if a fresh interpreter can import it again."""
    running = sys.modules.get("stoker._runfile")
    path: Optional[str] = getattr(running, "file", None)
    path = path or getattr(sys.modules.get("__main__"), "__file__", None)
    if not path or not str(path).endswith(".py") or not os.path.isfile(path):
        return None
    return os.path.abspath(path)


def origin() -> Dict[str, Any]:
    """Where the run comes from, for the record and for ``stoker resume``.

    ``argv[0]`` is ``FILE:NAME`` for ``stoker run FILE:NAME``.

    Raises:
        SettingsError: one of these texts isn't UTF-8, as the record is.
    """
    found: Dict[str, Any] = {"argv": list(sys.argv), "cwd": os.getcwd(), "python": sys.executable}
    path = main_file()
    if path is not None:
        found["file"] = path
        name = getattr(sys.modules.get("stoker._runfile"), "name", None)
        if name:
            found["argv"][0] = f"{path}:{name}"
    for i, word in enumerate(found["argv"]):
        _refuse_bytes(f"argument {i} of the program", word)
    _refuse_bytes("the current folder", found["cwd"])
    _refuse_bytes("the interpreter", found["python"])
    return found


def _refuse_bytes(what: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise SettingsError(
            f"{what}, {os.fsencode(text)!r}, is not UTF-8, and the record of a run is: rename it"
        ) from None
