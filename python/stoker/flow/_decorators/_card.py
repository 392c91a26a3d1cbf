"""``@card``: the step's report."""

from __future__ import annotations

from typing import Any, Dict, Optional

from .._current import current
from ..cards._current import Cards, OneCard
from ..exception import MetaflowException
from ._base import StepDecorator


class Card(StepDecorator):
    """``@card(type="default", id=None, options={}, timeout=45, save_errors=True, customize=False,
    refresh_interval=5)``; several on one step have ids of their own.

    The card shows what the step appends to ``current.card``, and the engine's facts about the task.
    An error in a card never fails the step.
    """

    name = "card"
    allow_multiple = True
    ENDS_LATE = True
    defaults: Dict[str, Any] = {
        "type": "default",
        "id": None,
        "options": {},
        "scope": "task",
        "rank": None,
        "timeout": 45,
        "save_errors": True,
        "customize": False,
        "refresh_interval": 5,
    }

    def init(self) -> None:
        for key in ("timeout", "refresh_interval"):
            try:
                right = float(self.attributes[key]) >= 0
            except (TypeError, ValueError):
                right = False
            if not right:
                raise MetaflowException(
                    f"@card: {key} is {self.attributes[key]!r}; it must be a number of seconds from 0 on"
                )

    def _made(self, running: Any) -> OneCard:
        """The decorator's card; the first card of the step makes ``current.card``."""
        cards = getattr(running, "cards", None)
        if cards is None:
            cards = running.cards = Cards(running)
            running.card_of = {}
        if id(self) not in running.card_of:
            running.card_of[id(self)] = cards._add(self.attributes)
        current._add(card=cards)
        return running.card_of[id(self)]  # type: ignore[no-any-return]

    def _leave(self, running: Any, failed: bool) -> None:
        entry: Optional[Dict[str, Any]] = self._made(running).finish(failed)
        if entry is not None:
            running.attempt.result.setdefault("cards", []).append(entry)

    def task_begin(self, running: Any) -> None:
        self._made(running)

    def task_end(self, running: Any) -> None:
        self._leave(running, False)

    def task_failed(self, running: Any, error: Exception) -> bool:
        self._leave(running, True)
        return False
