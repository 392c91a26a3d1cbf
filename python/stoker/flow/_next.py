"""Checks ``self.next`` against the graph with which the run was started."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from .exception import InvalidNextException, told

_FORMS = ("foreach", "num_parallel", "condition")


class Transition(NamedTuple):
    """The next steps, and the artifact that multiplies them."""

    steps: List[str]
    foreach: Optional[str] = None
    num_parallel: Optional[int] = None


def say_next(flow: Any, dsts: Tuple[Any, ...], options: Dict[str, Any]) -> None:
    """Handle a call of ``self.next``; raises as :meth:`FlowSpec.next`."""
    running = flow.__dict__["_stoker"].running if "_stoker" in flow.__dict__ else None
    if running is None:
        raise InvalidNextException("self.next() belongs at the end of a step that runs")
    step = running.step
    options = {key: one for key, one in options.items() if one is not None or key not in _FORMS}
    for key in options:
        if key not in _FORMS:
            raise _invalid(step, f"it has no option '{key}'; there are {', '.join(_FORMS)}")
    if running.transition is not None:
        raise _invalid(step, "it was called before: a step calls self.next() once")
    if len(options) > 1:
        raise _invalid(step, f"{' and '.join(options)} exclude each other")
    if "condition" in options:
        transition = _switch(flow, step, dsts, options["condition"])
    else:
        transition = _steps(flow, step, dsts, options)
    _check(running, transition, options.get("condition"))
    running.transition = transition


def _invalid(step: str, text: str) -> InvalidNextException:
    return InvalidNextException(f"step '{step}': self.next(): {text}")


def _name(flow: Any, step: str, target: Any) -> str:
    name = getattr(getattr(target, "__func__", None), "__name__", None)
    if name is None or not getattr(target, "is_step", False) or not hasattr(type(flow), name):
        raise _invalid(step, f"{target!r} is not a step of the flow: pass methods that are @step")
    return str(name)


def _steps(flow: Any, step: str, dsts: Tuple[Any, ...], options: Dict[str, Any]) -> Transition:
    if len(dsts) == 1 and isinstance(dsts[0], dict):
        raise _invalid(step, "a mapping of cases needs condition='ARTIFACT'")
    if not dsts:
        raise _invalid(step, "it names no step")
    names = [_name(flow, step, one) for one in dsts]
    if options and len(names) != 1:
        raise _invalid(step, f"{next(iter(options))} goes on to exactly one step, not {len(names)}")
    if "foreach" in options:
        variable = options["foreach"]
        if not isinstance(variable, str):
            raise _invalid(step, f"foreach is the name of an artifact, a text, not {variable!r}")
        if not hasattr(flow, variable):
            raise _invalid(step, f"foreach: there is no self.{variable}; set it before")
        return Transition(names, foreach=variable)
    if "num_parallel" in options:
        n = options["num_parallel"]
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise _invalid(step, f"num_parallel is a number of nodes from 1 on, not {n!r}")
        return Transition(names, num_parallel=n)
    return Transition(names)


def _switch(flow: Any, step: str, dsts: Tuple[Any, ...], condition: Any) -> Transition:
    if len(dsts) != 1 or not isinstance(dsts[0], dict) or not dsts[0]:
        raise _invalid(step, "with condition it takes one mapping {value: self.STEP, …}")
    if not isinstance(condition, str):
        raise _invalid(step, f"condition is the name of an artifact, a text, not {condition!r}")
    try:
        value = getattr(flow, condition)
    except AttributeError:
        raise _invalid(step, f"condition: there is no self.{condition}; set it before") from None
    cases = dsts[0]
    try:
        chosen = cases[value]
    except (KeyError, TypeError):
        no_case = RuntimeError(
            f"step '{step}' switches on self.{condition}, which is {value!r}, and there is no case for it: the cases "
            f"are {', '.join(map(repr, cases))}; add this one, or set self.{condition} to one of them"
        )
        raise told(no_case) from None
    return Transition([_name(flow, step, chosen)])


def _check(running: Any, said: Transition, condition: Optional[str]) -> None:
    """Check that the graph has what the step names: the graph is fixed when the run starts."""
    declared = running.declared
    grows, targets = declared.get("grows") or "none", list(declared.get("next") or ())
    kind = (
        "switch"
        if condition is not None
        else "foreach"
        if said.foreach
        else "parallel"
        if said.num_parallel
        else "all"
    )
    right = grows == kind and set(said.steps) <= set(targets)
    if kind == "all":
        right = right and len(said.steps) == len(targets)
    elif kind == "switch" or (kind == "foreach" and not running.may_choose):
        right = right and declared.get("on") == (said.foreach or condition)
    if not right:
        wanted = ", ".join(targets) or "nothing (it is the last step)"
        how = (
            f" by {grows} {declared.get('on') or ''}".rstrip()
            if grows not in ("all", "none")
            else ""
        )
        raise _invalid(
            running.step,
            f"it says {', '.join(said.steps)}, but in the flow's graph, which is read from the step's last "
            f"statement, {wanted} follows{how}: call self.next() there only",
        )
