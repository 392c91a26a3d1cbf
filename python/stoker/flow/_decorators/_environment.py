"""Variables of a step: @environment, @secrets."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List

from ..exception import MetaflowException
from ._base import StepDecorator


class Environment(StepDecorator):
    """``@environment(vars={"NAME": "value"})``: sets variables before the step's process starts."""

    name = "environment"
    defaults: Dict[str, Any] = {"vars": {}}

    def init(self) -> None:
        if not isinstance(self.attributes["vars"], dict):
            raise MetaflowException(f"{self!r}: vars is a mapping of names to texts")

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        return {
            "environment": {str(key): str(value) for key, value in self.attributes["vars"].items()}
        }


class Secrets(StepDecorator):
    """``@secrets(sources=[…])``: variables whose values no record of the run has.

    A source is a name, or ``"environment.NAME"``: the step's variable ``NAME`` gets the value of
    ``STOKER_SECRET_NAME`` in the environment of the flow's start. ``{"type": "inline", "options":
    {"env_vars": {…}}}`` contains the values, for tests.
    """

    name = "secrets"
    defaults: Dict[str, Any] = {"sources": [], "role": None, "allow_override": False}

    def init(self) -> None:
        self.names: List[str] = []
        self.inline: Dict[str, str] = {}
        sources = self.attributes["sources"]
        if not isinstance(sources, (list, tuple)):
            raise MetaflowException(f"@secrets: sources is a list, not {sources!r}")
        for source in sources:
            kind, name, options = _source(source)
            if kind == "environment":
                self.names.append(name)
            elif kind == "inline":
                self._add_inline(options.get("env_vars") or {})
            else:
                raise MetaflowException(
                    f"@secrets: source {name!r} is of the provider '{kind}', which Stoker doesn't "
                    "have: put the value into "
                    f"STOKER_SECRET_{_variable(name)} and name the source 'environment.{_variable(name)}'"
                )

    def _add_inline(self, variables: Dict[str, Any]) -> None:
        for key, value in variables.items():
            if not isinstance(value, str) or not str(key).isidentifier():
                raise MetaflowException(
                    f"@secrets: the inline variable {key!r} must have a name of letters and a text"
                )
            if key in self.inline:
                raise MetaflowException(f"@secrets: two sources set the variable '{key}'")
            self.inline[key] = value

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        return {"secrets": self.names} if self.names else {}

    def task_begin(self, running: Any) -> None:
        if not self.attributes["allow_override"]:
            taken = sorted(key for key in self.inline if key in os.environ)
            if taken:
                raise MetaflowException(
                    f"step '{running.step}': @secrets would replace the variable '{taken[0]}', which is set already; "
                    "set allow_override=True, or use another name"
                )
        os.environ.update(self.inline)


def _source(source: Any) -> Any:
    """(provider, name, options) of one source."""
    if isinstance(source, str):
        kind, dot, name = source.partition(".")
        return (kind, name, {}) if dot else ("environment", source, {})
    if isinstance(source, dict):
        kind = source.get("type") or "environment"
        return kind, str(source.get("id") or ""), source.get("options") or {}
    raise MetaflowException(f"@secrets: a source is a name or a mapping, not {source!r}")


def _variable(name: str) -> str:
    return re.sub("[^a-zA-Z0-9]", "_", name.rpartition("/")[2]).upper()
