"""What flows tell the rest of the front about themselves, which never imports them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Optional

called = False  # this program has called a pipeline or a flow, as a run of its own

# (module, qualified name, what was found there) → its Entry, if it is a step of this kind.
entries: List[Callable[[str, str, Any], Optional[Any]]] = []
# (decorator's name, method, options) → the method, if it is a step of this kind.
decorations: List[Callable[[str, Any, Dict[str, Any]], Optional[Any]]] = []
# A thing in a file → what runs it with these arguments and gives the exit status, if it can be run.
runners: List[Callable[[Any], Optional[Callable[[List[str]], int]]]] = []


def first(kinds: List[Callable[..., Optional[Any]]], *thing: Any) -> Optional[Any]:
    """What the first kind of thing says that knows it."""
    found = (ask(*thing) for ask in kinds)
    return next((one for one in found if one is not None), None)
