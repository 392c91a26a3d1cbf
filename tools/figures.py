"""Prints figures of the tree that shouldn't grow, as rows of a table.

    figures.py [--root DIR] [--json | --check]

With --check, which `make lint` runs, only those over their limit are printed, and the exit status is 1.

Counts only product code: no tests, no generated files. Comments and strings don't count for `?:`
and names.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

NOT_CODE = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|//[^\n]*|/\*.*?\*/', re.DOTALL)
STATIC = re.compile(r"^static\s[^;={]*?\b([a-z_0-9]+)\(", re.MULTILINE)
# A member of a document that is printed as text instead of being put by a writer: "{\"key\":" or ",\"key\":".
BY_HAND = re.compile(r'\\"[a-z_]+\\":')
TABLE = re.compile(r"^\s*\|")
LINK = re.compile(r"https?://|\]\(")
LONG = 100

# What `make lint` allows. A limit only ever goes down.
LIMITS = {
    "folders in src/": 14,
    "C files over 500 lines": 24,
    "`?:` per 1,000 lines": 10,
    "nested `?:`": 0,
    "static names in more than 3 files": 0,
    "lines of the longest private header": 200,
    "lines of the longest file in cli": 250,
    "members of JSON printed by hand": 15,
    "files that include jansson.h": 0,
    "modules directly in python/stoker": 15,
    "circles of Python imports": 0,
    "lines of README.md": 170,
    "Markdown lines over 100 columns": 0,
}


def c_files(root: Path) -> list[Path]:
    """The engine's sources and headers, without tests."""
    return [
        path
        for path in sorted((root / "src").rglob("*.[ch]"))
        if not path.stem.endswith(("_test", "_testing")) and "testdata" not in path.parts
    ]


def private_headers(root: Path, sources: dict[Path, str]) -> list[Path]:
    """Headers that only files of the same folder or of folders below it include."""
    users: defaultdict[Path, set[Path]] = defaultdict(set)
    everywhere = {path: path.read_text(encoding="utf-8") for path in (root / "tests").rglob("*.c")}
    for path, text in {**sources, **everywhere}.items():
        for name in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
            users[root / "src" / name].add(path)
    return [
        path
        for path in sources
        if path.suffix == ".h"
        and users[path]
        and all(path.parent in user.parents for user in users[path])
    ]


def nested(code: str) -> int:
    """Statements with a `?:` inside another one; a macro counts as one statement."""
    code = re.sub(r"^\s*#(?:\\\n|[^\n])*", lambda m: f"{m[0]};", code, flags=re.MULTILINE)
    return sum(1 for statement in re.split(r"[;{}]", code) if statement.count("?") > 1)


def imports_of(path: Path, package: str, modules: set[str]) -> Iterator[str]:
    """Modules of the package that this one imports when loaded, typing imports included."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, functions):
            continue
        waiting += list(ast.iter_child_nodes(node))
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [base])])
            names = [f"{base}.{alias.name}" for alias in node.names] + [base]
        for name in names:
            if name in modules:
                yield name


def circles(root: Path) -> int:
    """Groups of Python modules with import cycles."""
    files: dict[str, Path] = {}
    packages: dict[str, str] = {}
    for path in sorted((root / "python").rglob("*.py")):
        parts = path.relative_to(root / "python").with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        files[name] = path
        packages[name] = name if is_package else name.rpartition(".")[0]
    graph = {
        name: set(imports_of(path, packages[name], set(files))) - {name}
        for name, path in files.items()
    }
    reach: dict[str, set[str]] = {}
    for name in graph:
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            for other in graph[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        reach[name] = seen
    rings = {frozenset(b for b in reach[a] if a in reach[b]) for a in graph if a in reach[a]}
    return len(rings)


def long_lines(root: Path) -> int:
    """Lines of Markdown over 100 columns outside code, tables and links."""
    count = 0
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md")]
    for page in pages:
        in_code = False
        for line in page.read_text(encoding="utf-8").splitlines():
            in_code ^= line.lstrip().startswith("```")
            count += (
                len(line) > LONG and not in_code and not TABLE.match(line) and not LINK.search(line)
            )
    return count


def measure(root: Path) -> dict[str, float]:
    """All figures by name, in the order of the table."""
    sources = {path: path.read_text(encoding="utf-8") for path in c_files(root)}
    code = {path: NOT_CODE.sub("", text) for path, text in sources.items()}
    lines = {path: text.count("\n") for path, text in sources.items()}
    homes: defaultdict[str, set[Path]] = defaultdict(set)
    for path, text in code.items():
        for name in STATIC.findall(text):
            homes[name].add(path)
    questions = sum(text.count("?") for text in code.values())
    total = sum(lines.values())
    private = [lines[path] for path in private_headers(root, sources)]
    cli = Counter({p: n for p, n in lines.items() if "cli" in p.parts and p.suffix == ".c"})
    python = [p for p in sorted((root / "python").rglob("*.py"))]
    return {
        "folders in src/": sum(path.is_dir() for path in (root / "src").iterdir()),
        "lines of C": total,
        "lines of Python": sum(p.read_text(encoding="utf-8").count("\n") for p in python),
        "C files over 500 lines": sum(n > 500 for n in lines.values()),
        "`?:` per 1,000 lines": round(1000 * questions / total, 1),
        "nested `?:`": sum(nested(text) for text in code.values()),
        "static names in more than 3 files": sum(len(where) > 3 for where in homes.values()),
        "lines of the longest private header": max(private, default=0),
        "lines in cli": sum(cli.values()),
        "lines of the longest file in cli": max(cli.values(), default=0),
        "members of JSON printed by hand": sum(
            len(BY_HAND.findall(text)) for text in sources.values()
        ),
        "files that include jansson.h": sum("<jansson.h>" in text for text in sources.values()),
        "modules directly in python/stoker": len(list((root / "python" / "stoker").glob("*.py"))),
        "circles of Python imports": circles(root),
        "lines of README.md": (root / "README.md").read_text(encoding="utf-8").count("\n"),
        "Markdown lines over 100 columns": long_lines(root),
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true")
    how.add_argument("--check", action="store_true")
    options = parser.parse_args(argv)
    figures = measure(options.root)
    if options.json:
        print(json.dumps(figures, indent=1))
    elif options.check:
        over = [name for name, limit in LIMITS.items() if figures[name] > limit]
        for name in over:
            print(f"{name}: {figures[name]:,}, at most {LIMITS[name]:,}")
        return min(len(over), 1)
    else:
        for name, value in figures.items():
            print(f"| {name} | {value:,} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
