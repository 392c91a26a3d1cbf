"""The program of a flow that a notebook's cell defines."""

from __future__ import annotations

import ast
from typing import Any, List, Set

from .exception import MetaflowException

_DEFINES = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_RUNNERS = {"NBRunner", "NBDeployer"}


def cell_source(flow: Any, name: str) -> str:
    """A program of the flow in the running notebook cell; ``name``: who asks.

    Raises:
        MetaflowException: this isn't a notebook. ModuleNotFoundError: the flow isn't of this cell.
    """
    try:
        from IPython import get_ipython
    except ImportError:
        shell = None
    else:
        shell = get_ipython()
    if shell is None:
        raise MetaflowException(
            f"{name} takes a flow of a notebook's cell, but this is not a notebook: use {name[2:]}('flow.py')"
        )
    lines = str(shell.history_manager.input_hist_raw[-1]).splitlines()
    lines = ["" if line.lstrip().startswith(("%", "!")) else line for line in lines]
    body = ast.parse("\n".join(lines)).body
    own = [n for n in body if isinstance(n, ast.ClassDef) and n.name == flow.__name__]
    if not own:
        raise ModuleNotFoundError(
            f"{name}: this cell has no class {flow.__name__}: define the flow in the cell that runs it"
        )
    for node in _users(body, own[-1]):  # blank, so that lines keep their numbers
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        lines[first:last] = [""] * (last - first)
    return "\n".join([*lines, "if __name__ == '__main__':", f"    {flow.__name__}()", ""])


def _users(body: List[ast.stmt], own: ast.ClassDef) -> List[ast.stmt]:
    """The statements that use the flow: those with a runner or its results, and after the class
    those that set nothing that the definitions read."""
    runners = set(_RUNNERS)
    users = []
    for node in body:
        if not isinstance(node, _DEFINES) and _names(node, ast.Load) & runners:
            users.append(node)
            runners |= _names(node, ast.Store)
    read = {name for node in body if isinstance(node, _DEFINES) for name in _names(node, ast.Load)}
    for node in reversed(body[body.index(own) + 1 :]):
        if isinstance(node, _DEFINES) or node in users:
            continue
        if _names(node, ast.Store) & read:
            read |= _names(node, ast.Load)
        else:
            users.append(node)
    return users


def _names(node: ast.stmt, kind: type) -> Set[str]:
    """The variables that a statement reads (``ast.Load``) or sets (``ast.Store``)."""
    found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, kind)}
    if kind is ast.Load:
        found |= _RUNNERS & {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    return found
