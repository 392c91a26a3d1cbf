"""Flows that this machine runs by itself: at a time, at an event, when another flow has ended.

``stoker._deployed`` keeps and starts them. No process waits for events: whoever publishes one starts
the flows that it completes (``_queue.py``).
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, TypeVar, cast

from ... import _deployed as shared
from ..._deployed import home as home
from ..._deployed import kept_environment as kept_environment
from ..._deployed import taken_from_environment as taken_from_environment
from ..exception import MetaflowException, MetaflowNotFound, NoRunError

_F = TypeVar("_F", bound=Callable[..., Any])


class NoDeployment(MetaflowException):
    """There is no deployed flow of this name."""

    headline = "Deployment not found"


_HINT = "; `python flow.py deploy create` deploys a flow, `deploy list` names them all"
_ERRORS = {shared.NoDeployment: NoDeployment, shared.NoRun: NoRunError}


def as_flows(func: _F) -> _F:
    """The function with the errors of flows."""

    @functools.wraps(func)
    def call(*args: Any, **given: Any) -> Any:
        try:
            return func(*args, **given)
        except shared.DeployError as bad:
            more = _HINT if isinstance(bad, shared.NoDeployment) else ""
            raise _ERRORS.get(type(bad), MetaflowException)(f"{bad}{more}") from None

    return cast(_F, call)


checked_name = as_flows(shared.checked_name)
find = as_flows(shared.find)
remove = as_flows(shared.remove)
write = shared.write


class Started(shared.Started):
    """A run that was started for a deployed flow: its process, later its id."""

    wait = as_flows(shared.Started.wait)


def start(
    record: Mapping[str, Any],
    words: Sequence[str] = (),
    events: Sequence[Mapping[str, Any]] = (),
    awaited: bool = True,
) -> Started:
    """As :func:`stoker._deployed.start`."""
    begun = as_flows(shared.start)(record, words, events, awaited=awaited)
    return Started(begun.record, begun.process, begun.facts)


def listed(flow: Optional[str] = None, store: Optional[str] = None) -> Iterator[Dict[str, Any]]:
    """Records of deployed flows (of one flow), by name."""
    return (one for one in shared.listed("flow", store) if flow in (None, one["flow"]))


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


def main(words: Sequence[str]) -> int:
    """``python -m stoker.flow._deploy publish EVENT [KEY=VALUE…]``."""
    from . import _queue

    if len(words) > 1 and words[0] == "publish" and all("=" in one for one in words[2:]):
        payload = dict(one.split("=", 1) for one in words[2:])
        print(_queue.publish(words[1], payload))
        return 0
    print(
        "usage: python -m stoker.flow._deploy publish EVENT [KEY=VALUE…]",
        file=sys.stderr,
    )
    return 2
