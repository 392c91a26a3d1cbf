"""A step's parameters and outputs, read from its signature once, when the step is declared."""

from __future__ import annotations

import dis
import inspect
import sys
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, get_type_hints

from .._base.errors import StepInterfaceError, lenient
from .types import ArtifactConfig

_RESERVED = ("id", "after", "start_after")


class Output(NamedTuple):
    """One output: its annotation and its configuration (only the given fields)."""

    type: Any
    config: Dict[str, Any]


class Interface(NamedTuple):
    """Parameters and outputs of a step function."""

    signature: inspect.Signature
    annotations: Dict[str, Any]
    outputs: Dict[str, Output]


def interface_of(func: Callable[..., Any], name: str) -> Interface:
    """Read a step function's signature.

    Raises:
        StepInterfaceError: variable arguments, reserved names, duplicate or unreadable outputs.
    """
    signature = inspect.signature(func)
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise StepInterfaceError(
                f"Variable args or kwargs not allowed for step '{name}': name the argument "
                f"'{parameter}' instead"
            )
        if parameter.name in _RESERVED:
            raise StepInterfaceError(
                f"step '{name}': the argument name '{parameter.name}' is reserved for calling "
                "the step in a pipeline; rename it"
            )
    hints = _hints(func)
    annotations = {
        p.name: _bare(hints[p.name]) for p in signature.parameters.values() if p.name in hints
    }
    missing = signature.return_annotation is signature.empty
    returned = hints.get("return", None) if not missing else inspect.Signature.empty
    return Interface(signature, annotations, _outputs(func, name, returned))


def _hints(func: Callable[..., Any]) -> Dict[str, Any]:
    """Resolved annotations; those that can't be resolved stay strings."""
    target: Any = inspect.unwrap(func)
    try:
        return get_type_hints(target, include_extras=True)
    except Exception:  # a name under TYPE_CHECKING, or local to the defining function
        pass
    names: Dict[str, Any] = dict(getattr(target, "__globals__", {}))
    names.update(_closure(target))
    found: Dict[str, Any] = {}
    for key, value in getattr(target, "__annotations__", {}).items():
        if isinstance(value, str):
            try:
                value = eval(value, names, _caller_locals(target))
            except Exception:
                pass
        found[key] = value
    return found


def _closure(func: Any) -> Dict[str, Any]:
    """Free variables of a function that have a value."""
    code = getattr(func, "__code__", None)
    found: Dict[str, Any] = {}
    for free, cell in zip(
        getattr(code, "co_freevars", ()), getattr(func, "__closure__", None) or ()
    ):
        try:
            found[free] = cell.cell_contents
        except ValueError:
            pass
    return found


def _caller_locals(func: Any) -> Dict[str, Any]:
    """Locals of the frame that defines the function, for types that are local there."""
    code = getattr(func, "__code__", None)
    frame = sys._getframe(1)
    while frame is not None and code is not None:
        if code in frame.f_code.co_consts:
            return dict(frame.f_locals)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return {}


def _is_annotated(annotation: Any) -> bool:
    return hasattr(annotation, "__metadata__") and hasattr(annotation, "__origin__")


def _bare(annotation: Any) -> Any:
    return annotation.__origin__ if _is_annotated(annotation) else annotation


def _is_tuple(annotation: Any) -> bool:
    return getattr(annotation, "__origin__", None) is tuple


def _outputs(func: Callable[..., Any], name: str, returned: Any) -> Dict[str, Output]:
    if returned is None or returned is type(None):
        return {}
    if returned is inspect.Signature.empty:
        return {} if _returns_nothing(func) else {"output": Output(Any, {})}
    if isinstance(returned, str):
        if "Annotated" in returned:
            raise StepInterfaceError(
                f"step '{name}': its return annotation {returned!r} can't be resolved, so its outputs "
                "have no names; import what it names at the top of the module"
            )
        return {"output": Output(Any, {})}
    if not _is_tuple(returned):
        return dict([_one(returned, "output", name)])
    args = returned.__args__
    named = any(_is_annotated(a) for a in args) and not lenient()
    if not named and not _returns_tuple(func, any if lenient() else all):
        return {"output": Output(returned, {})}
    if len(args) == 2 and args[1] is Ellipsis:
        raise StepInterfaceError(
            f"step '{name}': variable length output annotations are not allowed; "
            "name each output, or annotate one output with Annotated[tuple, 'name']"
        )
    outputs: Dict[str, Output] = {}
    for i, arg in enumerate(args):
        key, output = _one(arg, f"output_{i}", name)
        if key in outputs:
            raise StepInterfaceError(f"step '{name}': duplicate output name '{key}'")
        outputs[key] = output
    return outputs


def _one(annotation: Any, default: str, step: str) -> Tuple[str, Output]:
    if not _is_annotated(annotation):
        return default, Output(annotation, {})
    key: Optional[str] = None
    config: Dict[str, Any] = {}
    for extra in annotation.__metadata__:
        if isinstance(extra, str) and key is None:
            key = extra
        elif isinstance(extra, ArtifactConfig):
            config = extra.given()
    name = str(config.get("name") or key or default)
    if key is not None and config.get("name", key) != key:
        raise StepInterfaceError(
            f"step '{step}': output '{key}' is also named '{config['name']}' by its ArtifactConfig; keep one"
        )
    slash = "/" in name and not lenient()  # in the shim a name is only the artifact's
    if not name.strip() or slash or name in (".", ".."):
        raise StepInterfaceError(f"step '{step}': {name!r} can't be an output's name")
    return name, Output(annotation.__origin__, config)


def _returns_nothing(func: Callable[..., Any]) -> bool:
    """Whether every return of the function is bare or ``return None``, by its bytecode."""
    target: Any = inspect.unwrap(func)
    code = getattr(target, "__code__", None)
    if code is None or inspect.isgeneratorfunction(target):
        return False
    loaded: Any = func  # the constant that the previous instruction loaded; func: none
    for instruction in dis.get_instructions(code):
        returned = instruction.argval if instruction.opname == "RETURN_CONST" else loaded
        if instruction.opname in ("RETURN_CONST", "RETURN_VALUE") and returned is not None:
            return False
        loaded = instruction.argval if instruction.opname == "LOAD_CONST" else func
    return True


def _returns_tuple(func: Callable[..., Any], how_many: Callable[..., bool]) -> bool:
    """Whether all (or any) returns of the function are literal tuples, by its source; true without
    source."""
    import ast
    import textwrap

    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(func))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return True
    if not tree.body or not isinstance(tree.body[0], (ast.FunctionDef, ast.AsyncFunctionDef)):
        return True
    returns: List[ast.Return] = []
    work: List[ast.AST] = list(tree.body[0].body)
    while work:
        node = work.pop()
        if isinstance(node, ast.Return):
            returns.append(node)
        elif not isinstance(
            node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
        ):
            work.extend(ast.iter_child_nodes(node))
    return bool(returns) and how_many(
        isinstance(r.value, ast.Tuple) and len(r.value.elts) > 1 for r in returns
    )
