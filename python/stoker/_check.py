"""``stoker compat --check``: what a program uses of ``zenml`` and ``metaflow``, found in its text.

Nothing of the program is run or imported. What is there and what isn't comes from the shims' own
tables, and what runs otherwise than in the original from the tables ``DIFFERS`` beside them. What a
program finds only while it runs (``getattr``, names in texts) isn't seen.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import sys
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Tuple

ROOTS = ("zenml", "metaflow")
_LEFT_OUT = {"site-packages", "node_modules", "__pycache__", "build", "dist", "venv"}


class Use(NamedTuple):
    """One use: ``verdict`` is "runs", "differs" or "missing"; ``why`` is a sentence, or empty."""

    name: str
    verdict: str
    file: str
    line: int
    why: str


def python_files(paths: Iterable[str]) -> Iterator[str]:
    """The Python files that the paths name; of a folder all below it, without environments.

    Raises:
        FileNotFoundError: there is no such path.
    """
    for path in paths:
        if not os.path.isdir(path):
            if not os.path.exists(path):
                raise FileNotFoundError(f"there is no '{path}'")
            yield path
            continue
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(
                f
                for f in folders
                if f[0] != "."
                and f not in _LEFT_OUT
                and not os.path.exists(os.path.join(folder, f, "pyvenv.cfg"))
            )
            yield from (os.path.join(folder, n) for n in sorted(names) if n.endswith(".py"))


def differing(root: str, name: str) -> Optional[str]:
    """Why a name runs otherwise than in the original, or None."""
    table: Dict[str, str] = getattr(importlib.import_module(root), "DIFFERS", {})
    return table.get(name)


class Reader(ast.NodeVisitor):
    """Collects the uses of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: List[Use] = []
        self.names: Dict[str, str] = {}  # local name → what it is, with dots
        self.clients: Dict[str, str] = {}  # local name of an instance → its class

    def tell(self, name: str, node: Any, verdict: str, why: str = "") -> None:
        """Keep a use."""
        self.found.append(Use(name, verdict, self.file, int(node.lineno), why))

    def judge(self, module: str, name: str, node: Any) -> None:
        """Keep whether a module of a shim has a name."""
        whole = f"{module}.{name}" if name else module
        root = whole.partition(".")[0]
        try:
            home = importlib.import_module(module)
            thing = getattr(home, name) if name else None
        except (ImportError, AttributeError) as bad:
            self.tell(whole, node, "missing", str(bad))
            return
        if type(thing).__name__ == "_Refusing":
            self.tell(whole, node, "missing", str(getattr(thing, "why", "")))
            return
        why = differing(root, name) if name else None
        if why is None and getattr(thing, "__name__", "") == "ComponentSettings":
            why = "a component that Stoker doesn't have: its settings have no effect"
        self.tell(whole, node, "runs" if why is None else "differs", why or "")

    def visit_Import(self, node: ast.Import) -> None:
        """``import zenml.client as c``."""
        for one in node.names:
            root = one.name.partition(".")[0]
            if root in ROOTS:
                self.judge(one.name, "", node)
                self.names[one.asname or root] = one.name if one.asname else root

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """``from zenml import step``."""
        module = node.module or ""
        if node.level or module.partition(".")[0] not in ROOTS:
            return
        for one in node.names:
            if one.name == "*":
                self.judge(module, "", node)
                self._star(module)
            else:
                self.judge(module, one.name, node)
                self.names[one.asname or one.name] = f"{module}.{one.name}"

    def _star(self, module: str) -> None:
        try:
            public = getattr(importlib.import_module(module), "__all__", ())
        except ImportError:
            return
        self.names.update((name, f"{module}.{name}") for name in public)

    def visit_Assign(self, node: ast.Assign) -> None:
        """``client = Client()``."""
        made = self._class_of(node.value)
        for target in node.targets:
            if made and isinstance(target, ast.Name):
                self.clients[target.id] = made
        self.generic_visit(node)

    def _class_of(self, node: ast.AST) -> Optional[str]:
        """``zenml.client.Client`` for ``Client()``."""
        if isinstance(node, ast.Call):
            name = self._whole(node.func)
            if name and name.rpartition(".")[2] == "Client":
                return name
        return None

    def _whole(self, node: ast.AST) -> Optional[str]:
        """The dotted name that an expression is, if it begins with an imported one."""
        tail: List[str] = []
        while isinstance(node, ast.Attribute):
            tail.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self.names:
            return None
        return ".".join([self.names[node.id], *reversed(tail)])

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """``Client().list_models``, ``zenml.step``."""
        holder = self._class_of(node.value)
        if holder is None and isinstance(node.value, ast.Name):
            holder = self.clients.get(node.value.id)
        if holder is not None:
            self._of_client(holder, node)
        else:
            base = self._whole(node.value)
            if base is not None and base.partition(".")[0] in sys.modules and base in sys.modules:
                self.judge(base, node.attr, node)
        self.generic_visit(node)

    def _of_client(self, holder: str, node: ast.Attribute) -> None:
        module, _, name = holder.rpartition(".")
        kind = getattr(importlib.import_module(module), name)
        whole = f"Client.{node.attr}"
        if hasattr(kind, node.attr):
            why = differing(holder.partition(".")[0], whole)
            self.tell(whole, node, "runs" if why is None else "differs", why or "")
            return
        try:
            answer = getattr(kind(), node.attr)
        except AttributeError as bad:
            self.tell(whole, node, "missing", str(bad))
        else:
            refused = node.attr.startswith("create_")  # nothing is made
            why = str(getattr(answer, "why", ""))
            self.tell(whole, node, "missing" if refused else "differs", why)

    def visit_Call(self, node: ast.Call) -> None:
        """The options of ``@step(…)`` and ``@pipeline(…)``."""
        name = self._whole(node.func) or ""
        last = name.rpartition(".")[2]
        if name.partition(".")[0] == "zenml" and last in ("step", "pipeline"):
            self._options(last, node)
        self.generic_visit(node)

    def _options(self, kind: str, node: ast.Call) -> None:
        from ._definition import layers

        known = layers.STEP_KEYS if kind == "step" else layers.PIPELINE_KEYS
        given = {word.arg: word for word in node.keywords if word.arg}
        for key in given:
            current = layers._ALIASES.get(key, key)
            why = layers._LOUD.get(current)
            hook = current in ("on_init", "on_cleanup")
            whole = f"@{kind}({key}=…)"
            if current not in (*known, "on_init_kwargs"):
                self.tell(whole, node, "missing", "there is no such option; it is refused")
            elif differing("zenml", whole):
                self.tell(whole, node, "differs", differing("zenml", whole) or "")
            elif why is not None and not hook:
                self.tell(whole, node, "differs", f"it has no effect: {why}")
            else:
                self.tell(whole, node, "runs")


def uses_of(file: str) -> List[Use]:
    """What a file uses.

    Raises:
        SyntaxError: it is no Python.
        OSError, ValueError: it can't be read.
    """
    with open(file, encoding="utf-8-sig") as stream:
        tree = ast.parse(stream.read(), file)
    reader = Reader(file)
    for node in ast.walk(tree):  # a name may be used in a function above its import
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            reader.visit(node)
    told = list(reader.found)
    reader.found = []
    reader.visit_Import = reader.visit_ImportFrom = lambda _: None  # type: ignore
    reader.visit(tree)
    return [*told, *reader.found]


def _table(found: List[Use]) -> List[str]:
    lines: List[str] = []
    for verdict, title in (("missing", "isn't there"), ("differs", "differs"), ("runs", "runs")):
        some: Dict[Tuple[str, str], List[str]] = {}
        for use in found:
            if use.verdict == verdict:
                some.setdefault((use.name, use.why), []).append(f"{use.file}:{use.line}")
        if not some:
            continue
        lines.append(f"{title}:")
        for (name, why), places in sorted(some.items()):
            more = f" and {len(places) - 1} more" if len(places) > 1 else ""
            lines.append(f"  {name}  ({places[0]}{more})")
            lines += [f"      {why}"] if why else []
    return lines


def main(words: List[str]) -> int:
    """Print what the named files and folders use; 1: something isn't there, 2: a
    file can't be read."""
    as_json = words[:1] == ["--json"]
    found: List[Use] = []
    n_files = n_bad = 0
    try:
        for file in python_files(words[as_json:]):
            try:
                found += uses_of(file)
                n_files += 1
            except SyntaxError as bad:
                n_bad += 1
                _say(f"{file}:{bad.lineno}: this is no Python: {bad.msg}")
            except (OSError, ValueError) as bad:
                n_bad += 1
                _say(f"{file}: {bad}")
    except FileNotFoundError as bad:
        _say(str(bad))
        return 2
    missing = sum(use.verdict == "missing" for use in found)
    if as_json:
        print(json.dumps({"files": n_files, "uses": [use._asdict() for use in found]}))
    else:
        counts = {v: len({u.name for u in found if u.verdict == v}) for v in _ORDER}
        print("\n".join(_table(found)) or "no use of zenml or metaflow")
        told = f"{counts['runs']} run, {counts['differs']} differ, {counts['missing']} aren't there"
        print(
            f"{n_files} file{'' if n_files == 1 else 's'}: {told}. Nothing was run; what a program finds only while it runs "
            "isn't seen."
        )
    return 2 if n_bad else int(missing > 0)


def _say(text: str) -> None:
    print(f"stoker: compat --check: {text}", file=sys.stderr)


_ORDER = ("runs", "differs", "missing")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
