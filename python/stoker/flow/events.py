"""Events that start deployed flows (``_deploy/``): ``ArgoEvent("name").publish()``."""

from __future__ import annotations

import functools
import os
import re
import sys
from typing import Any, Callable, Dict, Mapping, Optional, Union

from ._current import current
from ._trigger import MetaflowEvent, Trigger
from .exception import MetaflowException

__all__ = ["ArgoEvent", "ArgoEventException", "MetaflowEvent", "Trigger", "namespaced_event_name"]


class ArgoEventException(MetaflowException):
    """An event can't be published."""

    headline = "Argo Event Exception"


class ArgoEvent:
    """An event of this machine; the name is that of Metaflow's programs.

    Args:
        name: the event's, or :func:`namespaced_event_name`. payload: what it carries.
            The other arguments are those of a cluster, without effect.
    """

    def __init__(
        self,
        name: Union[str, Callable[[], str]],
        url: Optional[str] = None,
        payload: Optional[Mapping[str, Any]] = None,
        access_token: Optional[str] = None,
    ) -> None:
        self._name = name() if callable(name) else name
        self._payload: Dict[str, Any] = dict(payload or {})

    def add_to_payload(self, key: str, value: Any) -> ArgoEvent:
        """Add a field; its value becomes a text."""
        self._payload[key] = str(value)
        return self

    def safe_publish(
        self, payload: Optional[Mapping[str, Any]] = None, ignore_errors: bool = True
    ) -> Optional[str]:
        """Publish it from a step of a deployed flow's run; elsewhere do nothing."""
        return self.publish(payload, False, ignore_errors)

    def publish(
        self,
        payload: Optional[Mapping[str, Any]] = None,
        force: bool = True,
        ignore_errors: bool = True,
    ) -> Optional[str]:
        """Publish it: deployed flows whose events have all come start. Returns its id.

        Args:
            payload: more fields. force: also outside a deployed flow's run.
            ignore_errors: what goes wrong is told on stderr, and None is returned.

        Raises:
            ArgoEventException: it can't be published.
        """
        from ._deploy._queue import publish

        said = f"Unable to publish Argo Event ({self._name})"
        if not force and not current._said("deployment"):
            said = f"Argo Event ({self._name}) was not published: this is no run of a deployed flow"
            return _failed(
                f"{said}. Use ArgoEvent(...).publish(...) to force publish.", ignore_errors
            )
        try:
            known = publish(self._name, {**self._payload, **(payload or {})})
        except (OSError, TypeError) as bad:
            return _failed(f"{said}: {bad}", ignore_errors)
        print(f"Argo Event ({self._name}) published.", file=sys.stderr)
        return known


def _failed(text: str, is_ignored: bool) -> Optional[str]:
    if not is_ignored:
        raise ArgoEventException(text)
    print(text, file=sys.stderr)
    return None


def namespaced_event_name(event_name: str) -> Callable[..., str]:
    """A function that gives the event's name within the flow's ``@project``:
    ``mfns.PROJECT.BRANCH.NAME``, or ``mfns.NAME``; for ``@trigger`` and :class:`ArgoEvent`."""
    if not isinstance(event_name, str):
        raise ValueError(f"event_name should be a string not {type(event_name)}")
    return functools.partial(_namespaced, event_name=event_name)


def _namespaced(context: Any = None, event_name: str = "") -> str:
    project, branch = current.get("project_name"), current.get("branch_name")
    parts = [re.sub(r"[^a-zA-Z0-9_.-]", "", str(one)) for one in (project, branch) if one]
    prefix = os.environ.get("METAFLOW_NAMESPACED_EVENTS_PREFIX") or "mfns"
    return ".".join([prefix, *(parts if len(parts) == 2 else ()), event_name])
