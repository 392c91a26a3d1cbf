"""``card view|get|list``: cards of tasks."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List

from ..._binary import output_of
from .. import client
from ..exception import CommandException, MetaflowNamespaceMismatch, MetaflowNotFound
from ._data import tasks_at

if TYPE_CHECKING:
    from .._cli import Context

_DIGITS = 20  # of a card's digest that are shown


def _tasks(context: Context, text: Any) -> List[client.Task]:
    """The task or tasks that a path names: STEP (of the newest run), RUN/STEP, RUN/STEP/TASK; None: all of that run."""
    parts = (text or "").split("/")
    if len(parts) == 4 and parts[0] == context.name:
        parts = parts[1:]
    if len(parts) > 1:
        return tasks_at(context, "/".join(parts))
    try:
        run = client.Flow(context.name).latest_run
    except (MetaflowNotFound, MetaflowNamespaceMismatch):
        run = None
    if run is None:
        raise CommandException(
            f"flow {context.name} has no run in namespace '{client.get_namespace()}'"
        )
    if text:
        return tasks_at(context, f"{run.id}/{parts[0]}")
    return [task for step in reversed(list(run)) for task in reversed(list(step))]


def _cards(context: Context, values: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Cards that fit the options, each with its ``task``."""
    found: List[Dict[str, Any]] = []
    for task in _tasks(context, values["pathspec"]):
        origin = task.origin_pathspec
        if origin is not None and values["follow_resumed"]:
            task = client.Task(origin, _namespace_check=False)
        for card in task._now.full.get("cards") or ():
            digest = _digest(str(card["path"]))
            fits = (
                (values["id"] in (None, card.get("id")))
                and (values["type"] in (None, card.get("type")))
                and digest.startswith(values["hash"] or "")
            )
            if fits:
                found.append({**card, "hash": digest, "task": task})
    return found


def _digest(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.sha1(file.read()).hexdigest()
    except OSError:
        return ""


def _one(context: Context, values: Dict[str, Any]) -> Dict[str, Any]:
    """The one card that is meant.

    Raises:
        CommandException: none fits, or several.
    """
    found = _cards(context, values)
    if not found:
        raise CommandException(
            f"no card of {values['pathspec']} fits; `card list {values['pathspec']}` shows what there is"
        )
    if len(found) > 1:
        have = ", ".join(
            f"{c['type']} --hash {c['hash'][:_DIGITS]}"
            + (f" --id {c['id']}" if c.get("id") else "")
            for c in found
        )
        raise CommandException(f"{values['pathspec']} has {len(found)} cards, choose one: {have}")
    return found[0]


def _page(card: Dict[str, Any], path: str) -> None:
    """Write a card's page."""
    run, step, task = card["task"].path_components[1:]
    words = ["card", f"{run}/{step}/{task}", "-o", path]
    name = card.get("name") or card.get("id")  # a card without an id has its type's name
    if name:
        words += ["--id", str(name)]
    output_of(words, card["task"]._store)


def get(context: Context, values: Dict[str, Any]) -> None:
    """The page on stdout, or into a file."""
    card = _one(context, values)
    if values["path"] is not None:
        _page(card, values["path"])
        return
    import tempfile

    with tempfile.TemporaryDirectory(prefix="stoker-card-") as folder:
        path = os.path.join(folder, "card.html")
        _page(card, path)
        with open(path, "rb") as file:
            sys.stdout.flush()
            sys.stdout.buffer.write(file.read())
            sys.stdout.buffer.flush()


def view(context: Context, values: Dict[str, Any]) -> None:
    """The page in the browser; its path on stdout."""
    import webbrowser

    card = _one(context, values)
    folder = os.path.dirname(str(card["path"]))
    path = os.path.join(folder, f"{card.get('id') or card['type']}.page.html")
    _page(card, path)
    print(path)
    webbrowser.open(f"file://{path}")


def listing(context: Context, values: Dict[str, Any]) -> None:
    """Cards, as text or JSON, on stdout or into a file."""
    found = _cards(context, values)
    by_task: Dict[str, List[Dict[str, Any]]] = {}
    for card in found:
        known = {"id": card.get("id"), "hash": card["hash"], "type": card.get("type")}
        known["filename"] = os.path.basename(str(card["path"]))
        by_task.setdefault(card["task"].pathspec, []).append(known)
    if values["as_json"] or values["file"]:
        several = [{"pathspec": k, "cards": v} for k, v in by_task.items()]
        text = json.dumps(several[0] if len(several) == 1 else several, indent=4)
    else:
        text = "\n".join(_told(k, v) for k, v in by_task.items()) or "no cards"
    if values["file"] is not None:
        with open(values["file"], "w", encoding="utf-8") as file:
            file.write(text)
        return
    print(text)


def _told(task: str, cards: List[Dict[str, Any]]) -> str:
    lines = [f"Cards of {task}:"]
    for card in cards:
        name = f" id {card['id']}" if card["id"] else ""
        lines.append(f"    {card['type']}{name} hash {card['hash'][:_DIGITS]}")
    return "\n".join(lines)
