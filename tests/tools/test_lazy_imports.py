"""Imports in functions: of third parties, and of own modules that would make a start longer. What is loaded
with a module anyway is imported at its top."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

PYTHON = Path(__file__).resolve().parents[2] / "python"


@functools.cache
def loaded_with(module: str) -> frozenset[str]:
    """Our modules that an interpreter has when it has imported this one."""
    code = f"import sys, {module}\nprint(*(m for m in sys.modules if m.startswith('stoker')))"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=PYTHON, capture_output=True, text=True, check=True)
    return frozenset(done.stdout.split())


def lazy_imports() -> Iterator[tuple[str, str, list[str]]]:
    """Where (file:line), in which module, which of our modules."""
    for path in sorted((PYTHON / "stoker").rglob("*.py")):
        parts = path.relative_to(PYTHON).with_suffix("").parts
        if "_compat" in parts or parts[-1] == "__main__":
            continue
        is_package = parts[-1] == "__init__"
        module = ".".join(parts[:-1] if is_package else parts)
        package = parts[:-1]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
        for node in (n for f in functions for n in ast.walk(f) if isinstance(n, ast.ImportFrom)):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *filter(None, [node.module])])
            if not base.startswith("stoker"):
                continue
            names = [f"{base}.{alias.name}" for alias in node.names]
            wanted = [n if is_module(n) else base for n in names]
            yield f"{path.relative_to(PYTHON)}:{node.lineno}", module, wanted


def is_module(name: str) -> bool:
    path = PYTHON / name.replace(".", "/")
    return path.with_suffix(".py").exists() or path.is_dir()


def test_no_import_waits_for_nothing() -> None:
    found = sorted(set((w, m, tuple(t)) for w, m, t in lazy_imports()))
    assert len(found) > 20, "the search finds some"
    needless = [
        f"{where}: {', '.join(wanted)} is loaded with {module} anyway"
        for where, module, wanted in found
        if all(w in loaded_with(module) and module not in loaded_with(w) for w in wanted)
    ]
    assert not needless, "\n".join(needless)
