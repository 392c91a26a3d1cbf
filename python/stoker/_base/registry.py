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


def first(kinds: List[Callable[..., Optional[Any]]], *thing: Any) -> Optional[Any]:
    """The first result that isn't None of ``kinds``, called with ``thing``."""
    found = (ask(*thing) for ask in kinds)
    return next((one for one in found if one is not None), None)
