"""The command ``zenml`` under ``stoker compat``: what it lists and changes is in the store.

What needs a server, or installs parts of ZenML, says what to do instead.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from .._base.errors import StokerError, did_you_mean
from . import stacks
from .client import Client
from .configuration import VERSION
from .page import Page

Arguments = argparse.Namespace


class Column(NamedTuple):
    """A column of a list: its key in JSON, and a function of a result."""

    key: str
    of: Callable[[Any], Any]


def _is_active(stack: Any) -> bool:
    return bool(stack.name == Client().active_stack_model.name)


def _names(tags: Any) -> List[str]:
    return [tag.name for tag in tags]


_ID = Column("id", lambda one: str(one.id))
_NAME = Column("name", lambda one: one.name)
_TAGS = Column("tags", lambda one: _names(one.tags))

# Words → the client's function, and the columns.
LISTS: Dict[Tuple[str, ...], Tuple[str, List[Column]]] = {
    ("pipeline", "list"): (
        "list_pipelines",
        [_ID, _NAME, Column("latest_run_status", lambda p: str(p.latest_run_status)), _TAGS],
    ),
    ("pipeline", "runs", "list"): (
        "list_pipeline_runs",
        [
            *(_ID, Column("index", lambda r: r.index), Column("run_name", lambda r: r.name)),
            Column("pipeline", lambda r: r.pipeline.name),
            *(Column("status", lambda r: str(r.status)), Column("stack", lambda r: r.stack.name)),
        ],
    ),
    ("artifact", "list"): (
        "list_artifacts",
        [_ID, _NAME, Column("latest_version_name", lambda a: a.latest_version_name), _TAGS],
    ),
    ("artifact", "version", "list"): (
        "list_artifact_versions",
        [
            *(_ID, Column("artifact", lambda a: a.name), Column("version", lambda a: a.version)),
            *(Column("type", lambda a: a.type.value), _TAGS),
        ],
    ),
    ("model", "list"): (
        "list_models",
        [_ID, _NAME, Column("latest_version_name", lambda m: m.latest_version_name), _TAGS],
    ),
    ("model", "version", "list"): (
        "list_model_versions",
        [
            *(_ID, Column("model", lambda v: v.model.name), _NAME),
            *(Column("number", lambda v: v.number), Column("stage", lambda v: v.stage), _TAGS),
        ],
    ),
    ("secret", "list"): ("list_secrets", [_ID, _NAME, Column("private", lambda s: s.private)]),
    ("stack", "list"): (
        "list_stacks",
        [
            *(Column("active", _is_active), _ID, _NAME),
            Column(
                "components",
                lambda s: {str(k): [c.name for c in v] for k, v in s.components.items()},
            ),
        ],
    ),
    ("tag", "list"): (
        "list_tags",
        [
            *(_ID, _NAME, Column("color", lambda t: str(t.color))),
            Column("exclusive", lambda t: t.exclusive),
        ],
    ),
    ("user", "list"): ("list_users", [_ID, _NAME]),
    ("project", "list"): ("list_projects", [_ID, _NAME]),
    ("pipeline", "schedule", "list"): (
        "list_schedules",
        [
            *(_ID, _NAME, Column("pipeline", lambda s: s.record["pipeline"])),
            Column("cron_expression", lambda s: s.cron_expression),
            *(Column("active", lambda s: s.active), Column("is_archived", lambda s: s.is_archived)),
        ],
    ),
    ("pipeline", "builds", "list"): ("list_builds", [_ID]),
    ("pipeline", "snapshot", "list"): (
        "list_snapshots",
        [_ID, _NAME, Column("pipeline", lambda s: s.pipeline.name)],
    ),
    ("code-repository", "list"): ("list_code_repositories", [_ID, _NAME]),
    ("service-connector", "list"): ("list_service_connectors", [_ID, _NAME]),
    ("service-account", "list"): ("list_service_accounts", [_ID, _NAME]),
    ("deployment", "list"): ("list_deployments", [_ID, _NAME]),
}
_KINDS = (
    *("orchestrator", "artifact-store", "container-registry", "step-operator", "feature-store"),
    *("model-deployer", "experiment-tracker", "alerter", "annotator", "data-validator"),
    *("image-builder", "model-registry", "deployer", "log-store"),
)
_COMPONENT = [_ID, _NAME, Column("flavor", lambda c: c.flavor_name)]


def main(words: Sequence[str]) -> int:
    """Run a command; returns the exit status."""
    words = list(words)
    if not words or words[0] in ("--help", "-h"):
        print(_help())
        return 0
    if words[0] == "--version":
        words[0] = "version"
    try:
        for size in (3, 2, 1):
            known = tuple(words[:size])
            if known in LISTS:
                return _list(known, words[size:])
            if known in COMMANDS:
                return COMMANDS[known](words[size:]) or 0
        if words[0] in _KINDS:
            return _component(words[0], words[1:])
        return _unknown(words)
    except (KeyError, ValueError, RuntimeError, OSError, AttributeError, StokerError) as bad:
        return _fail(str(bad.args[0]) if isinstance(bad, KeyError) and bad.args else str(bad))


def _fail(text: str) -> int:
    print(f"stoker: zenml: {text}", file=sys.stderr)
    return 1


def _say(text: str) -> int:
    print(text)
    return 0


def _help() -> str:
    groups: Dict[str, List[str]] = {}
    for words in sorted([*LISTS, *COMMANDS]):
        groups.setdefault(words[0], []).append(" ".join(words[1:]))
    lines = [
        f"  {name:20}{', '.join(filter(None, some))}".rstrip() for name, some in groups.items()
    ]
    kinds = "\n".join(f"  {kind:20}{', '.join(_component_words(kind))}" for kind in _KINDS)
    return "\n".join(
        [
            "usage: zenml COMMAND …   (Stoker's, under `stoker compat`: what it shows is in the store)",
            *("", *lines, kinds),
        ]
    )


def _unknown(words: List[str]) -> int:
    known = sorted({group[0] for group in (*LISTS, *COMMANDS)} | set(_KINDS))
    for size in (2, 1):
        why = REASONS.get(" ".join(words[:size]))
        if why is not None:
            asked = words[: 2 if words[0] in known else size]
            return _fail(f"'{' '.join(asked)}' isn't there: {why}")
    if words[0] in known:
        under = sorted(" ".join(g[1:]) for g in (*LISTS, *COMMANDS) if g[0] == words[0] and g[1:])
        return _fail(f"'{words[0]}' has {', '.join(under)}; not '{' '.join(words[1:])}'")
    return _fail(f"there is no command '{words[0]}'{did_you_mean(words[0], known)}")


# ---------------------------------------------------------------------------- lists


def _list(known: Tuple[str, ...], words: List[str]) -> int:
    function, columns = LISTS[known]
    given = _parse(known, words, [("--output", "-o")], rest=True)
    filters = _pairs(given.rest)
    for key in ("page", "size"):
        if key in filters:
            filters[key] = int(filters[key])
    try:
        page = getattr(Client(), function)(**filters)
    except TypeError as bad:  # a filter that this list doesn't have
        return _fail(str(bad))
    return _show(page, columns, given.output or "table")


def _pairs(words: Sequence[str]) -> Dict[str, Any]:
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


def _show(page: Page[Any], columns: List[Column], output: str) -> int:
    rows = [{column.key: column.of(one) for column in columns} for one in page]
    if output == "json":
        about = ("index", "max_size", "total_pages", "total")
        told = {key: getattr(page, key) for key in about}
        print(json.dumps({"items": rows, "pagination": told}, indent=2))
        return 0
    texts = [[_text(row[column.key]) for column in columns] for row in rows]
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
    _table([head.upper() for head in heads], texts)
    print(
        f"Page ({page.index}/{page.total_pages}), {page.total} items found for the applied filters."
    )
    return 0


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_text(v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _table(heads: List[str], rows: List[List[str]]) -> None:
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    for row in [heads, *rows]:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip())


def _parse(
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


_YES = [("--yes", "-y")]

# ---------------------------------------------------------------------------- here


def _init(words: List[str]) -> int:
    _parse(
        ["init"], words, [("--path",), ("--template",), ("--tag",)], flags=[("--test",), _YES[0]]
    )
    return _say("nothing to set up: the first run makes the store (.stoker) in this folder")


def _status(words: List[str]) -> int:
    client = Client()
    print(f"the store: {client.config_directory or 'none yet; the first run makes it'}")
    print(f"the active stack: '{client.active_stack_model.name}'")
    return _say("no server: `stoker ui` shows runs in a browser")


def _up(words: List[str]) -> int:
    return _say("there is no server to start or to log in to: `stoker ui` shows runs in a browser")


def _web(words: List[str]) -> int:
    from .show import show

    show()
    return 0


def _down(words: List[str]) -> int:
    return _say("there is no server, so nothing has to be stopped")


def _clean(words: List[str]) -> int:
    return _fail(
        "it would remove every run; `stoker rm RUN` removes one, `zenml artifact prune` what no run "
        "uses, and removing the folder .stoker everything"
    )


def _version(words: List[str]) -> int:
    return _say(f"version: {VERSION} (Stoker's stand-in)")


def _integration_list(words: List[str]) -> int:
    return _say("there are no integrations to install: a step imports the packages that it needs")


def _integration_install(words: List[str]) -> int:
    given = _parse(
        ["integration", "install"],
        words,
        [("--ignore-integration", "-i", list)],
        names=["names*"],
        flags=[*_YES, ("--force", "-f"), ("--uv",)],
    )
    for name in given.names:
        print(
            f"'{name}': nothing of ZenML's is needed; `pip install` the packages that steps import"
        )
    return 0


# ---------------------------------------------------------------------------- pipelines and runs


def _pipeline_run(words: List[str]) -> int:
    given = _parse(
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


def _deleting(known: Sequence[str], function: str, what: str) -> Callable[[List[str]], int]:
    def delete(words: List[str]) -> int:
        name = _parse(known, words, names=["name"], flags=_YES).name
        getattr(Client(), function)(name)
        return _say(f"deleted {what} '{name}'")

    return delete


def _schedule_update(words: List[str]) -> int:
    known = ["pipeline", "schedule", "update"]
    given = _parse(known, words, [("--cron-expression", "-c")], names=["name"])
    if not given.cron_expression:
        return _say("No schedule update requested.")
    Client().update_schedule(given.name, given.cron_expression)
    return _say(f"Updated schedule '{given.name}'.")


def _switching(word: str, active: bool) -> Callable[[List[str]], int]:
    def switch(words: List[str]) -> int:
        name = _parse(["pipeline", "schedule", word], words, names=["name"]).name
        Client().update_schedule(name, active=active)
        return _say(f"{word.capitalize()}d schedule '{name}'.")

    return switch


def _schedule_delete(words: List[str]) -> int:
    known = ["pipeline", "schedule", "delete"]
    given = _parse(known, words, names=["name"], flags=[*_YES, ("--hard", "-H")])
    Client().delete_schedule(given.name, soft=not given.hard)
    return _say(f"Deleted schedule '{given.name}'.")


def _snapshot_create(words: List[str]) -> int:
    options = [
        ("--name", "-n"),
        ("--description", "-d"),
        ("--config", "-c"),
        ("--tags", "-t", list),
    ]
    known = ["pipeline", "snapshot", "create"]
    flags = [("--replace", "-r")]
    given = _parse(known, words, options, names=["source"], flags=flags)
    pipeline = _imported(given.source)
    if given.config:
        pipeline = pipeline.with_options(config_path=given.config)
    name = given.name or pipeline.name
    pipeline.create_snapshot(name, given.description, given.replace, given.tags)
    return _say(f"made snapshot '{name}'")


def _snapshot_run(words: List[str]) -> int:
    known = ["pipeline", "snapshot", "run"]
    options = [("--pipeline", "-p"), ("--config", "-c"), ("--stack", "-s")]
    given = _parse(known, words, options, names=["snapshot"])
    run = Client().trigger_pipeline(
        given.snapshot, given.pipeline, config_path=given.config, stack_name_or_id=given.stack
    )
    return _say(f"started run '{run.name}'")


# ---------------------------------------------------------------------------- artifacts and models


def _prune(words: List[str]) -> int:
    _parse(
        ["artifact", "prune"],
        words,
        flags=[*_YES, ("--only-artifact",), ("--only-metadata",), ("--ignore-errors", "-i")],
    )
    before = Client().list_artifact_versions(size=1).total
    Client().prune_artifacts()
    gone = before - Client().list_artifact_versions(size=1).total
    return _say(f"deleted {gone} versions of artifacts that no run uses")


def _artifact_update(words: List[str]) -> int:
    given = _parse(["artifact", "update"], words, [("--name", "-n"), *_TAGGING], names=["artifact"])
    Client().update_artifact(given.artifact, given.name, given.tag, given.remove_tag)
    return _say(f"updated artifact '{given.artifact}'")


def _version_update(words: List[str]) -> int:
    given = _parse(
        ["artifact", "version", "update"],
        words,
        [("--version", "-v"), *_TAGGING],
        names=["artifact"],
    )
    Client().update_artifact_version(given.artifact, given.version, given.tag, given.remove_tag)
    return _say(f"updated a version of artifact '{given.artifact}'")


_TAGGING = [("--tag", "-t", list), ("--remove-tag", "-r", list)]
_ABOUT = [
    *(("--license", "-l"), ("--description", "-d"), ("--audience", "-a"), ("--use-cases", "-u")),
    *(("--tradeoffs",), ("--ethical", "-e"), ("--limitations",)),
    ("--save-models-to-registry", "-s"),
]


def _about(given: Arguments) -> Dict[str, Any]:
    words = {"tradeoffs": "trade_offs", "ethical": "ethics"}
    fields = (
        "license",
        "description",
        "audience",
        "use_cases",
        "tradeoffs",
        "ethical",
        "limitations",
    )
    return {words.get(field, field): getattr(given, field) for field in fields}


def _model_register(words: List[str]) -> int:
    given = _parse(["model", "register"], words, [("--name", "-n"), *_ABOUT, ("--tag", "-t", list)])
    if not given.name:
        raise ValueError("model register needs --name NAME")
    Client().create_model(given.name, tags=given.tag, **_about(given))
    return _say(f"made model '{given.name}'")


def _model_update(words: List[str]) -> int:
    given = _parse(
        ["model", "update"], words, [("--name", "-n"), *_ABOUT, *_TAGGING], names=["model"]
    )
    Client().update_model(
        given.model,
        name=given.name,
        add_tags=given.tag,
        remove_tags=given.remove_tag,
        **_about(given),
    )
    return _say(f"updated model '{given.model}'")


def _model_version_update(words: List[str]) -> int:
    given = _parse(
        ["model", "version", "update"],
        words,
        [("--stage", "-s"), ("--name", "-n"), ("--description", "-d"), *_TAGGING],
        names=["model", "version"],
        flags=[("--force", "-f")],
    )
    Client().update_model_version(
        given.model,
        given.version,
        stage=given.stage,
        force=given.force,
        name=given.name,
        description=given.description,
        add_tags=given.tag,
        remove_tags=given.remove_tag,
    )
    return _say(f"updated version '{given.version}' of model '{given.model}'")


def _model_version_delete(words: List[str]) -> int:
    given = _parse(["model", "version", "delete"], words, names=["model", "version"], flags=_YES)
    Client().delete_model_version(Client().get_model_version(given.model, given.version).id)
    return _say(f"deleted version '{given.version}' of model '{given.model}'")


# ---------------------------------------------------------------------------- secrets and tags


def _values(given: Arguments) -> Dict[str, str]:
    found: Dict[str, str] = dict(_pairs(given.rest))
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
    return _parse(
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
    return _say(f"secret '{given.name}' is kept, encrypted, in the store")


def _secret_update(words: List[str]) -> int:
    given = _secret_words("update", words, [("--remove-keys", "-r", list)])
    Client().update_secret(
        given.name, add_or_update_values=_values(given), remove_values=given.remove_keys
    )
    return _say(f"updated secret '{given.name}'")


def _secret_rename(words: List[str]) -> int:
    given = _parse(["secret", "rename"], words, [("--new-name", "-n")], names=["name"])
    if not given.new_name:
        raise ValueError("secret rename needs --new-name NAME")
    Client().update_secret(given.name, new_name=given.new_name)
    return _say(f"secret '{given.name}' is '{given.new_name}' now")


def _secret_get(words: List[str]) -> int:
    given = _parse(["secret", "get"], words, [("--private", "-p")], names=["name"])
    found = Client().get_secret(given.name)
    _table(["KEY", "VALUE"], [[key, value] for key, value in found.secret_values.items()])
    return 0


def _tag_create(words: List[str]) -> int:
    given = _parse(
        ["tag", "create"],
        words,
        [("--name", "-n"), ("--color", "-c")],
        names=["tag?"],
        flags=[("--exclusive",)],
    )
    name = given.name or given.tag
    if not name:
        raise ValueError("tag create needs --name NAME")
    Client().create_tag(name, given.color, given.exclusive)
    return _say(f"made tag '{name}'")


# ---------------------------------------------------------------------------- stacks


def _stack_describe(words: List[str]) -> int:
    given = _parse(["stack", "describe"], words, [("--output", "-o")], names=["name?"])
    stack = Client().get_stack(given.name)
    rows = [[str(k).upper(), one.name] for k, some in stack.components.items() for one in some]
    _table(["COMPONENT_TYPE", "COMPONENT_NAME"], rows)
    return _say(f"'{stack.name}'{' (active)' if _is_active(stack) else ''}: {stack.description}")


def _stack_get(words: List[str]) -> int:
    name, found = stacks.active_name(), Client().active_stack_model.name
    if found not in (name, name.partition(":")[0]):
        return _fail(
            f"the active stack is '{name}', which isn't there; `zenml stack list` shows all"
        )
    return _say(f"The active stack is: '{name}'")


def _stack_set(words: List[str]) -> int:
    name = _parse(["stack", "set"], words, names=["name"]).name
    Client().activate_stack(name)
    return _say(f"runs of this project's programs go to the stack '{stacks.active_name()}'")


_PARTS = [  # of a stack: options → type
    (("--orchestrator", "-o"), "orchestrator"),
    (("--artifact-store", "--artifact_store", "-a"), "artifact_store"),
    (("--container_registry", "--container-registry", "-c"), "container_registry"),
    (("--step_operator", "--step-operator", "-s"), "step_operator"),
    (("--experiment_tracker", "--experiment-tracker", "-e"), "experiment_tracker"),
    (("--model_registry", "--model-registry", "-r"), "model_registry"),
    (("--image_builder", "--image-builder", "-i"), "image_builder"),
    (("--feature_store", "-f"), "feature_store"),
    (("--model_deployer", "-d"), "model_deployer"),
    (("--alerter", "-al"), "alerter"),
    (("--annotator", "-an"), "annotator"),
    (("--data_validator", "-dv"), "data_validator"),
    (("--deployer", "-D"), "deployer"),
    (("--log_store", "-l"), "log_store"),
]


def _chosen(word: str, words: List[str], names: List[str]) -> Arguments:
    """The words of a command with a stack's components, as ``components``."""
    given = _parse(
        ["stack", word], words, [(*flags, list) for flags, _ in _PARTS], names, [("--set",)]
    )
    some = {kind: getattr(given, flags[0][2:].replace("-", "_")) for flags, kind in _PARTS}
    given.components = {kind: found for kind, found in some.items() if found}
    return given


def _stack_register(words: List[str]) -> int:
    given = _chosen("register", words, ["name"])
    Client().create_stack(given.name, given.components)
    if given.set:
        Client().activate_stack(given.name)
    return _say(f"Stack '{given.name}' successfully registered!")


def _stack_update(words: List[str]) -> int:
    given = _chosen("update", words, ["name?"])
    made = Client().update_stack(given.name, component_updates=given.components)
    return _say(f"Stack `{made.name}` successfully updated!")


def _stack_rename(words: List[str]) -> int:
    given = _parse(["stack", "rename"], words, names=["name", "new_name"])
    Client().update_stack(given.name, name=given.new_name)
    return _say(f"Stack `{given.name}` successfully renamed to `{given.new_name}`!")


def _stack_delete(words: List[str]) -> int:
    flags = [*_YES, ("--recursive", "-r")]
    given = _parse(["stack", "delete"], words, names=["name"], flags=flags)
    Client().delete_stack(given.name, given.recursive)
    return _say(f"Deleted stack '{given.name}'.")


def _component(kind: str, words: List[str]) -> int:
    client, word = Client(), words[0] if words else "list"
    typed = kind.replace("-", "_")
    if word == "list":
        given = _parse([kind, "list"], words[1:], [("--output", "-o")], rest=True)
        page = client.list_stack_components(type=typed, **_pairs(given.rest))
        return _show(page, _COMPONENT, given.output or "table")
    if word in ("describe", "get"):
        name = _parse([kind, word], words[1:], names=["name?"]).name
        found = client.get_stack_component(typed, name)
        print(f"'{found.name}': flavor {found.flavor_name}")
        settings = found.configuration.items()
        _table(["PROPERTY", "VALUE"], [[key, _text(value)] for key, value in settings])
        return 0
    if word == "flavor":
        return _show(client.list_flavors(type=typed, size=100), [_NAME], "table")
    if kind in _REGISTERED and word == "register":
        given = _parse([kind, word], words[1:], [("--flavor", "-f")], names=["name"], rest=True)
        if not given.flavor:
            known = ", ".join(one.name for one in client.list_flavors(type=typed, size=100))
            raise ValueError(f"{kind} register needs --flavor, one of {known}")
        client.create_stack_component(given.name, given.flavor, typed, _pairs(given.rest))
        had = ", which every stack has" if given.flavor == "mlflow" else ""
        return _say(f"made {kind} '{given.name}'{had}")
    if kind in _REGISTERED and word == "update":
        given = _parse([kind, word], words[1:], names=["name"], rest=True)
        client.update_stack_component(given.name, typed, configuration=_pairs(given.rest))
        return _say(f"changed {kind} '{given.name}'")
    if kind in _REGISTERED and word == "delete":
        name = _parse([kind, word], words[1:], names=["name"], flags=_YES).name
        client.delete_stack_component(name, typed)
        return _say(f"deleted {kind} '{name}'")
    return _fail(
        f"'{kind} {word}' isn't there: {kind} has {', '.join(_component_words(kind))}, and "
        "stoker.yaml says where steps run"
    )


_REGISTERED = (
    *("experiment-tracker", "model-registry", "orchestrator", "artifact-store"),
    *("container-registry", "step-operator", "image-builder"),
)


def _component_words(kind: str) -> List[str]:
    more = ["register", "update", "delete"] if kind in _REGISTERED else []
    return ["list", "describe", "get", "flavor", *more]


COMMANDS: Dict[Tuple[str, ...], Callable[[List[str]], Optional[int]]] = {
    ("init",): _init,
    ("status",): _status,
    ("info",): _status,
    ("version",): _version,
    **dict.fromkeys((("up",), ("login",), ("connect",)), _up),
    **dict.fromkeys((("down",), ("logout",), ("disconnect",)), _down),
    ("show",): _web,
    ("clean",): _clean,
    ("integration", "list"): _integration_list,
    ("integration", "install"): _integration_install,
    ("integration", "upgrade"): _integration_install,
    ("integration", "requirements"): _integration_list,
    ("pipeline", "run"): _pipeline_run,
    ("pipeline", "delete"): _deleting(["pipeline", "delete"], "delete_pipeline", "pipeline"),
    ("pipeline", "schedule", "update"): _schedule_update,
    ("pipeline", "schedule", "activate"): _switching("activate", True),
    ("pipeline", "schedule", "deactivate"): _switching("deactivate", False),
    ("pipeline", "schedule", "delete"): _schedule_delete,
    ("pipeline", "snapshot", "create"): _snapshot_create,
    ("pipeline", "snapshot", "run"): _snapshot_run,
    ("pipeline", "snapshot", "delete"): _deleting(
        ["pipeline", "snapshot", "delete"], "delete_snapshot", "snapshot"
    ),
    ("pipeline", "runs", "delete"): _deleting(
        ["pipeline", "runs", "delete"], "delete_pipeline_run", "run"
    ),
    ("artifact", "prune"): _prune,
    ("artifact", "update"): _artifact_update,
    ("artifact", "version", "update"): _version_update,
    ("model", "register"): _model_register,
    ("model", "update"): _model_update,
    ("model", "delete"): _deleting(["model", "delete"], "delete_model", "model"),
    ("model", "version", "update"): _model_version_update,
    ("model", "version", "delete"): _model_version_delete,
    ("secret", "create"): _secret_create,
    ("secret", "update"): _secret_update,
    ("secret", "rename"): _secret_rename,
    ("secret", "get"): _secret_get,
    ("secret", "delete"): _deleting(["secret", "delete"], "delete_secret", "secret"),
    ("tag", "create"): _tag_create,
    ("tag", "delete"): _deleting(["tag", "delete"], "delete_tag", "tag"),
    ("stack", "describe"): _stack_describe,
    ("stack", "get"): _stack_get,
    ("stack", "set"): _stack_set,
    ("stack", "register"): _stack_register,
    ("stack", "update"): _stack_update,
    ("stack", "rename"): _stack_rename,
    ("stack", "delete"): _stack_delete,
}
_STACKS = "stoker.yaml says where steps run: change the stack there"
_NO_SERVICE = "Stoker runs no service"
REASONS = {
    "stack": _STACKS,
    "flavor": "there are no flavors to install",
    "service-connector": "credentials are those of the machine and of stoker.yaml",
    "service-account": "a store has no accounts",
    "authorized-device": "a store has no accounts",
    "user": "a store has no accounts",
    "project": "a store is one project; another folder is another one",
    "code-repository": "a run keeps the digest of its code",
    "deployment": f"{_NO_SERVICE}, so there is nothing to deploy to",
    "pipeline deploy": f"{_NO_SERVICE}, so there is nothing to deploy to",
    "pipeline build": "`stoker build FILE` builds the images of a pipeline's steps",
    "pipeline create-run-template": "`zenml pipeline snapshot create` is its newer name",
    "pipeline register": "a run registers its pipeline by itself",
    "pipeline runs": "`stoker cancel RUN` ends a run",
    "trigger": f"{_NO_SERVICE} that could start runs",
    "server": "there is no server",
    "logs": "`stoker logs STEP` shows what a step printed",
    "analytics": "nothing is told to anybody",
    "logging": "`stoker` has no levels of logging",
    "go": "docs/steps.md begins with a first pipeline",
    "backup-database": "the store is the folder .stoker: copy it while no run goes on",
    "restore-database": "the store is the folder .stoker: copy it back",
    "migrate-database": "the store is brought up to date when it is opened",
    "downgrade": "an older Stoker says whether it can read the store",
}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
