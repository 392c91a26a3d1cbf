"""The command ``zenml`` under ``stoker compat``: what it lists and changes is in the store.

What needs a server, or installs parts of ZenML, says what to do instead.
"""

from __future__ import annotations

import sys
from typing import Dict, List, Optional, Sequence

from ..._base.errors import StokerError, did_you_mean
from . import _absent, _artifacts, _here, _models, _pipelines, _secrets, _served, _stacks, _tags
from ._components import KINDS, component, component_words
from ._words import HELP, Commands, Lists, fail, list_of

_LISTS: Lists = {
    **_pipelines.LISTS,
    **_artifacts.LISTS,
    **_models.LISTS,
    **_secrets.LISTS,
    **_stacks.LISTS,
    **_tags.LISTS,
    **_absent.LISTS,
}
_COMMANDS: Commands = {
    **_here.COMMANDS,
    **_pipelines.COMMANDS,
    **_artifacts.COMMANDS,
    **_models.COMMANDS,
    **_secrets.COMMANDS,
    **_served.COMMANDS,
    **_stacks.COMMANDS,
    **_tags.COMMANDS,
}


def main(words: Sequence[str]) -> int:
    """Run a command; returns the exit status."""
    words = list(words)
    if not words or words[0] in HELP:
        print(_help())
        return 0
    if words[0] == "--version":
        words[0] = "version"
    group = _group(words)
    try:
        if group is not None:
            print(_help(*group))
            return 0 if words[-1] in HELP else 2
        for size in (3, 2, 1):
            known = tuple(words[:size])
            if known in _LISTS:
                return list_of(known, words[size:], *_LISTS[known])
            if known in _COMMANDS:
                return _COMMANDS[known](words[size:]) or 0
        if words[0] in KINDS:
            return component(words[0], words[1:])
        return _unknown(words)
    except (KeyError, ValueError, RuntimeError, OSError, AttributeError, StokerError) as bad:
        return fail(str(bad.args[0]) if isinstance(bad, KeyError) and bad.args else str(bad))


def _group(words: List[str]) -> Optional[List[str]]:
    """The group of commands that is named without a command, or whose help is asked for."""
    named = words[: -1 if words[-1] in HELP else None]
    if named in [[kind] for kind in KINDS]:
        return named
    if tuple(named) in _LISTS or tuple(named) in _COMMANDS:
        return None
    return (
        named if any([*known[: len(named)]] == named for known in (*_LISTS, *_COMMANDS)) else None
    )


def _help(*group: str) -> str:
    """The commands, or those of a group."""
    groups: Dict[str, List[str]] = {}
    for words in sorted([*_LISTS, *_COMMANDS]):
        if words[: len(group)] == group:
            groups.setdefault(words[0], []).append(" ".join(words[1:]))
    for kind in KINDS:
        if group in ((), (kind,)):
            groups.setdefault(kind, []).extend(component_words(kind))
    lines = [
        f"  {name:20}{', '.join(filter(None, some))}".rstrip() for name, some in groups.items()
    ]
    named = " ".join(["zenml", *group, "COMMAND …"])
    says = "(Stoker's, under `stoker compat`: what it shows is in the store)"
    return "\n".join([f"usage: {named}   {says}", "", *lines])


def _unknown(words: List[str]) -> int:
    known = sorted({group[0] for group in (*_LISTS, *_COMMANDS)} | set(KINDS))
    for size in (2, 1):
        why = _absent.REASONS.get(" ".join(words[:size]))
        if why is not None:
            asked = words[: 2 if words[0] in known else size]
            return fail(f"'{' '.join(asked)}' isn't there: {why}")
    if words[0] in known:
        under = sorted(" ".join(g[1:]) for g in (*_LISTS, *_COMMANDS) if g[0] == words[0] and g[1:])
        fail(f"'{words[0]}' has {', '.join(under)}; not '{' '.join(words[1:])}'")
        return 2
    fail(f"there is no command '{words[0]}'{did_you_mean(words[0], known)}")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
