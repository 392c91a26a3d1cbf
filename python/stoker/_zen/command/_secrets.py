"""``zenml secret …``."""

from __future__ import annotations

import json
import os
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
        more = _read(text)
        if not isinstance(more, dict):
            raise ValueError('--values needs a JSON object: \'{"KEY": "VALUE"}\'')
        found.update(more)
    return found


def _read(text: str) -> Any:
    """JSON or YAML as a value."""
    try:
        return json.loads(text)
    except ValueError:
        try:
            import yaml
        except ImportError:
            raise ValueError("--values that aren't JSON need PyYAML: install it") from None
        return yaml.safe_load(text)


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
    if "name" in values:
        raise ValueError("'name' can't be the key of a secret's value")
    if given.interactive:
        import getpass

        key = input("key: ")
        values[key] = getpass.getpass("value: ")
    if not values:
        raise ValueError("a secret needs values: --KEY=VALUE, --values or --interactive")
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


def _secret_export(words: List[str]) -> int:
    given = parse(
        ["secret", "export"], words, [("--private", "-p"), ("--filename", "-f")], names=["name"]
    )
    found = Client().get_secret(given.name)
    file = given.filename or f"{found.name}.yaml"
    kept = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(kept, 0o600)  # a file that was there may be open to others
    with os.fdopen(kept, "w", encoding="utf-8") as stream:
        for key, value in found.secret_values.items():
            stream.write(f"{json.dumps(key)}: {json.dumps(value)}\n")
    return say(f"wrote secret '{found.name}' to '{file}'")


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
    ("secret", "export"): _secret_export,
    ("secret", "delete"): deleting(["secret", "delete"], "delete_secret", "secret"),
}
