"""A small table-driven parser of command lines: groups of commands, options, arguments, help.

``METAFLOW_<COMMAND>_<OPTION>`` in the environment stands for an option that isn't given, as in
Metaflow.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

_WIDTH = 80


class UsageError(Exception):
    """The command line is wrong; has one sentence. Exit status 2.

    Attributes:
        raises: what ``Runner`` raises of it, if that isn't its usual error.
    """

    raises = ""


class NoSuchOption(UsageError):
    """An option that isn't there."""

    raises = "ValueError"


class Missing(UsageError):
    """An option that must be given isn't."""

    raises = "ValueError"


class WrongKind(UsageError):
    """An option's value isn't of its kind."""

    raises = "TypeError"


class HelpAsked(Exception):
    """``--help`` was given: the program prints the text. Exit status 0."""


@dataclass
class Option:
    """One option.

    Attributes:
        name: as it is written, with its dashes.
        kind: ``str``, ``int``, ``float``, ``bool`` (a value), ``flag`` (none; ``--no-NAME`` says
            no) or a function from text to value that raises ValueError.
        off: the option that switches a flag off, if it isn't ``--no-NAME``; "" if there is none.
        convert: for a parameter: text → value, raising ValueError; ``metavar`` shows its kind.
        n: number of values that follow.
        variable: the end of the environment variable's name, if it isn't the key.
        shown_default: for the help page, if the default isn't known here.
        idle: accepted, but has no effect in Stoker (one note says so).
    """

    name: str
    help: str = ""
    kind: str = "str"
    default: Any = None
    key: str = ""
    many: bool = False
    off: Optional[str] = None
    metavar: str = ""
    n: int = 1
    required: bool = False
    hidden: bool = False
    idle: bool = False
    variable: str = ""
    shown_default: Optional[str] = None
    convert: Optional[Callable[[str], Any]] = None

    def __post_init__(self) -> None:
        self.key = self.key or self.name.lstrip("-").replace("-", "_")
        if self.kind == "flag" and self.default is None:
            self.default = False
        if self.kind == "flag" and self.off is None:
            self.off = f"--no-{self.name[2:]}"

    def value(self, text: str) -> Any:
        """A value from its text.

        Raises:
            WrongKind: the text isn't of the option's kind.
        """
        try:
            if self.convert is not None:
                return self.convert(text)
            return _CONVERT[self.kind](text)
        except ValueError as bad:
            said = str(bad) or f"{text!r} is not a valid {_KINDS.get(self.kind, self.kind)}"
            raise WrongKind(f"{self.name}: {said}") from None


def _flag(text: str) -> bool:
    low = text.strip().lower()
    if low in ("1", "true", "t", "yes", "y", "on"):
        return True
    if low in ("0", "false", "f", "no", "n", "off"):
        return False
    raise ValueError(f"{text!r} is neither true nor false")


def _number(kind: Callable[[str], Any], noun: str) -> Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a {noun}") from None

    return convert


_CONVERT: Dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": _number(int, "whole number"),
    "float": _number(float, "number"),
    "bool": _flag,
    "flag": _flag,
}
_KINDS = {"str": "TEXT", "int": "INTEGER", "float": "FLOAT", "bool": "BOOLEAN"}


@dataclass
class Argument:
    """One argument; ``many`` takes all remaining words."""

    name: str
    required: bool = True
    many: bool = False


@dataclass
class Command:
    """One command, or a group of them.

    Attributes:
        run: ``module:function`` under ``_commands``, called with (context, values); returns the
            exit status or None.
        default: the command of a group to use if none is named.
    """

    name: str
    help: str
    run: str = ""
    options: List[Option] = field(default_factory=list)
    arguments: List[Argument] = field(default_factory=list)
    commands: Dict[str, Command] = field(default_factory=dict)
    default: str = ""
    hidden: bool = False


def group(name: str, text: str, commands: Sequence[Command], **more: Any) -> Command:
    """A group of commands."""
    return Command(name, text, commands={c.name: c for c in commands}, **more)


@dataclass
class Parsed:
    """Values by key, the keys that were given (command line or environment), and the remaining
    words."""

    values: Dict[str, Any]
    given: Dict[str, Option]
    rest: List[str]


def parse(
    command: Command, words: Sequence[str], prefix: str, only_options: bool = False
) -> Parsed:
    """Parse a command's words; ``only_options``: only up to the first word that isn't an option (a
    group).

    Raises:
        UsageError: one sentence.
        HelpAsked: ``--help``.
    """
    known: Dict[str, Tuple[Option, bool]] = {}
    for option in command.options:
        known[option.name] = (option, True)
        if option.off:
            known[option.off] = (option, False)
    taken: Dict[str, List[Any]] = {}
    given: Dict[str, Option] = {}
    plain: List[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == "--":
            plain += left
            break
        if not word.startswith("-") or word == "-":
            if only_options:
                left.insert(0, word)
                break
            plain.append(word)
            continue
        if word in ("--help", "-h") and word not in known:
            raise HelpAsked
        option = _take(known, word, left, taken)
        given[option.key] = option
    values = _settle(command, taken, given, prefix)
    if only_options:
        return Parsed(values, given, left)
    _place(command, plain, values)
    return Parsed(values, given, [])


def _take(
    known: Mapping[str, Tuple[Option, bool]],
    word: str,
    left: List[str],
    taken: Dict[str, List[Any]],
) -> Option:
    name, equals, text = word.partition("=")
    if name not in known:
        from ..._base.errors import did_you_mean

        raise NoSuchOption(f"no such option: {name}{did_you_mean(name, known)}")
    option, yes = known[name]
    own = taken.setdefault(option.key, [])
    if option.kind == "flag":
        if equals and option.convert is None:
            raise UsageError(f"{name} is a switch: it takes no value")
        own.append(option.value(text) if equals else yes)
        return option
    texts = [text] if equals else []
    while len(texts) < option.n:
        if not left:
            wants = "a value" if option.n == 1 else f"{option.n} values"
            raise UsageError(f"{name} needs {wants}")
        texts.append(left.pop(0))
    parts = [option.value(t) for t in texts]
    own.append(parts[0] if option.n == 1 else tuple(parts))
    return option


def _settle(
    command: Command, taken: Mapping[str, List[Any]], given: Dict[str, Option], prefix: str
) -> Dict[str, Any]:
    values: Dict[str, Any] = {}
    for option in command.options:
        found = taken.get(option.key)
        variable = f"{prefix}_{option.variable or option.key}".upper().replace("-", "_")
        text = os.environ.get(variable)
        if found is None and text:
            given[option.key] = option
            try:
                several = option.many or option.n > 1
                found = [option.value(t) for t in (text.split() if several else [text])]
            except UsageError as bad:
                raise type(bad)(f"{bad} (from the variable {variable})") from None
            found = found if option.many or option.n == 1 else [tuple(found)]
        if found is None:
            if option.required:
                raise Missing(
                    f"{option.name} is missing: give {option.name} {_meta(option)}, or set {variable}"
                )
            values[option.key] = [] if option.many else option.default
        else:
            values[option.key] = found if option.many else found[-1]
    return values


def _place(command: Command, plain: List[str], values: Dict[str, Any]) -> None:
    for argument in command.arguments:
        if argument.many:
            values[argument.name], plain = plain, []
        else:
            values[argument.name] = plain.pop(0) if plain else None
        if argument.required and not values[argument.name]:
            raise UsageError(f"{_shown(argument)} is missing")
    if plain:
        raise UsageError(f"too many words: {' '.join(plain)}")


def _shown(argument: Argument) -> str:
    name = argument.name.upper() + ("..." if argument.many else "")
    return name if argument.required else f"[{name}]"


def _meta(option: Option) -> str:
    return option.metavar or _KINDS.get(option.kind, "TEXT")


def help_of(command: Command, path: str) -> str:
    """The help page of a command; ``path`` has the words that name it."""
    words = [f"Usage: {path} [OPTIONS]"]
    words += ["COMMAND [ARGS]..."] if command.commands else [_shown(a) for a in command.arguments]
    blocks = [" ".join(words)]
    if command.help:
        blocks.append(_wrapped(command.help, 2))
    rows = [(_left(o), _right(o)) for o in command.options if not o.hidden]
    blocks.append("Options:\n" + _table([*rows, ("--help", "Show this message and exit.")]))
    if command.commands:
        own = [(c.name, c.help) for c in command.commands.values() if not c.hidden]
        blocks.append("Commands:\n" + _table(own))
    return "\n\n".join(blocks)


def _left(option: Option) -> str:
    if option.kind == "flag":
        return (
            f"{option.name} / {option.off}" if option.off not in ("", option.name) else option.name
        )
    return f"{option.name} {' '.join([_meta(option)] * option.n)}"


def _right(option: Option) -> str:
    notes = []
    if option.required:
        notes.append("required")
    elif option.idle:
        pass
    elif option.shown_default or (option.default is not None and not option.many):
        notes.append(f"default: {option.shown_default or option.default}")
    text = option.help + (" (no effect here)" if option.idle else "")
    return f"{text}  [{'; '.join(notes)}]".strip() if notes else text


def _wrapped(text: str, indent: int) -> str:
    import textwrap

    pad = " " * indent
    paragraphs = text.split("\n\n")
    return "\n\n".join(
        textwrap.fill(p, _WIDTH, initial_indent=pad, subsequent_indent=pad) for p in paragraphs
    )


def _table(rows: Sequence[Tuple[str, str]]) -> str:
    import textwrap

    wide = min(30, max(len(a) for a, _ in rows)) + 4
    lines: List[str] = []
    for left, right in rows:
        body = textwrap.wrap(right, _WIDTH - wide) or [""]
        if len(left) + 4 > wide:
            lines.append(f"  {left}")
        else:
            lines.append(f"  {left:<{wide - 2}}{body.pop(0)}".rstrip())
        lines += [" " * wide + line for line in body]
    return "\n".join(lines)
