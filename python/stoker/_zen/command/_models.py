"""``zenml model …``."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from ..client import Client
from ._words import (
    ID,
    NAME,
    TAGGING,
    TAGS,
    YES,
    Arguments,
    Column,
    Commands,
    Lists,
    deleting,
    parse,
    say,
    table,
)

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
    given = parse(["model", "register"], words, [("--name", "-n"), *_ABOUT, ("--tag", "-t", list)])
    if not given.name:
        raise ValueError("model register needs --name NAME")
    Client().create_model(given.name, tags=given.tag, **_about(given))
    return say(f"made model '{given.name}'")


def _model_update(words: List[str]) -> int:
    given = parse(
        ["model", "update"], words, [("--name", "-n"), *_ABOUT, *TAGGING], names=["model"]
    )
    Client().update_model(
        given.model,
        name=given.name,
        add_tags=given.tag,
        remove_tags=given.remove_tag,
        **_about(given),
    )
    return say(f"updated model '{given.model}'")


def _model_version_update(words: List[str]) -> int:
    given = parse(
        ["model", "version", "update"],
        words,
        [("--stage", "-s"), ("--name", "-n"), ("--description", "-d"), *TAGGING],
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
    return say(f"updated version '{given.version}' of model '{given.model}'")


def _model_version_delete(words: List[str]) -> int:
    given = parse(["model", "version", "delete"], words, names=["model", "version"], flags=YES)
    Client().delete_model_version(Client().get_model_version(given.model, given.version).id)
    return say(f"deleted version '{given.version}' of model '{given.model}'")


def _linked(word: str) -> Callable[[List[str]], int]:
    """The command that lists a part of what is linked to a version."""

    def linked(words: List[str]) -> int:
        options = [("--model_version", "--model-version", "-v")]
        given = parse(["model", word], words, options, names=["model"])
        version = Client().get_model_version(given.model, given.model_version)
        if word == "runs":
            table(["RUN", "STATUS"], [[n, str(r.status)] for n, r in version.pipeline_runs.items()])
            return 0
        some: Dict[str, Dict[str, Any]] = getattr(version, word)
        rows = [[name, v, str(a.id)] for name, of in some.items() for v, a in of.items()]
        table(["ARTIFACT", "VERSION", "ID"], rows)
        return 0

    return linked


LISTS: Lists = {
    ("model", "list"): (
        "list_models",
        [ID, NAME, Column("latest_version_name", lambda m: m.latest_version_name), TAGS],
    ),
    ("model", "version", "list"): (
        "list_model_versions",
        [
            *(ID, Column("model", lambda v: v.model.name), NAME),
            *(Column("number", lambda v: v.number), Column("stage", lambda v: v.stage), TAGS),
        ],
    ),
}


COMMANDS: Commands = {
    ("model", "register"): _model_register,
    ("model", "update"): _model_update,
    ("model", "delete"): deleting(["model", "delete"], "delete_model", "model"),
    **{
        ("model", word): _linked(word)
        for word in ("data_artifacts", "model_artifacts", "deployment_artifacts", "runs")
    },
    ("model", "version", "update"): _model_version_update,
    ("model", "version", "delete"): _model_version_delete,
}
