"""A flow's parameters as options of ``run``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping

from .. import _parameters
from .._decorators import has_mutators
from .._parameters import Parameter, parameters_of
from ..exception import MetaflowException
from ._parse import Option

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
    return {k[len(KEY) :]: v for k, v in values.items() if k.startswith(KEY) and v is not None}


def _option(one: Parameter) -> Option:
    shown = one.default
    option = Option(
        f"--{one.name}",
        one.help or "",
        key=KEY + one.name,
        variable=one.name.replace("-", "_"),
        metavar=_METAVARS.get(one.type_name, one.type_name),
        required=one.required,
        convert=_checked(one),
    )
    if one.kwargs["show_default"] and shown is not None and not callable(shown):
        option.shown_default = str(shown)
    return option


_METAVARS = {"str": "TEXT", "int": "INTEGER", "float": "FLOAT", "bool": "BOOLEAN"}


def _checked(one: Parameter) -> Callable[[str], str]:
    def convert(text: str) -> str:
        try:
            one.convert(text)
        except MetaflowException:
            raise ValueError(f"{text!r} is not of type {one.type_name}") from None
        return text

    return convert
