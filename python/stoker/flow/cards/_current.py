"""``current.card``: the running step's cards, and their files."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Optional

from ..._worker import hidden
from ...materializers._preview import short
from ._components import MetaflowCardComponent, UserComponent, failure, written
from ._types import DefaultCard, TaskNow, build, find, renders_html

_ID = re.compile(r"^[a-zA-Z0-9_-]+$")
_PREVIEW = 300  # characters of an artifact
_PREVIEWS = 500  # artifacts


def warn(text: str) -> None:
    """Write a sentence to the step's log."""
    print(f"[@card WARNING] {text}", file=sys.stderr)


class Missing(UserComponent):
    """Stands for a missing component; reports the first update and ignores all."""

    def __init__(self, key: str) -> None:
        self._key, self._said = key, False

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Report once that the component is missing."""
        if not self._said:
            warn(f"the card has no component '{self._key}'; append it with id='{self._key}'")
        self._said = True

    def written(self) -> Dict[str, Any]:
        return {"kind": "markdown", "text": ""}


class Components:
    """The components of a card, in order, by id."""

    def __init__(self) -> None:
        self._by_id: Dict[str, Any] = {}
        self._n = 0

    def append(self, component: Any, id: Optional[str] = None) -> None:
        """Add a component; ``id``: its key."""
        if not isinstance(component, MetaflowCardComponent):
            warn(f"{short(component, 200)} is not a component of cards and is ignored")
            return
        self._n += 1
        key = id or component.component_id or f"{type(component).__name__.lower()}_{self._n}"
        component.component_id = str(key)
        self._by_id[str(key)] = component

    def extend(self, components: Any) -> None:
        """Add several."""
        for one in components:
            self.append(one)

    def clear(self) -> None:
        """Remove all components."""
        self._by_id.clear()

    def keys(self) -> List[str]:
        """Their ids."""
        return list(self._by_id)

    def values(self) -> Any:
        """The components."""
        return self._by_id.values()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, key: str) -> bool:
        return key in self._by_id

    def __getitem__(self, key: str) -> Any:
        return self._by_id.setdefault(key, Missing(key))

    def __setitem__(self, key: str, component: Any) -> None:
        if key in self._by_id and not isinstance(self._by_id[key], Missing):
            raise ValueError(
                f"the card has a component '{key}' already: update it, or set all by current.card[ID] = [...]"
            )
        self.append(component, id=key)

    def __delitem__(self, key: str) -> None:
        if key not in self._by_id:
            raise KeyError(f"the card has no component '{key}'; it has {', '.join(self._by_id)}")
        del self._by_id[key]

    def rendered(self) -> List[Any]:
        """What the components' ``render`` returns, for a user's card; a failing one is an error's
        JSON."""
        return [_rendered(one) for one in self if not isinstance(one, Missing)]

    def shown(self) -> List[Dict[str, Any]]:
        """The components' JSON."""
        return [written(one) for one in self if not isinstance(one, Missing)]


def _rendered(component: Any) -> Any:
    try:
        return component.render()
    except Exception as bad:
        return failure(f"{type(component).__name__} could not be shown", bad)


class OneCard:
    """One ``@card`` of the step: ``current.card[ID]``."""

    def __init__(self, name: str, said: Dict[str, Any], running: Any) -> None:
        self.name, self.said, self.running = name, said, running
        self.type, self.id = str(said["type"]), said["id"]
        self.components = Components()
        self.problem: Optional[str] = None
        self.cls: Any = DefaultCard
        self._data: Any = None
        self._seq = 0
        self._refreshed = -1e9
        try:
            self.cls = find(self.type)
        except LookupError as bad:
            self.problem = str(bad)

    @property
    def editable(self) -> bool:
        """Whether ``current.card.append`` may add to it."""
        return self.problem is None and bool(self.cls.ALLOW_USER_COMPONENTS)

    def append(self, component: Any, id: Optional[str] = None) -> None:
        """Add a component; ``id``: what ``components`` knows it by."""
        self.components.append(component, id=id)

    def extend(self, components: Any) -> None:
        """Add several components."""
        self.components.extend(components)

    def clear(self) -> None:
        """Remove all components."""
        self.components.clear()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.components)

    def __len__(self) -> int:
        return len(self.components)

    def refresh(self, data: Any = None, force: bool = False) -> None:
        """Write the card in its current state, unless it was written less than ``refresh_interval``
        seconds ago.

        Args:
            data: for ``render_runtime`` of a user's class. force: write it in any case.
        """
        self._data = data
        now = time.monotonic()
        if self.problem or (
            not force and now - self._refreshed < float(self.said["refresh_interval"])
        ):
            return
        self._refreshed = now
        try:
            if not renders_html(self.cls):
                self._write_json(self._body())
            elif self.cls.RUNTIME_UPDATABLE:
                shown = self._object("render_runtime")
                self._write_html(shown.render_runtime(self._task(), shown.runtime_data))
        except Exception as bad:
            self.problem = f"{type(bad).__name__}: {bad}"
            warn(f"card '{self.name}' could not be refreshed: {self.problem}")
            self.problem = None

    # ------------------------------------------------------------------ what is written

    def finish(self, failed: bool) -> Optional[Dict[str, Any]]:
        """Write the final card; returns its entry for ``result.json``, or None without a card.
        Never raises."""
        file = f"{self.name}.json"
        try:
            if self.problem:
                raise LookupError(self.problem)
            _within(float(self.said["timeout"]), lambda: self._finish(failed))
        except Exception as bad:
            text = f"card '{self.name}' could not be made: {type(bad).__name__}: {bad}"
            self.running.attempt.warnings.append(text)
            if not _is_true(self.said["save_errors"]):
                return None
            body = {**self._head(), "components": [failure("This card could not be made", bad)]}
            self._write_json(body)
        return {"type": self.type, "id": self.id, "path": f"cards/{file}"}

    def _finish(self, failed: bool) -> None:
        if not renders_html(self.cls):
            self._write_json({**self._body(), "previews": self._previews()})
        elif not failed:
            self._write_html(self._object("render").render(self._task()))

    def _head(self) -> Dict[str, Any]:
        return {"stoker": 1, "type": self.type, "id": self.id, "title": self._title()}

    def _title(self) -> Optional[str]:
        options = self.said["options"]
        title = options.get("title") if isinstance(options, dict) else None
        return None if not title else str(title)

    def _body(self) -> Dict[str, Any]:
        return {**self._head(), "components": self.components.shown()}

    def _previews(self) -> Dict[str, str]:
        scope, values = self.running.scope, self.running.flow.__dict__
        names = [n for n in values if n not in ("_stoker", "name") and not n.startswith("__")]
        found = {name: short(values[name], _PREVIEW) for name in names[:_PREVIEWS]}
        return {**{n: short(v, _PREVIEW) for n, v in scope.given.values.items()}, **found}

    def _object(self, mode: str) -> Any:
        from .._compile import graph_info

        shown: List[Any] = self.components.rendered() if self.editable else []
        options = self.said["options"] or {}
        given = {"options": options, "components": shown, "flow": self.running.flow}
        given["graph"] = given["graph_info"] = graph_info(self.running.cls)
        made = build(self.cls, given)
        self._seq += 1
        made.runtime_data = {
            "user": self._data,
            "mode": mode,
            "components": {},
            "component_update_ts": time.time(),
            "render_seq": "final" if mode == "render" else self._seq,
        }
        return made

    def _task(self) -> TaskNow:
        from .._current import current

        running = self.running
        values = {k: v for k, v in running.flow.__dict__.items() if k not in ("_stoker", "name")}
        names = {*running.scope.names, *running.constants}
        return TaskNow(values, names, lambda name: getattr(running.flow, name), current.pathspec)

    def _write_html(self, html: Any) -> None:
        if not isinstance(html, str):
            raise TypeError(f"{self.cls.__name__}.render gave a {type(html).__name__}, not a text")
        self._write(f"{self.name}.html", html)
        self._write_json({**self._head(), "html": f"{self.name}.html"})

    def _write_json(self, body: Dict[str, Any]) -> None:
        self._write(f"{self.name}.json", json.dumps(body, default=short, ensure_ascii=False))

    def _write(self, name: str, text: str) -> None:
        attempt = self.running.attempt
        own = attempt.rank is not None and attempt.rank.number
        folder = f"{attempt.rank.own if own else attempt.directory}/cards"
        os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/.{name}", "w", encoding="utf-8", errors="replace") as file:
            file.write(hidden.hide(text))
        os.replace(f"{folder}/.{name}", f"{folder}/{name}")


def _is_true(said: Any) -> bool:
    return str(said) in ("True", "true", "1")  # --with passes a text


def _within(seconds: float, make: Callable[[], None]) -> None:
    """Call ``make``; raises TimeoutError after ``seconds``, while the call may still run."""
    import threading

    ended: List[Optional[BaseException]] = []

    def run() -> None:
        try:
            make()
            ended.append(None)
        except BaseException as bad:
            ended.append(bad)

    thread = threading.Thread(target=run, name="stoker-card", daemon=True)
    thread.start()
    thread.join(seconds if seconds > 0 else None)
    if not ended:
        raise TimeoutError(f"it took more than {seconds:g} s (@card(timeout={seconds:g}))")
    if ended[0] is not None:
        raise ended[0]


class Cards:
    """``current.card``: the step's card; with several, ``current.card[ID]`` is one of them."""

    def __init__(self, running: Any) -> None:
        self._running = running
        self._all: List[OneCard] = []
        self._said: List[str] = []

    def _add(self, said: Dict[str, Any]) -> OneCard:
        given = said["id"]
        if given is not None and not _ID.match(str(given)):
            warn(
                f"@card(id={given!r}): an id has letters, digits, '_' and '-' only; the card goes without one"
            )
            said = {**said, "id": None}
        first = str(said["id"] or re.sub(r"[^a-zA-Z0-9_-]", "_", str(said["type"])))
        taken = {one.name for one in self._all}
        names = (first if n == 1 else f"{first}-{n}" for n in range(1, len(taken) + 2))
        made = OneCard(next(n for n in names if n not in taken), said, self._running)
        self._all.append(made)
        return made

    def _once(self, text: str) -> None:
        if text not in self._said:
            self._said.append(text)
            warn(text)

    def _by_id(self, key: str) -> Optional[OneCard]:
        found = [one for one in self._all if one.id == key]
        if len(found) == 1:
            return found[0]
        self._once(
            f"this step has no card '{key}'; put id='{key}' into its @card"
            if not found
            else f"this step has {len(found)} cards '{key}'; give each an id of its own"
        )
        return None

    def _default(self, what: str) -> Optional[OneCard]:
        """The card to which ``append`` adds: the only one, or the one without an id, or with
        customize=True."""
        editable = [one for one in self._all if one.editable]
        if len(editable) == 1:
            return editable[0]
        marked = [one for one in editable if _is_true(one.said["customize"])]
        unnamed = [one for one in editable if one.id is None]
        for few in (marked, unnamed):
            if len(few) == 1:
                return few[0]
        problem = next((one.problem for one in self._all if one.problem), None)
        self._once(
            f"current.card.{what} has no effect: "
            + (
                "the step has several cards: choose one by current.card[ID]"
                if editable
                else problem or "the step's card is of a type that takes no components"
            )
        )
        return None

    def get(self, type: Optional[str] = None) -> List[OneCard]:
        """Cards of a type."""
        return [one for one in self._all if one.type == type]

    def append(self, component: Any, id: Optional[str] = None) -> None:
        """Add a component to the step's card; ``id``: what ``components`` knows it by."""
        card = self._default("append")
        if card is not None:
            card.append(component, id=id)

    def extend(self, components: Any) -> None:
        """Add several components."""
        card = self._default("extend")
        if card is not None:
            card.extend(components)

    def clear(self) -> None:
        """Remove all components."""
        card = self._default("clear")
        if card is not None:
            card.clear()

    def refresh(self, data: Any = None, force: bool = False) -> None:
        """Write the card in its current state (:meth:`OneCard.refresh`)."""
        card = self._default("refresh")
        if card is not None:
            card.refresh(data, force)

    @property
    def components(self) -> Optional[Components]:
        """The card's components by id."""
        card = self._default("components")
        return None if card is None else card.components

    def __getitem__(self, key: str) -> Any:
        found = self._by_id(key)
        return [] if found is None else found

    def __setitem__(self, key: str, components: Any) -> None:
        found = self._by_id(key)
        if found is None:
            return
        if not isinstance(components, list):
            self._once(f"current.card['{key}'] takes a list of components")
            return
        found.components = Components()
        found.extend(components)

    def __iter__(self) -> Iterator[Any]:
        card = self._default("components")
        return iter(() if card is None else card)

    def __len__(self) -> int:
        return len(list(iter(self)))
