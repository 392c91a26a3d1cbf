"""Cards of tasks, while they run and later."""

from __future__ import annotations

import hashlib
import html
import os
import tempfile
from typing import Any, Dict, Iterator, List, Optional, Union

from ..._base.binary import output_of
from .._spun import SpunTask
from ._exception import (
    CardNotPresentException,
    IncorrectArgumentException,
    IncorrectPathspecException,
)


class Card:
    """One card of a task; its page is rendered on request.

    Attributes:
        task: the card's task. type, id: from ``@card``; the id may be None. path: the card's file.
            hash: its digest.
    """

    def __init__(self, task: Any, entry: Dict[str, Any]) -> None:
        self.task, self._name = task, str(entry["name"])
        self.type, self.id = entry.get("type"), entry.get("id")
        self.path = str(entry["path"])
        self._page: Optional[str] = None

    @property
    def hash(self) -> str:
        """Digest of the card's name and file."""
        try:
            with open(self.path, "rb") as file:
                return hashlib.sha1(self._name.encode() + b"\0" + file.read()).hexdigest()
        except OSError:
            return ""

    def _rendered(self) -> Optional[str]:
        """The text that a user's class rendered; None: the engine makes the page."""
        if not self.path.endswith(".html"):
            return None
        with open(self.path, encoding="utf-8") as file:
            return file.read()

    def write(self, path: str, reload_s: int = 0) -> None:
        """Write the page to ``path``; the page of a live task reloads itself every ``reload_s``
        seconds."""
        run, step, task = self.task.path_components[1:]
        words = ["card", f"{run}/{step}/{task}", "--id", self._name, "-o", path]
        if isinstance(self.task, SpunTask):
            words = ["card", "--file", self.path, "-o", path]
        output_of(words + (["--reload", str(reload_s)] if reload_s else []), self.task._store)

    def get(self, reload_s: int = 0) -> str:
        """The page as HTML, rendered from the card's current state; what a user's class rendered is
        returned as it is."""
        own = None if reload_s else self._rendered()
        if own is not None:
            return own
        with tempfile.TemporaryDirectory(prefix="stoker-card-") as folder:
            path = os.path.join(folder, "card.html")
            self.write(path, reload_s)
            with open(path, encoding="utf-8") as file:
                return file.read()

    @property
    def html(self) -> str:
        """The page as HTML, rendered once."""
        if self._page is None:
            self._page = self.get()
        return self._page

    def view(self) -> None:
        """Show the page in the browser."""
        import webbrowser

        with tempfile.NamedTemporaryFile(
            "w", suffix=".html", delete=False, encoding="utf-8"
        ) as file:
            file.write(self.get())
        webbrowser.open(f"file://{file.name}")

    def __str__(self) -> str:
        return f"<Card at '{self.path}'>"

    def _repr_html_(self) -> str:
        page = html.escape(self.get(), quote=True)
        return f'<iframe srcdoc="{page}" style="width:100%;height:720px;border:0"></iframe>'


class CardContainer:
    """Cards of a task; a notebook shows their pages."""

    def __init__(self, cards: List[Card], origin_pathspec: Optional[str] = None) -> None:
        self._cards = cards
        self.from_resumed = origin_pathspec is not None
        self.origin_pathspec = origin_pathspec

    def __len__(self) -> int:
        return len(self._cards)

    def __iter__(self) -> Iterator[Card]:
        return iter(self._cards)

    def __getitem__(self, index: int) -> Card:
        return self._cards[index]

    def _repr_html_(self) -> str:
        return "\n".join(one._repr_html_() for one in self._cards)


def cards_of(task: Any) -> List[Card]:
    """The cards of a client's task."""
    if isinstance(task, SpunTask):
        return [Card(task, one) for one in task.cards]
    found = task._now.full.get("cards") or ()
    rank = task._now.rank
    return [Card(task, _of_node(one, rank) if rank else one) for one in found]


def _of_node(entry: Dict[str, Any], rank: int) -> Dict[str, Any]:
    """A card's entry for another node of the gang, whose files are in the folder ``rank-K``."""
    cards, name = os.path.split(str(entry["path"]))
    own = os.path.join(os.path.dirname(cards), f"rank-{rank}", "cards", name)
    return {**entry, "path": own} if os.path.exists(own) else entry


def get_cards(
    task: Union[str, Any],
    id: Optional[str] = None,
    type: Optional[str] = None,
    follow_resumed: bool = True,
) -> CardContainer:
    """Cards of a task.

    Args:
        task: a task of the client, or FLOW/RUN/STEP/TASK.
        id, type: return only these.
        follow_resumed: for a task that was taken over from another run, return that run's cards.

    Raises:
        CardNotPresentException: the task has no card.
        MetaflowException: ``task`` isn't a task.
    """
    from ..client import Task

    if isinstance(task, str):
        if task.count("/") != 3:
            raise IncorrectPathspecException(f"a task is FLOW/RUN/STEP/TASK, not '{task}'")
        task = Task(task, _namespace_check=False)
    elif not isinstance(task, (Task, SpunTask)):
        raise IncorrectArgumentException(
            f"get_cards takes a Task or FLOW/RUN/STEP/TASK, not a {task.__class__.__name__}"
        )
    origin = task.origin_pathspec if follow_resumed else None
    if origin is not None:
        task = Task(origin, _namespace_check=False)
    found = cards_of(task)
    if not found:
        raise CardNotPresentException(
            f"task {task.pathspec} has no card; put @card on its step, or --with card on the command line"
        )
    fit = [one for one in found if id in (None, one.id) and type in (None, one.type)]
    return CardContainer(fit, origin)
