"""What flows register with the rest of the front, which never imports them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

called = False  # this program has called a pipeline or a flow as a separate run

# (module, qualified name, the object there) → its Entry, if it is a step of this kind.
entries: List[Callable[[str, str, Any], Optional[Any]]] = []
# (decorator's name, method, options) → the method, if it is a step of this kind.
decorations: List[Callable[[str, Any, Dict[str, Any]], Optional[Any]]] = []
# An object in a file → a function that runs it with arguments and returns the exit status, if it
# can be run.
runners: List[Callable[[Any], Optional[Callable[[List[str]], int]]]] = []

# Key of a literal → function of its value that gives the argument when the step starts.
late: Dict[str, Callable[[Any], Any]] = {}
# What such a function looked up, as members of a result's `seen`: a cached result needs it unchanged.
looked_up: Dict[str, str] = {}

# Option of a step → whether this program has connected the component that it names.
connected: Dict[str, Callable[[], bool]] = {}
# (value, annotation) → the value as a step's function gets it: of inputs that are artifacts.
converted: List[Callable[[Any, Any], Any]] = []
# Context managers of a task around its step's function.
around: List[Callable[[Dict[str, Any]], Any]] = []
# (hook's option, hook) → a context manager of its call.
hooked: List[Callable[[str, Any], Any]] = []
# (task, attempt's folder, the user's file) → whether another process has run the step.
launch: List[Callable[[Dict[str, Any], str, Optional[str]], bool]] = []


def is_connected(option: str) -> bool:
    """Whether the component that a step's option names is there."""
    return option in connected and connected[option]()


def come(value: Any) -> Any:
    """A literal as the argument that a step gets."""
    if late and isinstance(value, dict) and len(value) == 1:
        for key in late.keys() & value.keys():
            return late[key](value[key])
    return value


def first(kinds: List[Callable[..., Optional[Any]]], *thing: Any) -> Optional[Any]:
    """The first result that isn't None of ``kinds``, called with ``thing``."""
    found = (ask(*thing) for ask in kinds)
    return next((one for one in found if one is not None), None)
