"""``zenml stack …``."""

from __future__ import annotations

from typing import Any, List

from .. import stacks
from ..client import Client
from ._words import ID, NAME, YES, Arguments, Column, Commands, Lists, fail, parse, say, table


def _is_active(stack: Any) -> bool:
    return bool(stack.name == Client().active_stack_model.name)


def _stack_describe(words: List[str]) -> int:
    given = parse(["stack", "describe"], words, [("--output", "-o")], names=["name?"])
    stack = Client().get_stack(given.name)
    rows = [[str(k).upper(), one.name] for k, some in stack.components.items() for one in some]
    table(["COMPONENT_TYPE", "COMPONENT_NAME"], rows)
    return say(f"'{stack.name}'{' (active)' if _is_active(stack) else ''}: {stack.description}")


def _stack_get(words: List[str]) -> int:
    name, found = stacks.active_name(), Client().active_stack_model.name
    if found not in (name, name.partition(":")[0]):
        return fail(
            f"the active stack is '{name}', which isn't there; `zenml stack list` shows all"
        )
    return say(f"The active stack is: '{name}'")


def _stack_set(words: List[str]) -> int:
    name = parse(["stack", "set"], words, names=["name"]).name
    Client().activate_stack(name)
    return say(f"runs of this project's programs go to the stack '{stacks.active_name()}'")


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
    given = parse(
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
    return say(f"Stack '{given.name}' successfully registered!")


def _stack_update(words: List[str]) -> int:
    given = _chosen("update", words, ["name?"])
    made = Client().update_stack(given.name, component_updates=given.components)
    return say(f"Stack `{made.name}` successfully updated!")


def _stack_rename(words: List[str]) -> int:
    given = parse(["stack", "rename"], words, names=["name", "new_name"])
    Client().update_stack(given.name, name=given.new_name)
    return say(f"Stack `{given.name}` successfully renamed to `{given.new_name}`!")


def _stack_delete(words: List[str]) -> int:
    flags = [*YES, ("--recursive", "-r")]
    given = parse(["stack", "delete"], words, names=["name"], flags=flags)
    Client().delete_stack(given.name, given.recursive)
    return say(f"Deleted stack '{given.name}'.")


LISTS: Lists = {
    ("stack", "list"): (
        "list_stacks",
        [
            *(Column("active", _is_active), ID, NAME),
            Column(
                "components",
                lambda s: {str(k): [c.name for c in v] for k, v in s.components.items()},
            ),
        ],
    ),
}


COMMANDS: Commands = {
    ("stack", "describe"): _stack_describe,
    ("stack", "get"): _stack_get,
    ("stack", "set"): _stack_set,
    ("stack", "register"): _stack_register,
    ("stack", "update"): _stack_update,
    ("stack", "rename"): _stack_rename,
    ("stack", "delete"): _stack_delete,
}
