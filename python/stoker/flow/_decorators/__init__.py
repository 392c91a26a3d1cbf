"""Decorators of steps and flows: the list, how they are attached, and ``--with name:key=value``.

A family of decorators is a module here; a new one is a class with a ``name`` and a line in the
table.
"""

from __future__ import annotations

import importlib
import json
import re
from typing import Any, Callable, Dict, Iterable, List, Tuple

from ..exception import (
    BadFlowDecoratorException,
    BadStepDecoratorException,
    CommandException,
    DuplicateFlowDecoratorException,
    DuplicateStepDecoratorException,
    UnknownStepDecoratorException,
)

# Decorators of steps: name → module and class; a module with a dot is outside this folder.
STEP: Dict[str, Tuple[str, str]] = {
    "resources": ("_resources", "Resources"),
    "kubernetes": ("_resources", "Kubernetes"),
    "batch": ("_resources", "Batch"),
    "retry": ("_control", "Retry"),
    "timeout": ("_control", "Timeout"),
    "catch": ("_control", "Catch"),
    "cache": ("_control", "Cache"),
    "environment": ("_environment", "Environment"),
    "secrets": ("_environment", "Secrets"),
    "parallel": ("_parallel", "ParallelDecorator"),
    "pytorch_parallel": ("_parallel", "PytorchParallel"),
    "torchrun": ("_parallel", "Torchrun"),
    "run_with_accelerate": ("_parallel", "RunWithAccelerate"),
    "checkpoint": ("_checkpoint", "Checkpoint"),
    "model": ("_checkpoint", "Model"),
    "gpu_profile": ("_profile", "GpuProfile"),
    "card": ("_card", "Card"),
    "pypi": ("_kept", "Pypi"),
    "conda": ("_kept", "Conda"),
}
FLOW: Dict[str, Tuple[str, str]] = {
    "project": ("_flows", "Project"),
    "schedule": ("_flows", "Schedule"),
    "trigger": ("_flows", "Trigger"),
    "trigger_on_finish": ("_flows", "TriggerOnFinish"),
    "pypi_base": ("_flows", "PypiBase"),
    "conda_base": ("_flows", "CondaBase"),
}
_SPEC = re.compile(r",(?=[\s\w]+=)")


def class_of(name: str, table: Dict[str, Tuple[str, str]] = STEP) -> Any:
    """The decorator's class.

    Raises:
        UnknownStepDecoratorException: there is no decorator of this name.
    """
    if name not in table:
        raise UnknownStepDecoratorException(name, table)
    module, kind = table[name]
    return getattr(importlib.import_module(f"{__name__}.{module}"), kind)


def _decorator(name: str, of: str, attach: Callable[[str, Any, Dict[str, Any]], Any]) -> Any:
    def decorate(target: Any = None, **attributes: Any) -> Any:
        if target is None:
            return lambda target: attach(name, target, attributes)
        return attach(name, target, attributes)

    decorate.__name__ = decorate.__qualname__ = name
    decorate.__doc__ = (
        f"The {of} decorator @{name}; its attributes are those of its class's ``defaults``."
    )
    return decorate


def _of_steps(name: str) -> Any:
    return _decorator(name, "step", attach_to_step)


def _of_flows(name: str) -> Any:
    return _decorator(name, "flow", _attach_to_flow)


def attach_to_step(name: str, func: Any, attributes: Dict[str, Any]) -> Any:
    """Add the decorator of this name to a flow's step."""
    if not getattr(func, "is_step", False):
        raise BadStepDecoratorException(name, func)
    made = class_of(name)(attributes, statically_defined=True)
    if not made.allow_multiple and any(one.name == name for one in func.decorators):
        raise DuplicateStepDecoratorException(name, func.__name__)
    func.decorators.append(made)
    return func


def _attach_to_flow(name: str, cls: Any, attributes: Dict[str, Any]) -> Any:
    from .._flow import FlowSpec

    if not (isinstance(cls, type) and issubclass(cls, FlowSpec)):
        raise BadFlowDecoratorException(name)
    made = class_of(name, FLOW)(attributes, statically_defined=True)
    own: List[Any] = list(cls.__dict__.get("_stoker_decorators", ()))
    if not made.allow_multiple and any(one.name == name for one in flow_decorators_of(cls)):
        raise DuplicateFlowDecoratorException(name)
    cls._stoker_decorators = [*own, made]  # type: ignore[attr-defined]
    return cls


def flow_decorators_of(cls: Any) -> List[Any]:
    """Decorators of a flow's class and its base classes."""
    return [one for base in cls.__mro__ for one in base.__dict__.get("_stoker_decorators", ())]


# ---------------------------------------------------------------------------- --with


def parse(text: str) -> Any:
    """A decorator from ``name`` or ``name:key=value,key=value``; values are JSON, else texts.

    Raises:
        UnknownStepDecoratorException, InvalidDecoratorAttribute, CommandException.
    """
    name, _, said = text.partition(":")
    attributes: Dict[str, Any] = {}
    for one in _SPEC.split(said) if said else ():
        key, equals, value = one.partition("=")
        if not equals:
            raise CommandException(
                f"--with {text}: '{one}' says nothing; write NAME:ATTRIBUTE=VALUE,ATTRIBUTE=VALUE"
            )
        value = value.strip()
        try:
            attributes[key.strip()] = json.loads(value.replace('\\"', '"'))
        except ValueError:
            attributes[key.strip()] = value
    return class_of(name.strip())(attributes)


def attach(cls: Any, specs: Iterable[str]) -> List[str]:
    """``--with``: put decorators on all steps of a flow that don't have one of that name.

    Returns:
        The specs, for tasks in a fresh interpreter.
    """
    specs = list(specs)
    if specs != cls.__dict__.get("_stoker_specs", []):
        cls._stoker_with = [parse(one) for one in specs]
        cls._stoker_specs = specs
        cls._stoker_graph = None
    return specs


def decorators_of(cls: Any, step: str, specs: Any = None) -> List[Any]:
    """Decorators of a step, in the source's order, then those of ``--with``.

    Args:
        specs: those that :func:`attach` returned, if the class was imported again since.
    """
    own = list(getattr(getattr(cls, step), "decorators", ()))
    if specs and cls.__dict__.get("_stoker_specs") != specs:
        attach(cls, specs)
    for one in cls.__dict__.get("_stoker_with", ()):
        if one.allow_multiple or all(had.name != one.name for had in own):
            own.append(one)
    return own


resources = _of_steps("resources")
kubernetes = _of_steps("kubernetes")
batch = _of_steps("batch")
retry = _of_steps("retry")
timeout = _of_steps("timeout")
catch = _of_steps("catch")
cache = _of_steps("cache")
environment = _of_steps("environment")
secrets = _of_steps("secrets")
parallel = _of_steps("parallel")
pytorch_parallel = _of_steps("pytorch_parallel")
torchrun = _of_steps("torchrun")
run_with_accelerate = _of_steps("run_with_accelerate")
checkpoint = _of_steps("checkpoint")
model = _of_steps("model")
gpu_profile = _of_steps("gpu_profile")
card = _of_steps("card")
pypi = _of_steps("pypi")
conda = _of_steps("conda")
project = _of_flows("project")
schedule = _of_flows("schedule")
trigger = _of_flows("trigger")
trigger_on_finish = _of_flows("trigger_on_finish")
pypi_base = _of_flows("pypi_base")
conda_base = _of_flows("conda_base")
