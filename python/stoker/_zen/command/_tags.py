"""``zenml tag …``."""

from __future__ import annotations

from typing import List

from ..client import Client
from ._words import ID, NAME, Column, Commands, Lists, deleting, parse, say


def _tag_create(words: List[str]) -> int:
    given = parse(
        ["tag", "create"],
        words,
        [("--name", "-n"), ("--color", "-c")],
        names=["tag?"],
        flags=[("--exclusive",)],
    )
    name = given.name or given.tag
    if not name:
        raise ValueError("tag create needs --name NAME")
    Client().create_tag(name, given.exclusive, given.color)
    return say(f"made tag '{name}'")


def _tag_update(words: List[str]) -> int:
    given = parse(["tag", "update"], words, [("--name", "-n"), ("--color", "-c")], names=["tag"])
    Client().update_tag(given.tag, name=given.name, color=given.color)
    return say(f"updated tag '{given.tag}'")


LISTS: Lists = {
    ("tag", "list"): (
        "list_tags",
        [
            *(ID, NAME, Column("color", lambda t: str(t.color))),
            Column("exclusive", lambda t: t.exclusive),
        ],
    ),
}


COMMANDS: Commands = {
    ("tag", "create"): _tag_create,
    ("tag", "register"): _tag_create,
    ("tag", "update"): _tag_update,
    ("tag", "delete"): deleting(["tag", "delete"], "delete_tag", "tag"),
}
