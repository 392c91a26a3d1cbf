"""``zenml secret …``."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Sequence

from ..client import Client
from ._words import ID, NAME, Arguments, Column, Commands, Lists, deleting, pairs, parse, say, table


def _values(given: Arguments) -> Dict[str, str]:
    found: Dict[str, str] = dict(pairs(given.rest))
    text = given.values
    if text and text.startswith("@"):
        with open(text[1:], encoding="utf-8") as stream:
            text = stream.read()
    if text:
        more = json.loads(text)
        if not isinstance(more, dict):
            raise ValueError('--values needs a JSON object: \'{"KEY": "VALUE"}\'')
        found.update({str(k): str(v) for k, v in more.items()})
    return found


def _secret_words(word: str, words: List[str], options: Sequence[Any] = ()) -> Arguments:
    return parse(
        ["secret", word],
        words,
        [("--values", "-v"), *options],
        names=["name"],
        flags=[("--private", "-p"), ("--interactive", "-i")],
        rest=True,
    )


def _secret_create(words: List[str]) -> int:
    given = _secret_words("create", words)
    values = _values(given)
    if given.interactive:
        import getpass

        key = input("key: ")
        values[key] = getpass.getpass("value: ")
    Client().create_secret(given.name, values, given.private)
    return say(f"secret '{given.name}' is kept, encrypted, in the store")


def _secret_update(words: List[str]) -> int:
    given = _secret_words("update", words, [("--remove-keys", "-r", list)])
    Client().update_secret(
        given.name, add_or_update_values=_values(given), remove_values=given.remove_keys
    )
    return say(f"updated secret '{given.name}'")


def _secret_rename(words: List[str]) -> int:
    given = parse(["secret", "rename"], words, [("--new-name", "-n")], names=["name"])
    if not given.new_name:
        raise ValueError("secret rename needs --new-name NAME")
    Client().update_secret(given.name, new_name=given.new_name)
    return say(f"secret '{given.name}' is '{given.new_name}' now")


def _secret_get(words: List[str]) -> int:
    given = parse(["secret", "get"], words, [("--private", "-p")], names=["name"])
    found = Client().get_secret(given.name)
    table(["KEY", "VALUE"], [[key, value] for key, value in found.secret_values.items()])
    return 0


LISTS: Lists = {
    ("secret", "list"): ("list_secrets", [ID, NAME, Column("private", lambda s: s.private)]),
}


COMMANDS: Commands = {
    ("secret", "create"): _secret_create,
    ("secret", "update"): _secret_update,
    ("secret", "rename"): _secret_rename,
    ("secret", "get"): _secret_get,
    ("secret", "delete"): deleting(["secret", "delete"], "delete_secret", "secret"),
}
