"""What mutators may change of a flow and its steps, and when they are called.

:func:`pre_mutate` follows the configurations, :func:`mutate` the command line. Each happens once
for a class: a task's process in a fresh interpreter does it again, with the same configurations.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from ._decorators import (
    FLOW,
    attach,
    class_of,
    decorators_of,
    flow_decorators_of,
    has_mutators,
    is_decorator,
    mutators_of,
    parse,
    steps_of,
)
from ._parameters import Config, Parameter, config_names, parameters_of
from ._user import (
    FlowMutator,
    StepMutator,
    UserStepDecorator,
    known_decorator,
    parse_attributes,
    short_name,
)
from .exception import (
    DuplicateFlowDecoratorException,
    DuplicateStepDecoratorException,
    MetaflowException,
    UnknownStepDecoratorException,
)

_Spec = Tuple[str, str, List[Any], Dict[str, Any]]
_CACHED = ("graph", "graph_info", "parameters", "constants", "fixed")


def attach_all(cls: Any, specs: Iterable[str], configs: Mapping[str, Any]) -> List[str]:
    """``--with``, and what mutators change; ``configs``: attribute → value, set already.

    Returns:
        The specs, for tasks in a fresh interpreter.
    """
    if has_mutators(cls):
        named = config_names(cls, configs)
        own = [one.var for one in parameters_of(cls) if one.IS_CONFIG_PARAMETER]
        pre_mutate(cls, {var: named.get(var) for var in own})
    found = attach(cls, specs)
    if has_mutators(cls):
        mutate(cls)
    cls._stoker_mutated = True
    return found


def pre_mutate(cls: Any, configs: Mapping[str, Any]) -> None:
    """Call all ``pre_mutate``; ``configs``: name → value, as steps see it. Only once."""
    if cls.__dict__.get("_stoker_pre_mutated"):
        return
    cls._stoker_pre_mutated = True
    cls._stoker_mutable_configs = dict(configs)
    for one in mutators_of(cls):
        one.external_init()
        one.pre_mutate(MutableFlow(cls, True, one))
    steps = steps_of(cls)
    for _, func in steps:
        for one in list(func.config_decorators):
            one.external_init()
    for _, func in steps:
        for one in list(func.config_decorators):
            one.pre_mutate(MutableStep(cls, func, True, one))
    forget(cls)


def mutate(cls: Any) -> None:
    """Call all ``mutate``, after :func:`pre_mutate` and ``--with``. Only once."""
    if cls.__dict__.get("_stoker_mutated"):
        return
    cls._stoker_mutated = True
    for one in mutators_of(cls):
        one.mutate(MutableFlow(cls, False, one))
    for _, func in steps_of(cls):
        for one in list(func.config_decorators):
            one.mutate(MutableStep(cls, func, False, one))
    forget(cls)


def forget(cls: Any) -> None:
    """Drop what was read of the class before it changed."""
    for name in _CACHED:
        if f"_stoker_{name}" in cls.__dict__:
            setattr(cls, f"_stoker_{name}", None)


class _Mutable:
    """Common to steps and flows: decorators are listed, found and added by name."""

    IGNORE = 1
    ERROR = 2
    OVERRIDE = 3

    def __init__(self, cls: Any, early: bool, by: Any) -> None:
        self._cls, self._early, self._by = cls, early, by
        self._inserted_by = [by.decorator_name, *(by.inserted_by or [])]

    @property
    def decorator_specs(self) -> Iterator[_Spec]:
        """(name, full name, arguments, named arguments) of each decorator."""
        raise NotImplementedError

    def get_decorator_specs(self, name: str) -> List[_Spec]:
        """Those of :attr:`decorator_specs` with this name, or with this full name if it has dots."""
        at = 1 if "." in name else 0
        return [one for one in self.decorator_specs if one[at] == name]

    def has_decorator(self, name: str) -> bool:
        """Whether there is a decorator of this name."""
        return bool(self.get_decorator_specs(name))

    def _early_only(self, what: str) -> None:
        if not self._early:
            raise MetaflowException(
                f"{self._by}: {what} is possible in pre_mutate, but not in mutate"
            )

    def _marked(self, made: Any) -> Any:
        made.statically_defined = self._by.statically_defined
        made.inserted_by = self._inserted_by
        return made


def _spec(one: Any) -> _Spec:
    if hasattr(one, "decorator_name"):
        return (short_name(type(one)), one.decorator_name, *one.get_args_kwargs())
    kind = type(one)
    return (one.name, f"{kind.__module__}.{kind.__name__}", [], dict(one.attributes))


def _once(own: List[Any], add: bool, duplicates: int, double: Exception, static: bool) -> bool:
    """Whether to add a decorator beside its namesakes ``own`` (which OVERRIDE takes away)."""
    if add or not own:
        return True
    if duplicates == _Mutable.ERROR and static:
        raise double
    return duplicates == _Mutable.OVERRIDE


class MutableStep(_Mutable):
    """A step, for mutators."""

    def __init__(self, cls: Any, func: Any, early: bool, by: Any) -> None:
        super().__init__(cls, early, by)
        self._step = func

    @property
    def flow(self) -> MutableFlow:
        """Its flow."""
        return MutableFlow(self._cls, self._early, self._by)

    def _own(self) -> List[Any]:
        func = self._step
        both = [*func.wrappers, *(o for o in func.config_decorators if o not in func.wrappers)]
        return [*decorators_of(self._cls, func.__name__), *both]

    @property
    def decorator_specs(self) -> Iterator[_Spec]:
        yield from map(_spec, self._own())

    def add_decorator(
        self,
        deco_type: Any,
        deco_args: Optional[List[Any]] = None,
        deco_kwargs: Optional[Dict[str, Any]] = None,
        duplicates: int = _Mutable.IGNORE,
    ) -> Any:
        """Add a decorator: one's own class, ``retry`` …, or its text as for ``--with``.

        Returns:
            The decorator; None if the step has one of this name and ``duplicates`` is IGNORE.

        Raises:
            MetaflowException: it is a mutator and this is ``mutate``; arguments are given twice; or
                ``duplicates`` is ERROR and the step has one.
        """
        args, kwargs = list(deco_args or ()), dict(deco_kwargs or {})
        made = self._made(deco_type, args, kwargs)
        if isinstance(made, StepMutator):
            self._early_only(f"adding the mutator {made}")
        name = str(_spec(made)[1 if hasattr(made, "decorator_name") else 0])
        own = [o for o in self._own() if name in _spec(o)[:2]]
        double = DuplicateStepDecoratorException(name, self._step.__name__)
        several = bool(getattr(made, "allow_multiple", False))
        static = bool(self._by.statically_defined)
        if not _once(own, several, duplicates, double, static):
            return None
        if own and not several:
            self._take_away(own)
        self._marked(made)
        if hasattr(made, "decorator_name"):
            made(self._step)
            made.external_init()
        else:
            self._step.decorators = [*self._step.decorators, made]
        return made

    def _made(self, what: Any, args: List[Any], kwargs: Dict[str, Any]) -> Any:
        if isinstance(what, str):
            if (args or kwargs) and ":" in what:
                raise MetaflowException(
                    f"{self._by}: add_decorator({what!r}) has arguments in its text and besides it; give "
                    "them once"
                )
            made = parse(what)
            if not (args or kwargs):
                return made
            what = type(made)
        if isinstance(what, type) and issubclass(what, (UserStepDecorator, StepMutator)):
            return what(*args, **kwargs)
        if args:
            raise MetaflowException(f"{self._by}: add_decorator: {what} takes named arguments only")
        kind = what if isinstance(what, type) else is_decorator(what, "step")
        if kind is None:
            raise TypeError(f"add_decorator takes a decorator of steps, not {what!r}")
        return kind(kwargs)

    def remove_decorator(
        self,
        deco_name: str,
        deco_args: Optional[List[Any]] = None,
        deco_kwargs: Optional[Dict[str, Any]] = None,
    ) -> bool:
        """Remove the decorators of this name, or only those with these arguments; returns whether
        there was one."""
        own = [o for o in self._own() if deco_name in _spec(o)[:2]]
        if deco_args is not None or deco_kwargs is not None:
            asked = (list(deco_args or ()), dict(deco_kwargs or {}))
            own = [o for o in own if (_spec(o)[2], _spec(o)[3]) == asked]
        if any(isinstance(o, StepMutator) for o in own):
            self._early_only(f"removing the mutator {deco_name}")
        self._take_away(own)
        return bool(own)

    def _take_away(self, gone: List[Any]) -> None:
        func = self._step
        func.decorators = [o for o in func.decorators if o not in gone]
        func.wrappers = [o for o in func.wrappers if o not in gone]
        func.config_decorators = [o for o in func.config_decorators if o not in gone]
        added = [o for o in gone if o in self._cls.__dict__.get("_stoker_with", ())]
        if added:  # --with's are the class's, not the step's
            func.without = [*getattr(func, "without", ()), *(o.name for o in added)]


class MutableFlow(_Mutable):
    """A flow, for mutators; its steps are attributes."""

    @property
    def decorator_specs(self) -> Iterator[_Spec]:
        yield from map(_spec, [*flow_decorators_of(self._cls), *mutators_of(self._cls)])

    @property
    def configs(self) -> Iterator[Tuple[str, Any]]:
        """(name, value) of each configuration; the name is that on the command line."""
        names = {one.var: one.name for one in parameters_of(self._cls)}
        for var, value in self._values().items():
            yield names.get(var, var), value

    def _values(self) -> Dict[str, Any]:
        """Attribute → value of each configuration."""
        found: Dict[str, Any] = self._cls.__dict__.get("_stoker_mutable_configs", {})
        return found

    @property
    def parameters(self) -> Iterator[Tuple[str, Parameter]]:
        """(attribute, parameter) of each parameter that isn't a configuration."""
        for one in list(parameters_of(self._cls)):
            if not one.IS_CONFIG_PARAMETER:
                yield one.var, one

    @property
    def steps(self) -> Iterator[Tuple[str, MutableStep]]:
        """(name, step) of each step."""
        for name, func in steps_of(self._cls):
            yield name, MutableStep(self._cls, func, self._early, self._by)

    def __getattr__(self, name: str) -> Any:
        if name[0] == "_":
            raise AttributeError(name)
        found = getattr(self._cls, name)
        if callable(found) and getattr(found, "is_step", False):
            return MutableStep(self._cls, found, self._early, self._by)
        if isinstance(found, Config):
            return self._values().get(found._stoker_parameter.var)
        if isinstance(found, Parameter):
            return found
        raise AttributeError(f"flow '{self._cls.__name__}' has no step or parameter '{name}'")

    def add_parameter(self, name: str, value: Any, overwrite: bool = False) -> None:
        """Add a Parameter or IncludeFile as this attribute."""
        self._early_only(f"adding the parameter '{name}'")
        if hasattr(self._cls, name) and not overwrite:
            raise MetaflowException(
                f"{self._by}: flow '{self._cls.__name__}' has '{name}' already; overwrite=True replaces it"
            )
        if not isinstance(value, Parameter) or value.IS_CONFIG_PARAMETER:
            raise MetaflowException(
                f"{self._by}: add_parameter takes a Parameter or an IncludeFile, not {value!r}"
            )
        value.var = name
        setattr(self._cls, name, value)
        forget(self._cls)

    def remove_parameter(self, parameter_name: str) -> bool:
        """Remove the parameter of this name; returns whether there was one."""
        self._early_only(f"removing the parameter '{parameter_name}'")
        for var, one in self.parameters:
            if one.name == parameter_name and var in self._cls.__dict__:
                delattr(self._cls, var)
                forget(self._cls)
                return True
        return False

    def add_decorator(
        self,
        deco_type: Any,
        deco_args: Optional[List[Any]] = None,
        deco_kwargs: Optional[Dict[str, Any]] = None,
        duplicates: int = _Mutable.IGNORE,
    ) -> Any:
        """Add a decorator of flows: ``project`` …, a FlowMutator, or its text.

        Returns:
            The decorator; None if the flow has one of this name and ``duplicates`` is IGNORE.
        """
        self._early_only("adding a decorator of the flow")
        made = _flow_decorator(deco_type, list(deco_args or ()), dict(deco_kwargs or {}))
        own = [o for o in flow_decorators_of(self._cls) if o.name == getattr(made, "name", None)]
        static = bool(self._by.statically_defined)
        several = bool(getattr(made, "allow_multiple", False))
        double = DuplicateFlowDecoratorException(str(getattr(made, "name", made)))
        if not _once(own, several, duplicates, double, static):
            return None
        if own and not several:
            self._take_away(own)
        self._marked(made)
        if isinstance(made, FlowMutator):
            made(self._cls)
            made.external_init()
            made.pre_mutate(MutableFlow(self._cls, True, made))
        else:
            self._cls._stoker_decorators = [*self._cls.__dict__.get("_stoker_decorators", ()), made]
        return made

    def remove_decorator(
        self,
        deco_name: str,
        deco_args: Optional[List[Any]] = None,
        deco_kwargs: Optional[Dict[str, Any]] = None,
    ) -> bool:
        """Remove the flow's decorators of this name, or only those with these arguments."""
        self._early_only("removing a decorator of the flow")
        own = [o for o in flow_decorators_of(self._cls) if deco_name in _spec(o)[:2]]
        if deco_kwargs is not None:
            own = [o for o in own if _spec(o)[3] == deco_kwargs]
        self._take_away(own)
        return bool(own)

    def _take_away(self, gone: List[Any]) -> None:
        for base in self._cls.__mro__:
            if "_stoker_decorators" in base.__dict__:
                base._stoker_decorators = [o for o in base._stoker_decorators if o not in gone]


def _flow_decorator(what: Any, args: List[Any], kwargs: Dict[str, Any]) -> Any:
    if isinstance(what, str):
        name, _, said = what.partition(":")
        kwargs = {**parse_attributes(said), **kwargs}
        found = known_decorator(name, FlowMutator)
        if name not in FLOW and found is None:
            raise UnknownStepDecoratorException(name, FLOW)
        what = class_of(name, FLOW) if name in FLOW else found
    if isinstance(what, type) and issubclass(what, FlowMutator):
        return what(*args, **kwargs)
    kind = what if isinstance(what, type) else is_decorator(what, "flow")
    if kind is None or args:
        raise TypeError(
            f"add_decorator takes a decorator of flows with named arguments, not {what!r}"
        )
    return kind(kwargs)
