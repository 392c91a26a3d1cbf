"""Text, bytes, files, directories and pictures."""

from __future__ import annotations

import os
import sys

from ._errors import LoadError, SerializeError
from ._files import copy_file, write_parts
from ._saved import Saved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


class HTMLString(str):
    """Text that is HTML; cards show it."""


class MarkdownString(str):
    """Text that is Markdown."""


class CSVString(str):
    """Text that is comma-separated values."""


class JSONString(str):
    """Text that is JSON."""


_TEXTS = {str: "text", HTMLString: "html", MarkdownString: "markdown", CSVString: "csv"}
_KINDS = {"html": HTMLString, "markdown": MarkdownString, "csv": CSVString}


class Text:
    """``str`` and its kinds above, as a UTF-8 file."""

    formats = ("text", "html", "markdown", "csv")

    @staticmethod
    def matches(value: Any) -> bool:
        return type(value) in _TEXTS or type(value) is JSONString

    @staticmethod
    def save(value: str, path: str) -> Saved:
        try:
            raw = value.encode("utf-8")
        except UnicodeEncodeError as exc:
            raise SerializeError(f"a text can't be written as UTF-8: {exc}") from exc
        write_parts(path, [raw])
        meta = {"json": True} if type(value) is JSONString else {}
        return Saved(_TEXTS.get(type(value), "text"), meta)

    @staticmethod
    def load(path: str, meta: Dict[str, Any], type_: Any) -> Any:
        with open(path, "rb") as stream:
            raw = stream.read()
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise LoadError(f"'{path}' is not UTF-8 text: {exc}") from exc
        if meta.get("json"):
            return JSONString(text)
        return _KINDS.get(meta.get("format", ""), str)(text)


class Bytes:
    """``bytes``, ``bytearray`` and ``memoryview``, as a file with the same bytes."""

    formats = ("bytes",)

    @staticmethod
    def matches(value: Any) -> bool:
        return type(value) in (bytes, bytearray)

    @staticmethod
    def save(value: Any, path: str) -> Saved:
        write_parts(path, [value])
        return Saved("bytes", {"type": type(value).__name__})

    @staticmethod
    def load(path: str, meta: Dict[str, Any], type_: Any) -> Any:
        with open(path, "rb") as stream:
            raw = stream.read()
        return bytearray(raw) if meta.get("type") == "bytearray" else raw


class File:
    """A ``Path`` to a file or directory: copies its content; loads as a read-only ``Path``."""

    formats = ("file", "dir")

    @staticmethod
    def matches(value: Any) -> bool:
        pathlib = sys.modules.get("pathlib")
        return pathlib is not None and isinstance(value, pathlib.Path)

    @staticmethod
    def save(value: Any, path: str) -> Saved:
        source = os.path.abspath(str(value))
        meta = {"name": os.path.basename(source)}
        if not os.path.exists(source):
            raise SerializeError(
                f"the path '{value}' doesn't exist: write the file before returning its path, "
                "or return str(path) if only the name is meant"
            )
        if os.path.isdir(source):
            if source != path:
                import shutil

                if path.startswith(source + os.sep):
                    raise SerializeError(
                        f"the directory '{value}' holds the step's own output folder"
                    )
                shutil.copytree(source, path)
            return Saved("dir", meta)
        if not os.path.isfile(source):
            raise SerializeError(f"the path '{value}' is neither a file nor a directory")
        if source != path:
            copy_file(source, path)
        return Saved("file", meta)

    @staticmethod
    def load(path: str, meta: Dict[str, Any], type_: Any) -> Any:
        if type_ is str:
            return path
        if type_ is bytes:
            return Bytes.load(path, {}, type_)
        import pathlib

        return pathlib.Path(path)


class Picture:
    """A picture that a step returned (a matplotlib figure); a notebook displays it.

    Attributes:
        path: the PNG file in the store, read-only.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    @property
    def data(self) -> bytes:
        """The bytes of the PNG file."""
        with open(self.path, "rb") as stream:
            return stream.read()

    def save(self, path: str) -> None:
        """Copy the picture to ``path``."""
        import shutil

        shutil.copyfile(self.path, path)

    def _repr_png_(self) -> bytes:
        return self.data

    def __repr__(self) -> str:
        return f"Picture({self.path!r})"


class Figure:
    """matplotlib figures, stored as a picture."""

    formats = ("png",)

    @staticmethod
    def matches(value: Any) -> bool:
        if type(value) is Picture:
            return True
        figure: Any = sys.modules.get("matplotlib.figure")
        return hasattr(figure, "Figure") and isinstance(value, figure.Figure)

    @staticmethod
    def save(value: Any, path: str) -> Saved:
        if type(value) is Picture:
            copy_file(value.path, path)
            return Saved("png", {})
        width, height = (float(inches) for inches in value.get_size_inches())
        with open(path, "xb") as stream:
            value.savefig(stream, format="png")
        return Saved("png", {"width_inches": width, "height_inches": height})

    @staticmethod
    def load(path: str, meta: Dict[str, Any], type_: Any) -> Any:
        return Picture(path)
