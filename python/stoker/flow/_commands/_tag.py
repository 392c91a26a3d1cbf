"""``tag add|list|remove|replace``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterable, List

from .. import client
from ..exception import CommandException, MetaflowNamespaceMismatch, MetaflowNotFound

if TYPE_CHECKING:
    from ._context import Context

_WIDE = 120  # characters of a line of tags
_GAP = 4


def _run_of(context: Context, run: Any, namespace: Any) -> client.Run:
    """The run that ``--run-id`` names.

    Raises:
        CommandException: it is missing, or the namespace has no such run.
    """
    wanted = client.get_namespace() if namespace is None else namespace or None
    client.namespace(wanted)
    where = f" in namespace '{wanted}'; --namespace names another" if wanted else ""
    try:
        flow = client.Flow(context.name)
        if run is None:
            latest = flow.latest_run
            raise CommandException(
                f"--run-id is missing: {context.name}'s latest run is {latest and latest.id}"
            )
        return client.Run(f"{context.name}/{run.rpartition('/')[2]}")
    except MetaflowNotFound:
        raise CommandException(f"no run '{run or ''}' of flow {context.name}") from None
    except MetaflowNamespaceMismatch:
        raise CommandException(f"no run '{run or ''}' of flow {context.name}{where}") from None


def add(context: Context, values: Dict[str, Any]) -> None:
    """Add tags."""
    _change(context, values, [], values["tags"])


def remove(context: Context, values: Dict[str, Any]) -> None:
    """Remove tags."""
    _change(context, values, values["tags"], [])


def replace(context: Context, values: Dict[str, Any]) -> None:
    """Replace tags in one step."""
    if not values["add"] and not values["remove"]:
        raise CommandException("give at least one --add or --remove")
    _change(context, values, values["remove"], values["add"])


def _change(context: Context, values: Dict[str, Any], gone: List[str], new: List[str]) -> None:
    run = _run_of(context, values["run_id"], values["namespace"])
    run.replace_tags(gone, new)
    context.say("Operation successful. New tags:")
    _print(context, {run.pathspec: run.tags}, {run.pathspec: run.system_tags}, "run")


def listing(context: Context, values: Dict[str, Any]) -> None:
    """List the tags of one run, of all runs, or of your own, together or grouped."""
    run = values["run_id"] or values["arg_run_id"]
    _agree(values)
    if run is None:
        client.namespace(client.default_namespace() if values["my_runs"] else None)
        try:
            runs = list(client.Flow(context.name))
        except (MetaflowNotFound, MetaflowNamespaceMismatch):
            raise CommandException(f"flow {context.name} has never been run here") from None
    else:
        runs = [_run_of(context, run, "")]
    every: Dict[str, Any] = {}
    system: Dict[str, Any] = {}
    together = ",".join(r.pathspec for r in runs)
    for one in runs:
        own = frozenset() if values["hide_system_tags"] else one.system_tags
        if values["group_by_tag"]:
            for tag in one.user_tags:
                every.setdefault(tag, []).append(one.pathspec)
            for tag in own:
                system.setdefault(tag, []).append(one.pathspec)
            continue
        key = one.pathspec if values["group_by_run"] else together
        every[key] = every.get(key, frozenset()) | one.user_tags | own
        system[key] = system.get(key, frozenset()) | own
    if values["flat"]:
        for tag in sorted(every.get(together, ())):
            context.say(tag)
        return
    _print(context, every, system, "tag" if values["group_by_tag"] else "run")


def _agree(values: Dict[str, Any]) -> None:
    for one, other in (
        ("all", "my_runs"),
        ("run_id", "arg_run_id"),
        ("group_by_tag", "group_by_run"),
        ("flat", "group_by_tag"),
        ("flat", "group_by_run"),
    ):
        if values[one] and values[other]:
            names = [f"--{n.replace('_', '-')}" for n in (one, other)]
            raise CommandException(f"{' and '.join(names)} exclude each other")


def _print(context: Context, every: Dict[str, Any], system: Dict[str, Any], by: str) -> None:
    if not context.quiet:
        print("\nSystem tags and tags; only tags can be modified")
        print("--------------------------------------------------------\n")
    for name in sorted(set(every) | set(system)):
        if by == "run" and context.quiet:
            own = set(system.get(name, ()))
            parts = [name, ",".join(sorted(own)), ",".join(sorted(set(every[name]) - own))]
            print(" ; ".join(parts))
            continue
        for kind, found in (("user", every), ("system", system)):
            if by == "run" and kind == "system":
                continue
            if name not in found or (by == "tag" and not found[name]):
                continue
            if context.quiet:
                print(f"{kind}:{name} ; {','.join(found[name])}")
                continue
            if by == "tag" or len(every) > 1:
                print(f"For {by} {name}")
            print(_columns(found[name]))


def _columns(words: Iterable[str]) -> str:
    """Words in columns, sorted downwards, within 120 characters."""
    words = sorted(words)
    wide = max(map(len, words), default=0)
    n_columns = max(1, (_WIDE + _GAP) // (wide + _GAP))
    n_lines = -(-len(words) // n_columns)
    lines = [
        (" " * _GAP).join(f"{w:<{wide}}" for w in words[i::n_lines]).rstrip()
        for i in range(n_lines)
    ]
    return "\n".join([*lines, ""])
