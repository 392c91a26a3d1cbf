"""What the programs of this folder tell: one line a fact, ``name = value``; an exception is a fact
too."""

from __future__ import annotations

from typing import Any, Callable


def fact(name: str, ask: Callable[[], Any]) -> None:
    """Print what ``ask`` returns, or the names of the exception's classes."""
    try:
        value = repr(ask())
    except Exception as bad:
        value = "raises " + "<".join(one.__name__ for one in type(bad).__mro__)
    print(f"FACT {name} = {value}", flush=True)
