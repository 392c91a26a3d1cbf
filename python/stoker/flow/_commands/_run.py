"""``run`` and ``resume``: run the flow from its start, or from the finished tasks of a past run."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional

from ..._base.binary import answer_of, run_options
from ..._base.errors import did_you_mean
from .. import _records
from .._decorators import STEP, own_of
from .._extensions import decorators
from .._parameters import parameters_of
from ..exception import (
    CommandException,
    MetaflowNamespaceMismatch,
    MetaflowNotFound,
    UnknownStepDecoratorException,
)
from . import _parameters
from ._graph import validate

if TYPE_CHECKING:
    from .. import client
    from ._context import Context


def run(context: Context, values: Dict[str, Any]) -> int:
    """Run the flow from its start; returns the exit status."""
    _use_namespace(values)
    told = run_options().get("params") or {}  # stoker run --param NAME=VALUE flow.py
    return _start(context, values, {**told, **_parameters.given(values)}, {})


def resume(context: Context, values: Dict[str, Any]) -> int:
    """Start a new run with a past run's parameters that takes over its succeeded tasks."""
    _use_namespace(values)
    step = values["step_to_rerun"]
    if step is not None and step not in context.graph:
        names = [n.name for n in context.graph]
        raise CommandException(
            f"flow {context.name} has no step '{step}'{did_you_mean(step, names)} "
            f"(there is: {', '.join(names)})"
        )
    origin = _origin(context, values["origin_run_id"])
    more = {
        "clone": origin.id,
        "clone_until": step,
        "clone_only": values["clone_only"],
        "values": _values_of(context, origin),
        "origin_run": origin.id,
    }
    context.say(f"Resuming run {origin.id}" + (f" from step {step}" if step else ""))
    return _start(context, values, {}, more)


def _origin(context: Context, wanted: Optional[str]) -> client.Run:
    """The run to resume: the named one, else the newest of this flow in the namespace.

    Raises:
        CommandException: there is none.
    """
    from .. import client

    try:
        if wanted is not None:
            name = wanted.rpartition("/")[2]
            return client.Run(f"{context.name}/{name}", _namespace_check=False)
        found = client.Flow(context.name).latest_run
    except (MetaflowNotFound, MetaflowNamespaceMismatch):
        found = None
    if found is None:
        said = f"there is no run '{wanted}'" if wanted else "there is no run"
        raise CommandException(
            f"{said} of flow {context.name} to be resumed in namespace '{client.get_namespace() or ''}'; "
            "--origin-run-id names one, `stoker runs` lists them"
        )
    return found


def _values_of(context: Context, origin: client.Run) -> Dict[str, Any]:
    """Parameters and configurations of a run, by attribute; a resumed run gets its origin's."""
    from ...materializers import _artifact
    from .._spun import placed

    spec = origin._run.spec
    declared = spec.get("parameters") or {}
    first: Mapping[str, Any] = next(iter((spec.get("steps") or {}).values()), {})
    values: Dict[str, Any] = {}
    _parameters.pre_mutate(context)
    for name in (p.var for p in parameters_of(context.flow)):
        stored = (first.get("inputs") or {}).get(name)
        if name in declared:
            values[name] = _artifact.load({"value": declared[name]["default"]})
        elif isinstance(stored, dict) and stored.get("artifact"):
            ref = placed({**stored, "digest": stored["artifact"]}, str(origin._store))
            values[name] = _records.load(ref)
    return values


def _use_namespace(values: Mapping[str, Any]) -> None:
    given = values["user_namespace"]
    if given is not None:
        from .. import client

        client.namespace(given or None)
        os.environ["STOKER_NAMESPACE"] = given  # for steps in fresh interpreters


def _start(
    context: Context,
    values: Mapping[str, Any],
    parameters: Mapping[str, Any],
    more: Mapping[str, Any],
) -> int:
    from .._run import run_flow

    options: Dict[str, Any] = {
        **_started_by(),
        "tags": values["tags"],
        "max_workers": values["max_workers"],
        "max_num_splits": values["max_num_splits"],
        **_with(decospecs(context, values["decospecs"])),
        "cache": values.get("cache", False),
        "policy": values.get("policy"),
        "namespace": values["user_namespace"],
        "branch": context.top["branch"],
        "production": context.top["production"],
        "flow_options": dict(context.top),
        "quiet": context.quiet,
        "echo": not run_options().get("quiet"),
        "configs": dict(context.top["config"]),
        "config_values": dict(context.top["config_value"]),
        "on_run": teller(context, values),
        **more,
    }
    if context.top.get("trigger"):
        options["trigger"] = _triggers(context.top["trigger"])
    validate(context)
    _refuse_decorator(run_options().get("with"))
    return int(run_flow(context.flow, parameters, options))


def _refuse_decorator(stack: Optional[str]) -> None:
    """What ``stoker run --with`` names before the file is a stack."""
    name = _name(stack or "")
    if name in STEP and name not in ("kubernetes", "batch") and not is_stack(name):
        raise CommandException(
            f"--with {stack}: before the file it names a stack, and '{name}' is a decorator; "
            f"write it after the file: {os.path.basename(sys.argv[0])} --with {stack}"
        )


def _started_by() -> Dict[str, Any]:
    """The deployed flow that this run is of, and the events that started it."""
    if "STOKER_DEPLOYMENT" not in os.environ:
        return {}
    from .._deploy import taken_from_environment

    return taken_from_environment()


def _triggers(runs: List[str]) -> List[Dict[str, Any]]:
    """Events for ``--trigger FLOW/RUN``, as if the ends of these runs had started this one."""
    from .. import client
    from .._trigger import facts_of_run

    found = []
    for one in runs:
        if one.count("/") != 1:
            raise CommandException(f"--trigger: {one!r} is no run; name it by FLOW/RUN")
        run = client.Run(one, _namespace_check=False)
        facts = facts_of_run(run) if run.successful else None
        if facts is None:
            raise CommandException(f"--trigger: run {one} has not succeeded")
        found.append(facts)
    return found


def _with(specs: List[str]) -> Dict[str, Any]:
    """``--with`` names decorators, and at most one stack: a backend that is no decorator, or one of ``stoker.yaml``."""
    stacks = [one for one in specs if _name(one) not in STEP and is_stack(_name(one))]
    if len(stacks) > 1:
        raise CommandException(
            f"--with {' --with '.join(stacks)}: these are stacks, but a run uses only one"
        )
    rest = [one for one in specs if one not in stacks]
    for name in map(_name, rest):
        if name not in STEP and name not in decorators().step and own_of(name) is None:
            names = sorted(one["name"] for one in _stacks())
            raise UnknownStepDecoratorException(name, STEP, names)
    # A decorator sends steps to the project's stack of its kind. Without such a stack these words
    # name one themselves.
    named = {_name(one) for one in rest}
    clusters = [one for one in ("kubernetes", "batch") if one in named and not stacks]
    backends = {one["backend"] for one in _stacks()} if clusters else set()
    stacks += [one for one in clusters if one not in backends][:1]
    return {"with": rest, **({"stack": stacks[0]} if stacks else {})}


def _name(spec: str) -> str:
    """Of a decorator or stack, which options may follow."""
    return spec.partition(":")[0].strip()


def is_stack(name: str) -> bool:
    """Whether the engine knows a stack of this name."""
    return name in ("docker", "local", "slurm", "ssh") or any(
        one["name"] == name for one in _stacks()
    )


def _stacks() -> List[Dict[str, Any]]:
    """The stacks of the project's stoker.yaml, which the engine finds and reads."""
    body = answer_of(["stack", "list"])
    if "error" in body:
        error = body["error"]
        raise CommandException("; ".join(one for one in (error["text"], error.get("hint")) if one))
    return [one for one in body["answer"] if one.get("file")]


def decospecs(context: Context, own: List[str]) -> List[str]:
    """Decorators that ``--with`` adds, before and after the command, and in the environment."""
    usual = (
        os.environ.get("METAFLOW_DECOSPECS") or os.environ.get("METAFLOW_DEFAULT_DECOSPECS") or ""
    )
    return [*context.top["with"], *own, *usual.split()]


def teller(context: Context, values: Mapping[str, Any]) -> Callable[[str], None]:
    """A function to call with the run's id as soon as it exists: writes the requested files."""

    def tell(run: str) -> None:
        write(values["run_id_file"], run)
        facts = {
            "run_id": run,
            "flow_name": context.name,
            "metadata": f"local@{_records.store_path()}",
        }
        write(values["runner_attribute_file"], json.dumps(facts))

    return tell


def write(path: Optional[str], text: str) -> None:
    """Write a small file atomically, so that readers see all of it or nothing; a pipe directly.
    None: do nothing."""
    if path is None:
        return
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            return
        half = f"{path}.{os.getpid()}"
        with open(half, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(half, path)
    except OSError as bad:
        print(f"stoker: {path} can't be written: {bad.strerror}", file=sys.stderr)
