"""Decorators of steps and flows: the list, how they are attached, and ``--with name:key=value``.

A family of decorators is a module here; a new one is a class with a ``name`` and a line in the
table.
"""

from __future__ import annotations

import importlib
from typing import Any, Callable, Dict, Iterable, List, Tuple

from .._user import StepMutator, UserStepDecorator, known_decorator, parse_attributes
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
    "deepspeed": ("_parallel", "Deepspeed"),
    "run_with_accelerate": ("_parallel", "RunWithAccelerate"),
    "checkpoint": ("_checkpoint", "Checkpoint"),
    "model": ("_checkpoint", "Model"),
    "huggingface_hub": ("_checkpoint", "HuggingfaceHub"),
    "gpu_profile": ("_profile", "GpuProfile"),
    "card": ("_card", "Card"),
    "pypi": ("_packages", "Pypi"),
    "conda": ("_packages", "Conda"),
}
FLOW: Dict[str, Tuple[str, str]] = {
    "project": ("_flows", "Project"),
    "schedule": ("_flows", "Schedule"),
    "trigger": ("_flows", "Trigger"),
    "trigger_on_finish": ("_flows", "TriggerOnFinish"),
    "pypi_base": ("_packages", "PypiBase"),
    "conda_base": ("_packages", "CondaBase"),
    "exit_hook": ("_flows", "ExitHook"),
}


def class_of(name: str, table: Dict[str, Tuple[str, str]] = STEP) -> Any:
    """The decorator's class.

    Raises:
        UnknownStepDecoratorException: there is no decorator of this name.
    """
    if name in table:
        module, kind = table[name]
        return getattr(importlib.import_module(f"{__name__}.{module}"), kind)
    from .._extensions import decorators

    known = decorators().step if table is STEP else decorators().flow
    if name not in known:
        raise UnknownStepDecoratorException(name, table)
    module, kind = known[name]
    return getattr(importlib.import_module(module), kind)


def _decorator(name: str, of: str, attach: Callable[[str, Any, Dict[str, Any]], Any]) -> Any:
    def decorate(target: Any = None, **attributes: Any) -> Any:
        if target is None:
            return lambda target: attach(name, target, attributes)
        return attach(name, target, attributes)

    decorate.__name__ = decorate.__qualname__ = name
    decorate._stoker_decorates = of  # type: ignore[attr-defined]
    decorate.__doc__ = (
        f"The {of} decorator @{name}; its attributes are those of its class's ``defaults``."
    )
    return decorate


def _of_steps(name: str) -> Any:
    return _decorator(name, "step", attach_to_step)


def _of_flows(name: str) -> Any:
    return _decorator(name, "flow", _attach_to_flow)


def name_in(module: str, name: str) -> Any:
    """A name that an extension adds to a module of Metaflow's; None: there is none."""
    from .._extensions import decorators
    from .._extensions import name_in as other

    if module == "metaflow" and name in decorators().step:
        return _of_steps(name)
    if module == "metaflow" and name in decorators().flow:
        return _of_flows(name)
    return other(module, name)


def is_decorator(function: Any, of: str) -> Any:
    """The class of a decorator of this kind (``step`` or ``flow``) as programs import it; else
    None."""
    if getattr(function, "_stoker_decorates", None) != of:
        return None
    return class_of(str(function.__name__), STEP if of == "step" else FLOW)


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


def mutators_of(cls: Any) -> List[Any]:
    """Mutators of a flow's class and its base classes."""
    return [one for base in cls.__mro__ for one in base.__dict__.get("_stoker_mutators", ())]


def steps_of(cls: Any) -> List[Tuple[str, Any]]:
    """(name, function) of each step of a flow's class."""
    found = [(name, getattr(cls, name, None)) for name in dir(cls) if name[:2] != "__"]
    return [(n, one) for n, one in found if callable(one) and getattr(one, "is_step", False)]


def has_mutators(cls: Any) -> bool:
    """Whether anything would change this flow before its run (``_mutable.py``)."""
    return bool(mutators_of(cls)) or any(one.config_decorators for _, one in steps_of(cls))


# ---------------------------------------------------------------------------- --with


def parse(text: str) -> Any:
    """A decorator from ``name`` or ``name:key=value,key=value``; values are JSON, else texts.

    The name is that of a decorator, or of one of one's own: ``MODULE.NAME`` or its end.

    Raises:
        UnknownStepDecoratorException, InvalidDecoratorAttribute, CommandException.
    """
    name, _, said = text.partition(":")
    name = name.strip()
    own = None if name in STEP else own_of(name)
    if own is not None:
        made = own.parse_decorator_spec(said)
        made.statically_defined = False
        return made
    return class_of(name)(parse_attributes(said))


def extract(text: str) -> Tuple[Any, bool]:
    """As :func:`parse`, and whether the text has arguments; Metaflow's
    ``extract_step_decorator_from_decospec``."""
    return parse(text), ":" in text


def own_of(name: str) -> Any:
    """A decorator of one's own by its name; a dotted one is imported where it isn't yet."""
    found = known_decorator(name)
    module, _, kind = name.rpartition(".")
    if found is None and module:
        try:
            found = getattr(importlib.import_module(module), kind, None)
        except ImportError as bad:
            raise CommandException(f"the decorator {name} can't be imported: {bad}") from None
    right = isinstance(found, type) and issubclass(found, (UserStepDecorator, StepMutator))
    return found if right else None


def attach(cls: Any, specs: Iterable[str]) -> List[str]:
    """``--with``: put decorators on all steps of a flow that don't have one of that name.

    Returns:
        The specs, for tasks in a fresh interpreter.
    """
    specs = list(specs)
    if specs != cls.__dict__.get("_stoker_specs", []):
        parsed = [parse(one) for one in specs]
        cls._stoker_with = [one for one in parsed if not hasattr(one, "decorator_name")]
        for spec, one in zip(specs, parsed):
            if hasattr(one, "decorator_name"):
                _attach_own(cls, spec, one)
        cls._stoker_specs = specs
        cls._stoker_graph = None
    return specs


def _attach_own(cls: Any, spec: str, made: Any) -> None:
    """Put a decorator of one's own on all steps that don't have it."""
    for _, func in steps_of(cls):
        own = [*func.wrappers, *func.config_decorators]
        if all(one.decorator_name != made.decorator_name for one in own):
            parse(spec)(func)


def decorators_of(cls: Any, step: str, specs: Any = None) -> List[Any]:
    """Decorators of a step, in the source's order, then those of ``--with``.

    Args:
        specs: those that :func:`attach` returned, if the class was imported again since.
    """
    func = getattr(cls, step)
    own = list(getattr(func, "decorators", ()))
    without = getattr(func, "without", ())  # of --with's, those that a mutator removed
    if specs and cls.__dict__.get("_stoker_specs") != specs:
        attach(cls, specs)
    for one in cls.__dict__.get("_stoker_with", ()):
        if one.name not in without and (
            one.allow_multiple or all(had.name != one.name for had in own)
        ):
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
deepspeed = _of_steps("deepspeed")
run_with_accelerate = _of_steps("run_with_accelerate")
checkpoint = _of_steps("checkpoint")
model = _of_steps("model")
huggingface_hub = _of_steps("huggingface_hub")
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
exit_hook = _of_flows("exit_hook")
