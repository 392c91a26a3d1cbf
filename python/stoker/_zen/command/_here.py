"""Commands about this folder, and those that need a server."""

from __future__ import annotations

from typing import List

from ..client import Client
from ..configuration import VERSION
from ._words import HELP, YES, Commands, fail, parse, say


def _init(words: List[str]) -> int:
    parse(["init"], words, [("--path",), ("--template",), ("--tag",)], flags=[("--test",), YES[0]])
    return say("nothing to set up: the first run makes the store (.stoker) in this folder")


def _status(words: List[str]) -> int:
    client = Client()
    print(f"the store: {client.config_directory or 'none yet; the first run makes it'}")
    print(f"the active stack: '{client.active_stack_model.name}'")
    return say("no server: `stoker ui` shows runs in a browser")


def _up(words: List[str]) -> int:
    return say("there is no server to start or to log in to: `stoker ui` shows runs in a browser")


def _web(words: List[str]) -> int:
    from ..show import show

    show()
    return 0


def _down(words: List[str]) -> int:
    return say("there is no server, so nothing has to be stopped")


def _clean(words: List[str]) -> int:
    return fail(
        "it would remove every run; `stoker rm RUN` removes one, `zenml artifact prune` what no run "
        "uses, and removing the folder .stoker everything"
    )


def _analytics(words: List[str]) -> int:
    return say("Analytics opt-in: False (nothing is told to anybody)")


def _verbosity(words: List[str]) -> int:
    level = parse(["logging", "set-verbosity"], words, names=["level"]).level
    return say(f"'{level}' changes nothing: Stoker has no levels of logging")


def _version(words: List[str]) -> int:
    if any(word in HELP for word in words):
        return say("usage: zenml version")
    return say(f"version: {VERSION} (Stoker's stand-in)")


def _integration_list(words: List[str]) -> int:
    return say("there are no integrations to install: a step imports the packages that it needs")


def _integration_install(words: List[str]) -> int:
    given = parse(
        ["integration", "install"],
        words,
        [("--ignore-integration", "-i", list)],
        names=["names*"],
        flags=[*YES, ("--force", "-f"), ("--uv",)],
    )
    for name in given.names:
        print(
            f"'{name}': nothing of ZenML's is needed; `pip install` the packages that steps import"
        )
    return 0


COMMANDS: Commands = {
    ("init",): _init,
    ("status",): _status,
    ("info",): _status,
    ("version",): _version,
    **{("analytics", word): _analytics for word in ("get", "opt-in", "opt-out")},
    ("logging", "set-verbosity"): _verbosity,
    **dict.fromkeys((("up",), ("login",), ("connect",)), _up),
    **dict.fromkeys((("down",), ("logout",), ("disconnect",)), _down),
    ("show",): _web,
    ("clean",): _clean,
    ("integration", "list"): _integration_list,
    ("integration", "install"): _integration_install,
    ("integration", "upgrade"): _integration_install,
    ("integration", "requirements"): _integration_list,
}
