"""``zenml pipeline …``."""

from __future__ import annotations

import os
import sys
from typing import Any, Callable, List

from ..client import Client
from ._words import ID, NAME, TAGS, YES, Column, Commands, Lists, deleting, parse, say


def _pipeline_run(words: List[str]) -> int:
    given = parse(
        ["pipeline", "run"],
        words,
        [("--config", "-c"), ("--stack", "-s"), ("--build", "-b")],
        names=["source"],
        flags=[("--prevent-build-reuse",)],
    )
    pipeline = _imported(given.source)
    if given.stack:
        os.environ["ZENML_ACTIVE_STACK_NAME"] = Client().get_stack(given.stack).name
    run = pipeline.with_options(config_path=given.config)() if given.config else pipeline()
    return 0 if run is None or str(run.status) == "completed" else 1


def _imported(source: str) -> Any:
    import importlib

    module, _, name = source.rpartition(".")
    if not module:
        raise ValueError(f"'{source}' is not a source such as 'my_module.my_pipeline'")
    sys.path.insert(0, os.getcwd())
    return getattr(importlib.import_module(module), name)


def _schedule_update(words: List[str]) -> int:
    known = ["pipeline", "schedule", "update"]
    given = parse(known, words, [("--cron-expression", "-c")], names=["name"])
    if not given.cron_expression:
        return say("No schedule update requested.")
    Client().update_schedule(given.name, given.cron_expression)
    return say(f"Updated schedule '{given.name}'.")


def _switching(word: str, active: bool) -> Callable[[List[str]], int]:
    def switch(words: List[str]) -> int:
        name = parse(["pipeline", "schedule", word], words, names=["name"]).name
        Client().update_schedule(name, active=active)
        return say(f"{word.capitalize()}d schedule '{name}'.")

    return switch


def _schedule_delete(words: List[str]) -> int:
    known = ["pipeline", "schedule", "delete"]
    given = parse(known, words, names=["name"], flags=[*YES, ("--hard", "-H")])
    Client().delete_schedule(given.name, soft=not given.hard)
    return say(f"Deleted schedule '{given.name}'.")


def _snapshot_create(words: List[str]) -> int:
    options = [
        ("--name", "-n"),
        ("--description", "-d"),
        ("--config", "-c"),
        ("--tags", "-t", list),
    ]
    known = ["pipeline", "snapshot", "create"]
    flags = [("--replace", "-r")]
    given = parse(known, words, options, names=["source"], flags=flags)
    pipeline = _imported(given.source)
    if given.config:
        pipeline = pipeline.with_options(config_path=given.config)
    name = given.name or pipeline.name
    pipeline.create_snapshot(name, given.description, given.replace, given.tags)
    return say(f"made snapshot '{name}'")


def _snapshot_run(words: List[str]) -> int:
    known = ["pipeline", "snapshot", "run"]
    options = [("--pipeline", "-p"), ("--config", "-c"), ("--stack", "-s")]
    given = parse(known, words, options, names=["snapshot"])
    run = Client().trigger_pipeline(
        given.snapshot, given.pipeline, config_path=given.config, stack_name_or_id=given.stack
    )
    return say(f"started run '{run.name}'")


LISTS: Lists = {
    ("pipeline", "list"): (
        "list_pipelines",
        [ID, NAME, Column("latest_run_status", lambda p: str(p.latest_run_status)), TAGS],
    ),
    ("pipeline", "runs", "list"): (
        "list_pipeline_runs",
        [
            *(ID, Column("index", lambda r: r.index), Column("run_name", lambda r: r.name)),
            Column("pipeline", lambda r: r.pipeline.name),
            *(Column("status", lambda r: str(r.status)), Column("stack", lambda r: r.stack.name)),
        ],
    ),
    ("pipeline", "schedule", "list"): (
        "list_schedules",
        [
            *(ID, NAME, Column("pipeline", lambda s: s.record["pipeline"])),
            Column("cron_expression", lambda s: s.cron_expression),
            *(Column("active", lambda s: s.active), Column("is_archived", lambda s: s.is_archived)),
        ],
    ),
    ("pipeline", "builds", "list"): ("list_builds", [ID]),
    ("pipeline", "snapshot", "list"): (
        "list_snapshots",
        [ID, NAME, Column("pipeline", lambda s: s.pipeline.name)],
    ),
}


COMMANDS: Commands = {
    ("pipeline", "run"): _pipeline_run,
    ("pipeline", "delete"): deleting(["pipeline", "delete"], "delete_pipeline", "pipeline"),
    ("pipeline", "schedule", "update"): _schedule_update,
    ("pipeline", "schedule", "activate"): _switching("activate", True),
    ("pipeline", "schedule", "deactivate"): _switching("deactivate", False),
    ("pipeline", "schedule", "delete"): _schedule_delete,
    ("pipeline", "snapshot", "create"): _snapshot_create,
    ("pipeline", "snapshot", "run"): _snapshot_run,
    ("pipeline", "snapshot", "delete"): deleting(
        ["pipeline", "snapshot", "delete"], "delete_snapshot", "snapshot"
    ),
    ("pipeline", "runs", "delete"): deleting(
        ["pipeline", "runs", "delete"], "delete_pipeline_run", "run"
    ),
}
