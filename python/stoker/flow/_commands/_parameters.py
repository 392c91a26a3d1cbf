"""A flow's parameters as options of ``run``."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Sequence

from .. import _parameters
from .._decorators import has_mutators
from .._parameters import JSONType, Parameter, parameters_of
from ..exception import MetaflowException
from ._parse import Option, WrongKind

if TYPE_CHECKING:
    from ._context import Context

KEY = "parameter "  # before a parameter's name; no option's key begins so


def options(context: Context) -> List[Option]:
    """One option for each parameter; configurations stand before the command (``--config``)."""
    pre_mutate(context)
    found = [p for p in parameters_of(context.flow) if not p.IS_CONFIG_PARAMETER]
    return [_option(p) for p in found]


def read_configs(context: Context) -> Dict[str, Any]:
    """The flow's configurations, from the command line or their defaults."""
    return _parameters.read_configs(
        context.flow, dict(context.top["config"]), dict(context.top["config_value"])
    )


def pre_mutate(context: Context) -> None:
    """Read configurations, and call what mutators do with them."""
    values = read_configs(context)
    if has_mutators(context.flow):
        from .._mutable import pre_mutate as changed

        named = _parameters.config_names(context.flow, values)
        changed(context.flow, {var: named.get(var) for var in values})


def given(values: Mapping[str, Any]) -> Dict[str, Any]:
    """Parameter's name → text, for those that the command line or the environment gives."""
    return {
        k[len(KEY) :]: v for k, v in values.items() if k.startswith(KEY) and v not in (None, [])
    }


def from_runner(flow: Any, words: Sequence[str]) -> List[str]:
    """The words of ``run`` that a ``Runner`` gave, its parameters as the command line has them.

    Raises:
        WrongKind: a parameter's value wasn't of its type in the program of the ``Runner``.
    """
    kinds = _kinds(words)
    by = {p.name.replace("-", "_"): p for p in parameters_of(flow) if not p.IS_CONFIG_PARAMETER}
    for key, kind in kinds.items():
        one = by.get(key)
        if kind == "NoneType" and one is not None and one.required:
            raise WrongKind(f"Invalid type for '{key}': it must be {one.type_name}, but is None")
    found: List[str] = []
    for word in words:
        key, _, text = word[2:].partition("=")
        one = by.get(key.replace("-", "_"))
        found += [word] if one is None or key not in kinds else _words(one, key, kinds[key], text)
    return found


def _kinds(words: Sequence[str]) -> Dict[str, str]:
    option = "--runner-attribute-file"
    if option not in words[:-1]:
        return {}
    folder = os.path.dirname(words[words.index(option) + 1])
    try:
        with open(os.path.join(folder, "kinds"), encoding="utf-8") as file:
            return dict(json.load(file))
    except (OSError, ValueError):
        return {}


def _words(one: Parameter, key: str, kind: str, text: str) -> List[str]:
    """One parameter of a ``Runner`` as words, from its name, type and text there."""
    name = f"--{one.name}"
    if one.type is JSONType and not one.several:
        return [f"{name}={json.dumps(text) if kind == 'str' else text}"]
    if one.several:
        if kind not in ("list", "tuple"):
            raise WrongKind(f"Invalid type for '{key}': it must be a list, but is of {kind}")
        texts = [str(value) for value in json.loads(text)]
        if one.count == 1:
            return [f"{name}={text}" for text in texts]
        return [name, *texts]
    wanted = _FITTING.get(one.type, (kind,))
    if kind not in wanted:
        raise WrongKind(f"Invalid type for '{key}': it must be {wanted[0]}, but is of {kind}")
    if one.is_flag:
        return [name] if text == "true" else []
    return [f"{name}={text}"]


_FITTING = {str: ("str",), int: ("int",), float: ("float", "int"), bool: ("bool",)}


def _option(one: Parameter) -> Option:
    shown = one.default
    name = f"--{one.name}"
    option = Option(
        name,
        one.help or "",
        "flag" if one.is_flag else "str",
        key=KEY + one.name,
        variable=one.name.replace("-", "_"),
        metavar=one.kwargs.get("metavar") or _METAVARS.get(one.type_name, one.type_name),
        required=one.required,
        convert=_checked(one),
        many=bool(one.kwargs.get("multiple")),
        n=one.count,
        hidden=bool(one.kwargs.get("hidden")),
        off=name if shown is True else "",  # a flag says what the default isn't
    )
    option.default = None  # it isn't given
    if one.kwargs["show_default"] and shown is not None and not callable(shown):
        option.shown_default = str(shown)
    return option


_METAVARS = {"str": "TEXT", "int": "INTEGER", "float": "FLOAT", "bool": "BOOLEAN"}


def _checked(one: Parameter) -> Callable[[str], str]:
    def convert(text: str) -> str:
        try:
            one.convert([text] if one.several else text)
        except MetaflowException:
            raise ValueError(f"{text!r} is not of type {one.type_name}") from None
        return text

    return convert
