"""What commands share: their words, and what they print."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..client import Client
from ..page import Page

Arguments = argparse.Namespace
Commands = Dict[Tuple[str, ...], Callable[[List[str]], Optional[int]]]


class Column(NamedTuple):
    """A column of a list: its key in JSON, and a function of a result."""

    key: str
    of: Callable[[Any], Any]


# Words → the client's function, and the columns.
Lists = Dict[Tuple[str, ...], Tuple[str, List[Column]]]


def _names(tags: Any) -> List[str]:
    return [tag.name for tag in tags]


HELP = ("--help", "-h")
ID = Column("id", lambda one: str(one.id))
NAME = Column("name", lambda one: one.name)
TAGS = Column("tags", lambda one: _names(one.tags))
YES = [("--yes", "-y")]
TAGGING = [("--tag", "-t", list), ("--remove-tag", "-r", list)]


def say(text: str) -> int:
    """Print a line; returns the status of what worked."""
    print(text)
    return 0


def fail(text: str) -> int:
    """Say what went wrong; returns the status of that."""
    print(f"stoker: zenml: {text}", file=sys.stderr)
    return 1


def parse(
    known: Sequence[str],
    words: Sequence[str],
    options: Sequence[Any] = (),
    names: Sequence[str] = (),
    flags: Sequence[Any] = (),
    rest: bool = False,
) -> Arguments:
    """The words of a command: ``names`` are its positional ones (``NAME?`` may be missing)."""
    parser = argparse.ArgumentParser(prog=f"zenml {' '.join(known)}", allow_abbrev=False)
    for name in names:
        parser.add_argument(name.rstrip("?*"), nargs={"?": "?", "*": "*"}.get(name[-1]))
    for option in options:
        several = option[-1] is list
        action = "append" if several else "store"
        parser.add_argument(*option[: -1 if several else None], action=action)
    for flag in flags:
        parser.add_argument(*flag, action="store_true")
    if not rest:
        return parser.parse_args(words)
    given, left = parser.parse_known_args(words)
    given.rest = left
    return given


def pairs(words: Sequence[str]) -> Dict[str, Any]:
    """``--key value`` and ``--key=value`` as a dict."""
    found: Dict[str, Any] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            raise ValueError(f"'{word}' is no option; write --NAME VALUE")
        key, equals, value = word[2:].partition("=")
        if not equals:
            value = left.pop(0) if left and not left[0].startswith("--") else "true"
        found[key.replace("-", "_")] = value
    return found


def list_of(known: Sequence[str], words: List[str], function: str, columns: List[Column]) -> int:
    """Print what a function of the client lists, with the filters that the words give."""
    given = parse(known, words, [("--output", "-o")], rest=True)
    filters = pairs(given.rest)
    for key in ("page", "size"):
        if key in filters:
            filters[key] = int(filters[key])
    try:
        page = getattr(Client(), function)(**filters)
    except TypeError as bad:  # a filter that this list doesn't have
        return fail(str(bad))
    return show(page, columns, given.output or "table")


def show(page: Page[Any], columns: List[Column], output: str) -> int:
    """Print a page: as a table, json, csv or tsv."""
    rows = [{column.key: column.of(one) for column in columns} for one in page]
    if output == "json":
        about = ("index", "max_size", "total_pages", "total")
        told = {key: getattr(page, key) for key in about}
        print(json.dumps({"items": rows, "pagination": told}, indent=2))
        return 0
    texts = [[text_of(row[column.key]) for column in columns] for row in rows]
    heads = [column.key for column in columns]
    if output in ("csv", "tsv"):
        import csv

        writer = csv.writer(
            sys.stdout, delimiter="," if output == "csv" else "\t", lineterminator="\n"
        )
        writer.writerows([heads, *texts])
        return 0
    if output != "table":
        raise ValueError(f"--output {output} isn't there; it is table, json, csv or tsv")
    table([head.upper() for head in heads], texts)
    print(
        f"Page ({page.index}/{page.total_pages}), {page.total} items found for the applied filters."
    )
    return 0


def text_of(value: Any) -> str:
    """A value of a table's cell."""
    if isinstance(value, dict):
        return ", ".join(f"{k}: {text_of(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def table(heads: List[str], rows: List[List[str]]) -> None:
    """Print a table."""
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    for row in [heads, *rows]:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())


def deleting(known: Sequence[str], function: str, what: str) -> Callable[[List[str]], int]:
    """The command that lets a function of the client delete what its word names."""

    def delete(words: List[str]) -> int:
        name = parse(known, words, names=["name"], flags=YES).name
        getattr(Client(), function)(name)
        return say(f"deleted {what} '{name}'")

    return delete
