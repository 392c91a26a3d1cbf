"""Literal values of steps as JSON documents, from which the worker makes equal values."""

from __future__ import annotations

import os
from typing import Any

from ..materializers import _json


class NotJsonError(TypeError):
    """JSON can't hold the value; the text says which part."""


def exact(value: Any) -> Any:
    """The document from which the worker gets an equal value of the same type.

    Tuples, sets, dataclasses, pydantic models, enums, dates … get tags
    (:mod:`stoker.materializers._json`). Sets are sorted, because the document is part of the cache
    key.

    Raises:
        NotJsonError: there is no such document.
    """
    if value is None or type(value) in (str, bool) or (type(value) is int and abs(value) < 1 << 62):
        return _json.encode(value)
    try:
        return _settled(_json.encode(value))
    except (_json.NotJson, RecursionError) as bad:
        raise NotJsonError(str(bad)) from None


def to_json(value: Any) -> Any:
    """Like :func:`exact`, but a path becomes its text; the parameter's annotation makes it a path
    again."""
    try:
        return exact(value)
    except NotJsonError:
        if isinstance(value, os.PathLike):
            return str(value)
        raise


def _settled(document: Any) -> Any:
    """The document with its sets in an order that doesn't depend on the process's hash seed."""
    if isinstance(document, list):
        return [_settled(item) for item in document]
    if isinstance(document, dict):
        if document.get(_json.TAG) in ("set", "frozenset"):
            return {**document, "v": sorted(map(_settled, document["v"]), key=repr)}
        return {key: _settled(item) for key, item in document.items()}
    return document
