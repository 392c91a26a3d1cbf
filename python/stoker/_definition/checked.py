"""The base of settings: frozen, comparable, and told which fields were given."""

from __future__ import annotations

import enum
import json
from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

from .._base.errors import refuse_unknown

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    # For type checkers these are dataclasses. At run time their base makes them: eight generated
    # methods for each class would take a quarter of the front's import time.

    def dataclass(**_):
        return lambda cls: cls


class _CheckedType(type):
    """Makes a class's annotated names its fields. Refuses unknown fields with a did-you-mean."""

    _fields: Dict[str, Any]

    def __init__(cls, name: str, bases: Tuple[type, ...], space: Dict[str, Any]) -> None:
        super().__init__(name, bases, space)
        cls._fields = dict(getattr(bases[0], "_fields", {})) if bases else {}
        for field in space.get("__annotations__", ()):
            if not field.startswith("_"):
                cls._fields[field] = space.get(field, _REQUIRED)

    if not TYPE_CHECKING:  # type checkers read the dataclasses' fields

        def __call__(cls, *args: Any, **given: Any) -> Any:
            known = list(cls._fields)
            renamed: Mapping[str, str] = getattr(cls, "_renamed", {})
            for old in [name for name in given if name in renamed]:
                value = given.pop(old)
                if renamed[old]:
                    given.setdefault(renamed[old], value)
            unknown = [name for name in given if name not in known]
            if unknown:
                refuse_unknown(cls.__name__, "field", unknown, known)
                for name in unknown:
                    del given[name]
            return super().__call__(*args, **given)


_REQUIRED = object()


class Checked(metaclass=_CheckedType):
    """Base of the settings: frozen and comparable; knows which fields were given."""

    _given: Tuple[str, ...]

    if not TYPE_CHECKING:

        def __init__(self, *args: Any, **given: Any) -> None:
            fields = type(self)._fields
            if len(args) > len(fields):
                raise TypeError(
                    f"{type(self).__name__} takes {len(fields)} values, not {len(args)}"
                )
            values = {**dict(zip(fields, args)), **given}
            for name, default in fields.items():
                value = values.get(name, default)
                if value is _REQUIRED:
                    raise TypeError(f"{type(self).__name__} needs {name}")
                object.__setattr__(self, name, value)
            object.__setattr__(self, "_given", tuple(name for name in fields if name in values))
            self.__post_init__()

    def __post_init__(self) -> None:
        """Check the values."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} can't be changed; make another one")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.model_dump() == other.model_dump()

    def __hash__(self) -> int:
        return hash(repr(self))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._given)
        return f"{type(self).__name__}({shown})"

    def given(self) -> Dict[str, Any]:
        """The fields that were given and are not None, as plain data."""
        pairs = ((name, getattr(self, name)) for name in self._given)
        return {name: plain(value) for name, value in pairs if value is not None}

    def model_dump_json(self, **_: Any) -> str:
        """The fields that were given, as JSON."""
        return json.dumps(self.given())

    @classmethod
    def model_validate(cls, given: Mapping[str, Any]) -> Any:
        """The settings that have these fields."""
        return cls(**given)

    @classmethod
    def model_validate_json(cls, text: str) -> Any:
        """The same from JSON."""
        return cls.model_validate(json.loads(text))

    def model_dump(self, exclude_unset: bool = False, **_: Any) -> Dict[str, Any]:
        """All fields as plain data (only those given with ``exclude_unset``)."""
        if exclude_unset:
            return self.given()
        return {name: plain(getattr(self, name)) for name in type(self)._fields}


def plain(value: Any) -> Any:
    """Settings as JSON-able data: nested settings, enums, paths and sequences resolved."""
    if isinstance(value, Checked):
        return value.given()
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(v) for v in value]
    if isinstance(value, enum.Enum):
        return plain(value.value)
    names = getattr(value, "attribute_map", None)
    if isinstance(names, dict):  # an object of the Kubernetes client: use the API's names
        pairs = ((names[name], getattr(value, name)) for name in names)
        return {key: plain(one) for key, one in pairs if one is not None}
    if hasattr(value, "model_dump"):
        return plain(value.model_dump(exclude_unset=True))
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    return str(value)
