"""A pipeline or flow that is ready to run, and its origin: the engine's input."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NamedTuple, Optional

from .._base.digest import sha256
from .._base.errors import SettingsError
from .._worker import seeds

if TYPE_CHECKING:
    from .._code.texts import Record
    from .._definition.entry import Entry
    from .._definition.types import ExternalArtifact


_MARKS = ("stoker.yaml", "pyproject.toml")


class External(NamedTuple):
    """An external artifact that must be stored before the run, and the place for its digest."""

    inputs: Dict[str, Any]
    key: str
    artifact: ExternalArtifact


class Compiled(NamedTuple):
    """A pipeline call, ready to run."""

    spec: Dict[str, Any]
    registry: Dict[str, Entry]
    externals: List[External]
    run_name: Optional[str]
    # the texts of the steps' code (_code/texts.py)
    code: Optional[Dict[str, Any]] = None


def main_file() -> Optional[str]:
    """The file that the process runs, if a fresh interpreter can import it again."""
    running = sys.modules.get("stoker._runfile")
    path: Optional[str] = getattr(running, "file", None)
    path = path or getattr(sys.modules.get("__main__"), "__file__", None)
    if not path or not str(path).endswith(".py") or not os.path.isfile(path):
        return None
    return os.path.abspath(path)


def origin() -> Dict[str, Any]:
    """The run's origin, for the record and for ``stoker resume``.

    ``argv[0]`` is ``FILE:NAME`` for ``stoker run FILE:NAME``.

    Raises:
        SettingsError: one of these texts isn't UTF-8, which the record needs.
    """
    found: Dict[str, Any] = {"argv": list(sys.argv), "cwd": os.getcwd(), "python": sys.executable}
    path = main_file()
    if path is not None:
        found["file"] = path
        name = getattr(sys.modules.get("stoker._runfile"), "name", None)
        if name:
            found["argv"][0] = f"{path}:{name}"
        files = _files_at_home(path)
        if files is not None:
            found["files"] = files
    for i, word in enumerate(found["argv"]):
        _refuse_bytes(f"argument {i} of the program", word)
    _refuse_bytes("the current folder", found["cwd"])
    _refuse_bytes("the interpreter", found["python"])
    return found


def _files_at_home(path: str) -> Optional[List[str]]:
    """The program and what it imports, if its project is the user's home folder, which is not packed
    as a whole; None: its project is another folder, or one that the user marked."""
    home = os.path.expanduser("~")
    if not os.path.isabs(home) or os.path.commonpath([home, path]) != home:
        return None
    at = os.path.dirname(path)
    while at != home:
        if any(os.path.exists(os.path.join(at, mark)) for mark in (".git", *_MARKS)):
            return None
        at = os.path.dirname(at)
    marked = any(os.path.exists(os.path.join(home, mark)) for mark in _MARKS)
    in_repository = os.path.exists(os.path.join(home, ".git"))
    if marked or not (in_repository or os.path.dirname(path) == home):
        return None
    from .._code.modules import project_files

    return sorted({path, *project_files("__main__")})


def code_record(found: Dict[str, Any], record: Record) -> Dict[str, Any]:
    """The texts of the steps' code; the origin ``found`` gets their commit."""
    from .commit import commit_of

    document = record.document()
    files = {part["file"] for part in document["parts"] if "file" in part}
    found.update(commit_of(os.path.dirname(found.get("file") or "") or found["cwd"], files))
    return document


def _refuse_bytes(what: str, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise SettingsError(
            f"{what}, {os.fsencode(text)!r}, is not UTF-8, and the record of a run is: rename it"
        ) from None


def with_seeds(compiled: Compiled) -> Compiled:
    """The document with the seeds of this program; unchanged if nothing was seeded.

    They are also in the cache keys of Python steps: another seed gives other results.
    """
    found: Dict[str, Any] = dict(seeds.seeded())
    if not found:
        return compiled
    code = sha256(repr(sorted(found.items())).encode()).hexdigest()[:32]
    loops = _in_loops(compiled.spec["steps"])
    if loops:
        found["loops"] = loops
    spec = dict(compiled.spec)
    spec["extra"] = {**(spec.get("extra") or {}), seeds.KEY: found}
    spec["steps"] = {
        name: {**step, "code": {**(step.get("code") or {}), seeds.CODE: code}}
        if "python" in step
        else step
        for name, step in spec["steps"].items()
    }
    return compiled._replace(spec=spec)


def _in_loops(steps: Mapping[str, Any]) -> List[str]:
    """Steps that may run several times; only the task's number differs between their rounds."""
    following = {}
    for name, step in steps.items():
        said = step.get("next") or []
        following[name] = [said] if isinstance(said, str) else list(said)
        following[name] += (step.get("cases") or {}).values()
    looping = []
    for name in following if any("cases" in step for step in steps.values()) else ():
        reached, ahead = set(), list(following[name])
        while ahead:
            one = ahead.pop()
            if one not in reached:
                reached.add(one)
                ahead += following.get(one, ())
        looping += [name] if name in reached else []
    return looping
