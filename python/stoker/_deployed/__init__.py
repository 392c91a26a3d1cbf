"""What this machine runs by itself: flows and pipelines that were deployed.

A deployed one is a folder of the store, ``deployments/NAME``: ``deployment.json`` (the record),
``code-…`` (its sources as they were), ``log`` (what its runs wrote), ``cron`` (its line for
crontab). A run holds a lock in the folder of its code, which therefore stays until it has ended.
For times there are a timer and a service of systemd (``units.py``). The record of a flow has
``flow``, that of a pipeline ``pipeline``; how a run of one starts is said in :func:`_line`.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import re
import shutil
import tempfile
import time
from contextlib import contextmanager, suppress
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set

from .._base.binary import store_path
from .._base.errors import StokerError

FOLDER = "deployments"
DEPLOYMENT = "STOKER_DEPLOYMENT"  # variables of a started run: its deployment, and its events
TRIGGER = "STOKER_TRIGGER"
_RECORD = "deployment.json"
_IN_USE = ".in-use"  # in a folder of code
_SUFFIXES = (".py", ".R", ".RDS")
_INSTALLED = ("pyvenv.cfg", "conda-meta")  # in an environment's folder
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,198}[a-z0-9])?")
_KEPT = (
    *("PATH", "PYTHONPATH", "VIRTUAL_ENV", "METAFLOW_USER", "METAFLOW_HOME", "METAFLOW_PROFILE"),
    *(
        "ZENML_ACTIVE_STACK_NAME",
        "STOKER_BIN",
        "STOKER_COMPAT",
        "STOKER_LEASE_DIR",
        "STOKER_NAMESPACE",
    ),
    *("STOKER_TRACKERS", "STOKER_OPENLINEAGE", "STOKER_OPENTELEMETRY"),  # and where these are:
    *("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "OPENLINEAGE_NAMESPACE"),
    *("WANDB_BASE_URL", "WANDB_ENTITY", "WANDB_PROJECT", "WANDB_MODE", "OTEL_SERVICE_NAME"),
)
_PASSWORD = re.compile(r"://[^/]*@")  # in a URL
_POLL_S = 0.02


class DeployError(StokerError):
    """It can't be deployed so."""


class NoDeployment(DeployError):
    """There is none of this name."""


class NoRun(DeployError, RuntimeError):
    """A program that was started ended before it had a run."""


def home(store: Optional[str] = None) -> str:
    """The folder of all that is deployed; it needn't exist."""
    return os.path.join(store or store_path() or os.path.abspath(".stoker"), FOLDER)


def checked_name(name: str) -> str:
    """The name itself.

    Raises:
        DeployError: it can't be the name of a deployed flow.
    """
    if not _NAME.fullmatch(name):
        raise DeployError(
            f"{name!r} can't name a deployed flow: take lowercase letters, digits, '-', '_' and '.'"
        )
    return name


def listed(kind: str, store: Optional[str] = None) -> Iterator[Dict[str, Any]]:
    """Records of what is deployed, by name; ``kind``: ``flow`` or ``pipeline``."""
    folder = home(store)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if _NAME.fullmatch(name) and os.path.isfile(_record_path(folder, name)):
            with suppress(NoDeployment):  # somebody removes it, or it can't be read
                record = find(name, store)
                if kind in record:
                    yield record


@contextmanager
def locked(path: str) -> Iterator[None]:
    """While this process alone holds the lock of a file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _alone(place: str) -> Any:
    return locked(os.path.join(place, ".lock"))


def _record_path(folder: str, name: str) -> str:
    return os.path.join(folder, name, _RECORD)


def find(name: str, store: Optional[str] = None) -> Dict[str, Any]:
    """The record of what is deployed under a name.

    Raises:
        NoDeployment: there is none.
    """
    folder = home(store)
    try:
        with open(_record_path(folder, name), encoding="utf-8") as file:
            record: Dict[str, Any] = {"code": "code", **json.load(file)}
    except (OSError, ValueError, TypeError):
        raise NoDeployment(f"nothing is deployed as '{name}' in {folder}") from None
    return {**record, "folder": os.path.join(folder, name)}


def kept_environment() -> Dict[str, str]:
    """The variables of this process that deployed runs get, too; no secrets."""
    known = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    return {name: value for name, value in known.items() if not _PASSWORD.search(value)}


def write(record: Mapping[str, Any], code: Mapping[str, str]) -> Dict[str, Any]:
    """Write what is deployed, in place of one of its name.

    Args:
        record: ``name``, ``python``, ``env``, ``cwd``, ``schedule``, and what :func:`_line` reads.
        code: path in the copy → path of the source.
    """
    place = home()
    folder = os.path.join(place, str(record["name"]))
    with _alone(place):
        os.makedirs(folder, exist_ok=True)
        new = tempfile.mkdtemp(prefix="code-", dir=folder)
        try:
            os.chmod(new, 0o755)
            for inside, source in code.items():
                target = os.path.join(new, inside)
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(source, target)
            with open(os.path.join(new, _IN_USE), "w", encoding="utf-8"):
                pass
            _put(folder, {**record, "code": os.path.basename(new)})
            with suppress(FileNotFoundError):
                os.remove(os.path.join(folder, "pending.json"))  # events of the one before
        finally:
            _sweep(place)
    return find(str(record["name"]))


def _sweep(place: str) -> None:
    """Remove the code that neither a record nor a run needs, and the folders without any."""
    for folder in glob.glob(os.path.join(glob.escape(place), "[!.]*")):
        kept = None
        if os.path.exists(os.path.join(folder, _RECORD)):
            try:
                kept = find(os.path.basename(folder), os.path.dirname(place))["code"]
            except NoDeployment:
                continue  # it can't be read
        some = glob.glob(os.path.join(glob.escape(folder), "code*"))
        for one in some:
            if os.path.basename(one) != kept and not _in_use(one):
                shutil.rmtree(one, ignore_errors=True)
        if kept is None and some and not any(map(os.path.exists, some)):
            shutil.rmtree(folder, ignore_errors=True)


def _in_use(code: str) -> bool:
    try:
        with open(os.path.join(code, _IN_USE), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _put(folder: str, record: Mapping[str, Any]) -> None:
    path = os.path.join(folder, _RECORD)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump({k: v for k, v in record.items() if k != "folder"}, file, indent=1)
    os.replace(f"{path}.new", path)


def change(name: str, **fields: Any) -> Dict[str, Any]:
    """Change fields of a record, which it returns.

    Raises:
        NoDeployment: there is none.
    """
    with _alone(home()):
        record = {**find(name), **fields}
        _put(record["folder"], record)
    return record


def _has_code(folder: str, name: str, ours: Set[str]) -> bool:
    """Whether a folder in ``folder`` may hold code of the program: none that is hidden, installed,
    ours, or a link to one above."""
    path = os.path.join(folder, name)
    place = os.path.realpath(path)
    return not (
        name.startswith((".", "__pycache__"))
        or any(os.path.exists(os.path.join(path, mark)) for mark in _INSTALLED)
        or place in ours
        or os.path.commonpath([place, os.path.realpath(folder)]) == place
    )


def sources(top: str, suffixes: Optional[str] = None) -> Dict[str, str]:
    """Path in the copy → source, for the files in a program's folder that count as its code; folders
    that are symbolic links, too. ``suffixes`` adds to those of code."""
    ends = (*_SUFFIXES, *(one.strip() for one in (suffixes or "").split(",") if one.strip()))
    found: Dict[str, str] = {}
    ours = {os.path.realpath(one) for one in (home(), os.path.dirname(home()))}
    for folder, inside, names in os.walk(top, followlinks=True):
        inside[:] = [one for one in inside if _has_code(folder, one, ours)]
        for name in names:
            path = os.path.join(folder, name)
            if name.endswith(ends) and os.path.isfile(path):
                found[os.path.relpath(path, top)] = path
    return found


def remove(name: str, store: Optional[str] = None) -> List[str]:
    """Remove what is deployed, with its timer; its runs stay, and those that go on have their code.

    Returns:
        What the user has to do.

    Raises:
        NoDeployment: there is none.
    """
    from . import units

    folder = find(name, store)["folder"]
    lines = units.remove(folder)
    with _alone(home(store)), suppress(FileNotFoundError):
        os.remove(os.path.join(folder, _RECORD))
        _sweep(home(store))
    return lines


class Started:
    """A run that was started: its process, later its id."""

    def __init__(self, record: Mapping[str, Any], process: Any, facts: Optional[str]) -> None:
        self.record = record
        self.process = process
        self.facts = facts

    def wait(self) -> Dict[str, Any]:
        """Wait until the run exists; what names it.

        Raises:
            NoRun: the program ended before.
        """
        assert self.facts is not None
        try:
            while True:
                ended = self.process.poll() is not None
                try:
                    with open(self.facts, encoding="utf-8") as file:
                        found: Dict[str, Any] = json.load(file)
                    if "raises" not in found:  # else the program tells why, and ends
                        return found
                except (OSError, ValueError):
                    pass
                if ended:
                    raise NoRun(
                        f"deployed {_kind(self.record)} '{self.record['name']}' ended with status "
                        f"{self.process.returncode} before it had a run{self._last_line()}"
                    )
                time.sleep(_POLL_S)
        finally:
            if os.path.exists(self.facts):
                os.remove(self.facts)

    def _last_line(self) -> str:
        try:
            with open(os.path.join(self.record["folder"], "log"), encoding="utf-8") as file:
                lines = file.read().strip().splitlines()
        except OSError:
            return ""
        return f": {lines[-1]}" if lines else ""


def _kind(record: Mapping[str, Any]) -> str:
    return "flow" if "flow" in record else "pipeline"


def _line(record: Mapping[str, Any]) -> List[str]:
    folder = str(record["folder"])
    if "pipeline" in record:
        return [record["python"], "-m", "stoker._zen.deployed", folder]
    code = os.path.join(folder, record["code"], record["file"])
    return [record["python"], code, *record["top"], "run", *record["run"]]


def start(
    record: Mapping[str, Any],
    words: Sequence[str] = (),
    events: Sequence[Mapping[str, Any]] = (),
    env: Optional[Mapping[str, str]] = None,
    awaited: bool = True,
) -> Started:
    """Start a run of what is deployed, which outlives this process.

    Args:
        words: further words of its command line. events: what started it.
        env: further variables. awaited: somebody waits until the run exists.

    Raises:
        NoDeployment: it is removed.
    """
    import subprocess

    folder = str(record["folder"])
    more, place = env or {}, os.path.dirname(folder)
    with _alone(place):
        record = find(str(record["name"]), os.path.dirname(place))
        code = os.open(
            os.path.join(folder, record["code"], _IN_USE), os.O_RDONLY | os.O_CREAT, 0o644
        )
        fcntl.flock(code, fcntl.LOCK_SH)
    facts = None
    if awaited:
        handle, facts = tempfile.mkstemp(prefix=".run-", dir=folder)
        os.close(handle)
        os.remove(facts)
    ours = ("STOKER_", "METAFLOW_", "MF_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(ours) and k != "PYTHONPATH"}
    env = {**env, **record["env"], **more}
    env["STOKER_STORE"] = os.path.dirname(place)
    env[DEPLOYMENT] = str(record["name"])
    env[TRIGGER] = json.dumps(list(events))
    line = [*_line(record), *words, *(["--runner-attribute-file", facts] if facts else [])]
    with open(code, "rb"), open(os.path.join(folder, "log"), "ab") as log:
        process = subprocess.Popen(
            line,
            env=env,
            pass_fds=[code],
            cwd=record["cwd"] if os.path.isdir(record["cwd"]) else folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return Started(record, process, facts)


def taken_from_environment() -> Dict[str, Any]:
    """``deployment`` and ``trigger`` of a run that :func:`start` started; its tasks don't get the
    variables."""
    name, events = os.environ.pop(DEPLOYMENT, None), os.environ.pop(TRIGGER, None)
    found: Dict[str, Any] = {"deployment": name} if name else {}
    if name and events and json.loads(events):
        found["trigger"] = json.loads(events)
    return found
