"""Functions of ZenML's ``utils``, ``metadata_types`` and ``steps.utils`` that programs and their
tests use, none of which needs a store."""

from __future__ import annotations

import base64
import dataclasses
import enum
import hashlib
import inspect
import json
import os
import pathlib
import re
import socket
import sys
import sysconfig
import types
import typing
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from .. import DockerSettings, ResourceSettings
from .._base.errors import SettingsError
from .enums import StrEnum
from .lifetime import temporary_environment as temporary_environment
from .responses import SourceType
from .utilities import get_source_root, recursive_update, remove_none_values, utc_now

# ------------------------------------------------------------------ metadata_types


class Uri(str):
    """A text that is a URI."""


class Path(str):
    """A text that is a path."""


class DType(str):
    """The name of a type of an array's items."""


class StorageSize(int):
    """A size in bytes."""


class MetadataTypeEnum(StrEnum):
    """Types of metadata."""

    STRING = "str"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    LIST = "list"
    DICT = "dict"
    TUPLE = "tuple"
    SET = "set"
    URI = "Uri"
    PATH = "Path"
    DTYPE = "DType"
    STORAGE_SIZE = "StorageSize"


_METADATA: Dict[str, Any] = {
    kind.__name__: kind
    for kind in (str, int, float, bool, list, dict, tuple, set, Uri, Path, DType, StorageSize)
}


def get_metadata_type(object_: object) -> MetadataTypeEnum:
    """The type of a value.

    Raises:
        ValueError: metadata has no such values.
    """
    if type(object_) not in _METADATA.values():
        raise ValueError(f"Metadata type {type(object_)} is not supported.")
    return MetadataTypeEnum(type(object_).__name__)


def cast_to_metadata_type(value: object, type_: MetadataTypeEnum) -> Any:
    """The value as one of this type."""
    return _METADATA[str(type_.value)](value)


def validate_metadata(metadata: Dict[str, Any]) -> Dict[str, Any]:
    """What of it is short enough to be kept: names of 255 and values of 65535 characters."""
    return {
        k: v
        for k, v in metadata.items()
        if len(k) <= 255 and len(json.dumps(v, default=pydantic_encoder)) <= 65535
    }


# ------------------------------------------------------------------ string_utils

BANNED_NAME_CHARACTERS = "\t\n\r\v\f"


def validate_name(model: Any, name_field: str = "name") -> None:
    """Check an object's name.

    Raises:
        ValueError: it is empty, or has tabs or line breaks.
    """
    name = getattr(model, name_field, None)
    kind = type(model).__name__
    if not name:
        raise ValueError(f"The class `{kind}` has no attribute `{name_field}`, or it is None.")
    bad = "".join(sorted(set(name) & set(BANNED_NAME_CHARACTERS)))
    if bad:
        raise ValueError(
            f"The {name_field} `{name}` of the `{kind}` has forbidden characters: {bad!r}."
        )


def format_name_template(
    name_template: str, substitutions: Optional[Mapping[str, str]] = None
) -> str:
    """Fill a template's placeholders in; ``{date}`` and ``{time}`` are known.

    Raises:
        KeyError: another placeholder isn't given.
        ValueError: the name is empty.
    """
    now = utc_now()
    known = {"date": now.strftime("%Y_%m_%d"), "time": now.strftime("%H_%M_%S_%f")}
    try:
        made = name_template.format(**{**known, **(substitutions or {})})
    except KeyError as bad:
        raise KeyError(
            f"Could not format the name template `{name_template}`. Missing key: {bad}"
        ) from None
    if not made:
        raise ValueError("Empty names are not allowed.")
    return made


def substitute_string(value: Any, substitution_func: Callable[[str], str]) -> Any:
    """The value with all texts in it changed by a function."""
    if isinstance(value, str):
        return substitution_func(value)
    if isinstance(value, dict):
        return {
            substitute_string(k, substitution_func): substitute_string(v, substitution_func)
            for k, v in value.items()
        }
    if isinstance(value, (list, set, tuple)):
        return type(value)(substitute_string(one, substitution_func) for one in value)
    if hasattr(value, "model_validate"):
        given = {k: getattr(value, k) for k in value.model_fields_set}
        return type(value).model_validate(substitute_string(given, substitution_func))
    return value


# ------------------------------------------------------------------ dict, json, pydantic


def pydantic_encoder(obj: Any) -> Any:
    """``default`` of ``json.dumps``: models, data classes, and values that are written as text.

    Raises:
        TypeError: it is none of them.
    """
    if hasattr(obj, "model_dump"):
        return obj.model_dump(mode="json")
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return dataclasses.asdict(obj)
    if isinstance(obj, enum.Enum):
        return obj.value
    if isinstance(obj, bytes):
        return obj.decode()
    if isinstance(obj, (set, frozenset, types.GeneratorType)):
        return list(obj)
    if hasattr(obj, "isoformat"):
        return obj.isoformat()
    if hasattr(obj, "total_seconds"):
        return obj.total_seconds()
    if hasattr(obj, "get_secret_value"):
        return str(obj)
    if type(obj).__module__ in ("uuid", "pathlib", "ipaddress") or isinstance(
        obj, pathlib.PurePath
    ):
        return str(obj)
    raise TypeError(f"Object of type '{type(obj).__name__}' is not JSON serializable.")


def is_json_serializable(obj: Any) -> bool:
    """Whether :func:`pydantic_encoder` makes it JSON."""
    try:
        json.dumps(obj, default=pydantic_encoder)
    except (TypeError, ValueError):
        return False
    return True


def dict_to_bytes(dict_: Dict[str, Any]) -> bytes:
    """Base 64 of its JSON."""
    return base64.b64encode(json.dumps(dict_, default=pydantic_encoder).encode())


def update_model(
    original: Any, update: Any, recursive: bool = True, exclude_none: bool = False
) -> Any:
    """A copy of a pydantic model with other values.

    Args:
        update: a dict or a model, of which what was set counts.
        recursive: whether dicts are merged.
        exclude_none: whether None counts as not given.
    """
    if isinstance(update, dict):
        given = remove_none_values(update, recursive=recursive) if exclude_none else update
    else:
        given = update.model_dump(exclude_unset=True, exclude_none=exclude_none)
    known = original.model_dump(exclude_unset=True)
    merged = recursive_update(known, given) if recursive else {**known, **given}
    return type(original).model_validate(merged)


# ------------------------------------------------------------------ secrets and settings

_REFERENCE = re.compile(r"\{\{\s*(\S+?)\.(\S+)\s*\}\}")


class SecretReference(NamedTuple):
    """A key of a secret."""

    name: str
    key: str


def is_secret_reference(value: Any) -> bool:
    """Whether it is a text such as ``{{name.key}}``."""
    return isinstance(value, str) and bool(_REFERENCE.fullmatch(value))


def parse_secret_reference(reference: str) -> SecretReference:
    """The secret and the key of ``{{name.key}}``."""
    name, _, key = reference.replace("{{", "").replace("}}", "").strip().partition(".")
    return SecretReference(name, key)


def SecretField(*args: Any, **given: Any) -> Any:
    """A field of pydantic with a sensitive value."""
    from pydantic import Field

    more = {**(given.pop("json_schema_extra", None) or {}), "sensitive": True}
    return Field(*args, json_schema_extra=more, **given)


def ClearTextField(*args: Any, **given: Any) -> Any:
    """A field of pydantic whose value is no reference to a secret."""
    from pydantic import Field

    more = {**(given.pop("json_schema_extra", None) or {}), "prevent_secret_reference": True}
    return Field(*args, json_schema_extra=more, **given)


DOCKER_SETTINGS_KEY, RESOURCE_SETTINGS_KEY = "docker", "resources"


def get_stack_component_setting_key(stack_component: Any) -> str:
    """The key of a component's settings."""
    return f"{stack_component.type.value}.{stack_component.flavor}"


def get_flavor_setting_key(flavor: Any) -> str:
    """The key of the settings of a flavor's components."""
    return f"{getattr(flavor.type, 'value', flavor.type)}.{flavor.name}"


_COMPONENT = re.compile(
    "(alerter|annotator|artifact_store|container_registry|data_validator|deployer|"
    "experiment_tracker|feature_store|image_builder|log_store|model_deployer|model_registry|"
    r"orchestrator|sandbox|step_operator)([.:].*)?"
)


def get_general_settings() -> Dict[str, Any]:
    """Key → class, of the settings that aren't a stack component's."""
    return {"docker": DockerSettings, "resources": ResourceSettings}


def is_general_setting_key(key: str) -> bool:
    """Whether it is ``docker``, ``resources`` or ``deployment``."""
    return key in (*get_general_settings(), "deployment")


def is_stack_component_setting_key(key: str) -> bool:
    """Whether it is a kind of component, with a flavor or a name: ``orchestrator.local``."""
    return bool(_COMPONENT.fullmatch(key))


def is_valid_setting_key(key: str) -> bool:
    """Whether it is one of both."""
    return is_general_setting_key(key) or is_stack_component_setting_key(key)


def validate_setting_keys(setting_keys: List[str]) -> None:
    """Check the keys of settings.

    Raises:
        ValueError: one is no key of settings.
    """
    for key in setting_keys:
        if not is_valid_setting_key(key):
            raise SettingsError(
                f"Invalid setting key `{key}`. It is docker, resources, or a kind of stack "
                "component, with a flavor: orchestrator.local"
            )


# ------------------------------------------------------------------ typing


def is_none_type(type_: Any) -> bool:
    """Whether it is None or its type."""
    return type_ in (None, type(None)) or type_ == typing.Literal[None]


def is_union(type_: Any) -> bool:
    """Whether it is what :func:`get_origin` returns of a union."""
    return type_ is typing.Union or type_ is getattr(types, "UnionType", typing.Union)


def is_optional(tp: Any) -> bool:
    """Whether it is a union with None."""
    return is_union(get_origin(tp)) and type(None) in get_args(tp)


def is_literal_type(type_: Any) -> bool:
    """Whether it is ``Literal[…]``."""
    return get_origin(type_) is typing.Literal


def literal_values(type_: Any) -> Tuple[Any, ...]:
    """What ``Literal[…]`` names."""
    return get_args(type_)


def get_origin(tp: Any) -> Any:
    """As in ``typing``; ``Annotated`` of an annotated type."""
    return typing.get_origin(tp) or getattr(tp, "__origin__", None)


def get_args(tp: Any) -> Tuple[Any, ...]:
    """As in ``typing``."""
    return typing.get_args(tp) or tuple(getattr(tp, "__args__", ()))


class SingletonMetaClass(type):
    """Metaclass of classes with one object."""

    def __init__(cls, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        cls._only: Any = None

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """The object, which the first call makes."""
        if cls._only is None:
            cls._only = super().__call__(*args, **kwargs)
        return cls._only

    def _clear(cls, instance: Any = None) -> None:
        """Forget the object, or put another one in its place."""
        cls._only = instance

    def _instance(cls) -> Any:
        """The object, or None."""
        return cls._only

    def _exists(cls) -> bool:
        """Whether there is one."""
        return cls._only is not None


# ------------------------------------------------------------------ environment, network, sources


def substitute_env_variable_placeholders(value: Any, raise_when_missing: bool = True) -> Any:
    """The value with ``${NAME}`` replaced in its texts.

    Raises:
        KeyError: a variable isn't set; without ``raise_when_missing`` it is empty.
    """

    def found(match: typing.Match[str]) -> str:
        if match[1] not in os.environ and raise_when_missing:
            raise KeyError(f"Unable to substitute '{match[1]}': the variable is not set.")
        return os.environ.get(match[1], "")

    return substitute_string(value, lambda text: re.sub(r"\$\{([a-zA-Z0-9_]+)\}", found, text))


def port_available(port: int, address: str = "127.0.0.1") -> bool:
    """Whether a TCP port can be bound."""
    try:
        with socket.socket() as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((address, port))
    except OSError:
        return False
    return True


def find_available_port() -> int:
    """A TCP port of this machine that is free."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def scan_for_available_port(
    start: int = 8000, stop: int = 65535, address: str = "127.0.0.1"
) -> Optional[int]:
    """The first free TCP port of a range, or None."""
    return next((p for p in range(start, stop + 1) if port_available(p, address)), None)


def port_is_open(hostname: str, port: int) -> bool:
    """Whether a server listens there."""
    try:
        with socket.socket() as made:
            return made.connect_ex((hostname, port)) == 0
    except OSError:
        return False


def requirement_installed(requirement: Any) -> bool:
    """Whether a package is installed, in a version that fits."""
    from importlib.metadata import PackageNotFoundError, version

    from packaging.requirements import Requirement

    wanted = Requirement(requirement) if isinstance(requirement, str) else requirement
    try:
        return bool(wanted.specifier.contains(version(wanted.name), prereleases=True))
    except PackageNotFoundError:
        return False


def get_source_code(value: Any) -> str:
    """The source of a class, function or method."""
    return inspect.getsource(value)


def get_hashed_source_code(value: Any) -> str:
    """SHA-256 of it, in hexadecimal.

    Raises:
        TypeError: it has no source.
    """
    return hashlib.sha256(get_source_code(value).encode()).hexdigest()


def is_standard_lib_file(file_path: str) -> bool:
    """Whether a file is of Python's own library."""
    top = os.path.realpath(sysconfig.get_path("stdlib"))
    path = os.path.realpath(file_path)
    return path.startswith(top + os.sep) and not is_distribution_package_file(path)


def is_distribution_package_file(file_path: str, module_name: str = "") -> bool:
    """Whether a file is of an installed package."""
    return bool({"site-packages", "dist-packages"} & set(pathlib.Path(file_path).resolve().parts))


def is_user_file(file_path: str) -> bool:
    """Whether a file is in the folder of the program's code."""
    root, path = os.path.realpath(get_source_root()), os.path.realpath(file_path)
    return path.startswith(root + os.sep) and not is_distribution_package_file(path)


def is_internal_module(module_name: str) -> bool:
    """Whether a module is ZenML's."""
    return module_name.split(".")[0] == "zenml"


def get_source_type(module: Any) -> Any:
    """Whose code a module is."""
    path = getattr(module, "__file__", None)
    if is_internal_module(module.__name__):
        return SourceType.INTERNAL
    if not path:
        builtin = module.__name__ in sys.builtin_module_names
        return SourceType.BUILTIN if builtin else SourceType.UNKNOWN
    if is_standard_lib_file(path):
        return SourceType.BUILTIN
    if is_user_file(path):
        return SourceType.USER
    packaged = is_distribution_package_file(path)
    return SourceType.DISTRIBUTION_PACKAGE if packaged else SourceType.UNKNOWN
