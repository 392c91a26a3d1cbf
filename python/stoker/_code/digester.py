"""Digests of a step's code: the code part of its cache key.

A function's parts are its byte code and everything in its module that it refers to, directly or
not: helper functions, classes, constants, closure cells. Other modules of the project count by
their files, with the project modules that they import. The current values of their variables count
if a reached function reads them, because a program may have changed them. Installed distributions
count by version, the standard library by Python's version.

A value that can't be digested gives a part that never equals another one: in doubt it is a miss. If
code looks up modules or names while it runs, everything that it could find is a part. The digests
use byte code, not source text, because byte code runs: a comment changes nothing, and an edited
file counts only after it is imported again.
"""

from __future__ import annotations

import copyreg
import dis
import enum
import functools
import hashlib
import io
import os
import pickle
import re
import sys
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from .._definition.step import StepDefinition
from .._worker.frameworks import BUILT_ON, NAMES
from .bytecode import code_text, hash_of
from .modules import Modules
from .texts import File, Piece, module_piece, pieces_at_home

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_MAX_DEPTH = 60


class _Unsure(Exception):
    """The value can't be digested."""


class Digester:
    """Digests for one compile; digests each function and module once."""

    def __init__(self) -> None:
        self._modules = Modules()
        self._walked: Dict[int, Tuple[Any, _Walk]] = {}
        self._files: Dict[str, File] = {}

    def parts(
        self, func: Callable[..., Any], annotations: Optional[Dict[str, Any]] = None
    ) -> Dict[str, str]:
        """``{part: digest or version}`` of a function and of everything that it refers to.

        ``annotations``: types of its arguments and outputs. Literals are converted to these types,
        and the function may call methods of its arguments that the code doesn't name.
        """
        return self._walk(func, annotations).parts

    def uses(
        self, func: Callable[..., Any], annotations: Optional[Dict[str, Any]] = None
    ) -> List[str]:
        """The frameworks (torch, tensorflow, jax, cupy) that the same code imports, installed or
        not.

        A library that works on a framework's tensors (torchvision, transformers, flax …) counts as
        that framework.
        """
        tops = {name.partition(".")[0] for name in self._walk(func, annotations).named}
        return [n for n in NAMES if n in tops or any(BUILT_ON.get(top) == n for top in tops)]

    def pieces(
        self, func: Callable[..., Any], annotations: Optional[Dict[str, Any]] = None
    ) -> List[Piece]:
        """The texts of the same parts, as far as there are any."""
        walk = self._walk(func, annotations)
        named = sorted(part[7:] for part in walk.parts if part.startswith("module "))
        modules = (module_piece(name, self._modules.source(name)) for name in named)
        return [*pieces_at_home(walk.objects, self._files), *modules]

    def _walk(self, func: Callable[..., Any], annotations: Optional[Dict[str, Any]]) -> _Walk:
        known = self._walked.get(id(func))
        if known is None:
            walk = _Walk(self._modules)
            walk.run(func, annotations or {})
            known = self._walked[id(func)] = (func, walk)
        return known[1]


class _Walk:
    """Collects the parts of one function; follows references with a work list, not by recursion."""

    def __init__(self, modules: Modules) -> None:
        self.modules = modules
        self.parts: Dict[str, str] = {}
        self.objects: Dict[str, Any] = {}  # of parts at home; of a constant its name
        self.named: Set[str] = set()  # modules that the code names, and those that they import
        self.work: List[types.FunctionType] = []
        self.seen: Set[int] = set()
        self.keep: List[Any] = []
        self.home = ""
        self.main_globals: Optional[Dict[str, Any]] = None

    def run(self, func: Callable[..., Any], annotations: Dict[str, Any]) -> Dict[str, str]:
        self.parts["python"] = (
            f"{sys.implementation.name}-{sys.version_info[0]}.{sys.version_info[1]}"
        )
        root = _function_of(func)
        if root is None:
            self.home = getattr(func, "__module__", "") or ""
            self._add("function", func)
        else:
            self.home = root.__module__
            self.main_globals = root.__globals__
            self.seen.add(id(root))
            self.parts["function"] = self._function(root, 0)
            self.objects["function"] = root
            self.work.append(root)
        if annotations:
            texts = (f"{name}: {self._annotation(a)}" for name, a in annotations.items())
            self.parts["annotations"] = hash_of(list(texts))
        while self.work:
            current = self.work.pop()
            for kind, name, value in references(current):
                if self._at_home(current):
                    self._reference(kind, name, value)
                else:
                    self._foreign_reference(current.__module__, kind, name, value)
        return self.parts

    def _annotation(self, annotation: Any) -> str:
        if isinstance(annotation, type) and not getattr(annotation, "__args__", ()):
            self._class(annotation)
            return f"{annotation.__module__}.{annotation.__qualname__}"
        inner = [self._annotation(a) for a in getattr(annotation, "__args__", None) or ()]
        return f"{_ADDRESS.sub('', str(annotation))}{inner}"

    def _reference(self, kind: str, name: str, value: Any) -> None:
        if kind == "import":
            self._imported(value)
        elif kind == "builtin":
            self._look_up(name, self.home)
        elif isinstance(value, types.ModuleType):
            self._module(value.__name__)
            if value.__name__ == self.home:
                self._whole(self.home)  # as an object: the parts that it uses are unknown
        elif kind == "attribute":
            self._module_value(name, value)
        elif kind == "closure" and _function_of(value) is None:
            self._add(f"closure '{name}'", value)
        else:
            self._value_reference(name, value)

    def _value_reference(self, name: str, value: Any) -> None:
        function = _function_of(value)
        if function is not None:
            if self._at_home(function):
                self._helper(function)
            else:
                self._module(function.__module__)
                if self.modules.of_project(function.__module__):
                    self._follow(function)
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, (types.BuiltinFunctionType, types.BuiltinMethodType)):
            self._module(getattr(value, "__module__", None) or "builtins")
        else:
            self.objects[f"constant '{name}'"] = name
            self._add(f"constant '{name}'", value)

    def _foreign_reference(self, module: str, kind: str, name: str, value: Any) -> None:
        """Handle a reference from another module of the project, whose file is a part already."""
        if kind == "global":
            self._module_value(f"{module}.{name}", value)
        elif kind == "builtin":
            self._look_up(name, module)
        elif kind != "closure" or _function_of(value) is not None:
            self._reference(kind, name, value)
        else:
            self._data(f"closure '{module}.{name}'", value)

    def _imported(self, name: str) -> None:
        """Handle ``import a.b`` or ``from a import b``: a module, or a value in one."""
        self._module(name)
        origin, _, attribute = name.rpartition(".")
        if name == self.home and origin:
            self._whole(self.home)
        module = sys.modules.get(origin)
        if module is not None and name not in sys.modules and attribute in vars(module):
            self._module_value(name, vars(module)[attribute])

    def _module_value(self, name: str, value: Any) -> None:
        """Add the current value of a project module's variable ``module.name``."""
        module = package = name.rpartition(".")[0]
        while package:
            self._module(package)
            package = package.rpartition(".")[0]
        if isinstance(value, types.ModuleType):
            self._reference("global", name, value)
        elif not self.modules.of_project(module):
            return
        elif _function_of(value) is not None or isinstance(value, type):
            self._value_reference(name, value)
        else:
            self._data(f"constant '{name}'", value)

    def _data(self, label: str, value: Any) -> None:
        """Add a value of another module; if it can't be digested, only the module's file counts."""
        kept = dict(self.parts)
        self._add(label, value)
        if label not in self.parts:
            self.parts = kept

    def _look_up(self, name: str, module: str) -> None:
        """Handle names that the code finds while it runs: ``globals()``, ``import_module(...)`` and
        the like."""
        self._whole(module)
        if name not in _REFLECTS_HOME:
            for other in list(sys.modules):
                if self.modules.of_project(other):
                    self._whole(other)

    def _whole(self, module: str) -> None:
        self.parts.update(self.modules.parts(module))
        self.named |= self.modules.reached(module)

    def _at_home(self, function: types.FunctionType) -> bool:
        return function.__globals__ is self.main_globals or function.__module__ == self.home

    def _helper(self, function: types.FunctionType) -> None:
        if id(function) in self.seen:
            return
        self.seen.add(id(function))
        self.keep.append(function)
        label = f"helper '{function.__qualname__}'"
        digest = self._function(function, 0)
        while label in self.parts and self.parts[label] != digest:
            label += "+"
        self.parts[label] = digest
        self.objects[label] = function
        self.work.append(function)

    def _class(self, cls: type) -> None:
        if id(cls) in self.seen:
            return
        self.seen.add(id(cls))
        self.keep.append(cls)
        if cls.__module__ == self.home:
            self.objects[f"class '{cls.__qualname__}'"] = cls
            self._add(f"class '{cls.__qualname__}'", _Body(cls))
        else:
            self._module(cls.__module__)
            if self.modules.of_project(cls.__module__):
                self._foreign(cls)
        for base in (*cls.__bases__, type(cls)):
            self._class(base)

    def _foreign(self, cls: type) -> None:
        """Add a class of another module: the file has its code, but its data may have changed."""
        for name, value in sorted(vars(cls).items()):
            function = _function_of(getattr(value, "__func__", value))
            if function is not None:
                self._follow(function)
            elif not name.startswith("_") and not isinstance(value, property):
                self._data(f"constant '{cls.__module__}.{cls.__qualname__}.{name}'", value)

    def _module(self, name: Any) -> None:
        if not isinstance(name, str) or not name or name == self.home:
            return
        self.named |= self.modules.reached(name)
        # a circular import reaches it again; its parts count one by one
        own = f"module {self.home}"
        self.parts.update((k, v) for k, v in self.modules.parts(name).items() if k != own)

    def _add(self, label: str, value: Any) -> None:
        try:
            self.parts[label] = hash_of([self._value(value, 0)])
        except (_Unsure, RecursionError) as unsure:
            self.parts[f"{label} (can't be digested: {unsure})"] = os.urandom(16).hex()

    # The texts below begin with their kind, so that values of different types are never equal.

    def _function(self, function: types.FunctionType, depth: int) -> str:
        texts = [code_text(function.__code__)]
        for default in function.__defaults__ or ():
            texts.append(self._default(default, depth))
        for name, default in sorted((function.__kwdefaults__ or {}).items()):
            texts.append(f"{name}={self._default(default, depth)}")
        for name, value in sorted(vars(function).items()):  # h.calls = 3; singledispatch's registry
            try:
                texts.append(f"{name}:{self._value(value, depth + 1)}")
            except (_Unsure, RecursionError):
                texts.append(name)
        return hash_of(texts)

    def _default(self, value: Any, depth: int) -> str:
        try:
            return self._value(value, depth + 1)
        except (_Unsure, RecursionError) as unsure:
            self.parts[f"default value (can't be digested: {unsure})"] = os.urandom(16).hex()
            return "unsure"

    def _value(self, value: Any, depth: int) -> str:
        if depth > _MAX_DEPTH:
            raise _Unsure("nested too deeply")
        simple = _simple(value)
        if simple is not None:
            return simple
        kind = type(value)
        if kind in (tuple, list):
            return f"{kind.__name__}:" + hash_of(self._value(v, depth + 1) for v in value)
        if kind in (set, frozenset):
            return f"{kind.__name__}:" + hash_of(sorted(self._value(v, depth + 1) for v in value))
        if kind in (dict, types.MappingProxyType):
            pairs = (
                f"{self._value(k, depth + 1)}={self._value(v, depth + 1)}" for k, v in value.items()
            )
            return "dict:" + hash_of(pairs)
        return self._object(value, depth)

    def _object(self, value: Any, depth: int) -> str:
        if isinstance(value, _Body):
            return self._body(value.cls, depth)
        if isinstance(value, types.ModuleType):
            self._module(value.__name__)
            return f"module:{value.__name__}"
        function = _function_of(value)
        if function is not None:
            self._value_reference(function.__qualname__, function)
            return f"function:{function.__module__}.{function.__qualname__}:{code_text(function.__code__)}"
        if isinstance(value, type):
            self._class(value)
            return f"class:{value.__module__}.{value.__qualname__}"
        if isinstance(value, enum.Enum):
            self._class(type(value))
            return f"enum:{type(value).__qualname__}.{value.name}={value.value!r}"
        cached: Any = getattr(functools, "cached_property", ())  # Python 3.8
        if isinstance(value, cached):
            return "cached_property:" + self._value(value.func, depth + 1)
        if isinstance(value, functools.partial):
            inner = [self._value(v, depth + 1) for v in (value.func, value.args, value.keywords)]
            return "partial:" + hash_of(inner)
        if isinstance(value, (staticmethod, classmethod)):
            return f"{type(value).__name__}:" + self._value(value.__func__, depth + 1)
        if isinstance(value, property):
            parts = [self._value(v, depth + 1) for v in (value.fget, value.fset, value.fdel)]
            return "property:" + hash_of(parts)
        if type(value).__module__ == "logging" and hasattr(value, "getChild"):
            return f"logger:{value.name}"
        if isinstance(value, types.MethodType):
            return "method:" + hash_of(
                [self._value(v, depth + 1) for v in (value.__func__, value.__self__)]
            )
        self._class(type(value))
        return f"object:{type(value).__qualname__}:{self._pickle(value)}"

    def _pickle(self, value: Any) -> str:
        sink = _HashSink()
        try:
            _Pickler(sink, self).dump(value)
        except Exception as bad:
            raise _Unsure(f"{type(value).__name__}: {bad}") from None
        return sink.hash.hexdigest()

    def _body(self, cls: type, depth: int) -> str:
        texts = [cls.__qualname__, *(f"{b.__module__}.{b.__qualname__}" for b in cls.__bases__)]
        for name, value in sorted(vars(cls).items()):
            function = _function_of(getattr(value, "__func__", value))
            if function is not None and _generated(cls, function.__code__):
                continue  # dataclass or namedtuple made it from the fields
            if name == "__doc__" and {*cls.__mro__[1:-1], type(cls)} - {type}:
                # the base class may read it, as a prompt for example
                texts.append(f"doc:{value!r}")
                continue
            if function is None and (
                name in _NOT_CODE or name.startswith(("_abc_", "__pydantic_"))
            ):
                continue
            if name.startswith("__") and name.endswith("__") and function is None:
                simple = _simple(value)
                texts.append(f"{name}={simple}" if simple is not None else name)
                continue
            if function is not None:
                texts.append(f"{name}={self._function(function, depth)}")
                self._follow(function)
            else:
                texts.append(f"{name}={self._value(value, depth + 1)}")
        texts.extend(self._fields(cls, depth))
        return hash_of(texts)

    def _follow(self, function: types.FunctionType) -> None:
        if id(function) not in self.seen:
            self.seen.add(id(function))
            self.keep.append(function)
            self.work.append(function)

    def _fields(self, cls: type, depth: int) -> Iterator[str]:
        """Fields of dataclasses and pydantic models, whose defaults aren't in the class's
        namespace."""
        for attribute in ("__dataclass_fields__", "__pydantic_fields__"):
            for name, info in (vars(cls).get(attribute) or {}).items():
                text = _ADDRESS.sub("", repr(info))
                factory = getattr(info, "default_factory", None)
                if _function_of(factory) is not None:
                    text += self._value(factory, depth + 1)
                kind = getattr(info, "annotation", getattr(info, "type", None))
                text += self._annotation(kind)
                yield f"{name}:{text}"


class _Body:
    """A class that is digested by its content, not by its name."""

    def __init__(self, cls: type) -> None:
        self.cls = cls


def _generated(cls: type, code: types.CodeType) -> bool:
    if not code.co_filename.startswith("<string>"):  # `python -c` uses this name too
        return False
    qualname = getattr(code, "co_qualname", None)  # Python 3.11
    if qualname is not None:
        return not qualname.startswith(f"{cls.__qualname__}.")
    made = hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")
    return made and code.co_name in _GENERATED


_GENERATED = frozenset(
    [
        "__init__",
        "__repr__",
        "__eq__",
        "__lt__",
        "__le__",
        "__gt__",
        "__ge__",
        "__hash__",
        "__setattr__",
        "__delattr__",
        "__new__",
        "<lambda>",
        "__replace__",
    ]
)
_REFLECTS_HOME = frozenset(["globals", "eval", "exec"])
_REFLECTS = frozenset(["import_module", "__import__", "__subclasses__"])
_NOT_CODE = frozenset(
    [
        "__dict__",
        "__weakref__",
        "__module__",
        "__doc__",
        "__firstlineno__",
        "__static_attributes__",
        "__annotate_func__",
        "__annotations_cache__",
        "__dataclass_fields__",
        "__dataclass_params__",
        "__match_args__",
        "__class_vars__",
        "__private_attributes__",
        "__signature__",
        "__parameters__",
        "__orig_bases__",
    ]
)


class _HashSink(io.RawIOBase):
    def __init__(self) -> None:
        super().__init__()
        self.hash = hashlib.sha256()

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return len(data)


class _Pickler(pickle.Pickler):
    """Pickles into a digest. The project's functions and classes count by content, not by name."""

    def __init__(self, sink: _HashSink, walk: _Walk) -> None:
        super().__init__(sink, protocol=4)
        self._walk = walk
        self._sink = sink

    def reducer_override(self, value: Any) -> Any:
        function = _function_of(value)
        if function is not None:
            text = f"{self._walk._value(function, 0)} {function.__doc__!r}"
            self._sink.write(text.encode("utf-8", "surrogatepass"))
            return (str, (function.__qualname__,))
        if isinstance(value, type):
            self._walk._class(value)
            if value.__module__ == self._walk.home:
                return (str, (value.__qualname__,))
            return NotImplemented
        if hasattr(value, "data_ptr") and type(value).__module__.split(".")[0] == "torch":
            return self._tensor(value)
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = reduce(value) if reduce is not None else value.__reduce_ex__(4)
        return reduced if not isinstance(reduced, str) else self._by_name(value, reduced)

    def _tensor(self, value: Any) -> Any:
        """Reduce a torch tensor to its bytes: torch's pickles differ between processes."""
        torch: Any = sys.modules["torch"]
        flat = value.detach().cpu().contiguous().reshape(-1)
        self._sink.write(flat.view(torch.uint8).numpy().data)
        self._walk._module("torch")
        return (str, (f"{value.dtype} {tuple(value.shape)} {value.device} {value.requires_grad}",))

    def _by_name(self, value: Any, name: str) -> Any:
        """Reduce an object that pickles as a name: its content must be found in another way."""
        wrapped = _function_of(getattr(value, "__wrapped__", None))
        module = getattr(value, "__module__", None)
        if wrapped is not None:  # functools.lru_cache and the like
            self._sink.write(self._walk._value(wrapped, 0).encode("utf-8", "surrogatepass"))
        elif module == self._walk.home:
            raise _Unsure(f"{type(value).__name__} '{name}'")
        self._walk._module(module)
        return (str, (f"{module}.{name}",))


def _function_of(value: Any) -> Optional[types.FunctionType]:
    """The plain function behind a function or a step."""
    if isinstance(value, types.FunctionType):
        return value
    if isinstance(value, StepDefinition) and isinstance(value.entrypoint, types.FunctionType):
        return value.entrypoint
    return None


def _simple(value: Any) -> Optional[str]:
    kind = type(value)
    if value is None or value is Ellipsis or value is NotImplemented:
        return repr(value)
    if kind in (bool, int, float, complex, str, bytes, range):
        return f"{kind.__name__}:{value!r}"
    if kind in (bytearray, memoryview):
        return f"{kind.__name__}:{bytes(value)!r}"
    if kind is re.Pattern:
        return f"pattern:{value.pattern!r}:{value.flags}"
    if kind.__module__ == "typing" or kind.__name__ in ("GenericAlias", "UnionType"):
        text = repr(value)
        return f"typing:{text}" if " at 0x" not in text else None
    if kind.__module__.split(".")[0] == "pathlib":
        return f"path:{value}"
    return None


def references(function: types.FunctionType) -> Iterator[Tuple[str, str, Any]]:
    """The references of a function's code as ``(kind, name, value)``.

    Kinds: ``global``, ``closure``, ``attribute`` (``MODULE.NAME`` of a module that is a global),
    ``import``, ``builtin`` (a builtin that finds names at run time).
    """
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield "closure", name, cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    names = function.__globals__
    done: Set[Tuple[str, ...]] = set()
    work = [function.__code__]
    while work:
        code = work.pop()
        work.extend(c for c in code.co_consts if isinstance(c, types.CodeType))
        for chain, level in _names(code):
            if level >= 0:
                yield "import", "", _absolute(".".join(chain), level, names)
            elif chain not in done:
                done.add(chain)
                yield from _resolved(chain, names)


def _resolved(chain: Tuple[str, ...], names: Dict[str, Any]) -> Iterator[Tuple[str, str, Any]]:
    """A global, followed through its attributes as long as they are modules."""
    if not _REFLECTS.isdisjoint(chain) or (chain[0] in _REFLECTS_HOME and chain[0] not in names):
        yield "builtin", next((n for n in chain if n in _REFLECTS), chain[0]), None
    if chain[0] not in names:
        return
    value, label = names[chain[0]], chain[0]
    kind = "global"
    for attribute in chain[1:]:
        if not isinstance(value, types.ModuleType) or attribute not in vars(value):
            break
        kind, label = "attribute", f"{value.__name__}.{attribute}"
        value = vars(value)[attribute]
    yield kind, label, value


@functools.lru_cache(maxsize=10000)
def _names(code: types.CodeType) -> Tuple[Tuple[Tuple[str, ...], int], ...]:
    """Globals of one code object with the attributes read from them, and imports with their level
    (globals: -1).
    """
    found: List[Tuple[Tuple[str, ...], int]] = []
    module = ""
    level = below = 0
    chain: Tuple[str, ...] = ()
    for instruction in dis.get_instructions(code):
        name = instruction.opname
        if chain and name in ("LOAD_ATTR", "LOAD_METHOD"):
            chain = (*chain, instruction.argval)
            continue
        if chain and name in ("CACHE", "EXTENDED_ARG"):
            continue
        if chain:
            found.append((chain, -1))
            chain = ()
        if name in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"):
            chain = (instruction.argval,)
        elif name in ("LOAD_ATTR", "LOAD_METHOD") and instruction.argval in _REFLECTS:
            found.append(((instruction.argval,), -1))
        elif name in ("LOAD_CONST", "LOAD_SMALL_INT") and isinstance(instruction.argval, int):
            level = instruction.argval
        elif name == "IMPORT_NAME":
            module, below = instruction.argval, level
            found.append(((module,), below))
        elif name == "IMPORT_FROM":
            found.append(((module, instruction.argval) if module else (instruction.argval,), below))
            if instruction.argval in _REFLECTS:
                found.append(((instruction.argval,), -1))
    return tuple(found)


def _absolute(name: str, level: int, names: Dict[str, Any]) -> str:
    if level <= 0:
        return name
    package = str(names.get("__package__") or "")
    base = package.rsplit(".", level - 1)[0] if level > 1 else package
    return f"{base}.{name}" if name else base
