"""``zenml artifact …``."""

from __future__ import annotations

from typing import List

from ..client import Client
from ._words import ID, NAME, TAGGING, TAGS, YES, Column, Commands, Lists, parse, say


def _prune(words: List[str]) -> int:
    parse(
        ["artifact", "prune"],
        words,
        flags=[*YES, ("--only-artifact",), ("--only-metadata",), ("--ignore-errors", "-i")],
    )
    before = Client().list_artifact_versions(size=1).total
    Client().prune_artifacts()
    gone = before - Client().list_artifact_versions(size=1).total
    return say(f"deleted {gone} versions of artifacts that no run uses")


def _artifact_update(words: List[str]) -> int:
    given = parse(["artifact", "update"], words, [("--name", "-n"), *TAGGING], names=["artifact"])
    Client().update_artifact(given.artifact, given.name, given.tag, given.remove_tag)
    return say(f"updated artifact '{given.artifact}'")


def _version_update(words: List[str]) -> int:
    given = parse(
        ["artifact", "version", "update"],
        words,
        [("--version", "-v"), *TAGGING],
        names=["artifact"],
    )
    Client().update_artifact_version(given.artifact, given.version, given.tag, given.remove_tag)
    return say(f"updated a version of artifact '{given.artifact}'")


LISTS: Lists = {
    ("artifact", "list"): (
        "list_artifacts",
        [ID, NAME, Column("latest_version_name", lambda a: a.latest_version_name), TAGS],
    ),
    ("artifact", "version", "list"): (
        "list_artifact_versions",
        [
            *(ID, Column("artifact", lambda a: a.name), Column("version", lambda a: a.version)),
            *(Column("type", lambda a: a.type.value), TAGS),
        ],
    ),
}


COMMANDS: Commands = {
    ("artifact", "prune"): _prune,
    ("artifact", "update"): _artifact_update,
    ("artifact", "version", "update"): _version_update,
}
