"""Compatibility shims: modules without code, made from a table that says where Stoker keeps each
name.

A shim's ``__init__`` calls :func:`stand_in` with its table. Modules are made at their import, names
are found at their first use. A name that isn't in the table is an error in one sentence.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from ._base.errors import did_you_mean

# Module → {name → "module:name" in Stoker}, or a module of Stoker with the same public names.
Table = Mapping[str, Union[str, Mapping[str, str]]]


# How alike a name must be to be suggested: another part of the package is no help.
_NEAR = 0.86
_WAY_OUT = "; Stoker doesn't have this part: remove it, or run the program without `stoker compat`"


class StandIn:
    """Finder and loader of a shim's modules.

    Attributes:
        root: the package that the shim replaces.
        modules: the table. A module with names below it is a package.
        later: (module, name) → why the shim lacks it.
        special: function of (module, name) that returns the value of a name that no table can list,
            or None.
        is_open: function of a module's name; True: the package exists although the table lacks it.
        alias: function of a module's name → the name of the module that it is, or None.
    """

    def __init__(
        self,
        root: str,
        modules: Table,
        later: Mapping[Tuple[str, str], str],
        special: Callable[[str, str], Any],
        is_open: Callable[[str], bool],
        alias: Callable[[str], Optional[str]],
    ) -> None:
        self.alias = alias
        self.root, self.modules, self.later = root, modules, later
        self.special, self.is_open = special, is_open

    def names(self, module: str) -> List[str]:
        """All public names of a module of the shim."""
        known = self.modules.get(module, {})
        if not isinstance(known, str):
            return list(known)
        home = importlib.import_module(known)
        named = getattr(home, "NAMES", None) or getattr(home, "__all__", None)
        return list(named or (n for n in vars(home) if n[0] != "_"))

    def find(self, module: str, name: str, caller: types.FrameType) -> Any:
        """A name of a module of the shim.

        Raises:
            ImportError: ``from module import name`` with a name that the shim lacks, in one
                sentence.
            AttributeError: any other access to such a name.
        """
        known = self.modules.get(module, {})
        target = f"{known}:{name}" if isinstance(known, str) else known.get(name)
        if target is None or (isinstance(known, str) and name not in self.names(module)):
            if f"{module}.{name}" in self.modules:
                return importlib.import_module(f"{module}.{name}")
            made = self.special(module, name)
            if made is not None:
                return made
            if (module, name) in self.later:
                raise ImportError(self.later[module, name])
            hint = did_you_mean(name, self.names(module), _NEAR) or _WAY_OUT
            text = f"Stoker's stand-in for {module} has no '{name}'{hint}"
            # In ``from module import name`` Python replaces the text of an AttributeError by its
            # own.
            raise ImportError(text, name=module) if _importing(caller) else AttributeError(text)
        home, _, attribute = target.partition(":")
        return getattr(importlib.import_module(home), attribute)

    # ------------------------------------------------------------------ Python's side

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        """Find a module of the table; any other one below the root is an error in one sentence."""
        if not fullname.startswith(f"{self.root}."):
            return None
        real = self.alias(fullname)
        if real is not None:
            found = importlib.import_module(real)
            return importlib.machinery.ModuleSpec(
                fullname,
                _Alias(found),  # type: ignore[arg-type]
                is_package=hasattr(found, "__path__"),
            )
        is_open = self.is_open(fullname)
        if _plain(fullname) not in self.modules and not is_open:
            if fullname.rpartition(".")[2].startswith("__"):
                return None
            raise told(
                ModuleNotFoundError(
                    f"Stoker's stand-in for {self.root} has no module '{fullname}'{_WAY_OUT}",
                    name=fullname,
                )
            )
        below = f"{_plain(fullname)}."
        package = is_open or any(other.startswith(below) for other in self.modules)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=package)  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make an empty module."""
        module = _Module(spec.name, f"Stoker's stand-in for {spec.name}.")
        module.__dict__["_stand_in"] = self
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: names are found at their first use."""


def told(missing: ImportError) -> ImportError:
    """The error, whose sentence says what to do: Python's guess isn't added."""
    missing._stoker_told = True  # type: ignore[attr-defined]
    return missing


def _plain(name: str) -> str:
    """The module's name in the table: ``a._orig.b`` is what ``a.b`` is without an alias."""
    return name.replace("._orig", "")


class _Alias:
    """A loader that gives a module that there is already."""

    def __init__(self, module: types.ModuleType) -> None:
        self.module = module
        self.spec = module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self.module

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self.spec  # the import has set its own


class _Module(types.ModuleType):
    """A module of a table."""

    def __getattr__(self, name: str) -> Any:
        known: StandIn = self.__dict__["_stand_in"]
        if name == "__all__":
            return known.names(_plain(self.__name__))
        if name.startswith("__"):
            raise AttributeError(name)
        value = known.find(_plain(self.__name__), name, sys._getframe(1))
        setattr(self, name, value)
        return value

    def __dir__(self) -> List[str]:
        known = self.__dict__["_stand_in"].names(_plain(self.__name__))
        return sorted({*super().__dir__(), *known})


def _importing(caller: types.FrameType) -> bool:
    import dis

    return caller.f_code.co_code[caller.f_lasti] == dis.opmap["IMPORT_FROM"]


def stand_in(
    namespace: Dict[str, Any],
    modules: Table,
    later: Optional[Mapping[Tuple[str, str], str]] = None,
    special: Callable[[str, str], Any] = lambda module, name: None,
    is_open: Callable[[str], bool] = lambda module: False,
    alias: Callable[[str], Optional[str]] = lambda module: None,
) -> None:
    """Make a shim of the package with these ``globals()``; see :class:`StandIn`."""
    root = namespace["__name__"]
    known = StandIn(root, modules, later or {}, special, is_open, alias)

    def get(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = known.find(root, name, sys._getframe(1))
        namespace[name] = value
        return value

    namespace["__getattr__"] = get
    namespace["__dir__"] = lambda: [*namespace, *known.names(root)]
    namespace["__all__"] = known.names(root)
    sys.meta_path.insert(0, known)
