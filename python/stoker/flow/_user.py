"""Decorators of one's own: ``@user_step_decorator``, :class:`UserStepDecorator`,
:class:`StepMutator` and :class:`FlowMutator`.

A user step decorator runs code around a step; a mutator adds decorators and parameters to steps and
flows before the run (``_mutable.py`` has what it may change, and calls it). A decorator without
parentheses returns the step or class itself, not an object in its place: the source is still read
from the function.
"""

from __future__ import annotations

import inspect
import json
import re
import types
from typing import Any, Callable, Dict, List, Optional, Tuple

from .exception import CommandException, MetaflowException

USER_SKIP_STEP: Dict[str, Any] = {}  # yielded by a user step decorator: don't run the step
_SPEC = re.compile(r",(?=[\s\w]+=)")
_SPECIAL = ("_statically_defined", "_inserted_by")

# Full name → class, of all decorators of one's own that were defined so far and aren't bases of
# other ones.
_known: Dict[str, Any] = {}


def parse_attributes(said: str) -> Dict[str, Any]:
    """``key=value,key=value`` as a mapping; values are JSON, else texts.

    Raises:
        CommandException: a part has no ``=``.
    """
    attributes: Dict[str, Any] = {}
    for one in _SPEC.split(said) if said else ():
        key, equals, value = one.partition("=")
        if not equals:
            raise CommandException(
                f"a decorator's '{said}': '{one}' says nothing; write NAME:ATTRIBUTE=VALUE,ATTRIBUTE=VALUE"
            )
        value = value.strip()
        try:
            attributes[key.strip()] = json.loads(value.replace('\\"', '"'))
        except ValueError:
            attributes[key.strip()] = value
    return attributes


def known_decorator(name: str, kind: Any = None) -> Any:
    """The decorator of one's own with this name, or with a name that ends so; else None.

    Args:
        name: ``MODULE.NAME`` or its end; a short one counts if only one class has it.
    """
    found = [
        one
        for full, one in _known.items()
        if full == name or (full.endswith(f".{name}") and (kind is None or issubclass(one, kind)))
    ]
    return found[0] if len(found) == 1 else _known.get(name)


def short_name(cls: Any) -> str:
    """The shortest end of the class's full name that no other decorator has."""
    parts = cls.decorator_name.split(".")
    for n in range(1, len(parts)):
        name = ".".join(parts[-n:])
        if known_decorator(name) is cls:
            return name
    return str(cls.decorator_name)


class _Kind(type):
    """Registers decorators, and attaches one that is written without parentheses."""

    decorator_name: str

    def __init__(cls, name: str, bases: Tuple[type, ...], members: Dict[str, Any]) -> None:
        super().__init__(name, bases, members)
        cls.decorator_name = members.get("_decorator_name") or f"{cls.__module__}.{name}"
        if cls.__module__.startswith("stoker.") and "_decorator_name" not in members:
            return
        for base in cls.__mro__[1:]:
            _known.pop(getattr(base, "decorator_name", ""), None)
        _known[cls.decorator_name] = cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        target = args[0] if args and _is_target(cls, args[0]) else None
        made = super().__call__(*(args if target is None else args[1:]), **kwargs)
        return made if target is None else made(target)

    def __str__(cls) -> str:
        return f"{cls.__name__}({cls.decorator_name})"


def _is_target(cls: Any, thing: Any) -> bool:
    if issubclass(cls, FlowMutator):
        return isinstance(thing, type) and hasattr(thing, "_NOT_CONSTANT")
    return bool(getattr(thing, "is_step", False)) and callable(thing)


class _Own(metaclass=_Kind):
    """Base of all decorators of one's own.

    Attributes:
        statically_defined: it stands in the source. inserted_by: names of the mutators that added
            it, or None.
    """

    decorator_name = ""
    _allows_args = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.statically_defined = bool(kwargs.pop("_statically_defined", True))
        self.inserted_by: Optional[List[str]] = kwargs.pop("_inserted_by", None)
        self._args: List[Any] = list(args)
        self._kwargs: Dict[str, Any] = dict(kwargs)
        self._ready = False
        if args and not self._allows_args:
            raise MetaflowException(f"{self} takes named arguments only, not {args[0]!r}")

    def __str__(self) -> str:
        return str(type(self))

    def init(self, *args: Any, **kwargs: Any) -> None:
        """Called with the decorator's arguments, once configurations are known."""

    def external_init(self) -> None:
        """Compute expressions of configurations in the arguments and call :meth:`init`, once."""
        if self._ready:
            return
        from ._parameters import resolve

        self._args = [resolve(one) for one in self._args]
        self._kwargs = resolve(self._kwargs)
        own = type(self).init is not _Own.init or isinstance(self, _Generated)
        if (self._args or self._kwargs) and not own:
            raise MetaflowException(
                f"{self} is used with arguments, but has no init(self, …) that takes them"
            )
        self.init(*self._args, **self._kwargs)
        self._ready = True

    def get_args_kwargs(self) -> Tuple[List[Any], Dict[str, Any]]:
        """The arguments, as given."""
        return list(self._args), dict(self._kwargs)

    @classmethod
    def parse_decorator_spec(cls, text: str) -> Any:
        """A decorator from ``key=value,key=value``; a key that is a number is a position."""
        args: List[Any] = []
        kwargs: Dict[str, Any] = {}
        for key, value in parse_attributes(text).items():
            if key.isdigit():
                args += [None] * (int(key) + 1 - len(args))
                args[int(key)] = value
            else:
                kwargs[key] = value
        return cls(*args, **kwargs)

    def add_to_package(self) -> List[Any]:
        """Files for the code package; flows have none here."""
        return []


class _OfStep(_Own):
    def __call__(self, step: Any = None, **special: Any) -> Any:
        for key in _SPECIAL:
            if key in special:
                setattr(self, key[1:], special[key])
        if not getattr(step, "is_step", False):
            raise MetaflowException(f"{self} is a decorator of steps: it goes above @step")
        if isinstance(self, UserStepDecorator):
            step.wrappers.append(self)
        if isinstance(self, StepMutator):
            step.config_decorators.append(self)
        return step


class UserStepDecorator(_OfStep):
    """Code around a step: :meth:`pre_step` before it, :meth:`post_step` after it.

    Attributes:
        skip_step: set by ``pre_step``: True doesn't run the step, a mapping neither and has the
            arguments for ``self.next``.
    """

    _allows_args = False
    skip_step: Any = False

    def pre_step(self, step_name: str, flow: Any, inputs: Any = None) -> Any:
        """Called before the step; returns None, or a function of (flow[, inputs]) to call instead."""
        return None

    def post_step(self, step_name: str, flow: Any, exception: Optional[Exception] = None) -> Any:
        """Called after the step; returns the exception that goes on (None: the step succeeded), or
        a pair of it and the arguments for ``self.next``."""
        return (exception, None) if exception else (None, None)


class StepMutator(_OfStep):
    """Changes a step before the run: derive from it and implement :meth:`pre_mutate` or
    :meth:`mutate`."""

    def pre_mutate(self, mutable_step: Any) -> None:
        """Called as soon as configurations are known."""

    def mutate(self, mutable_step: Any) -> None:
        """Called when the command line is known, ``--with`` included."""


class FlowMutator(_Own):
    """Changes a flow and its steps before the run: derive from it and implement :meth:`pre_mutate`
    or :meth:`mutate`."""

    def __call__(self, flow: Any = None) -> Any:
        if not _is_target(type(self), flow):
            raise MetaflowException(f"{self} is a decorator of flows: it goes above their class")
        flow._stoker_mutators = [*flow.__dict__.get("_stoker_mutators", ()), self]
        return flow

    def pre_mutate(self, mutable_flow: Any) -> None:
        """Called as soon as configurations are known."""

    def mutate(self, mutable_flow: Any) -> None:
        """Called when the command line is known; only steps can be changed."""


def user_step_decorator(*args: Any, **kwargs: Any) -> Any:
    """Make a generator function of (step_name, flow, inputs[, attributes]) a decorator of steps.

    What stands before its ``yield`` runs before the step, the rest after it. It yields None, a
    function to call instead of the step, or a mapping: then the step isn't run, and the mapping has
    the arguments for ``self.next`` (:data:`USER_SKIP_STEP`: those that the step gives).
    """
    if not args:
        return lambda function: user_step_decorator(function, **kwargs)
    function = args[0]
    if not isinstance(function, types.FunctionType) or not inspect.isgeneratorfunction(function):
        raise MetaflowException(
            f"@user_step_decorator: {function!r} is not a generator function: it has one `yield`, in "
            "whose place the step runs"
        )
    n = len(inspect.signature(function).parameters)
    if n not in ((4,) if kwargs else (3, 4)):
        raise MetaflowException(
            f"@user_step_decorator: {function.__name__} takes {n} arguments; they are step_name, flow, "
            "inputs and, where the decorator has arguments, attributes"
        )
    return _Kind(
        function.__name__,
        (_Generated,),
        {
            "_decorator_name": f"{function.__module__}.{function.__name__}",
            "__module__": function.__module__,
            "__doc__": function.__doc__,
            "_function": staticmethod(function),
            "_takes_attributes": n == 4,
        },
    )


class _Generated(UserStepDecorator):
    """A decorator made from a generator function."""

    _function: Callable[..., Any]
    _takes_attributes = False
    _running: Any = None

    def pre_step(self, step_name: str, flow: Any, inputs: Any = None) -> Any:
        more = [self._kwargs] if self._takes_attributes else []
        self._running = self._function(step_name, flow, inputs, *more)
        try:
            said = next(self._running)
        except StopIteration:
            raise MetaflowException(
                f"{self} ended without `yield`, in whose place step '{step_name}' runs; to skip the "
                "step, yield USER_SKIP_STEP"
            ) from None
        if isinstance(said, dict):
            self.skip_step = said or True
            return None
        return said

    def post_step(self, step_name: str, flow: Any, exception: Optional[Exception] = None) -> Any:
        try:
            if exception is not None:
                self._running.throw(exception)
            else:
                next(self._running)
        except StopIteration as ended:
            return ended.value
        except Exception as bad:
            return bad
        raise YieldedTwice(f"{self} yields more than once; the step runs only once")


class YieldedTwice(MetaflowException):
    """A user step decorator yields again after the step."""


def run_wrapped(wrappers: List[UserStepDecorator], func: Callable[[], Any], running: Any) -> None:
    """Run a step within its user step decorators, the topmost one outermost.

    Raises:
        Exception: raised by the step, and not handled by a decorator; or by a decorator.
    """
    entered: List[UserStepDecorator] = []
    instead: Any = None
    told: Any = None  # arguments for self.next in the step's place; True: its own
    for one in reversed(wrappers):
        one.external_init()
        instead = one.pre_step(running.step, running.flow, running.inputs)
        entered.append(one)
        told = one.skip_step or None
        if told or instead:
            break
    failed: Optional[Exception] = None
    handled = False
    try:
        if not told:
            joined = () if running.inputs is None else (running.inputs,)
            told = (instead(running.flow, *joined) or None) if instead else func()
    except Exception as bad:
        failed, handled = bad, True
    for one in reversed(entered):
        failed, told = _after(one, running, failed, told)
    if failed is not None:
        raise failed
    if handled or (told is not None and told is not False):
        running.go_on_as(told if isinstance(told, dict) else {})


def _after(one: UserStepDecorator, running: Any, failed: Any, told: Any) -> Tuple[Any, Any]:
    """The exception, and the arguments for ``self.next``, after a decorator's ``post_step``."""
    try:
        said = one.post_step(running.step, running.flow, failed)
    except YieldedTwice:
        raise
    except Exception as bad:
        said = bad
    if said is None:
        return None, told
    if isinstance(said, Exception):
        return said, told
    if isinstance(said, tuple) and len(said) == 2:
        return said[0], told if said[1] is None else said[1]
    raise MetaflowException(
        f"{one}: post_step returned {said!r}; it returns an exception, None, or a pair of it and the "
        "arguments for self.next"
    )
