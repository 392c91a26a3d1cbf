"""Packages that extend Metaflow, ``metaflow_extensions.NAME``, as they come from PyPI.

What an extension has is read as Metaflow reads it: a folder for each kind (``plugins``,
``toplevel``, ``config``, ``exceptions``, ``plugins/cards``), in it a module ``mfextinit_….py``, else
``__init__.py``. Nothing is imported before a program asks for a name that isn't known here.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import types
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

_ROOT = "metaflow_extensions"


class Decorators(NamedTuple):
    """Decorators of all extensions: name → module and class."""

    step: Dict[str, Tuple[str, str]]
    flow: Dict[str, Tuple[str, str]]


@functools.cache
def _folders() -> Tuple[Tuple[str, str], ...]:
    """(name, folder) of each installed extension."""
    try:
        root = importlib.import_module(_ROOT)
    except ImportError:
        return ()
    found: Dict[str, str] = {}
    for path in list(root.__path__):
        for one in sorted(os.listdir(path)) if os.path.isdir(path) else ():
            if one.isidentifier() and os.path.isdir(os.path.join(path, one)):
                found.setdefault(one, os.path.join(path, one))
    return tuple(found.items())


def _warn(name: str, bad: BaseException) -> None:
    print(f"stoker: the extension {name} can't be loaded: {bad}", file=sys.stderr)


@functools.cache
def _loaded(name: str) -> Optional[types.ModuleType]:
    """A module of an extension; None, with a warning, where it fails."""
    try:
        return importlib.import_module(name)
    except Exception as bad:
        _warn(name, bad)
        return None


def _points(kind: str) -> Iterator[Tuple[str, types.ModuleType]]:
    """(package, module that lists what it has) of each extension with this kind of things."""
    for extension, folder in _folders():
        place = os.path.join(folder, *kind.split("/"))
        if not os.path.isdir(place):
            continue
        package = f"{_ROOT}.{extension}.{kind.replace('/', '.')}"
        lists = [n[:-3] for n in sorted(os.listdir(place)) if n.startswith("mfextinit_")]
        if not lists and not os.path.isfile(os.path.join(place, "__init__.py")):
            continue
        found = _loaded(f"{package}.{lists[0]}" if lists else package)
        if found is not None:
            yield package, found


@functools.cache
def decorators() -> Decorators:
    """The decorators that extensions bring."""
    found = Decorators({}, {})
    for package, module in _points("plugins"):
        for table, name in ((found.step, "STEP"), (found.flow, "FLOW")):
            for word, path in getattr(module, f"{name}_DECORATORS_DESC", ()):
                home, _, kind = path.rpartition(".")
                table[word] = (f"{package}{home}" if home.startswith(".") else home, kind)
    return found


def _promoted(module: types.ModuleType) -> Iterator[str]:
    yield from getattr(module, "__mf_promote_submodules__", ())


def module_for(name: str) -> Optional[str]:
    """The extension's module for ``metaflow.KIND.…``; None: no extension has it."""
    parts = name.split(".")
    kinds = {"plugins": "plugins", "exceptions": "exceptions", "toplevel": "toplevel"}
    if len(parts) < 3 or parts[1] not in kinds or "_orig" in parts:
        return None
    for package, module in _points(kinds[parts[1]]):
        for one in _promoted(module):
            if [*parts[2:], "."][: one.count(".") + 1] == one.split("."):
                return ".".join([package, *parts[2:]])
    return None


def name_in(module: str, name: str) -> Any:
    """A name that an extension adds to a module of Metaflow's; None: there is none.

    Knows names at the top, of ``metaflow.metaflow_config`` and ``metaflow.exception``; decorators
    are made in ``_decorators``.
    """
    if module == "metaflow":
        return _named([_top_of(*one) for one in _points("toplevel")], name)
    if module == "metaflow.metaflow_config":
        return _named([one for _, one in _points("config")], name)
    if module == "metaflow.exception":
        return _named([one for _, one in _points("exceptions")], name)
    return None


def _top_of(package: str, module: types.ModuleType) -> Optional[types.ModuleType]:
    named = getattr(module, "toplevel", None)
    return _loaded(f"{package}.{named}") if isinstance(named, str) else module


def _named(modules: List[Optional[types.ModuleType]], name: str) -> Any:
    found = [vars(one)[name] for one in modules if one is not None and name in vars(one)]
    return found[-1] if found else None


def load_cards() -> None:
    """Import the cards of all extensions, each by itself: one that fails is as if it weren't
    there."""
    for extension, folder in _folders():
        place = os.path.join(folder, "plugins", "cards")
        if not os.path.isdir(place):
            continue
        package = f"{_ROOT}.{extension}.plugins.cards"
        lists = [n[:-3] for n in sorted(os.listdir(place)) if n.startswith("mfextinit_")]
        if lists:
            _loaded(f"{package}.{lists[0]}")
        elif os.path.isfile(os.path.join(place, "__init__.py")):
            _loaded(package)
        else:
            for one in sorted(os.listdir(place)):
                if one.isidentifier() and os.path.isdir(os.path.join(place, one)):
                    _loaded(f"{package}.{one}")
