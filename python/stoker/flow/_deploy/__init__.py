"""Flows that this machine runs by itself: at a time, at an event, when another flow has ended.

A deployed flow is a folder of the store, ``deployments/NAME``: ``deployment.json`` (the record),
``code`` (the flow's sources as they were), ``log`` (what its runs wrote), ``cron`` (its line for
crontab). No process waits for events: whoever publishes one starts the flows that it completes
(``_queue.py``). For times there are a timer and a service of systemd (``_units.py``).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from .._records import store_path
from ..exception import MetaflowException, MetaflowNotFound, NoRunError

FOLDER = "deployments"
DEPLOYMENT = "STOKER_DEPLOYMENT"  # variables of a started run: its deployment, and its events
TRIGGER = "STOKER_TRIGGER"
_NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,198}[a-z0-9])?")
_KEPT = (
    *("PATH", "PYTHONPATH", "VIRTUAL_ENV", "METAFLOW_USER", "METAFLOW_HOME", "METAFLOW_PROFILE"),
    *("STOKER_BIN", "STOKER_COMPAT", "STOKER_LEASE_DIR", "STOKER_NAMESPACE"),
    *("STOKER_TRACKERS", "STOKER_OPENLINEAGE", "STOKER_OPENTELEMETRY"),  # and where these are:
    *("MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "OPENLINEAGE_NAMESPACE"),
    *("WANDB_BASE_URL", "WANDB_ENTITY", "WANDB_PROJECT", "WANDB_MODE", "OTEL_SERVICE_NAME"),
)
_PASSWORD = re.compile(r"://[^/]*@")  # in a URL
_POLL_S = 0.02


class NoDeployment(MetaflowException):
    """There is no deployed flow of this name."""

    headline = "Deployment not found"


def home(store: Optional[str] = None) -> str:
    """The folder of all deployed flows; it needn't exist."""
    return os.path.join(store or store_path() or os.path.abspath(".stoker"), FOLDER)


def checked_name(name: str) -> str:
    """The name itself.

    Raises:
        MetaflowException: it can't be the name of a deployed flow.
    """
    if not _NAME.fullmatch(name):
        raise MetaflowException(
            f"{name!r} can't name a deployed flow: take lowercase letters, digits, '-', '_' and '.'"
        )
    return name


def listed(flow: Optional[str] = None, store: Optional[str] = None) -> Iterator[Dict[str, Any]]:
    """Records of deployed flows (of one flow), by name."""
    folder = home(store)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if _NAME.fullmatch(name) and os.path.isfile(_record_path(folder, name)):
            record = find(name, store)
            if flow in (None, record["flow"]):
                yield record


def _record_path(folder: str, name: str) -> str:
    return os.path.join(folder, name, "deployment.json")


def find(name: str, store: Optional[str] = None) -> Dict[str, Any]:
    """The record of a deployed flow.

    Raises:
        NoDeployment: there is none.
    """
    folder = home(store)
    try:
        with open(_record_path(folder, name), encoding="utf-8") as file:
            record: Dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        raise NoDeployment(
            f"no deployed flow '{name}' in {folder}; `python flow.py deploy create` makes one, "
            "`deploy list` names them all"
        ) from None
    return {**record, "folder": os.path.join(folder, name)}


def kept_environment() -> Dict[str, str]:
    """The variables of this process that the runs of a deployed flow get, too; no secrets."""
    known = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    return {name: value for name, value in known.items() if not _PASSWORD.search(value)}


def write(record: Mapping[str, Any], code: Mapping[str, str]) -> Dict[str, Any]:
    """Write a deployed flow, in place of one of its name.

    Args:
        record: see ``create`` of the command. code: path in the copy → path of the source.
    """
    folder = os.path.join(home(), str(record["name"]))
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    new = tempfile.mkdtemp(prefix=".new-", dir=os.path.dirname(folder))
    for inside, source in code.items():
        target = os.path.join(new, "code", inside)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(source, target)
    with open(os.path.join(new, "deployment.json"), "w", encoding="utf-8") as file:
        json.dump(dict(record), file, indent=1)
    os.chmod(new, 0o755)
    if os.path.isdir(folder):
        if os.path.isfile(os.path.join(folder, "log")):
            shutil.copyfile(os.path.join(folder, "log"), os.path.join(new, "log"))
        old = tempfile.mkdtemp(prefix=".old-", dir=os.path.dirname(folder))
        os.replace(folder, os.path.join(old, "was"))
        os.replace(new, folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        os.replace(new, folder)
    return find(str(record["name"]))


def remove(name: str, store: Optional[str] = None) -> None:
    """Remove a deployed flow with its timer; its runs stay.

    Raises:
        NoDeployment: there is none.
    """
    from . import _units

    record = find(name, store)
    _units.remove(name)
    shutil.rmtree(record["folder"])


class Started:
    """A run that was started for a deployed flow: its process, later its id."""

    def __init__(self, record: Mapping[str, Any], process: Any, facts: str) -> None:
        self.record = record
        self.process = process
        self._facts = facts

    def wait(self) -> Dict[str, Any]:
        """Wait until the run exists; what names it.

        Raises:
            NoRunError: the program ended before.
        """
        try:
            while True:
                ended = self.process.poll() is not None
                try:
                    with open(self._facts, encoding="utf-8") as file:
                        found: Dict[str, Any] = json.load(file)
                        return found
                except (OSError, ValueError):
                    pass
                if ended:
                    raise NoRunError(
                        f"deployed flow '{self.record['name']}' ended with status "
                        f"{self.process.returncode} before it had a run{self._last_line()}"
                    )
                time.sleep(_POLL_S)
        finally:
            if os.path.exists(self._facts):
                os.remove(self._facts)

    def _last_line(self) -> str:
        with open(os.path.join(self.record["folder"], "log"), encoding="utf-8") as file:
            lines = file.read().strip().splitlines()
        return f": {lines[-1]}" if lines else ""


def start(
    record: Mapping[str, Any], words: Sequence[str] = (), events: Sequence[Mapping[str, Any]] = ()
) -> Started:
    """Start a run of a deployed flow, which outlives this process.

    Args:
        words: parameters, as on the command line. events: what started it.
    """
    folder = str(record["folder"])
    handle, facts = tempfile.mkstemp(prefix=".run-", dir=folder)
    os.close(handle)
    os.remove(facts)
    ours = ("STOKER_", "METAFLOW_", "MF_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(ours) and k != "PYTHONPATH"}
    env.update(record["env"])
    env["STOKER_STORE"] = os.path.dirname(os.path.dirname(folder))
    env[DEPLOYMENT] = str(record["name"])
    env[TRIGGER] = json.dumps(list(events))
    line = [record["python"], os.path.join(folder, "code", record["file"]), *record["top"], "run"]
    line += [*record["run"], *words, "--runner-attribute-file", facts]
    with open(os.path.join(folder, "log"), "ab") as log:
        process = subprocess.Popen(
            line,
            env=env,
            cwd=record["cwd"] if os.path.isdir(record["cwd"]) else folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    return Started(record, process, facts)


def runs_of(name: str, store: Optional[str] = None) -> List[Any]:
    """The client's objects of a deployed flow's runs, the newest first."""
    from ..client import Flow

    try:
        place = f"local@{store}" if store else None
        flow = Flow(find(name, store)["flow"], _namespace_check=False, _current_metadata=place)
    except MetaflowNotFound:
        return []
    known = (flow._make(one.id, one) for one in flow._all())
    return [run for run in known if run._run.mark.get("deployment") == name]


def taken_from_environment() -> Dict[str, Any]:
    """Options of a run that :func:`start` started; its tasks don't get the variables."""
    name, events = os.environ.pop(DEPLOYMENT, None), os.environ.pop(TRIGGER, None)
    found: Dict[str, Any] = {"deployment": name} if name else {}
    if name and events and json.loads(events):
        found["trigger"] = json.loads(events)
    return found


def main(words: Sequence[str]) -> int:
    """``python -m stoker.flow._deploy run NAME``, as timers and crontab call it; ``publish EVENT
    [KEY=VALUE…]``."""
    from . import _queue

    if len(words) == 2 and words[0] == "run":
        print(json.dumps(start(find(words[1])).wait()))
        return 0
    if len(words) > 1 and words[0] == "publish" and all("=" in one for one in words[2:]):
        payload = dict(one.split("=", 1) for one in words[2:])
        print(_queue.publish(words[1], payload))
        return 0
    print(
        "usage: python -m stoker.flow._deploy run NAME | publish EVENT [KEY=VALUE…]",
        file=sys.stderr,
    )
    return 2
