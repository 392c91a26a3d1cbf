"""Runs a flow: passes its document to the engine and returns the engine's exit status."""

from __future__ import annotations

import os
import signal
from typing import Any, Callable, Dict, List, Mapping, Optional

from .._base.binary import run_options
from .._base.errors import refuse, say
from ._compile import compile_flow
from ._current import current
from ._decorators import flow_decorators_of
from ._parameters import config_names, parameters_of, read_configs, read_parameters
from ._task import prepare

# Option → option of `stoker run`.
_ENGINE = {
    "max_workers": "--max-workers",
    "stack": "--with",
    "policy": "--policy",
    "mode": "--mode",
    "quiet": "--quiet",
    "json": "--json",
    "echo": "--echo",
    "clone": "--clone",
    "clone_until": "--clone-until",
    "clone_only": "--clone-only",
    "resume": "--resume",
    "use_new_code": "--use-new-code",
    "no_cache": "--no-cache",
    "python": "--python",
}


def run_flow(cls: Any, parameters: Mapping[str, Any], options: Mapping[str, Any]) -> int:
    """Run a flow to its end.

    Args:
        parameters: values or texts, by the parameters' names; missing ones come from the
            environment (``METAFLOW_RUN_<NAME>``) or from defaults.
        options: those of :func:`compile_flow`; ``configs`` and ``config_values`` (name → path,
            value); ``values`` (by attribute, instead of all these: a resumed run has its origin's);
            ``on_run`` (called with the run's id as soon as it exists); and the engine's:
            ``max_workers``, ``stack``, ``policy``, ``mode``, ``quiet``, ``echo``, ``clone`` (a
            run), ``clone_until`` (a step), ``clone_only``, ``resume`` (a run), ``run_name``.

    Returns:
        Exit status: 0 succeeded, 1 a step failed, 2 wrong usage, 3 the engine failed, 130
            cancelled, 143 interrupted.

    Raises:
        MetaflowException: parameters, graph or decorators are wrong.
        EngineError: the ``stoker`` program is missing, or ended without reporting.
    """
    from .._engine.launch import run_engine

    values = options.get("values")
    if values is None:
        values = read_configs(cls, options.get("configs") or {}, options.get("config_values") or {})
        for one in flow_decorators_of(cls):
            if one.name == "project":  # functions of defaults read it
                current._add(**one.bound().facts(cls, options))
        values.update(read_parameters(cls, parameters))
    document = compile_flow(cls, values, options)
    prepare(cls)
    for note in document.notes:
        say(note)
    told: List[str] = []
    events: List[Any] = []
    try:
        end = run_engine(
            document.compiled,
            _arguments(options),
            _teller(told, options, events),
            plan=_plan_options(options),
        )
    finally:
        for watch in events:
            watch.end()
    if not end.watch.began and end.error:  # nothing ran, and no other message says why
        said = end.watch.end
        refuse(end.error, end.status or 3, said.get("class"), said.get("hint") or "")
    if end.watch.began and end.word is None and not end.interrupts and not end.told:
        say(end.watch.cut_short(end.status))
    status = _status(end)
    for one in flow_decorators_of(cls) if told else ():
        if one.name == "exit_hook":
            one.bound().ended(cls, told[0], status == 0)
    if told and status == 0 and options.get("deployment"):
        _tell_of_end(cls, told[0], options)
    # The run ends with the last clone, although its graph continues.
    return 0 if options.get("clone_only") and end.word == "interrupted" and not end.told else status


def _has_deployed_flows() -> bool:
    """Whether the store has any; without asking the engine, because each run asks."""
    stores = [os.environ.get("STOKER_STORE")]
    if not stores[0]:
        here = os.getcwd()
        above = [here[:i] for i, one in enumerate(here) if one == "/"]
        stores = [os.path.join(one or "/", ".stoker") for one in (here, *above)]
    return any(os.path.isdir(os.path.join(one or "", "deployments")) for one in stores)


def _tell_of_end(cls: Any, run: str, options: Mapping[str, Any]) -> None:
    """Publish the end of a deployed flow's run, for @trigger_on_finish."""
    from ._deploy._queue import publish
    from ._trigger import facts_of_run
    from .client import Run

    projects = [one.bound() for one in flow_decorators_of(cls) if one.name == "project"]
    full = projects[0].facts(cls, options)["project_flow_name"] if projects else None
    facts = facts_of_run(Run(f"{cls.__name__}/{run}", _namespace_check=False), full)
    if facts is None:
        return
    try:
        publish(facts.pop("name"), **facts)
    except OSError as bad:  # the run itself has succeeded
        say(f"the end of run {run} can't be published: {bad}")


def _teller(
    told: List[str], options: Mapping[str, Any], events: List[Any]
) -> Callable[[str], None]:
    """``on_run``, which also keeps the run's id, and watches for the events of its steps."""
    also = options.get("on_run")

    def tell(run: str) -> None:
        told.append(run)
        if _has_deployed_flows():
            from ._deploy._queue import Watch

            events.append(Watch())
        if also is not None:
            also(run)

    return tell


def values_of(
    cls: Any, parameters: Mapping[str, Any], options: Mapping[str, Any]
) -> Dict[str, Any]:
    """All values that a run would have, by attribute, as steps see them."""
    values = read_configs(cls, options.get("configs") or {}, options.get("config_values") or {})
    values.update(read_parameters(cls, parameters))
    loaded = config_names(cls, values)
    return {one.var: loaded.get(one.var, values.get(one.var)) for one in parameters_of(cls)}


def _plan_options(options: Mapping[str, Any]) -> Dict[str, Any]:
    """What ``stoker plan`` said before the file, under what the flow's own words say behind it."""
    behind = {"with": options.get("stack"), "policy": options.get("policy")}
    return {**run_options(), **{key: value for key, value in behind.items() if value}}


def _arguments(options: Mapping[str, Any]) -> List[str]:
    """Options of the engine: the flow's own words, else those of ``stoker run`` before the file."""
    told = dict(run_options())
    told["stack"] = told.pop("with", None)
    words: List[str] = []
    for key, flag in _ENGINE.items():
        value = options.get(key) or told.get(key)
        if not value:
            continue
        words += [flag] if value is True else [flag, str(value)]
    name = options.get("run_name") or told.get("run_name")
    return [*words, "--run-name", str(name)] if name else words


def _status(end: Any) -> int:
    word: Optional[str] = end.word
    if word == "succeeded":
        return 0
    if word == "cancelled" or (end.interrupts and word is None):
        return 130
    if word == "interrupted" or end.told:
        return 128 + int(signal.SIGTERM)
    if word is not None:
        return 1
    return int(end.status) if end.status in (2, 3) else 3
