"""ZenML's order of steps on this machine: one after another, layer by layer, by name within one."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping

from .._base.binary import run_options
from .._base.errors import SettingsError, say
from .stacks import active_is_here, chosen_place

_told = False  # that steps run one after another


def in_order(spec: Dict[str, Any]) -> bool:
    """Put a document's steps in ZenML's order: layer by layer, by name within one.

    Returns whether a layer has several steps.
    """
    steps = spec["steps"]
    above = {name: _parents(step) & steps.keys() for name, step in steps.items()}
    below: Dict[str, List[str]] = {name: [] for name in steps}
    for name, parents in above.items():
        for parent in parents:
            below[parent].append(name)
    left = {name: len(parents) for name, parents in above.items()}
    layer = sorted(name for name, n in left.items() if n == 0)
    ordered: List[str] = []
    wide = False
    while layer:
        wide = wide or len(layer) > 1
        ordered += layer
        following = []
        for name in layer:
            for child in below[name]:
                left[child] -= 1
                if left[child] == 0:
                    following.append(child)
        layer = sorted(following)
    if len(ordered) == len(steps):  # else there is a circle, which the engine reports
        spec["steps"] = {name: steps[name] for name in ordered}
    return wide


def _parents(step: Mapping[str, Any]) -> Any:
    found = set(step.get("after") or ())
    for value in (step.get("inputs") or {}).values():
        origin = value.get("from") if isinstance(value, dict) else None
        for text in [origin] if isinstance(origin, str) else origin or ():
            found.add(text.partition(".")[0])
    return found


def one_by_one(spec: Dict[str, Any]) -> List[str]:
    """The engine's options for the active stack and for ZenML's order; says so once in a process
    that could see a difference. A resumed run stays where it was. A pipeline's
    ``extra={"stoker_max_workers": N}`` lets N steps run at a time instead."""
    global _told
    options = run_options()
    if options.get("with"):
        return []
    place = [] if options.get("resume") else chosen_place()
    if options.get("max_workers") or (place and not active_is_here()):
        return place
    workers = (spec.get("extra") or {}).get("stoker_max_workers")
    if workers is not None:
        if type(workers) is not int or workers < 1:
            raise SettingsError(
                f"pipeline '{spec['name']}': stoker_max_workers is {workers!r}; it is a number from 1"
            )
        return [*place, "--max-workers", str(workers)]
    if in_order(spec) and not _told:
        _told = True
        say(
            "steps run one after another, as ZenML's local orchestrator runs them; "
            "`stoker run FILE --max-workers N`, or extra={'stoker_max_workers': N} of the pipeline, "
            "runs N at a time"
        )
    return [*place, "--in-order"]
