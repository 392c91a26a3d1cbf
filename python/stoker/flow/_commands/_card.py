"""``card view|get|list|server``: cards of tasks."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, Dict, List

from .. import _records, client
from .._spun import spun_tasks
from ..cards._client import Card, cards_of
from ..cards._exception import CardNotPresentException
from ..exception import CommandException, MetaflowNamespaceMismatch, MetaflowNotFound
from ._data import tasks_at

if TYPE_CHECKING:
    from ._context import Context

_DIGITS = 20  # shown digits of a card's digest


def _tasks(context: Context, text: Any) -> List[Any]:
    """The task or tasks that a path names: STEP (of the newest run), RUN/STEP, RUN/STEP/TASK; None:
    all tasks of the newest run. With ``--mode spin`` the newest that ``spin --persist`` left (None: all)."""
    if context.top["mode"] == "spin":
        spun = spun_tasks(context.name, _records.store_path())
        return [one for one in spun if f"/{text}/" in f"/{one.pathspec}/"][:1] if text else spun
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


def _cards(context: Context, values: Dict[str, Any]) -> List[Card]:
    """Cards that match the options."""
    found: List[Card] = []
    for task in _tasks(context, values["pathspec"]):
        origin = task.origin_pathspec
        if origin is not None and values["follow_resumed"]:
            task = client.Task(origin, _namespace_check=False)
        found += [
            card
            for card in cards_of(task)
            if values["id"] in (None, card.id)
            and values["type"] in (None, card.type)
            and card.hash.startswith(values["hash"] or "")
        ]
    return found


def _one(context: Context, values: Dict[str, Any]) -> Card:
    """The card that the options select.

    Raises:
        CommandException: no card matches, or several do.
    """
    found = _cards(context, values)
    if not found:
        raise CardNotPresentException(
            f"no card of {values['pathspec']} matches; `card list {values['pathspec']}` lists them"
        )
    if len(found) > 1:
        have = ", ".join(
            f"{c.type} --hash {c.hash[:_DIGITS]}" + (f" --id {c.id}" if c.id else "") for c in found
        )
        raise CommandException(f"{values['pathspec']} has {len(found)} cards, choose one: {have}")
    return found[0]


def get(context: Context, values: Dict[str, Any]) -> None:
    """The page on stdout, or into a file."""
    card = _one(context, values)
    if values["path"] is not None:
        with open(values["path"], "w", encoding="utf-8") as file:
            file.write(card.get())
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(card.get().encode("utf-8"))
    sys.stdout.buffer.flush()


def view(context: Context, values: Dict[str, Any]) -> None:
    """The page in the browser; its path on stdout."""
    import webbrowser

    card = _one(context, values)
    path = f"{os.path.splitext(card.path)[0]}.page.html"
    card.write(path)
    print(path)
    webbrowser.open(f"file://{path}")


def listing(context: Context, values: Dict[str, Any]) -> None:
    """Cards, as text or JSON, on stdout or into a file."""
    by_task: Dict[str, List[Dict[str, Any]]] = {}
    for card in _cards(context, values):
        known = {"id": card.id, "hash": card.hash, "type": card.type}
        known["filename"] = os.path.basename(card.path)
        by_task.setdefault(card.task.pathspec, []).append(known)
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


# ---------------------------------------------------------------------------- server


def server(context: Context, values: Dict[str, Any]) -> None:
    """Serve pages of a run's cards on the loopback address, rendered at each request, until
    interrupted."""
    from http.server import ThreadingHTTPServer

    place = ("127.0.0.1", int(values["port"]))
    try:
        serving = ThreadingHTTPServer(place, _handler(context, values))
    except OSError as bad:
        raise CommandException(f"port {place[1]} can't be used ({bad}); choose another by --port")
    with serving:
        print(f"http://127.0.0.1:{serving.server_port}/", flush=True)
        try:
            serving.serve_forever()
        except KeyboardInterrupt:
            pass


def _of_run(context: Context, run_id: Any) -> List[Card]:
    """The cards that a run (None: the newest) has now."""
    if run_id is None:
        tasks = _tasks(context, None)
    else:
        run = client.Run(f"{context.name}/{run_id}", _namespace_check=False)
        tasks = [task for step in reversed(list(run)) for task in reversed(list(step))]
    return [card for task in tasks for card in cards_of(task)]


def _index(cards: List[Card], poll_s: int) -> str:
    import html

    items = "".join(
        f'<li><a href="/{i}">{html.escape(card.task.pathspec)}</a> {html.escape(card.id or card.type or "")}</li>'
        for i, card in enumerate(cards)
    )
    return (
        '<!DOCTYPE html><html><head><meta charset="utf-8"/><title>Cards</title>'
        f'<meta http-equiv="refresh" content="{poll_s}"/>'
        "<style>:root{color-scheme:light dark}body{font:15px system-ui,sans-serif;margin:32px}</style></head>"
        f"<body><h1>Cards</h1><ul>{items or '<li>none yet</li>'}</ul></body></html>"
    )


def _handler(context: Context, values: Dict[str, Any]) -> Any:
    from http.server import BaseHTTPRequestHandler

    poll_s = max(1, int(values["poll_interval"]))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A foreign web page must not read the cards through a host name that leads here (DNS
            # rebinding).
            if self.headers.get("Host", "").split(":")[0] not in ("127.0.0.1", "localhost"):
                self.send_error(403)
                return
            try:
                cards = _of_run(context, values["run_id"])
                number = self.path.strip("/")
                if number == "":
                    page = _index(cards, poll_s)
                else:
                    page = cards[int(number)].get(reload_s=poll_s)
            except (ValueError, IndexError):
                self.send_error(404)
                return
            except Exception as bad:
                self.send_error(500, explain=str(bad))
                return
            body = page.encode("utf-8")
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
