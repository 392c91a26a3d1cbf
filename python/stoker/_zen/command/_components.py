"""``zenml orchestrator …`` and the other kinds of components."""

from __future__ import annotations

from typing import List

from ..client import Client
from ._words import ID, NAME, YES, Column, fail, pairs, parse, say, show, table, text_of

KINDS = (
    *("orchestrator", "artifact-store", "container-registry", "step-operator", "feature-store"),
    *("model-deployer", "experiment-tracker", "alerter", "annotator", "data-validator"),
    *("image-builder", "model-registry", "deployer", "log-store"),
)


_COMPONENT = [ID, NAME, Column("flavor", lambda c: c.flavor_name)]


_REGISTERED = (
    *("experiment-tracker", "model-registry", "orchestrator", "artifact-store"),
    *("container-registry", "step-operator", "image-builder", "model-deployer"),
    *("alerter", "annotator", "data-validator", "feature-store"),
)


def component(kind: str, words: List[str]) -> int:
    """Run a command of a kind of component."""
    client, word = Client(), words[0] if words else "list"
    typed = kind.replace("-", "_")
    if word == "list":
        given = parse([kind, "list"], words[1:], [("--output", "-o")], rest=True)
        page = client.list_stack_components(type=typed, **pairs(given.rest))
        return show(page, _COMPONENT, given.output or "table")
    if word in ("describe", "get"):
        name = parse([kind, word], words[1:], names=["name?"]).name
        found = client.get_stack_component(typed, name)
        print(f"'{found.name}': flavor {found.flavor_name}")
        settings = found.configuration.items()
        table(["PROPERTY", "VALUE"], [[key, text_of(value)] for key, value in settings])
        return 0
    if words[:2] == ["flavor", "register"]:
        source = parse([kind, word, "register"], words[2:], names=["source"]).source
        return say(f"registered flavor '{client.create_flavor(source, typed).name}'")
    if words[:2] == ["flavor", "delete"]:
        name = parse([kind, word, "delete"], words[2:], names=["name"], flags=YES).name
        client.delete_flavor(name)
        return say(f"deleted flavor '{name}'")
    if word == "flavor":
        return show(client.list_flavors(type=typed, size=100), [NAME], "table")
    if kind in _REGISTERED and word == "register":
        given = parse([kind, word], words[1:], [("--flavor", "-f")], names=["name"], rest=True)
        if not given.flavor:
            known = ", ".join(one.name for one in client.list_flavors(type=typed, size=100))
            raise ValueError(f"{kind} register needs --flavor, one of {known}")
        client.create_stack_component(given.name, given.flavor, typed, pairs(given.rest))
        had = ", which every stack has" if given.flavor == "mlflow" else ""
        return say(f"made {kind} '{given.name}'{had}")
    if kind in _REGISTERED and word == "update":
        given = parse([kind, word], words[1:], names=["name"], rest=True)
        client.update_stack_component(given.name, typed, configuration=pairs(given.rest))
        return say(f"changed {kind} '{given.name}'")
    if kind in _REGISTERED and word == "delete":
        name = parse([kind, word], words[1:], names=["name"], flags=YES).name
        client.delete_stack_component(name, typed)
        return say(f"deleted {kind} '{name}'")
    return fail(
        f"'{kind} {word}' isn't there: {kind} has {', '.join(component_words(kind))}, and "
        "stoker.yaml says where steps run"
    )


def component_words(kind: str) -> List[str]:
    """The commands of a kind."""
    more = ["register", "update", "delete"] if kind in _REGISTERED else []
    return ["list", "describe", "get", "flavor", *more]
