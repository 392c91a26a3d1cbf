"""JSON with the Python values that JSON lacks.

``encode`` returns a JSON document, from which ``decode`` makes an equal value of the same types, or
raises :class:`NotJson`. ``{"!py": TAG, "v": …}`` stands for values that JSON lacks, so plain
readers (the engine, a card, another language) still see something useful, and plain JSON decodes to
itself. Only exact builtin types count: an ``IntEnum`` is not an ``int``.
"""

from __future__ import annotations

import sys

from ._errors import LoadError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List

TAG = "!py"
_MAX_DEPTH = 100
_INT64 = 1 << 63
_MAX_BITS = 2000  # PYTHONINTMAXSTRDIGITS may be as low as 640 digits
_MAX_BYTES = 1 << 20  # for larger values base64 needs too much memory


class NotJson(Exception):
    """JSON can't hold the value; it needs another format."""


def encode(value: Any, depth: int = 0) -> Any:
    """The JSON document for ``value``.

    Raises:
        NotJson: a part has another type, or is nested deeper than 100 levels.
    """
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return _text(value)
    if kind is int:
        return value if -_INT64 <= value < _INT64 else {TAG: "int", "v": _digits(value)}
    if kind is float:
        if value - value == 0.0:
            return value
        return {TAG: "float", "v": repr(value)}
    if depth >= _MAX_DEPTH:
        raise NotJson(f"nested deeper than {_MAX_DEPTH} levels")
    if kind is list:
        return [encode(item, depth + 1) for item in value]
    if kind is dict:
        return _encode_dict(value, depth + 1)
    if kind is tuple or kind is set or kind is frozenset:
        return {TAG: kind.__name__, "v": [encode(item, depth + 1) for item in value]}
    return _encode_other(value, kind, depth + 1)


def _digits(value: int) -> str:
    """Decimal, or hexadecimal if Python may refuse it: it limits decimals to 4,300 digits."""
    return str(value) if value.bit_length() < _MAX_BITS else hex(value)


def _whole(text: str) -> int:
    return int(text, 16) if "x" in text else int(text)


def _text(value: str) -> Any:
    """The string, or base64 if other JSON readers refuse it (NUL, lone surrogates)."""
    try:
        raw = value.encode("utf-8")
    except UnicodeEncodeError:
        raw = value.encode("utf-8", "surrogatepass")
    else:
        if "\0" not in value:
            return value
    return {TAG: "str", "v": _base64(raw)}


def _base64(raw: bytes) -> str:
    import base64

    return base64.b64encode(raw).decode("ascii")


def _encode_dict(value: Dict[Any, Any], depth: int) -> Any:
    plain = {}
    for key, item in value.items():
        if type(key) is not str or key == TAG or _text(key) is not key:
            pairs = [[encode(k, depth), encode(v, depth)] for k, v in value.items()]
            return {TAG: "dict", "v": pairs}
        plain[key] = encode(item, depth)
    return plain


def _encode_other(value: Any, kind: type, depth: int) -> Any:
    module = kind.__module__
    name = kind.__name__
    if kind is bytes:
        if len(value) > _MAX_BYTES:
            raise NotJson(f"{len(value)} bytes are too many for a text")
        return {TAG: "bytes", "v": _base64(value)}
    if kind is complex:
        return {TAG: "complex", "v": [encode(value.real), encode(value.imag)]}
    if module == "datetime" and name in ("date", "datetime", "time") and _naive(value):
        return {TAG: f"datetime.{name}", "v": value.isoformat()}
    if module == "datetime" and name == "timedelta":
        return {TAG: "timedelta", "v": [value.days, value.seconds, value.microseconds]}
    if module == "uuid" and name == "UUID":
        return {TAG: "uuid", "v": str(value)}
    if module == "decimal" and name == "Decimal":
        return {TAG: "decimal", "v": str(value)}
    if module == "numpy" and name != "ndarray" and getattr(value, "shape", None) == ():
        return _encode_numpy_scalar(value, kind, depth)
    if "__dataclass_fields__" in kind.__dict__:
        fields = kind.__dict__["__dataclass_fields__"]
        attributes = getattr(value, "__dict__", None)
        if attributes is not None and not set(attributes) <= set(fields):
            raise NotJson("it has attributes that aren't fields")
        held = {
            key: encode(getattr(value, key), depth)
            for key, one in fields.items()
            if one._field_type.name == "_FIELD" and hasattr(value, key)
        }
        return {TAG: "dataclass", "type": _class_path(kind), "v": held}
    if hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump_json"):
        return _encode_pydantic(value, kind)
    if any(base.__module__ == "enum" and base.__name__ == "Enum" for base in kind.__mro__):
        member = getattr(value, "name", None)  # a combination of flags has no name
        if isinstance(member, str) and getattr(kind, member, None) is value:
            return {TAG: "enum", "type": _class_path(kind), "v": member}
    raise NotJson(f"{module}.{kind.__qualname__} has no JSON form")


def _naive(value: Any) -> bool:
    """Whether a time has no zone and no fold. Zones need pickling: a named zone is more than its
    offset."""
    return getattr(value, "tzinfo", None) is None and getattr(value, "fold", 0) == 0


def _encode_numpy_scalar(value: Any, kind: type, depth: int) -> Any:
    if value.dtype.kind not in "biuf" or value.dtype.itemsize > 8:
        raise NotJson(f"a numpy {value.dtype} has no JSON form")
    return {TAG: "numpy", "type": value.dtype.name, "v": encode(value.item(), depth)}


def _class_path(kind: type) -> str:
    """``module:qualname``, if the class can be found by it."""
    module = kind.__module__
    found: Any = sys.modules.get(module)
    for part in kind.__qualname__.split("."):
        found = getattr(found, part, None)
    if found is not kind:
        raise NotJson(f"{module}.{kind.__qualname__} can't be found by its name")
    return f"{'__main__' if module == '__mp_main__' else module}:{kind.__qualname__}"


def _encode_pydantic(value: Any, kind: Any) -> Any:
    path = _class_path(kind)
    try:
        text = value.model_dump_json()
        if kind.model_validate_json(text) != value:
            raise NotJson("its JSON form reads back as something else")
    except NotJson:
        raise
    except Exception as exc:  # pydantic can't write or read a field; pickling may
        raise NotJson(f"pydantic can't turn it into JSON and back: {exc}") from exc
    import json

    return {TAG: "pydantic", "type": path, "v": encode(json.loads(text))}


def decode(document: Any) -> Any:
    """The value of a document from :func:`encode`; plain JSON stands for itself.

    Raises:
        LoadError: an unknown tag, or a class that can't be imported here.
    """
    kind = type(document)
    if kind is list:
        return [decode(item) for item in document]
    if kind is not dict:
        return document
    if TAG not in document:
        return {key: decode(item) for key, item in document.items()}
    tag = document[TAG]
    maker = _MAKERS.get(tag)
    if maker is None:
        raise LoadError(f"a value is tagged '{tag}', which this version of Stoker doesn't know")
    return maker(document)


def _sequence(kind: Callable[[List[Any]], Any]) -> Callable[[Dict[str, Any]], Any]:
    return lambda document: kind([decode(item) for item in document["v"]])


def _decode_dict(document: Dict[str, Any]) -> Any:
    return {decode(key): decode(item) for key, item in document["v"]}


def _decode_base64(document: Dict[str, Any]) -> bytes:
    import base64

    return base64.b64decode(document["v"])


def _decode_datetime(document: Dict[str, Any]) -> Any:
    import datetime

    name = document[TAG].split(".")[1]
    return getattr(datetime, name).fromisoformat(document["v"])


def _decode_timedelta(document: Dict[str, Any]) -> Any:
    import datetime

    return datetime.timedelta(*document["v"])


def _decode_uuid(document: Dict[str, Any]) -> Any:
    import uuid

    return uuid.UUID(document["v"])


def _decode_decimal(document: Dict[str, Any]) -> Any:
    import decimal

    return decimal.Decimal(document["v"])


def _decode_numpy(document: Dict[str, Any]) -> Any:
    return need("numpy").dtype(document["type"]).type(decode(document["v"]))


def _decode_dataclass(document: Dict[str, Any]) -> Any:
    kind = find_class(document["type"])
    if "__dataclass_fields__" not in kind.__dict__:
        raise LoadError(f"'{document['type']}' is not a dataclass any more")
    value = object.__new__(kind)
    for key, item in document["v"].items():
        object.__setattr__(value, key, decode(item))
    return value


def _decode_pydantic(document: Dict[str, Any]) -> Any:
    import json

    kind = find_class(document["type"])
    if not hasattr(kind, "model_validate_json"):
        raise LoadError(f"'{document['type']}' is not a pydantic model any more")
    return kind.model_validate_json(json.dumps(decode(document["v"])))


def _decode_enum(document: Dict[str, Any]) -> Any:
    kind = find_class(document["type"])
    try:
        return kind[document["v"]]
    except (KeyError, TypeError):
        raise LoadError(f"'{document['type']}' has no member {document['v']} any more") from None


_MAKERS = {
    "int": lambda document: _whole(document["v"]),
    "float": lambda document: float(document["v"]),
    "str": lambda document: _decode_base64(document).decode("utf-8", "surrogatepass"),
    "bytes": _decode_base64,
    "complex": lambda document: complex(decode(document["v"][0]), decode(document["v"][1])),
    "tuple": _sequence(tuple),
    "set": _sequence(set),
    "frozenset": _sequence(frozenset),
    "dict": _decode_dict,
    "datetime.date": _decode_datetime,
    "datetime.datetime": _decode_datetime,
    "datetime.time": _decode_datetime,
    "timedelta": _decode_timedelta,
    "uuid": _decode_uuid,
    "decimal": _decode_decimal,
    "numpy": _decode_numpy,
    "dataclass": _decode_dataclass,
    "pydantic": _decode_pydantic,
    "enum": _decode_enum,
}  # type: Dict[str, Callable[[Dict[str, Any]], Any]]


def need(module: str) -> Any:
    """Import a library that an artifact needs; the error names it if it is missing."""
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise LoadError(
            f"it needs '{module}', which can't be imported here ({exc}); install {module}"
        ) from exc


def find_class(path: str) -> Any:
    """The class ``module:qualname``, imported if need be.

    Raises:
        LoadError: it can't be found.
    """
    module, _, qualname = path.partition(":")
    found = need(module) if module not in sys.modules else sys.modules[module]
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise LoadError(
            f"its class '{qualname}' isn't in module '{module}' here; import the file that defines it"
        )
    return found
