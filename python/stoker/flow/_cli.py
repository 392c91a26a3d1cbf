"""``python flow.py [OPTIONS] COMMAND [OPTIONS]``: a flow's command line, with Metaflow's commands
and options.

Exit status: 0 ok, 1 the run or the command failed, 2 wrong usage, 130 cancelled.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from dataclasses import replace
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence

from .. import __version__
from .._base.errors import StokerError, did_you_mean, refuse, say, tell
from ._commands import LATER, table
from ._commands._context import Context, program
from ._commands._parse import Command, HelpAsked, Option, Parsed, UsageError, help_of, parse
from .exception import MetaflowException, WrongValue


def main(flow: Any, words: Optional[Sequence[str]] = None) -> NoReturn:
    """``MyFlow()``: run the command and end the program.

    Raises:
        SystemExit: always, with the exit status.
    """
    # The objects so far live until the program's end: searching them for garbage takes a tenth of a
    # short run.
    gc.freeze()
    status = run(flow if isinstance(flow, type) else type(flow), words)
    gc.freeze()
    raise SystemExit(status)


def run(flow: Any, words: Optional[Sequence[str]] = None) -> int:
    """Run a command of the flow's class; returns the exit status."""
    given = list(sys.argv[1:] if words is None else words)
    path = program()
    try:
        return _main(flow, given)
    except (UsageError, WrongValue) as bad:
        print(f"Error: {path}: {bad}", file=sys.stderr)
        tell(f"{path}: {bad}", 2)
        _tell_runner(given, bad)
        return 2
    except MetaflowException as bad:
        print(f"{bad.headline}: {bad}", file=sys.stderr)
        tell(f"{bad.headline}: {bad}", 1)
        return 1
    except StokerError as bad:
        refuse(str(bad), bad.exit_status)
        return bad.exit_status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output has closed it, so nothing can be written there, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _tell_runner(words: Sequence[str], bad: Exception) -> None:
    """Tell the ``Runner`` that has started this program which error it raises."""
    kind, option = getattr(bad, "raises", ""), "--runner-attribute-file"
    if kind and option in words[:-1]:
        from ._commands._run import write

        write(words[words.index(option) + 1], json.dumps({"raises": kind, "text": str(bad)}))


def _main(flow: Any, words: List[str]) -> int:
    # Read parameters only if they matter: a parameter's default may be computed.
    root = table([])
    root.options += _options_of(flow)
    path = program()
    if os.environ.get("STOKER_RUN_OPTIONS") and not set(words) & set(root.commands):
        words = ["run", *words]  # stoker run flow.py
    try:
        top = parse(root, words, "METAFLOW", only_options=True)
    except HelpAsked:
        print(help_of(root, path))
        return 0
    if top.values["datastore_root"]:
        os.environ["STOKER_STORE"] = os.path.join(
            os.path.abspath(top.values["datastore_root"]), ".stoker"
        )
    rest = top.rest or [root.default]
    context = Context(flow, root, top.values)
    command, path, rest = _find(root, path, rest)
    if command.run == "_run:run":
        from ._commands._parameters import from_runner

        command = table(_parameters(context)).commands["run"]
        rest = from_runner(flow, rest)
    elif command.run == "_deploy:trigger":
        command = replace(command, options=[*_parameters(context), *command.options])
    try:
        parsed = parse(command, rest, _prefix(path))
    except HelpAsked:
        print(help_of(command, path))
        return 0
    except UsageError as bad:
        raise type(bad)(f"{' '.join(path.split()[1:])}: {bad} ('{path} --help' lists them all)")
    _notes(top, parsed)
    if command.run != "_graph:show_help":
        context.say(_headline(context))
    if command.run.partition(":")[0] in ("_graph", "_spin"):
        _prepare(context)
    status = _function(command.run)(context, parsed.values)
    return int(status or 0)


def _options_of(flow: Any) -> List[Option]:
    """Options that the flow's decorators add before the command."""
    from ._decorators import flow_decorators_of

    return [
        Option(
            f"--{name}",
            str(said.get("help") or ""),
            default=said.get("default"),
            many=bool(said.get("multiple")),
        )
        for one in flow_decorators_of(flow)
        for name, said in getattr(one, "options", {}).items()
    ]


def _find(root: Command, path: str, words: List[str]) -> Any:
    """The named command, the words that name it, and the remaining words."""
    command = root
    while command.commands:
        name = words[0] if words else ""
        if name in command.commands:
            command, words = command.commands[name], words[1:]
        elif command is not root and name == "--help":
            break
        elif command.default and command is not root:
            command = command.commands[command.default]
            break
        else:
            if command is root and name in LATER:
                raise UsageError(f"{name}: {LATER[name]}")
            known = [n for n, c in command.commands.items() if not c.hidden]
            said = f"no such command: {name}" if name else "a command is missing"
            raise UsageError(f"{said}{did_you_mean(name, known)} (there is: {', '.join(known)})")
        path = f"{path} {name}"
    return command, path, words


def _prefix(path: str) -> str:
    return "_".join(["METAFLOW", *path.split()[1:]]).replace("-", "_")


def _function(where: str) -> Callable[[Context, Dict[str, Any]], Optional[int]]:
    import importlib

    module, _, name = where.partition(":")
    found = importlib.import_module(f"._commands.{module}", __package__)
    return getattr(found, name)  # type: ignore[no-any-return]


def _parameters(context: Context) -> List[Option]:
    """The flow's parameters as options of ``run``."""
    from ._commands._parameters import options

    return options(context)


def _prepare(context: Context) -> None:
    """Let mutators change the flow before a command that shows it or runs a step of it."""
    from ._decorators import attach, has_mutators

    if has_mutators(context.flow):
        from ._commands._parameters import pre_mutate
        from ._mutable import mutate

        pre_mutate(context)
        attach(context.flow, context.top["with"])
        mutate(context.flow)


def _notes(top: Parsed, own: Parsed) -> None:
    idle = [
        option.name
        for parsed in (top, own)
        for key, option in parsed.given.items()
        if option.idle and parsed.values[key] not in (False, "local")  # these request the default
    ]
    if idle:
        say(
            f"{', '.join(idle)}: accepted, but without effect: flows run on this machine, from its store"
        )


def _headline(context: Context) -> str:
    from ._current import username

    return f"Stoker {__version__} executing {context.name} for user:{username()}"
