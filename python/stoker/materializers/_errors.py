"""Errors of artifacts, each with one sentence."""

from __future__ import annotations


class SerializeError(Exception):
    """An output can't be stored; names the value's type, the reason and the remedy."""


class LoadError(Exception):
    """An artifact can't be read; names its file, the reason and the remedy."""
