"""Decorators of flows: @project, and those for schedulers and packages."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional

from .._current import username
from .._parameters import context_of
from ..exception import MetaflowException
from ._base import FlowDecorator


class Project(FlowDecorator):
    """``@project(name="…")``: ``current.project_name``, ``branch_name``, ``is_production`` …"""

    name = "project"
    defaults: Dict[str, Any] = {"name": None, "branch": None, "production": False}

    def init(self) -> None:
        _check("name", self.attributes["name"])

    def facts(self, flow: Any, options: Mapping[str, Any]) -> Dict[str, Any]:
        """What ``current`` has of it; ``options`` are those of the command line."""
        said = self.attributes
        branch = options.get("branch") or said["branch"]
        if branch:
            _check("branch", branch)
        production = bool(options.get("production") or said["production"])
        if production:
            full = f"prod.{branch}" if branch else "prod"
        else:
            full = f"test.{branch}" if branch else f"user.{username()}"
        return {
            "project_name": said["name"],
            "branch_name": full,
            "is_user_branch": not branch and not production,
            "is_production": production,
            "project_flow_name": f"{said['name']}.{full}.{flow.__name__}",
        }

    def settings(self, flow: Any, options: Dict[str, Any]) -> Dict[str, Any]:
        facts = self.facts(flow, options)
        tags = [f"project:{facts['project_name']}", f"project_branch:{facts['branch_name']}"]
        return {"tags": tags, "extra": {"flow": {"facts": facts, "system_tags": tags}}}


def _check(what: str, name: Any) -> None:
    if not isinstance(name, str) or not re.fullmatch("[a-z0-9_]{1,128}", name):
        raise MetaflowException(
            f"@project: {what} is {name!r}; it has at most 128 lowercase letters, digits and underscores"
        )


class _Deployed(FlowDecorator):
    """What starts a deployed flow (``_deploy/``)."""

    def note(self) -> Optional[str]:
        return f"@{self.name} is for deployed flows (`python flow.py deploy create`); this run starts now"


class Schedule(_Deployed):
    """``@schedule(daily=True)``: the times at which a deployed flow runs."""

    name = "schedule"
    defaults: Dict[str, Any] = {
        "cron": None,
        "weekly": False,
        "daily": True,
        "hourly": False,
        "timezone": None,
    }

    def init(self) -> None:
        if self.cron():
            from ..._deployed import DeployError
            from ..._deployed.units import fields_of

            try:
                fields_of(str(self.cron()))
            except DeployError as bad:
                raise MetaflowException(f"@schedule: {bad}") from None

    def cron(self) -> Optional[str]:
        """The cron expression; None: no times."""
        said = self.attributes
        if said["cron"]:
            return str(said["cron"])
        usual = {"weekly": "0 0 * * 0", "hourly": "0 * * * *", "daily": "0 0 * * *"}
        return next((cron for key, cron in usual.items() if said[key]), None)


class _ByEvents(_Deployed):
    ONE = MANY = ""

    def init(self) -> None:
        said = self.attributes
        if said[self.ONE] and said[self.MANY]:
            raise MetaflowException(
                f"Specify only one of *{self.ONE}* or *{self.MANY}* attributes in *@{self.name}* decorator."
            )
        if not said[self.ONE] and not said[self.MANY]:
            raise MetaflowException(f"No {self.ONE}(s) specified in *@{self.name}* decorator.")
        for one in self._given():
            if not callable(one):
                self._trigger(one, {})

    def _given(self) -> List[Any]:
        one, many = self.attributes[self.ONE], self.attributes[self.MANY]
        if one:
            return [one]
        if not isinstance(many, list) and not callable(many):
            raise MetaflowException(
                f"@{self.name}: {self.MANY} is {many!r}; it must be a list, or a function that returns one"
            )
        return [many] if callable(many) else list(many)

    def triggers(self, flow: Any, facts: Dict[str, Any]) -> List[Dict[str, Any]]:
        """``{"event": name, "parameters": {parameter: field}}`` for each event that must come.

        Args:
            facts: those of the flow's ``@project``, if it has one.
        """
        context = context_of(flow)
        found: List[Any] = []
        for one in self._given():
            value = one(context) if callable(one) else one
            found += value if isinstance(value, list) else [value]
        made = [self._trigger(one, facts, context) for one in found]
        names = [one["event"] for one in made]
        if len(names) != len(set(names)):
            raise MetaflowException(f"@{self.name} names an event twice: {', '.join(names)}")
        return made

    def _trigger(self, said: Any, facts: Dict[str, Any], context: Any = None) -> Dict[str, Any]:
        raise NotImplementedError


class Trigger(_ByEvents):
    """``@trigger(event=…)``: the events that start a deployed flow; of ``events`` all."""

    name = "trigger"
    ONE, MANY = "event", "events"
    defaults: Dict[str, Any] = {"event": None, "events": [], "options": {}}

    def _trigger(self, said: Any, facts: Dict[str, Any], context: Any = None) -> Dict[str, Any]:
        if isinstance(said, str):
            said = {"name": said}
        if not isinstance(said, dict) or not said.get("name"):
            raise MetaflowException(
                f"@trigger: {said!r} is no event; it is a name, or a mapping with 'name' and 'parameters'"
            )
        name, parameters = said["name"], said.get("parameters") or {}
        if context is not None:
            name = name(context) if callable(name) else name
            parameters = parameters(context) if callable(parameters) else parameters
        return {"event": name, "parameters": {} if callable(parameters) else _mapping(parameters)}


def _mapping(said: Any) -> Dict[str, str]:
    """Parameter → field of the event."""
    if isinstance(said, dict):
        pairs = list(said.items())
    elif isinstance(said, (list, tuple)):
        pairs = [(one, one) if isinstance(one, str) else one for one in said]
    else:
        pairs = [said]
    for one in pairs:
        if not isinstance(one, tuple) or [type(text) for text in one] != [str, str]:
            raise MetaflowException(
                f"@trigger: parameters are {said!r}; they are a mapping from parameters to fields of "
                "the event, or a list of names"
            )
    return dict(pairs)


class TriggerOnFinish(_ByEvents):
    """``@trigger_on_finish(flow=…)``: the flows after whose runs a deployed flow runs."""

    name = "trigger_on_finish"
    ONE, MANY = "flow", "flows"
    defaults: Dict[str, Any] = {"flow": None, "flows": [], "options": {}}
    options: Dict[str, Any] = {
        "trigger": {
            "multiple": True,
            "default": [],
            "help": "As if the end of this run (FLOW/RUN) had started this one.",
        }
    }

    def _trigger(self, said: Any, facts: Dict[str, Any], context: Any = None) -> Dict[str, Any]:
        full = said.get("name") if isinstance(said, dict) else said
        if not isinstance(full, str) or not re.fullmatch(r"([^.]+\..+\.)?\w+", full):
            raise MetaflowException(
                f"@trigger_on_finish: {said!r} is no flow; it is a name, PROJECT.BRANCH.NAME, or a mapping with "
                "'name', 'project' and 'project_branch'"
            )
        if isinstance(said, dict) and "." not in full:
            project = said.get("project") or facts.get("project_name")
            branch = said.get("project_branch") or facts.get("branch_name")
        else:
            project, branch = facts.get("project_name"), facts.get("branch_name")
        if "." not in full and project and branch:
            full = f"{project}.{branch}.{full}"
        return {"event": f"metaflow.{full}.end", "parameters": {}}


class ExitHook(FlowDecorator):
    """``@exit_hook(on_success=[…], on_error=[…])``: functions to call when the run has ended, each
    with ``run`` (the client's object) if it takes it.

    A function is given itself, or as its name in the flow's file or ``MODULE.NAME``. One that fails
    is told on stdout; the run's result stays what it is.
    """

    name = "exit_hook"
    allow_multiple = True
    defaults: Dict[str, Any] = {"on_success": [], "on_error": [], "options": {}}

    def init(self) -> None:
        said = self.attributes
        if not said["on_success"] and not said["on_error"]:
            raise MetaflowException("@exit_hook: give functions for on_success or on_error")
        for one in (*said["on_success"], *said["on_error"]):
            if not callable(one) and not isinstance(one, str):
                raise ValueError(f"@exit_hook: {one!r} is neither a function nor the name of one")

    def ended(self, flow: Any, run: Optional[str], succeeded: bool) -> None:
        """Call its functions; ``run``: the id."""
        for one in self.attributes["on_success" if succeeded else "on_error"]:
            name = one if isinstance(one, str) else getattr(one, "__name__", str(one))
            try:
                _call_hook(_hook(flow, one), flow, run)
            except (Exception, SystemExit) as bad:
                print(f"[exit_hook] Hook '{name}' failed with error: {bad!r}", flush=True)


def _hook(flow: Any, said: Any) -> Any:
    if callable(said):
        return said
    import importlib
    import sys

    module, _, name = said.rpartition(".")
    home = importlib.import_module(module) if module else sys.modules[flow.__module__]
    return getattr(home, name)


def _call_hook(hook: Any, flow: Any, run: Optional[str]) -> None:
    import inspect

    takes = inspect.getfullargspec(hook)
    if "run" not in takes.args and takes.varkw is None:
        hook()
        return
    from ..client import Run

    hook(run=Run(f"{flow.__name__}/{run}", _namespace_check=False) if run else None)
