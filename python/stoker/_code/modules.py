"""Modules in cache keys: a file of the project, an installed distribution, or Python itself."""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import re
import sys
import time
import types
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Set, Tuple

from .._base import PACKAGE
from .bytecode import code_text

if TYPE_CHECKING:
    from difflib import SequenceMatcher

_STDLIB = os.path.dirname(os.path.realpath(os.__file__)) + os.sep
_INSTALLED = re.compile(r"^(.*?[/\\](?:site|dist)-packages)[/\\](.*)$")
_IMPORT = re.compile(
    r"(?:^|[;:])[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]*(\([^)]*\)|[^#;\n(]+)|import[ \t]+([^#;\n]+))",
    re.M,
)
_COMMENT = re.compile(r"#.*")
_STARTED = time.time()

_distributions: Dict[str, Dict[str, str]] = {}
_owners: Dict[str, Dict[str, str]] = {}


class Modules:
    """Parts of modules; each module is read once."""

    def __init__(self) -> None:
        self._known: Dict[str, Dict[str, str]] = {}
        self._reached: Dict[str, Set[str]] = {}
        self._direct: Dict[str, Dict[str, str]] = {}
        self._imports: Dict[str, Set[str]] = {}
        self._sources: Dict[str, bytes] = {}

    def parts(self, name: str) -> Dict[str, str]:
        """Parts of a module and of the project modules that it imports, directly or not."""
        known = self._known.get(name)
        if known is not None:
            return known
        found: Dict[str, str] = {}
        work, seen = [name], {name}
        while work:
            current = work.pop()
            if current not in self._direct:
                self._look(current)
            found.update(self._direct[current])
            for other in self._imports[current] - seen:
                seen.add(other)
                work.append(other)
        self._known[name] = found
        self._reached[name] = seen
        return found

    def reached(self, name: str) -> Set[str]:
        """Names of the module and of the project modules that it imports, directly or not, and of
        the other modules that these import."""
        if name not in self._reached:
            self.parts(name)
        return self._reached[name]

    def of_project(self, name: Any) -> bool:
        """Whether it is a module that counts by its file."""
        if not isinstance(name, str):
            return False
        if name not in self._direct:
            self._look(name)
        return f"module {name}" in self._direct[name]

    def source(self, name: str) -> bytes:
        """What the file of a project's module has."""
        return self._sources[name]

    def _look(self, name: str) -> None:
        self._direct[name] = {}
        self._imports[name] = set()
        module = sys.modules.get(name)
        path = _file_of(name, module)
        if path is None or _is_python_or_us(path):
            return
        installed = _INSTALLED.match(path)
        if installed is not None:
            top = name.split(".")[0]
            self._direct[name] = {
                top: _version(installed.group(1), installed.group(2), top, module)
            }
            return
        try:
            with open(path, "rb") as stream:
                source = stream.read()
            edited = os.stat(path).st_mtime
        except OSError:
            return
        digest = hashlib.sha256(source)
        # The file changed after this process began, or just before (file systems have coarse
        # clocks), so the loaded code may differ from the file. An edit just before the run gives
        # the key of any later run.
        if module is not None and (
            edited >= _STARTED
            or (edited >= _STARTED - 1 and not _is_as_written(module, source, path))
        ):
            for name_of, code in _loaded(module):
                digest.update(f"{name_of}:{code_text(code)}".encode())
        self._direct[name] = {f"module {name}": digest.hexdigest()[:32]}
        self._sources[name] = source
        self._imports[name] = set(_imports(name, source, module))


def project_files(name: str) -> Set[str]:
    """Absolute paths of a module and of the project's modules that it imports, also in functions that
    weren't called yet, with the packages that hold them."""
    modules = Modules()
    found: Set[str] = set()
    for one in modules.reached(name):
        if not modules.of_project(one):
            continue
        parts = one.split(".")
        for n in range(1, len(parts) + 1):
            whole = ".".join(parts[:n])
            path = _file_of(whole, sys.modules.get(whole))
            if path is not None:
                found.add(path)
    return found


def _file_of(name: str, module: Optional[types.ModuleType]) -> Optional[str]:
    """The file of a module, found without importing anything; None for built-in and unknown
    ones."""
    path = getattr(module, "__file__", None)
    if path is None and module is None and name not in sys.builtin_module_names:
        search: Optional[List[str]] = None
        spec = None
        full = ""
        for part in name.split("."):
            full = f"{full}.{part}" if full else part
            loaded = sys.modules.get(full)
            if loaded is not None and hasattr(loaded, "__path__"):
                search = list(loaded.__path__)
                continue
            try:
                spec = importlib.machinery.PathFinder.find_spec(full, search)
            except (ImportError, ValueError):
                return None
            except KeyError:  # packages without __init__.py in one that isn't loaded
                search = [os.path.join(one, part) for one in search or sys.path]
                continue
            if spec is None:
                return None
            search = list(spec.submodule_search_locations or [])
        path = spec.origin if spec is not None and spec.has_location else None
    return os.path.realpath(path) if path else None


def _is_python_or_us(path: str) -> bool:
    if path.startswith(PACKAGE):
        return True
    return path.startswith(_STDLIB) and _INSTALLED.match(path) is None


def _imports(name: str, source: bytes, module: Optional[types.ModuleType]) -> Iterator[str]:
    """Names of the modules that a project module may import, anywhere in its code."""
    package = getattr(module, "__package__", None)
    if package is None:
        package = name.rpartition(".")[0]
    for match in _IMPORT.finditer(source.decode("utf-8", "replace")):
        origin, names, plain = match.groups()
        if plain:
            for item in plain.split(","):
                yield item.split(" as ")[0].strip()
            continue
        dots = len(origin) - len(origin.lstrip("."))
        base = origin[dots:]
        if dots:
            above = package.rsplit(".", dots - 1)[0] if dots > 1 else package
            base = f"{above}.{base}" if base else above
        yield base
        for item in _COMMENT.sub("", names).strip("()").replace("\\", " ").split(","):
            word = item.split(" as ")[0].strip()
            if word.isidentifier():
                yield f"{base}.{word}"
    for value in list(vars(module).values()) if module is not None else ():
        if isinstance(value, types.ModuleType):
            yield value.__name__
        elif isinstance(value, (types.FunctionType, type)) and isinstance(value.__module__, str):
            yield value.__module__


def _is_as_written(module: types.ModuleType, source: bytes, path: str) -> bool:
    """Whether the functions that a module has loaded are those in its file now."""
    try:
        work = [compile(source, path, "exec", dont_inherit=True)]
    except (SyntaxError, ValueError):
        return False
    written = set()
    while work:
        code = work.pop()
        written.add(code_text(code))
        work.extend(inner for inner in code.co_consts if isinstance(inner, types.CodeType))
    return all(
        code_text(code) in written
        for _, code in _loaded(module)
        if os.path.realpath(code.co_filename) == path
    )


def _loaded(module: types.ModuleType) -> Iterator[Tuple[str, types.CodeType]]:
    """The byte code that a module has loaded: each function with its name."""
    for name, value in sorted(vars(module).items(), key=lambda item: item[0]):
        for inner in [value, *(vars(value).values() if isinstance(value, type) else ())]:
            code = getattr(inner, "__code__", None)
            if isinstance(code, types.CodeType):
                yield name, code


def _version(site: str, path: str, top: str, module: Optional[types.ModuleType]) -> str:
    """Version of the distribution that installed ``path`` (relative to ``site``)."""
    versions = _distributions.get(site)
    if versions is None:
        versions = _distributions[site] = _listing(site)
    found = versions.get(_normal(top))
    if found is None:
        found = _owner(site, path)
    if found is None:
        found = getattr(sys.modules.get(top), "__version__", None)
    if isinstance(found, str):
        return found
    try:  # installed by hand: use the file's digest
        with open(os.path.join(site, path), "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()[:32]
    except OSError:
        return "unknown"


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _listing(site: str) -> Dict[str, str]:
    """``{normalised distribution name: version}`` of one installation folder."""
    found: Dict[str, str] = {}
    try:
        entries = os.listdir(site)
    except OSError:
        return found
    for entry in entries:
        base, ext = os.path.splitext(entry)
        if ext in (".dist-info", ".egg-info") and "-" in base:
            name, version = base.split("-", 1)
            found[_normal(name)] = version
    return found


def _likeness(near: SequenceMatcher[str], entry: str) -> float:
    near.set_seq1(entry.split("-", 1)[0].lower())
    return near.ratio()


def _owner(site: str, path: str) -> Optional[str]:
    """Version of the distribution whose RECORD lists ``path`` (``sklearn`` is scikit-learn's)."""
    cache: Dict[str, Any] = _owners.setdefault(site, {})
    top = path.replace(os.sep, "/").split("/")[0]
    if top in cache:
        return cache[top] or None
    cache[top] = ""
    folders = [entry for entry in os.listdir(site) if entry.endswith(".dist-info")]
    import difflib

    near = difflib.SequenceMatcher(
        b=top.lower()
    )  # most likely first: reading every RECORD takes a while
    ratio = {entry: _likeness(near, entry) for entry in folders}
    for entry in sorted(folders, key=lambda entry: (-ratio[entry], entry)):
        try:
            with open(os.path.join(site, entry, "RECORD"), encoding="utf-8") as stream:
                text = stream.read()
        except (OSError, UnicodeDecodeError):
            continue
        if text.startswith(f"{top}/") or f"\n{top}/" in text or f"\n{top}," in text:
            cache[top] = entry[: -len(".dist-info")].split("-", 1)[1]
            break
    return cache[top] or None
