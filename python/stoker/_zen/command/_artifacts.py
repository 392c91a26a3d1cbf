"""``zenml artifact …``."""

from __future__ import annotations

from typing import List

from ..client import Client
from ._words import (
    ID,
    NAME,
    TAGGING,
    TAGS,
    YES,
    Column,
    Commands,
    Lists,
    deleting,
    parse,
    say,
    table,
    text_of,
)


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


def _version_describe(words: List[str]) -> int:
    known = ["artifact", "version", "describe"]
    given = parse(known, words, [("--version", "-v")], names=["artifact"])
    found = Client().get_artifact_version(given.artifact, given.version)
    told = {
        **{"id": found.id, "artifact": found.name, "version": found.version},
        **{"type": found.type.value, "save_type": found.save_type.value, "uri": found.uri},
        **{"data_type": found.data_type.import_path, "created": found.created},
        **{"materializer": found.materializer.import_path},
        **{"tags": [tag.name for tag in found.tags], "run_metadata": found.run_metadata},
    }
    table(["PROPERTY", "VALUE"], [[key, text_of(value)] for key, value in told.items()])
    return 0


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
    ("artifact", "version", "describe"): _version_describe,
    ("artifact", "version", "delete"): deleting(
        ["artifact", "version", "delete"], "delete_artifact_version", "artifact version"
    ),
}
