"""Errors of cards, under the names that programs catch."""

from __future__ import annotations

from ..exception import MetaflowException

__all__ = [
    *("CardClassFoundException", "CardNotPresentException", "IncorrectArgumentException"),
    *("IncorrectPathspecException", "UnrenderableCardException"),
]


class CardNotPresentException(MetaflowException):
    """No card matches."""

    headline = "Card not found in datastore"


class CardClassFoundException(MetaflowException):
    """There is no class for a card's type."""

    headline = "MetaflowCard not found"


class IncorrectArgumentException(MetaflowException):
    """``get_cards`` got neither a task nor a pathspec."""

    headline = "`get_cards` function requires a `Task` object or pathspec as an argument"


class IncorrectPathspecException(MetaflowException):
    """``get_cards`` got a text that isn't a task's pathspec."""

    headline = "Pathspec is required of form `flowname/runid/stepname/taskid`"


class UnrenderableCardException(MetaflowException):
    """A card's class failed to render it."""

    headline = "Unable to render @card"
