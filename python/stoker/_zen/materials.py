"""ZenML's classes of materializers: the base of those that programs write, and the built-in ones,
which programs may call by hand."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pathlib
import shutil
import sys
import tempfile
import uuid
from typing import Any, ClassVar, Dict, Iterator, Optional, Tuple

from .. import materializers
from .._base import registry
from .._dialect import StandardMaterializer
from ..materializers import _custom
from ..materializers._facts import facts_of
from . import errors
from .enums import ArtifactType


class BaseMaterializer(materializers.BaseMaterializer):
    """What a program's materializer derives from. A type that has a materializer keeps it."""

    ASSOCIATED_ARTIFACT_TYPE: ClassVar[Any] = ArtifactType.BASE
    SKIP_REGISTRATION: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super(materializers.BaseMaterializer, cls).__init_subclass__(**options)
        refused = errors.__getattr__("MaterializerInterfaceError")
        if not all(isinstance(kind, type) for kind in cls.ASSOCIATED_TYPES):
            raise refused(
                f"{cls.__qualname__}.ASSOCIATED_TYPES: {cls.ASSOCIATED_TYPES} has no class"
            )
        if cls.ASSOCIATED_ARTIFACT_TYPE not in [*ArtifactType, *(a.value for a in ArtifactType)]:
            raise refused(
                f"{cls.__qualname__}.ASSOCIATED_ARTIFACT_TYPE is {cls.ASSOCIATED_ARTIFACT_TYPE!r}, "
                "which is no ArtifactType"
            )
        if cls.__dict__.get("SKIP_REGISTRATION", False):
            return
        for kind in cls.ASSOCIATED_TYPES:
            known = _custom.by_type.get(kind)
            again = getattr(known, "__qualname__", None) == cls.__qualname__
            if again or (known is None and standard_for(kind) is None):
                _custom.by_type[kind] = cls

    @classmethod
    def can_handle_type(cls, data_type: Any) -> bool:
        """Whether it stores values of this type."""
        return any(issubclass(data_type, kind) for kind in cls.ASSOCIATED_TYPES)

    can_save_type = can_load_type = can_handle_type

    def validate_save_type_compatibility(self, data_type: Any) -> None:
        """Raises TypeError if it doesn't store values of this type."""
        if not self.can_handle_type(data_type):
            known = ", ".join(kind.__name__ for kind in self.ASSOCIATED_TYPES)
            raise TypeError(f"{type(self).__name__} takes {known}, not {data_type}")

    validate_load_type_compatibility = validate_save_type_compatibility

    def extract_full_metadata(self, data: Any) -> Dict[str, Any]:
        """What :meth:`extract_metadata` tells, and the size of the files."""
        files = [os.path.join(d, f) for d, _, some in os.walk(self.uri) for f in some]
        size = sum(os.path.getsize(file) for file in files)
        return {"storage_size": size, **self.extract_metadata(data)}

    @contextlib.contextmanager
    def get_temporary_directory(
        self, delete_at_exit: bool = True, delete_after_step_execution: bool = True
    ) -> Iterator[str]:
        """A new folder, which the end of the ``with`` removes."""
        folder = tempfile.mkdtemp()
        try:
            yield folder
        finally:
            if delete_at_exit:
                shutil.rmtree(folder, ignore_errors=True)


def _import(module: str, *names: str) -> Tuple[Any, ...]:
    try:
        home = importlib.import_module(module)
    except ImportError:
        return ()
    return tuple(getattr(home, name) for name in names if hasattr(home, name))


_STRINGS = ("CSVString", "HTMLString", "MarkdownString", "JSONString")

# Name → the types that it stores; a library is imported when its materializer is asked for.
_TYPES: Dict[str, Any] = {
    "BuiltIn": lambda: (bool, float, int, str, type(None)),
    "Bytes": lambda: (bytes,),
    "BuiltInContainer": lambda: (dict, list, set, tuple),
    "UUID": lambda: (uuid.UUID,),
    "Path": lambda: (pathlib.Path,),
    "StructuredString": lambda: _import("stoker.materializers", *_STRINGS),
    "Pydantic": lambda: _import("pydantic", "BaseModel"),
    "Numpy": lambda: _import("numpy", "ndarray"),
    "Pandas": lambda: _import("pandas", "DataFrame", "Series"),
    "Dataclass": tuple,
    "Service": tuple,
    "InMemory": tuple,
    "Cloudpickle": lambda: (object,),
}
_STATISTICS = ("StructuredString",)
_LIBRARIES = {"numpy": "Numpy", "pandas": "Pandas", "pydantic": "Pydantic"}


class _BuiltIn(BaseMaterializer, StandardMaterializer):
    SKIP_REGISTRATION = True

    def save(self, data: Any) -> None:
        """Write the value."""
        if type(data) in self.ASSOCIATED_TYPES and type(data) in _TYPES["BuiltIn"]():
            with self.artifact_store.open(os.path.join(self.uri, "data.json"), "w") as out:
                json.dump(data, out)
        else:
            StandardMaterializer.save(self, data)

    def load(self, data_type: Any) -> Any:
        """Read the value."""
        plain = os.path.join(self.uri, "data.json")
        if self.artifact_store.exists(plain):
            with self.artifact_store.open(plain) as stream:
                return json.load(stream)
        found = StandardMaterializer.load(self, data_type)
        again = isinstance(found, str) and isinstance(data_type, type)
        return data_type(found) if again and issubclass(data_type, str) else found

    def extract_metadata(self, data: Any) -> Dict[str, Any]:
        """What ZenML tells of such a value."""
        told = facts_of(data)
        return {k: tuple(v) if k == "shape" else v for k, v in told.items()}


def __getattr__(name: str) -> Any:
    key = name[: -len("Materializer")]
    if not name.endswith("Materializer") or key not in _TYPES:
        raise AttributeError(f"ZenML has no materializer '{name}'")
    kind = ArtifactType.STATISTICS if key in _STATISTICS else ArtifactType.DATA
    body = {
        "__doc__": "See ZenML's documentation.",
        "__module__": __name__,
        "ASSOCIATED_TYPES": _TYPES[key](),
        "ASSOCIATED_ARTIFACT_TYPE": kind,
        "SKIP_REGISTRATION": True,
    }
    globals()[name] = made = type(name, (_BuiltIn,), body)
    return made


def standard_for(kind: type) -> Optional[Any]:
    """The built-in materializer that a type itself has, or None."""
    key = _LIBRARIES.get(kind.__module__.partition(".")[0])
    keys = [key] if key else [k for k in _TYPES if k not in (*_LIBRARIES.values(), "Cloudpickle")]
    found = next((k for k in keys if kind in _TYPES[k]()), None)
    return (
        None
        if found is None
        else globals().get(f"{found}Materializer") or __getattr__(f"{found}Materializer")
    )


class MaterializerRegistry:
    """Which materializer a type has."""

    def register_materializer_type(self, key: type, type_: Any) -> None:
        """Let a type have a materializer, unless it has one."""
        if standard_for(key) is None:
            _custom.by_type.setdefault(key, type_)

    def register_and_overwrite_type(self, key: type, type_: Any) -> None:
        """Let a type have this materializer."""
        _custom.by_type[key] = type_

    def __getitem__(self, key: type) -> Any:
        """The materializer of the nearest base class, else the standard one."""
        for kind in key.__mro__:
            found = _custom.by_type.get(kind) or standard_for(kind)
            if found is not None:
                return found
        return self.get_default_materializer()

    def get_materializer_types(self) -> Dict[type, Any]:
        """Type → materializer."""
        standard = (__getattr__(f"{key}Materializer") for key in _TYPES if key != "Cloudpickle")
        found = {kind: made for made in standard for kind in made.ASSOCIATED_TYPES}
        return {**found, **_custom.by_type}

    def get_default_materializer(self) -> Any:
        """The one of values that no other stores."""
        return globals().get("CloudpickleMaterializer") or __getattr__("CloudpickleMaterializer")


materializer_registry = MaterializerRegistry()


def as_annotated(value: Any, annotation: Any) -> Any:
    """What ZenML's materializer of pandas loads for a parameter: a Series as a DataFrame, and a
    DataFrame of one column as a Series, where the annotation says so.

    Raises:
        TypeError: the DataFrame has several columns.
    """
    pandas = sys.modules.get("pandas")
    if pandas is None:
        return value
    if annotation is pandas.DataFrame and isinstance(value, pandas.Series):
        return value.to_frame(name="series")
    if annotation is pandas.Series and isinstance(value, pandas.DataFrame):
        if len(value.columns) != 1:
            raise TypeError(f"a DataFrame of {len(value.columns)} columns is no Series")
        return value[value.columns[0]]
    return value


registry.converted.append(as_annotated)
