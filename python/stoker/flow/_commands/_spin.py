"""``spin``: run one step alone, with the inputs of a past task.

The worker runs the past task's ``task.json`` unchanged in a new folder, in a fresh interpreter,
without engine and limits. Meanwhile ``stoker launch --hold`` leases the devices that the step
requests; it sees no others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import IO, TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from ..._base.binary import find, json_of
from ..._base.errors import did_you_mean
from ..._definition.jsonable import NotJsonError, exact
from ...materializers import _artifact
from .. import client
from .._compile import graph_info, without_secrets
from .._decorators import decorators_of, flow_decorators_of
from .._decorators._resources import request_of
from .._environments import place
from .._parameters import config_names, parameters_of, read_configs, set_configs
from ..exception import CommandException, MetaflowNamespaceMismatch, MetaflowNotFound
from ._context import run_id_of
from ._graph import validate
from ._run import write

if TYPE_CHECKING:
    from ._context import Context


def spin(context: Context, values: Dict[str, Any]) -> int:
    """Run the step; returns the exit status."""
    validate(context)
    task = _past(context, values["pathspec"])
    step = task.path_components[2]
    context.say(f"Spinning up step {step} locally for flow {context.name}, on {task.pathspec}")
    body = _body_of(task)
    folder, run = _folder(task, values["persist"])
    ok = False
    try:
        if values["artifacts_module"]:
            _override(body, values["artifacts_module"], folder)
        body["run"] = run
        body["entry"] = f"__main__:{context.flow.__qualname__}.{step}"
        body["flow"]["spun"] = True
        if values["skip_decorators"]:
            body["flow"]["skip_decorators"] = True
        _say_anew(context, body)
        with open(os.path.join(folder, "task.json"), "w", encoding="utf-8") as file:
            json.dump(body, file)
        write(values["run_id_file"], str(body["run"]))
        n_devices = 0 if values["skip_decorators"] else _devices_for(context, step, body)
        path = f"{run}/{step}/{body['task']}"
        own = _own_packages(context, step, body)
        ok = _work(context, folder, path, values["max_log_size"], n_devices, own)
        print("Task finished successfully." if ok else "Task failed.", flush=True)
        if ok:  # as in Metaflow, where Runner.spin of a step that fails is an error
            write(values["runner_attribute_file"], json.dumps(_facts(context, body, folder, task)))
        return 0 if ok else 1
    finally:
        if not values["persist"] and not (ok and values["runner_attribute_file"]):
            import shutil

            shutil.rmtree(os.path.dirname(folder), ignore_errors=True)


def _past(context: Context, text: str) -> client.Task:
    """The task that gives the inputs: RUN/STEP/TASK, or STEP: one of the newest run that has it.

    Raises:
        CommandException: there is none.
    """
    parts = text.split("/")
    try:
        if len(parts) > 1:
            parts = run_id_of(context, text, (2, 3))
            step = client.Step("/".join([context.name, *parts[:2]]), _namespace_check=False)
            return step[parts[2]] if len(parts) == 3 else _newest(step)
        if text not in context.graph:
            names = [n.name for n in context.graph]
            raise CommandException(
                f"flow {context.name} has no step '{text}'{did_you_mean(text, names)}"
            )
        for run in client.Flow(context.name):
            if text in run:
                return _newest(run[text])
    except (MetaflowNotFound, MetaflowNamespaceMismatch, KeyError):
        pass
    raise CommandException(
        f"no task at '{text}' from which spin could take inputs: run the flow once, or name one, "
        "RUN/STEP/TASK"
    )


def _newest(step: client.Step) -> client.Task:
    found: client.Task = next(iter(step))  # the newest, as Metaflow takes it
    return found


def _body_of(task: client.Task) -> Dict[str, Any]:
    """The past task's ``task.json``; for a cloned task that of its origin.

    Raises:
        CommandException: the file was removed.
    """
    while task.origin_pathspec is not None:
        task = client.Task(task.origin_pathspec, _namespace_check=False)
    folder = task._now.brief.get("dir")
    try:
        with open(os.path.join(str(folder), "task.json"), encoding="utf-8") as file:
            body: Dict[str, Any] = json.load(file)
    except (OSError, ValueError):
        raise CommandException(
            f"{task.pathspec} has no task.json any more; run the flow again"
        ) from None
    for key in ("container", "gang"):
        body.pop(key, None)
    body.update(attempt=1, last_attempt=True, rank=0, world=1, hooks={})
    body["granted"] = {**(body.get("granted") or {}), "devices": []}
    body["flow"]["fallback"] = None
    return body


def _say_anew(context: Context, body: Dict[str, Any]) -> None:
    """Add what this command line says for the decorators: configurations, and ``--with``. What the
    step itself sees of a configuration stays the past task's, as in Metaflow.

    Raises:
        CommandException: a configuration's value can't be handed over.
    """
    told = body.setdefault("extra", {}).setdefault("flow", {})
    told["with"] = list(dict.fromkeys([*told.get("with", ()), *context.top["with"]]))
    paths, values = dict(context.top["config"]), dict(context.top["config_value"])
    configs = [one for one in parameters_of(context.flow) if one.IS_CONFIG_PARAMETER]
    given = read_configs(context.flow, paths, values) if paths or values else {}
    inputs = body.get("inputs") or {}
    known = {
        one.var: inputs[one.var]["value"] for one in configs if "value" in inputs.get(one.var, ())
    }
    anew = {one.var: given[one.var] for one in configs if one.name in {*paths, *values}}
    set_configs(config_names(context.flow, {**known, **anew}))
    told["graph"] = without_secrets(graph_info(context.flow))  # which may name them
    try:
        body["flow"]["configs"] = {var: exact(value) for var, value in anew.items()}
    except NotJsonError as bad:
        raise CommandException(f"spin can't hand over a configuration: {bad}") from None


def _folder(task: client.Task, keep: bool) -> Tuple[str, str]:
    """A new attempt directory, and a name in place of a run's id."""
    import tempfile
    import time

    name = f"spin-{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"
    base = os.path.join(str(task._store), "spins") if keep else tempfile.gettempdir()
    folder = os.path.join(base, name, "1")
    os.makedirs(os.path.join(folder, "out"))
    return folder, name


def _override(body: Dict[str, Any], path: str, folder: str) -> None:
    """Replace artifacts of the past task by those in the module's ``ARTIFACTS``.

    Raises:
        CommandException: there is no such file, or it has no such mapping.
    """
    from ..._runfile import load

    if not os.path.isfile(path):
        raise CommandException(f"--artifacts-module: there is no file {path}")
    given = getattr(load(os.path.abspath(path)), "ARTIFACTS", None)
    if not isinstance(given, dict):
        raise CommandException(f"{path} has no ARTIFACTS, a mapping of names to values")
    flow = body["flow"]
    for name, value in given.items():
        target = os.path.join(folder, "given", str(name))
        os.makedirs(os.path.dirname(target), exist_ok=True)
        said: List[str] = []
        entry, _ = _artifact.store(value, target, None, said, str(name))
        flow["refs"].append(entry)
        for parent in flow["parents"]:
            parent["scope"][name] = len(flow["refs"]) - 1


def _facts(
    context: Context, body: Dict[str, Any], folder: str, task: client.Task
) -> Dict[str, Any]:
    return {
        "task_id": body["task"],
        "step_name": body["step"],
        "run_id": body["run"],
        "flow_name": context.name,
        "metadata": f"local@{task._store}",
        "dir": folder,
    }


def _devices_for(context: Context, step: str, body: Dict[str, Any]) -> int:
    """Number of devices that the step requests, as far as this machine has them."""
    given = ((body.get("extra") or {}).get("flow") or {}).get("with")
    decorators = [one.bound() for one in decorators_of(context.flow, step, given)]
    asked = int(request_of(step, decorators).get("gpu_count") or 0)
    if not asked:
        return 0
    found = [one for one in json_of(["gpus"])["devices"] if one["usable"]]
    if len(found) < asked:
        has = f"has {len(found)}, which it gets" if found else "has none, it runs on the CPU"
        what = "1 GPU" if asked == 1 else f"{asked} GPUs"
        context.say(f"step '{step}' asks for {what}: this machine {has}")
    return min(asked, len(found))


def _own_packages(context: Context, step: str, body: Dict[str, Any]) -> Dict[str, Any]:
    """What the step's own environment says: its ``interpreter`` and ``environment``; or {}."""
    given = ((body.get("extra") or {}).get("flow") or {}).get("with")
    decorators = {step: [one.bound() for one in decorators_of(context.flow, step, given)]}
    base = [one.bound() for one in flow_decorators_of(context.flow)]
    placed = place(decorators, base, {"flow_options": dict(context.top)})
    for note in placed.notes:
        context.say(note)
    return placed.settings.get(step) or {}


def _work(
    context: Context, folder: str, path: str, most_mb: int, n_devices: int, own: Dict[str, Any]
) -> bool:
    """Run the worker; its lines go to our streams and to the logs. Returns whether the step ran to
    its end."""
    module = sys.modules[context.flow.__module__]
    python = own.get("interpreter") or sys.executable
    words = [python, "-m", "stoker._worker", folder, "--main", str(module.__file__)]
    words = [find(), "launch", "--hold", str(n_devices), "--", *words]
    run, step = path.split("/")[:2]
    environment = {**os.environ, "STOKER_RUN": run, "STOKER_STEP": step, "PYTHONUNBUFFERED": "1"}
    environment.update(own.get("environment") or {})
    environment["STOKER_CHECKPOINT_DIR"] = os.path.join(folder, "checkpoints")
    done = subprocess.Popen(
        words,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    head = f"[{path} (pid {done.pid})] "
    print(f"{head}Task is starting.", flush=True)
    readers = [
        threading.Thread(
            target=_hand_on, args=(getattr(done, s), getattr(sys, s), folder, s, head, most_mb)
        )
        for s in ("stdout", "stderr")
    ]
    for reader in readers:
        reader.start()
    status = done.wait()
    for reader in readers:
        reader.join()
    result = _result(folder)
    if result is None:
        print(f"{head}the step ended with status {status} and left no result", file=sys.stderr)
    return result is not None and result.get("status") == "ok"


def _hand_on(
    source: IO[bytes], target: IO[str], folder: str, name: str, head: str, most_mb: int
) -> None:
    left = most_mb << 20
    with open(os.path.join(folder, f"{name}.log"), "wb") as log:
        for line in source:
            log.write(line[: max(0, left)])
            left -= len(line)
            text = line.decode("utf-8", "replace").rstrip("\n")
            print(f"{head}{text}", file=target, flush=True)


def _result(folder: str) -> Optional[Dict[str, Any]]:
    try:
        with open(os.path.join(folder, "result.json"), encoding="utf-8") as file:
            found: Dict[str, Any] = json.load(file)
            return found
    except (OSError, ValueError):
        return None
