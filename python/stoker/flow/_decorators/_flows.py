"""Decorators of flows: @project, and those for schedulers and packages."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .._current import username
from ..exception import MetaflowException
from ._base import FlowDecorator


class Project(FlowDecorator):
    """``@project(name="…")``: ``current.project_name``, ``branch_name``, ``is_production`` …"""

    name = "project"
    defaults: Dict[str, Any] = {"name": None, "branch": None, "production": False}

    def init(self) -> None:
        name = self.attributes["name"]
        if not isinstance(name, str) or not all(
            c.islower() or c.isdigit() or c == "_" for c in name
        ):
            raise MetaflowException(
                f"@project: name is {name!r}; it has lowercase letters, digits and underscores"
            )

    def settings(self, flow: Any, options: Dict[str, Any]) -> Dict[str, Any]:
        said = self.attributes
        branch = options.get("branch") or said["branch"]
        production = bool(options.get("production") or said["production"])
        if production:
            full = f"prod.{branch}" if branch else "prod"
        else:
            full = f"test.{branch}" if branch else f"user.{username()}"
        facts = {
            "project_name": said["name"],
            "branch_name": full,
            "is_user_branch": not branch and not production,
            "is_production": production,
            "project_flow_name": f"{said['name']}.{full}.{flow.__name__}",
        }
        tags = [f"project:{said['name']}", f"project_branch:{full}"]
        return {"tags": tags, "extra": {"flow": {"facts": facts, "system_tags": tags}}}


class _Kept(FlowDecorator):
    def note(self) -> Optional[str]:
        return f"@{self.name} has no effect here: the run starts now, and once"


class Schedule(_Kept):
    """``@schedule(daily=True)``."""

    name = "schedule"
    defaults: Dict[str, Any] = {
        "cron": None,
        "weekly": False,
        "daily": True,
        "hourly": False,
        "timezone": None,
    }


class Trigger(_Kept):
    """``@trigger(event=…)``."""

    name = "trigger"
    defaults: Dict[str, Any] = {"event": None, "events": [], "options": {}}


class TriggerOnFinish(_Kept):
    """``@trigger_on_finish(flow=…)``."""

    name = "trigger_on_finish"
    defaults: Dict[str, Any] = {"flow": None, "flows": [], "options": {}}


class _Packages(FlowDecorator):
    def note(self) -> Optional[str]:
        return (
            f"@{self.name} has no effect here: steps run in the interpreter that starts the flow, with what is "
            "installed there"
        )


class PypiBase(_Packages):
    """``@pypi_base(packages={…})``."""

    name = "pypi_base"
    defaults: Dict[str, Any] = {"packages": {}, "python": None, "disabled": None}


class CondaBase(_Packages):
    """``@conda_base(packages={…})``."""

    name = "conda_base"
    defaults: Dict[str, Any] = {"packages": {}, "libraries": {}, "python": None, "disabled": None}
