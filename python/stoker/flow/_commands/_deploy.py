"""``deploy``: let this machine run the flow by itself, start runs of it, list and remove it."""

from __future__ import annotations

import inspect
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List

from ..._base.binary import output_of
from ..._deployed import sources, units
from .. import _deploy, _records
from .._current import current
from .._decorators import flow_decorators_of
from .._parameters import ConfigValue, parameters_of
from ..exception import CommandException
from . import _parameters
from ._graph import validate
from ._run import write

if TYPE_CHECKING:
    from ._context import Context


def _project(context: Context) -> Dict[str, Any]:
    for one in flow_decorators_of(context.flow):
        if one.name == "project":
            facts: Dict[str, Any] = one.bound().facts(context.flow, context.top)
            return facts
    return {}


def _name(context: Context, values: Dict[str, Any]) -> str:
    full = _project(context).get("project_flow_name") or context.name
    return _deploy.checked_name(values.get("name") or str(full).lower())


def create(context: Context, values: Dict[str, Any]) -> int:
    """Deploy the flow on this machine, in place of the one of its name."""
    record = _record(context, values)
    if values["only_json"]:
        print(json.dumps(record, indent=1))
        return 0
    folder = os.path.join(_deploy.home(), record["name"])
    if record["schedule"]:
        _deploy.as_flows(units.refuse_others)(folder)
    left = units.remove(folder)
    record = _deploy.write(record, code_of(context))
    context.say(
        f"Deployed {context.name} as '{record['name']}' on this machine (no cluster): {record['folder']}"
    )
    for line in units.write(record) if record["schedule"] else left:
        context.say(f"  {line}")
    for one in record["triggers"]:
        context.say(f"  event '{one['event']}' starts it" + _and_all(record["triggers"]))
    if not record["schedule"] and not record["triggers"]:
        context.say(f"  `{os.path.basename(sys.argv[0])} deploy trigger` starts it")
    facts = {
        "name": record["name"],
        "flow_name": context.name,
        "metadata": f"local@{_records.store_path()}",
    }
    write(values["deployer_attribute_file"], json.dumps(facts))
    return 0


def _and_all(triggers: List[Any]) -> str:
    return ", once all of them have come" if len(triggers) > 1 else ""


def _record(context: Context, values: Dict[str, Any]) -> Dict[str, Any]:
    validate(context)
    configs = _parameters.read_configs(context)
    _parameters.pre_mutate(context)
    facts, schedule = _project(context), None
    current._add(**facts)  # functions of names read it
    triggers: List[Dict[str, Any]] = []
    for one in flow_decorators_of(context.flow):
        bound = one.bound()
        if hasattr(bound, "triggers"):
            triggers += bound.triggers(context.flow, facts)
        if one.name == "schedule" and bound.cron():
            schedule = {"cron": bound.cron(), "timezone": bound.attributes["timezone"]}
    parameters = [p for p in parameters_of(context.flow) if not p.IS_CONFIG_PARAMETER]
    known = [p.name for p in parameters]
    for trigger in triggers:
        unknown = [one for one in trigger["parameters"] if one not in known]
        if unknown:
            raise CommandException(
                f"@trigger sets {', '.join(unknown)}, but flow {context.name} has no such parameter"
            )
    needed = [p.name for p in parameters if p.required and p.default is None]
    given = {name for trigger in triggers for name in trigger["parameters"]}
    if (schedule or triggers) and not set(needed) <= given:
        lacks = ", ".join(one for one in needed if one not in given)
        raise CommandException(
            f"nobody gives {lacks} when flow {context.name} starts by itself: give a default"
        )
    return {
        "name": _name(context, values),
        "flow": context.name,
        "file": os.path.basename(source_of(context)),
        "source": source_of(context),
        "cwd": os.getcwd(),
        "python": sys.executable,
        "env": _deploy.kept_environment(),
        "top": _top_words(context, configs),
        "run": _run_words(values),
        "parameters": known,
        "schedule": schedule,
        "calendar": units.calendar_of(**schedule) if schedule else [],
        "triggers": triggers,
        "project": facts,
    }


def source_of(context: Context) -> str:
    return os.path.abspath(inspect.getsourcefile(context.flow) or sys.argv[0])


def _top_words(context: Context, configs: Dict[str, Any]) -> List[str]:
    """The options before ``run``, with the configurations' values of now."""
    top = context.top
    words = [word for one in top["with"] for word in ("--with", one)]
    for key in ("environment", "branch"):
        words += [f"--{key}", str(top[key])] if top.get(key) else []
    words += ["--production"] if top.get("production") else []
    for one in parameters_of(context.flow):
        if one.IS_CONFIG_PARAMETER and configs.get(one.var) is not None:
            value = configs[one.var]
            plain = value.to_dict() if isinstance(value, ConfigValue) else value
            text = plain if isinstance(plain, str) else json.dumps(plain)
            words += ["--config-value", one.name, text]
    return words


def _run_words(values: Dict[str, Any]) -> List[str]:
    words = [word for one in values["tags"] for word in ("--tag", one)]
    words += [word for one in values["decospecs"] for word in ("--with", one)]
    if values["max_workers"] is not None:
        words += ["--max-workers", str(values["max_workers"])]
    if values["user_namespace"] is not None:
        words.append(f"--namespace={values['user_namespace']}")
    return words


def code_of(context: Context) -> Dict[str, str]:
    """Path in a deployment → source, of the flow's code."""
    source = source_of(context)
    found = sources(os.path.dirname(source), context.top["package_suffixes"])
    return {os.path.basename(source): source, **found}


def trigger(context: Context, values: Dict[str, Any]) -> int:
    """Start a run of the deployed flow; returns as soon as it exists."""
    given = _parameters.given(values)
    words = [f"--{name}={text}" for name, text in given.items()]
    started = _deploy.start(_deploy.find(_name(context, values)), words)
    facts = started.wait()
    write(values["run_id_file"], facts["run_id"])
    write(
        values["deployer_attribute_file"],
        json.dumps({**facts, "pathspec": f"{facts['flow_name']}/{facts['run_id']}"}),
    )
    context.say(f"Started run {facts['run_id']} of {context.name}; `stoker show {facts['run_id']}`")
    return 0


def list_runs(context: Context, values: Dict[str, Any]) -> int:
    """Print the ids and states of its runs, the newest first."""
    for run in _deploy.runs_of(_name(context, values)):
        print(f"{run.id} {run.status}")
    return 0


def listing(context: Context, values: Dict[str, Any]) -> int:
    """Print all deployed flows: name, flow, what starts them."""
    for record in _deploy.listed():
        begins = [*record["calendar"], *(one["event"] for one in record["triggers"])]
        print(f"{record['name']} {record['flow']} {'; '.join(begins)}".strip())
    return 0


def delete(context: Context, values: Dict[str, Any]) -> int:
    """Remove the deployed flow."""
    name = _name(context, values)
    left = _deploy.remove(name)
    context.say(f"Removed '{name}'; its runs stay")
    for line in left:
        context.say(f"  {line}")
    return 0


def terminate(context: Context, values: Dict[str, Any]) -> int:
    """Cancel a run of the deployed flow."""
    run = str(values["run_id"]).rpartition("/")[2]
    if run not in [one.id for one in _deploy.runs_of(_name(context, values))]:
        raise CommandException(f"'{run}' is no run of deployed flow '{_name(context, values)}'")
    output_of(["cancel", run])
    return 0
