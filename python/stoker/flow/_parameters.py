"""The inputs of a flow at its start: Parameter, IncludeFile, Config.

All three are class attributes. The class has the objects themselves; a running step has their
values, which it can't set.
"""

from __future__ import annotations

import collections.abc
import inspect
import json
import os
import re
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union

from .._base.errors import did_you_mean, say
from .exception import (
    MetaflowException,
    ParameterFieldFailed,
    ParameterFieldTypeMismatch,
    WrongValue,
)

_OPTIONS = (
    "params with tag namespace obj tags decospecs run-id-file max-num-splits max-workers max-log-size "
    "user-namespace run-id task-id runner-attribute-file"
)
_RESERVED = frozenset(_OPTIONS.split())
_TRUE, _FALSE = ("1", "true", "t", "yes", "y", "on"), ("0", "false", "f", "no", "n", "off")
_UNPACK = "_unpacked_delayed_"
# Click's other arguments for an option: those that count, and those that change nothing here.
_CLICK = ("is_flag", "multiple", "nargs", "hidden", "metavar")
_IDLE = ("show_choices", "show_envvar", "allow_from_autoenv")


class JSONTypeClass:
    """``type=JSONType``: the value is JSON, given as text on the command line."""

    name = "JSON"

    def __repr__(self) -> str:
        return "JSON"


JSONType = JSONTypeClass()


def _long_whole(text: str) -> int:
    """``int(text)`` of any length: Python's int() stops at 4,300 digits (PYTHONINTMAXSTRDIGITS)."""
    import decimal

    if re.fullmatch(r"\s*[+-]?[0-9](_?[0-9])*\s*", text) is None:
        raise ValueError(text)
    return int(decimal.Decimal(text.strip()))


class ParameterContext(NamedTuple):
    """The argument of a function that computes a default."""

    flow_name: str
    user_name: str
    parameter_name: str
    logger: Callable[..., None]
    ds_type: str
    configs: Any


class Parameter:
    """A value from the command line: ``alpha = Parameter("alpha", default=0.01)``.

    Args:
        name: on the command line, ``--alpha``; the artifact has the attribute's name.
        default: of the parameter's type, or a function of a :class:`ParameterContext`.
        type: str, int, float, bool or JSONType; else the default's.
        help, show_default: for ``run --help``.
        required: it must be given, unless it has a default.
        separator: splits the text into a list.
        kwargs: click's ``is_flag`` (``--alpha`` alone is a value: what the default isn't),
            ``multiple`` (``--alpha`` many times; a tuple), ``nargs``, ``hidden``, ``metavar``.
    """

    IS_CONFIG_PARAMETER = False
    var = ""  # the attribute's name

    def __init__(
        self,
        name: str,
        default: Any = None,
        type: Any = None,
        help: Optional[str] = None,
        required: Optional[bool] = None,
        show_default: Optional[bool] = None,
        separator: Optional[str] = None,
        **kwargs: Any,
    ) -> None:
        if name in _RESERVED or name.replace("_", "-") in _RESERVED:
            raise MetaflowException(
                f"parameter '{name}': an option of the command line has this name; choose another"
            )
        if not name.replace("-", "_").isidentifier():
            raise MetaflowException(
                f"parameter '{name}': --{name} is not a valid option; a name has letters, digits, - and _"
            )
        for field, value in (
            ("show_default", show_default),
            ("separator", separator),
            ("required", required),
        ):
            if callable(value) and not isinstance(value, DelayEvaluator):
                raise MetaflowException(f"parameter '{name}': its {field} can't be a function")
        for field in kwargs:
            if field not in (*_CLICK, *_IDLE):
                raise MetaflowException(
                    f"parameter '{name}': Stoker's parameters have no '{field}'; there is: "
                    f"default, type, help, required, show_default, separator, {', '.join(_CLICK)}"
                )
        self.name = name
        self.kwargs: Dict[str, Any] = {
            "default": default,
            "type": type,
            "help": help,
            "required": bool(required),
            "show_default": show_default is not False,
            **kwargs,
        }
        self.separator = separator

    # ------------------------------------------------------------------ as an attribute

    def __set_name__(self, owner: Any, name: str) -> None:
        self.var = name

    def __get__(self, flow: Any, owner: Any = None) -> Any:
        if flow is None:
            return self
        scope = flow.__dict__.get("_stoker")
        if scope is None:
            return self
        return scope.parameter(self)

    def __set__(self, flow: Any, value: Any) -> None:
        raise AttributeError(
            f"'{self.var}' is a parameter of the flow, which no step can change; use another name"
        )

    # ------------------------------------------------------------------ what was said

    @property
    def default(self) -> Any:
        """The default as written: a value, a function, or an expression of a configuration."""
        return self.kwargs["default"]

    @property
    def help(self) -> Optional[str]:
        """Text for ``run --help``."""
        return resolve(self.kwargs.get("help"))  # type: ignore[no-any-return]

    @property
    def required(self) -> bool:
        """Whether it has no default and must be given."""
        return bool(resolve(self.kwargs["required"])) and self.default is None

    @property
    def is_flag(self) -> bool:
        """Whether its option takes no value."""
        return bool(self.kwargs.get("is_flag"))

    @property
    def count(self) -> int:
        """How many values follow its option (``nargs``)."""
        return int(self.kwargs.get("nargs", 1))

    @property
    def several(self) -> bool:
        """Whether its value is a tuple, of what was given each time or together."""
        return bool(self.kwargs.get("multiple")) or self.count > 1

    @property
    def type(self) -> Any:
        """str, int, float, bool or JSONType; JSONType if the default is a list or dict."""
        if self.is_flag:
            return bool
        given = self.kwargs["type"]
        if given is not None:
            return given
        default = self.default
        if isinstance(default, (DelayEvaluator, Config)):
            try:
                default = resolve(default)
            except MetaflowException:  # configurations are not known yet
                return str
        if self.several:
            default = next(iter(default), None) if isinstance(default, (list, tuple)) else None
        if default is None or callable(default):
            return str
        kind = default.__class__
        return kind if kind in (str, int, float, bool) else JSONType

    @property
    def type_name(self) -> str:
        """For the command line's help."""
        return str(getattr(self.type, "name", getattr(self.type, "__name__", self.type)))

    @property
    def is_string_type(self) -> bool:
        """Whether its values are texts."""
        return self.type is str

    def convert(self, value: Any) -> Any:
        """A given value or its text as the parameter's type; None stays None.

        Raises:
            WrongValue: the value doesn't fit; names the parameter, the value and the type.
        """
        if not self.several:
            return self._convert(value)
        values = value.split() if isinstance(value, str) else value or ()
        return tuple(self._convert(one) for one in values)

    def _convert(self, value: Any) -> Any:
        if value is None:
            return None
        kind = self.type
        try:
            if isinstance(kind, JSONTypeClass) or kind in (list, dict):
                return json.loads(value) if isinstance(value, str) else plain(value)
            if kind is bool:
                return _bool(value)
            if kind is int and isinstance(value, float) and not value.is_integer():
                raise ValueError(value)
            if kind is int and isinstance(value, str) and len(value) > 600:
                return _long_whole(value)
            return kind(value) if callable(kind) else value
        except (ValueError, TypeError):
            raise WrongValue(
                f"parameter '{self.name}' is {self.type_name}, and {value!r} isn't: "
                f"give --{self.name} a value of this type"
            ) from None

    def split(self, value: Any) -> Any:
        """The value for steps: with a separator, a text becomes a list."""
        separator = resolve(self.separator)
        return value.split(separator) if separator and isinstance(value, str) and value else value

    def default_value(self, context: ParameterContext) -> Any:
        """The default; a function is called.

        Raises:
            ParameterFieldFailed, ParameterFieldTypeMismatch: the function failed, or returned
                another type.
        """
        default = self.default
        if isinstance(default, (DelayEvaluator, Config)):
            return self.convert(plain(resolve(default)))
        if not callable(default):
            return self.convert(default)
        try:
            value = default(context._replace(parameter_name=self.name))
        except Exception:
            raise ParameterFieldFailed(self.name, "default") from None
        kind = self.kwargs["type"]
        if kind in (bool, int, float) and value is not None and value.__class__ is not kind:
            raise ParameterFieldTypeMismatch(
                f"parameter '{self.name}': the function of its default returned {value!r}, "
                f"a {value.__class__.__name__}, but the parameter is {self.type_name}"
            )
        return self.convert(value)

    def load(self, value: Any) -> Any:
        """The value that a step sees, from the stored one."""
        return value

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.name!r})"


def _bool(value: Any) -> bool:
    if isinstance(value, (bool, int)):
        return bool(value)
    text = str(value).strip().lower()
    if text not in (*_TRUE, *_FALSE):
        raise ValueError(value)
    return text in _TRUE


class IncludeFile(Parameter):
    """A file whose content is a read-only artifact of all steps.

    Args:
        name: on the command line, ``--data PATH``.
        default: a path, or a function of a :class:`ParameterContext`.
        is_text: a text (else bytes), decoded by ``encoding`` (default UTF-8).
        parser: a function of the content, or its dotted name; its result is the artifact.
    """

    def __init__(
        self,
        name: str,
        required: Optional[bool] = None,
        is_text: Optional[bool] = None,
        encoding: Optional[str] = None,
        help: Optional[str] = None,
        parser: Optional[Union[str, Callable[[Any], Any]]] = None,
        default: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name, default=default, type=str, help=help, required=required, **kwargs)
        self.is_text = is_text is not False
        self.encoding = encoding or "utf-8"
        self.parser = parser

    @property
    def type_name(self) -> str:
        """For the command line's help."""
        return "PATH"

    def read(self, path: str) -> Any:
        """The file's content, as steps see it.

        Raises:
            WrongValue: the file can't be read or decoded.
        """
        try:
            with open(os.path.expanduser(path), "rb") as stream:
                raw = stream.read()
        except OSError as bad:
            raise WrongValue(
                f"parameter '{self.name}': the file '{path}' can't be read: {bad.strerror}; give another "
                f"by --{self.name} PATH"
            ) from None
        content: Any = raw
        if self.is_text:
            try:
                content = raw.decode(self.encoding)
            except UnicodeDecodeError as bad:
                raise WrongValue(
                    f"parameter '{self.name}': the file '{path}' is not {self.encoding} text "
                    f"({bad}); set is_text=False, or its encoding"
                ) from None
            content = content.replace("\r\n", "\n").replace("\r", "\n")
        return _parser_of(self.parser, self.name)(content) if self.parser else content


class IncludedFile:
    """A file that an :class:`IncludeFile` refers to by its place, as Metaflow's runs have it; runs
    here have the content itself, so no artifact is one.

    Attributes:
        descriptor: the place, as JSON.
    """

    def __init__(self, descriptor: Mapping[str, Any]) -> None:
        self.descriptor = json.dumps(descriptor)


# ---------------------------------------------------------------------------- configurations


class ConfigValue(Dict[Any, Any]):
    """A configuration: a read-only mapping whose keys are also attributes."""

    def __init__(self, data: Any) -> None:
        super().__init__({key: _frozen(value) for key, value in dict(data).items()})

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a configuration can't be changed; copy it by to_dict()")

    __setitem__ = __delitem__ = update = setdefault = pop = popitem = clear = _refuse
    __setattr__ = __delattr__ = __ior__ = _refuse

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the configuration has no '{name}'") from None

    def copy(self) -> ConfigValue:
        """The object itself, because it is read-only."""
        return ConfigValue(self)

    def to_dict(self) -> Dict[Any, Any]:
        """The configuration as plain dicts, to any depth."""
        return plain(self)  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        return ConfigValue, (self.to_dict(),)


def _frozen(value: Any) -> Any:
    if isinstance(value, ConfigValue):
        return value
    if isinstance(value, collections.abc.Mapping):
        return ConfigValue(value)
    if value.__class__ in (list, tuple, set):
        return value.__class__(_frozen(one) for one in value)
    return value


def plain(value: Any) -> Any:
    """The value with configurations as dicts."""
    if isinstance(value, collections.abc.Mapping):
        return {key: plain(one) for key, one in value.items()}
    if value.__class__ in (list, tuple, set):
        return value.__class__(plain(one) for one in value)
    return value


_configs: Dict[str, Any] = {}  # name and attribute → value, for the flow that is compiled or run


def set_configs(values: Mapping[str, Any]) -> None:
    """Set the configurations that expressions use from now on."""
    _configs.clear()
    _configs.update(values)


class DelayEvaluator(collections.abc.Mapping):  # type: ignore[type-arg]
    """An expression of configurations such as ``config.a.b``, computed when they are known."""

    def __init__(self, text: str, names: Optional[Dict[str, Any]] = None, path: Any = ()) -> None:
        self._text = text
        self._names = names
        self._path = tuple(path)

    def __getattr__(self, name: str) -> DelayEvaluator:
        if name.startswith("__"):
            raise AttributeError(name)
        return DelayEvaluator(self._text, self._names, (*self._path, name))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str) and key.startswith(_UNPACK):
            return self
        return DelayEvaluator(self._text, self._names, (*self._path, key))

    def __iter__(self) -> Iterator[str]:
        yield f"{_UNPACK}{id(self)}"

    def __len__(self) -> int:
        return 1

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __call__(self, *_: Any) -> Any:
        """Its value.

        Raises:
            MetaflowException: the computation failed; has the expression and the reason.
        """
        said = self._text + "".join(f".{one}" for one in self._path)
        try:
            value = eval(self._text, self._names or {}, dict(_configs))
            for key in self._path:
                value = value[resolve(key)]
        except Exception as bad:
            known = ", ".join(sorted(_configs)) or "none"
            raise MetaflowException(
                f"the configuration's '{said}' can't be computed: {type(bad).__name__}: {bad} "
                f"(configurations of the flow: {known})"
            ) from None
        return value

    def __repr__(self) -> str:
        return f"config_expr({self._text!r})" + "".join(f"[{one!r}]" for one in self._path)


def config_expr(expr: str) -> DelayEvaluator:
    """An expression in which the flow's configurations are variables, for decorators and
    defaults."""
    frame = inspect.currentframe()
    caller = frame.f_back if frame is not None else None
    return DelayEvaluator(expr, caller.f_globals if caller is not None else None)


def resolve(value: Any) -> Any:
    """The value with all its expressions computed, and configurations as plain dicts."""
    if isinstance(value, Config):
        return plain(value._delayed()())
    if isinstance(value, DelayEvaluator):
        return plain(value())
    if value.__class__ is dict:
        found: Dict[Any, Any] = {}
        for key, one in value.items():
            if isinstance(key, str) and key.startswith(_UNPACK):
                found.update(resolve(one))
            else:
                found[resolve(key)] = resolve(one)
        return found
    if value.__class__ in (list, tuple, set):
        return value.__class__(resolve(one) for one in value)
    return value


class Config(collections.abc.Mapping):  # type: ignore[type-arg]
    """A configuration, known before the run: from a file (``--config NAME PATH``) or as a value.

    In the class's body and in decorators ``config.key`` stands for a later value; in a step it is a
    :class:`ConfigValue`.

    Args:
        name: on the command line.
        default: path of its file; default_value: the value without a file (a dict, a JSON text, or
            a function).
        parser: a function of the text, or its dotted name; else the text is JSON.
        plain: steps get the parser's result, not a :class:`ConfigValue`; without a parser the text.
        required: it must be given, if there is neither default.
    """

    __slots__ = ("_stoker_parameter",)  # any other name is a key of the configuration

    def __init__(
        self,
        name: str,
        default: Any = None,
        default_value: Any = None,
        help: Optional[str] = None,
        required: Optional[bool] = None,
        parser: Optional[Union[str, Callable[[str], Any]]] = None,
        plain: bool = False,
        **kwargs: Any,
    ) -> None:
        if default is not None and default_value is not None:
            raise MetaflowException(
                f"config '{name}': give a default file or a default_value, not both"
            )
        self._stoker_parameter = ConfigParameter(
            name, default=default, help=help, required=required, **kwargs
        )
        self._stoker_parameter.default_given = default_value
        self._stoker_parameter.parser = parser
        self._stoker_parameter.plain = plain

    def __set_name__(self, owner: Any, name: str) -> None:
        self._stoker_parameter.var = name

    def __get__(self, flow: Any, owner: Any = None) -> Any:
        value = self._stoker_parameter.__get__(flow, owner)
        return self if value is self._stoker_parameter else value

    def __set__(self, flow: Any, value: Any) -> None:
        self._stoker_parameter.__set__(flow, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._delayed(), name)

    def _delayed(self) -> DelayEvaluator:
        return DelayEvaluator(self._stoker_parameter.name)

    def __getitem__(self, key: Any) -> Any:
        return self._delayed()[key]

    def __iter__(self) -> Iterator[str]:
        yield from self._delayed()

    def __len__(self) -> int:
        return 1

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class ConfigParameter(Parameter):
    """A :class:`Config` among the flow's parameters."""

    IS_CONFIG_PARAMETER = True
    default_given: Any = None
    parser: Any = None
    plain = False

    @property
    def required(self) -> bool:
        """Whether it must be given."""
        return bool(self.kwargs["required"]) and self.default is None and self.default_given is None

    @property
    def type_name(self) -> str:
        """For the command line's help."""
        return "PATH"

    def read(self, path: Optional[str], value: Any, context: ParameterContext) -> Any:
        """The configuration from a given path or value, else from its defaults; or None.

        Raises:
            WrongValue: both were given, or neither although it is required, or it can't be read.
        """
        if path is not None and value is not None:
            raise WrongValue(f"config '{self.name}': give --config or --config-value, not both")
        if path is None and value is None:
            path = self.default(context) if callable(self.default) else self.default
            if path is not None and not os.path.exists(path):
                raise WrongValue(
                    f"config '{self.name}': its default file '{path}' doesn't exist; give another by "
                    f"--config {self.name} PATH"
                )
        if path is None and value is None:
            value = self.default_given
            if callable(value):
                value = value(context)
        if path is None and value is None:
            if self.required:
                raise WrongValue(
                    f"config '{self.name}' is required: give --config {self.name} PATH or "
                    f"--config-value {self.name} JSON"
                )
            return None
        if path is not None:
            try:
                with open(path, encoding="utf-8-sig") as stream:
                    value = stream.read()
            except (OSError, UnicodeDecodeError) as bad:
                raise WrongValue(f"config '{self.name}': '{path}' can't be read: {bad}") from None
        return self._parsed(value, path)

    def _parsed(self, value: Any, path: Optional[str]) -> Any:
        if not isinstance(value, str):
            return plain(value)
        if self.parser is not None:
            return plain(_parser_of(self.parser, self.name)(value))
        if self.plain:
            return value
        try:
            return json.loads(value)
        except ValueError as bad:
            where = f"'{path}'" if path is not None else "its value"
            raise WrongValue(
                f"config '{self.name}': {where} is not JSON ({bad}); correct it, or give the config a parser"
            ) from None

    def load(self, value: Any) -> Any:
        """The value that a step sees."""
        mapping = isinstance(value, collections.abc.Mapping)
        return ConfigValue(value) if mapping and not self.plain else value


def _parser_of(parser: Any, name: str) -> Callable[[Any], Any]:
    if callable(parser):
        return parser  # type: ignore[no-any-return]
    import importlib

    module, _, function = str(parser).rpartition(".")
    try:
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    except (ImportError, AttributeError, ValueError) as bad:
        raise MetaflowException(
            f"parameter '{name}': its parser '{parser}' can't be imported: {bad}"
        ) from None


# ---------------------------------------------------------------------------- of a flow


def parameters_of(flow: Any) -> List[Parameter]:
    """All parameters of a flow's class, configurations and files too, in the order of definition.

    Searches a class once, because the search costs each forked task pages.
    """
    known: Optional[List[Parameter]] = flow.__dict__.get("_stoker_parameters")
    if known is None:
        known = _find_parameters(flow)
        flow._stoker_parameters = known
    return known


def _find_parameters(flow: Any) -> List[Parameter]:
    found: Dict[str, Parameter] = {}
    for base in reversed(flow.__mro__):
        for name, one in vars(base).items():
            if isinstance(one, (Parameter, Config)):
                found[name] = one if isinstance(one, Parameter) else one._stoker_parameter
            else:
                found.pop(name, None)
    seen: Dict[str, str] = {}
    for name, one in found.items():
        one.var = one.var or name
        lower = one.name.lower()
        if lower in seen:
            raise MetaflowException(
                f"flow '{flow.__name__}': '{name}' and '{seen[lower]}' are parameters of the same name "
                f"'{one.name}'; names don't differ by case"
            )
        seen[lower] = name
    return list(found.values())


def environment_name(parameter: Parameter) -> str:
    """The variable that gives a parameter's value: ``METAFLOW_RUN_ALPHA``."""
    return f"METAFLOW_RUN_{parameter.name.upper().replace('-', '_')}"


def context_of(flow: Any) -> ParameterContext:
    """The argument for functions of defaults."""
    from ._current import username

    return ParameterContext(
        flow.__name__, username(), "", say, "local", ConfigValue(dict(_configs))
    )


def read_configs(
    flow: Any,
    paths: Mapping[str, str] = {},
    values: Mapping[str, Any] = {},
    environment: Mapping[str, str] = os.environ,
) -> Dict[str, Any]:
    """Attribute → value of the flow's configurations; expressions use them from now on.

    Args:
        paths, values: by the configurations' names, from the command line.
        environment: ``METAFLOW_FLOW_CONFIG`` (name → path) and ``METAFLOW_FLOW_CONFIG_VALUE`` (name
            → value), as JSON, replace empty ones.

    Raises:
        WrongValue: as :meth:`ConfigParameter.read`, a name that the flow lacks, or invalid JSON.
    """
    paths = paths or _from_variable("METAFLOW_FLOW_CONFIG", environment)
    values = values or {
        name: one if isinstance(one, str) else json.dumps(one)
        for name, one in _from_variable("METAFLOW_FLOW_CONFIG_VALUE", environment).items()
    }
    configs = [one for one in parameters_of(flow) if isinstance(one, ConfigParameter)]
    names = {one.name for one in configs}
    for given in (*paths, *values):
        if given not in names:
            raise WrongValue(
                f"flow '{flow.__name__}' has no config '{given}'{did_you_mean(given, names)}"
            )
    context = context_of(flow)
    found = {
        one.var: one.read(paths.get(one.name), values.get(one.name), context) for one in configs
    }
    set_configs(config_names(flow, found))
    return found


def _from_variable(name: str, environment: Mapping[str, str]) -> Dict[str, Any]:
    text = environment.get(name)
    try:
        found = json.loads(text) if text else {}
    except ValueError as bad:
        raise WrongValue(f"{name} is not JSON ({bad}); it is a mapping of configurations") from None
    if not isinstance(found, dict):
        raise WrongValue(f"{name} is {text}; it is a mapping of configurations, as JSON")
    return found


def config_names(flow: Any, values: Mapping[str, Any]) -> Dict[str, Any]:
    """Configurations by the names in expressions: by attribute and by name."""
    named: Dict[str, Any] = {}
    for one in parameters_of(flow):
        if one.IS_CONFIG_PARAMETER and one.var in values:
            named[one.var] = named[one.name] = one.load(values[one.var])
    return named


def read_parameters(
    flow: Any, given: Mapping[str, Any], environment: Mapping[str, str] = os.environ
) -> Dict[str, Any]:
    """Attribute → value of all parameters except configurations; call :func:`read_configs` first.

    Args:
        given: values or their texts, by the parameters' names (or attributes).
        environment: ``METAFLOW_RUN_<NAME>`` has values for names that aren't in ``given``.

    Raises:
        WrongValue: a parameter is missing, unknown or of another type.
    """
    parameters = [one for one in parameters_of(flow) if not one.IS_CONFIG_PARAMETER]
    known: Dict[str, Tuple[str, ...]] = {
        one.var: (one.name, one.var, one.name.replace("-", "_"), one.name.lower())
        for one in parameters
    }
    for name in given:
        if not any(name in names for names in known.values()):
            raise WrongValue(
                f"flow '{flow.__name__}' has no parameter '{name}'"
                f"{did_you_mean(name, [one.name for one in parameters])}"
            )
    context = context_of(flow)
    found: Dict[str, Any] = {}
    for one in parameters:
        value = next((given[name] for name in known[one.var] if given.get(name) is not None), None)
        if value is None:
            value = environment.get(environment_name(one))
        if value is None and one.required:
            raise WrongValue(
                f"flow '{flow.__name__}': parameter '{one.name}' is missing and has no default: give "
                f"--{one.name} VALUE, or set {environment_name(one)}"
            )
        value = one.default_value(context) if value is None else one.convert(value)
        if isinstance(one, IncludeFile) and value is not None:
            value = one.read(value)
        found[one.var] = one.split(value)
    return found
