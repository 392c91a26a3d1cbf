"""Artifacts: writes the values of steps to files, and reads them.

``store`` writes one value below an attempt directory and returns its entry for ``result.json``;
``load`` makes a value from an entry of ``task.json`` or ``stoker show``
(docs/formats/task-directory.md). There is one class for each kind of value, with ``matches``,
``save`` and ``load``. A class uses a library only if the value's module is loaded already; this
module needs none.
"""

from __future__ import annotations

import json
import os
import re
import sys

from . import _custom, _json, _trust
from ._errors import LoadError, SerializeError
from ._files import write_parts
from ._saved import Saved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Optional, Tuple

__all__ = ["INLINE_MAX", "LoadError", "Saved", "SerializeError", "load", "store", "type_name"]

INLINE_MAX = 64 << 10  # bytes of JSON; larger values aren't written into result.json
_compact = json.JSONEncoder(separators=(",", ":")).encode
_parse = json.JSONDecoder().decode
_READ = 1 << 16
_SHORT = (int, bool, type(None), float)  # JSON of a few bytes
_PICKLES = ("pickle", "safetensors+pickle", _custom.FORMAT)
_QUIET = re.compile(  # objects of these libraries are meant to be pickled: no warning
    r"(numpy|pandas|torch|torchvision|sklearn|scipy|xgboost|lightgbm|catboost|statsmodels|joblib|polars"
    r"|pyarrow|PIL|plotly|altair|transformers|datasets|tokenizers|keras|lightning|pytorch_lightning"
    r"|collections|builtins|stoker)\."
)


class Json:
    """Values that :mod:`._json` can write, too large for ``result.json``."""

    formats = ("json",)

    @staticmethod
    def save_text(text: bytes, path: str) -> Saved:
        write_parts(path, [text])
        return Saved("json", {})

    @staticmethod
    def load(path: str, meta: Dict[str, Any], type_: Any) -> Any:
        try:
            return _json.decode(_parse(read(path).decode("utf-8")))
        except ValueError as exc:
            raise LoadError(f"'{path}' is not JSON: {exc}") from exc


class Pickle:
    """Any other value: a pickle skeleton, with large parts beside it."""

    formats = ("pickle", "safetensors+pickle")

    @staticmethod
    def save(value: Any, path: str) -> Saved:
        from . import _skeleton

        return Saved(*_skeleton.save(value, path))

    @staticmethod
    def load(path: str, meta: Dict[str, Any], type_: Any) -> Any:
        from . import _skeleton

        return _skeleton.load(path, meta)


class Custom:
    """Values with a materializer of the user, see :mod:`stoker.materializers`."""

    formats = (_custom.FORMAT,)
    load = staticmethod(_custom.load)


_OURS = {  # loading by these needs no other module
    format_: handler for handler in (Json, Pickle, Custom) for format_ in handler.formats
}


def read(path: str) -> bytes:
    """The whole file, read with as few calls and objects as possible."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = [os.read(fd, _READ)]
        while len(parts[-1]) == _READ:  # reads of a regular file are short only at its end
            parts.append(os.read(fd, _READ))
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(fd)


def _handlers() -> Tuple[Any, ...]:
    from . import _arrays, _plain

    return (
        _plain.Text,
        _plain.Bytes,
        _plain.File,
        _arrays.Numpy,
        _arrays.Pandas,
        _plain.Figure,
        Json,
        Pickle,
        Custom,
    )


def type_name(value: Any) -> str:
    """``module.qualname`` of the value's type; ``__main__`` stands for both names of the user's
    file."""
    kind = type(value)
    module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
    return f"{module}.{kind.__qualname__}"


def store(
    value: Any,
    path: str,
    materializer: Any = None,
    warnings: Optional[List[str]] = None,
    name: str = "",
    spend: bool = False,
    with_visuals: bool = True,
) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Store one value: small JSON in the entry, all else at ``path``.

    Args:
        path: of the new file or directory, whose parents are made; must not exist (but a ``Path``
            value may be this path).
        materializer: a class, source path or list of classes to use; None: the usual choice.
        warnings: gets sentences.
        name: the output's name, for these sentences.
        spend: the value may be lost (:func:`._spend.is_last`); an array's memory is freed.
        with_visuals: a materializer of the user saves its visualizations too.

    Returns:
        The entry for ``result.json`` (``{"value", "type"}`` or ``{"path", "format", "type",
        "meta"}``, its path as given), and the materializer's metadata.

    Raises:
        SerializeError: the value can't be stored, in one sentence.
    """
    own = _custom.choose(materializer, value) if materializer is not None else _custom.find(value)
    kind = type_name(value)
    if own is None and not (type(value) in (str, bytes) and len(value) > INLINE_MAX):
        try:
            document = _json.encode(value)
        except (_json.NotJson, RecursionError):
            pass
        else:
            if type(document) in _SHORT:
                return {"value": document, "type": kind}, {}
            text = _compact(document).encode("ascii")
            if len(text) <= INLINE_MAX:
                return {"value": document, "type": kind}, {}
            if type(value) not in (str, bytes):
                saved = _written(Json.save_text, text, path)
                return _entry(saved, path, kind), {}
    if own is None:
        if spend:
            from ._arrays import Numpy

            saved = _written(lambda value, path: Numpy.save(value, path, spend=True), value, path)
        else:
            saved = _written(_save_file, value, path)
        if saved.format in _PICKLES and warnings is not None:
            _warn_of_pickle(value, kind, name, warnings)
    else:
        saved = _written(
            lambda value, path: _custom.save(own, value, path, warnings, with_visuals), value, path
        )
    return _entry(saved, path, kind), saved.metadata


def _entry(saved: Saved, path: str, kind: str) -> Dict[str, Any]:
    return {"path": path, "format": saved.format, "type": kind, "meta": saved.meta}


def _written(save: Any, value: Any, path: str) -> Saved:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        saved = save(value, path)
    except OSError as exc:
        raise SerializeError(f"a {type_name(value)} can't be written: {exc}") from exc
    assert isinstance(saved, Saved)
    return saved


def _save_file(value: Any, path: str) -> Any:
    for handler in _handlers():
        if hasattr(handler, "matches") and handler.matches(value):
            return handler.save(value, path)
    return Pickle.save(value, path)


def _warn_of_pickle(value: Any, kind: str, name: str, warnings: List[str]) -> None:
    if _QUIET.match(kind):
        return
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "nn") and isinstance(value, torch.nn.Module):
        return
    if any(base.__module__.split(".")[0] == "sklearn" for base in type(value).__mro__):
        return
    warnings.append(
        f"output '{name}' (a {kind}) was pickled: it loads only where the same class can be imported; "
        "give its type a materializer (stoker.materializers.register) to choose its format"
    )


def load(entry: Dict[str, Any], annotation: Any = None, links: str = "") -> Any:
    """The value of one artifact.

    Args:
        entry: ``{"value"}``, ``{"path", "format", "type", "meta"}`` or ``{"list": [entries]}``.
        annotation: the type of the step's parameter, or None.
        links: a new folder where a file artifact may get a link with the file's name and suffix; ""
            for none.

    Raises:
        LoadError: it can't be read, in one sentence.
    """
    if "list" in entry:
        inner = _item_type(annotation)
        return [
            load(one, inner, f"{links}.{i}" if links else "") for i, one in enumerate(entry["list"])
        ]
    wants_path = isinstance(annotation, type) and hasattr(annotation, "__fspath__")
    if "value" in entry and not (wants_path and "path" in entry):
        return _json.decode(entry["value"])
    path, format_ = entry["path"], entry.get("format") or "file"
    if wants_path and format_ not in _PICKLES:
        format_ = "file"
    meta = dict(entry.get("meta") or {}, format=format_)
    try:
        if format_ in _PICKLES:
            return _load_pickle(path, format_, meta, annotation)
        os.stat(path)
        if format_ in ("file", "dir") and links and meta.get("name"):
            os.makedirs(links)
            link = os.path.join(links, os.path.basename(meta["name"]))
            os.symlink(path, link)
            path = link
        if format_ == "items":
            from . import _items

            return _items.load(path)
        if format_ in _OURS:
            return _OURS[format_].load(path, meta, annotation)
        for handler in _handlers():
            if format_ in handler.formats:
                return handler.load(path, meta, annotation)
    except FileNotFoundError as exc:
        raise LoadError(
            f"'{exc.filename or path}' is missing; `stoker store verify` lists what else is missing"
        ) from exc
    except OSError as exc:
        raise LoadError(f"'{path}' can't be read: {exc}") from exc
    raise LoadError(f"'{path}' has the format '{format_}', which this version can't load")


def _item_type(annotation: Any) -> Any:
    args = getattr(annotation, "__args__", None)
    return args[0] if args and getattr(annotation, "__origin__", None) in (list, tuple) else None


def _load_pickle(path: str, format_: str, meta: Dict[str, Any], annotation: Any) -> Any:
    with _trust.held(path) as name:
        # A materializer of the user may keep the path and read later.
        checked = path if format_ == _custom.FORMAT else name
        try:
            known = [*_OURS.values(), *_handlers()] if format_ not in _OURS else [_OURS[format_]]
            handler = next(one for one in known if format_ in one.formats)
            return handler.load(checked, meta, annotation)
        except LoadError as exc:
            raise LoadError(str(exc).replace(name, path)) from exc
        except OSError as exc:
            exc.filename = path
            raise
