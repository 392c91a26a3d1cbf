"""Finds a step's code by its name, for a fresh interpreter."""

from __future__ import annotations

import importlib
import sys

from .._base import registry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .._definition.entry import Entry


def resolve(module: str, qualname: str) -> Entry:
    """The entry of ``module:qualname``, imported if need be.

    ``__main__`` means ``__mp_main__`` if the process imported the user's file under that name.

    Raises:
        ImportError: the module can't be imported.
        LookupError: it has no such function, or the function is local to another one.
    """
    found = resolve_callable(module, qualname)
    of_flow: Any = registry.first(registry.entries, module, qualname, found)
    if of_flow is not None:
        return of_flow  # type: ignore[no-any-return]
    # this import takes a tenth of a flow's start
    from .._definition.step import StepDefinition, entry_of

    return found.entry() if isinstance(found, StepDefinition) else entry_of(found)


def resolve_callable(module: str, qualname: str) -> Any:
    """The object ``module:qualname`` (a step, a function, a hook); raises as :func:`resolve`."""
    if "<locals>" in qualname or "<lambda>" in qualname:
        raise LookupError(
            f"'{module}:{qualname}' is defined inside another function, so a fresh interpreter "
            "can't find it; define it at the top level of its module"
        )
    name = "__mp_main__" if module == "__main__" and "__mp_main__" in sys.modules else module
    found: Any = sys.modules.get(name) or importlib.import_module(name)
    for part in qualname.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise LookupError(
                f"module '{module}' has no '{qualname}' when it is imported afresh; "
                "define it at the top level, outside of `if __name__ == '__main__':`"
            ) from None
    if not callable(found):
        raise LookupError(f"'{module}:{qualname}' is a {type(found).__name__}, not a function")
    return found
