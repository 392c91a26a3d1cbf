#!/usr/bin/env python3
"""The documentation site, built by Sphinx from docs/, from the pages of the first folder, and from lists that stand
elsewhere: the command line's tables, the schemas, docstrings, symptoms.def, the figures of docs/benchmarks.md.

.venv/bin/python tools/make_site.py FOLDER      (`make site`: build/site) writes FOLDER/html; a warning is a failure

A line `<!-- site: NAME WORDS -->` of a page becomes what `FILLS[NAME]` makes of the words.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
STOKER = ROOT / ".venv/bin/stoker"
ROOT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
LINK = re.compile(r"(?<!!)\[((?:[^][]|\[[^]]*\])*)\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)")
MARK = re.compile(r"^<!-- site: (\w+) ?(.*?) -->$", re.M)
CODE = re.compile(r"^( *```.*?^ *```$)", re.M | re.S)
CONFIG: dict[str, Any] = {
    "project": "Stoker",
    "html_title": "Stoker",
    "copyright": "",
    "extensions": ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"],
    "myst_heading_anchors": 4,
    "html_theme": "furo",
    "html_copy_source": False,
    "html_show_sourcelink": False,
    "html_show_sphinx": False,
    "html_show_copyright": False,
    "default_role": "code",
    "autodoc_member_order": "bysource",
    "autodoc_typehints": "signature",
    "python_maximum_signature_line_length": 80,
    "python_use_unqualified_type_names": True,
    "napoleon_use_ivar": True,
    "suppress_warnings": [
        "ref.python",  # which of several things named `type` an annotation means
        "misc.highlighting_failure",  # of JSON and output with "…" in it
    ],
}


MODULES = {
    "stoker": "Steps and pipelines",
    "stoker.checkpoint": "Checkpoints",
    "stoker.callbacks": "Callbacks of training loops",
    "stoker.materializers": "Materializers",
    "stoker.flow": "Flows",
    "stoker.flow.cards": "Cards of flows",
}
# The order of the pages. Sphinx fails on a page that isn't here.
CONTENTS = {
    "Begin": ["install", "tutorial"],
    "How to": ["howto", "steps", "flows", "gpus", "ranks", "containers", "ssh", "slurm", "kubernetes", "batch", "compare", "ui", "top", "other-tools"],
    "Reference": ["reference/commands", "reference/pipeline", "reference/stack", *(f"reference/{one}" for one in MODULES), "formats/README"],
    "Explanation": ["explanation", "store", "security", "ARCHITECTURE", "decisions/index"],
    "Troubleshooting": ["troubleshooting", "limits"],
    "Comparison": ["peers", "benchmarks", "migrate-zenml", "migrate-metaflow"],
    "Project": ["CHANGELOG", "versioning", "roadmap", "CONTRIBUTING", "SECURITY"],
}  # fmt: skip


# --- pages that stand in the repository ---


def place_of(page: str) -> str | None:
    """Where a page of the repository is in the site; None: it isn't there."""
    if page in ROOT_PAGES:
        return page
    if page == "README.md":
        return "index.md"
    return page[5:] if re.match(r"docs/(?!dev/)", page) else None


def toctree(caption: str, pages: Iterable[str]) -> str:
    head = f":caption: {caption}\n:hidden:\n" if caption else ""
    return "\n```{toctree}\n" + head + "\n".join(pages) + "\n```\n"


def with_contents(place: str, text: str) -> str:
    """The page, with the pages that stand below it."""
    if place == "index.md":
        return text + "".join(toctree(title, pages) for title, pages in CONTENTS.items())
    if place == "formats/README.md":
        below = sorted(p.stem for p in (ROOT / "docs/formats").glob("*.md") if p.stem != "README")
        return text + toctree("", [":hidden:", "", *below])
    return text


def relink(page: str, text: str) -> str:
    """Links lead to where pages are in the site; one to a file that isn't there becomes its text."""
    own = Path(place_of(page) or "").parent

    def turned(found: re.Match[str]) -> str:
        words, target, anchor = found.groups()
        place = place_of(os.path.normpath(Path(page).parent / target))
        if place is None:
            return words
        return f"[{words}]({os.path.relpath(place, own)}{anchor or ''})"

    parts = CODE.split(text)
    return "".join(part if i % 2 else LINK.sub(turned, part) for i, part in enumerate(parts))


def compose(source: Path) -> None:
    """All pages, in the folder that Sphinx reads."""
    shutil.copytree(ROOT / "docs/img", source / "img")
    pages = [*ROOT_PAGES, *(str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("docs/**/*.md")))]
    for page in pages:
        place = place_of(page)
        if place is not None:
            text = relink(page, (ROOT / page).read_text(encoding="utf-8"))
            write(source / place, with_contents(place, MARK.sub(filled, text)))
    decisions = sorted(p.stem for p in (ROOT / "docs/decisions").glob("*.md"))
    write(source / "decisions/index.md", f"# Decisions\n\nWhy it is made so.\n{toctree('', decisions)}")  # fmt: skip
    for place, text in {**api_pages(), **dict(yaml_pages()), "reference/commands.md": commands()}.items():  # fmt: skip
        write(source / place, text)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip() + "\n", encoding="utf-8")


# --- lists that stand elsewhere ---


def filled(found: re.Match[str]) -> str:
    return FILLS[found[1]](*found[2].split())


def symptoms(*classes: str) -> str:
    """The words by which failures of these classes are known."""
    rows = re.findall(r'^X\((\w+), "(.*)"\)$', (ROOT / "src/tbl/symptoms.def").read_text(), re.M)
    found = [phrase for kind, phrase in rows if kind.lower() in classes]
    missing = [one for one in classes if one.upper() not in {kind for kind, _ in rows}]
    if missing:
        raise SystemExit(f"make_site: symptoms.def has nothing of {', '.join(missing)}")
    return "\n".join(f"- `{phrase}`" for phrase in found)


def figures(*words: str) -> str:
    """The rows of docs/benchmarks.md's first table in which one of these words stands."""
    text = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    table = re.search(r"^\| what .*?(?=^$)", text, re.M | re.S)
    if table is None:
        raise SystemExit("make_site: docs/benchmarks.md has no table")
    head, line, *rows = table[0].strip().splitlines()
    kept = [row for row in rows if any(word in row for word in words)]
    if not kept:
        raise SystemExit(f"make_site: docs/benchmarks.md has no row of {' '.join(words)}")
    return "\n".join([head, line, *kept])


FILLS = {"symptoms": symptoms, "figures": figures}


# --- the command line, from its tables ---


def told(*words: str) -> Any:
    done = subprocess.run([STOKER, "help", *words, "--json"], check=True, capture_output=True)
    return json.loads(done.stdout)


def plain(text: str) -> str:
    """Text that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>|$~#])", r"\\\1", text)


def commands() -> str:
    """One page; a heading for each command."""
    lines = ["# Commands", "", "`stoker COMMAND --help` and `man stoker` say the same.", ""]
    for name in [one["command"] for one in told()["commands"]]:
        one = told(name)
        paragraphs = [
            plain(part.strip()) for part in (one["text"] or "").split("\n\n") if part.strip()
        ]
        lines += [f"## stoker {name}", "", plain(one["summary"]).capitalize() + ".", ""]
        lines += ["```text", f"stoker {name} {one['usage']}", "```", "", "\n\n".join(paragraphs)]
        lines += ["", "| option | |", "|---|---|"]
        for option in one["options"]:
            letter = f"-{option['letter']}, " if option["letter"] else ""
            value = f" {option['value']}" if option["value"] else ""
            shown = f"{letter}{option['option']}{value}".replace("|", "\\|")
            lines.append(f"| `{shown}` | {plain(option['help'])} |")
        lines.append("")
    return "\n".join(lines)


# --- YAML, from the schemas ---

SCHEMAS = {
    "pipeline": ("Pipeline files", "formats/spec.md"),
    "stack": ("stoker.yaml", "formats/spec.md#images"),
}


def yaml_pages() -> Iterator[tuple[str, str]]:
    """A page for each schema; a heading for each kind of mapping in it."""
    for name, (title, more) in SCHEMAS.items():
        schema = json.loads((ROOT / f"schema/{name}.schema.json").read_text(encoding="utf-8"))
        notes = comments(name)
        lines = [f"# {title}", "", f"Every key, from `schema/{name}.schema.json`, by which editors can check a file."]  # fmt: skip
        lines += [f"[formats/spec.md](../{more}) explains them and shows whole files.", ""]
        mappings = {"top level": schema, **schema.get("$defs", {})}
        for word, one in mappings.items():
            forms = [form for form in choices(one) if form.get("properties")]
            for index, each in enumerate(forms):
                lines += [f"## {word}" if index == 0 else f"### {word}, another form", ""]
                lines += [plain(each.get("description", "")), "", "| key | value | |", "|---|---|---|"]  # fmt: skip
                needed = each.get("required", [])
                for key, said in each["properties"].items():
                    value = said if isinstance(said, dict) else {}
                    note = value.get("description") or notes.get(key, "")
                    must = "**required** " if key in needed else ""
                    lines.append(f"| `{key}` | {kind(value, schema)} | {must}{plain(note)} |")
                lines.append("")
        yield f"reference/{name}.md", "\n".join(lines)


def choices(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The forms that a value may have."""
    found = [one for key in ("anyOf", "oneOf") for one in schema.get(key, [])]
    return [schema] if "properties" in schema or not found else found


def comments(name: str) -> dict[str, str]:
    """What the files in docs/formats/spec.md say beside a key: first pipelines, last stoker.yaml."""
    text = (ROOT / "docs/formats/spec.md").read_text(encoding="utf-8")
    *pipelines, stacks = re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    found: dict[str, str] = {}
    for block in [stacks] if name == "stack" else pipelines:
        for key, note in re.findall(r"^ *(\w+):(?: .*?)? +# (.*)$", block, re.M):
            note = re.sub(r"^\|.*?\((.*)\)$", r"\1", note)  # other values, and the rest
            found.setdefault(key, re.sub(r"^required(, |$)", "", note))
    return found


def kind(value: dict[str, Any], schema: dict[str, Any]) -> str:
    """In words, what a value may be."""
    if "$ref" in value:
        target: Any = schema
        *path, name = value["$ref"][2:].split("/")
        for part in (*path, name):
            target = target[part]
        if path != ["$defs"]:
            return kind(target, schema)
        has_table = any(one.get("properties") for one in choices(target))
        return f"[{name}](#{name.lower()})" if has_table else kind(target, schema)
    if "enum" in value:
        return " or ".join(f"`{json.dumps(one)}`" for one in value["enum"] if one is not None)
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    forms = value.get("anyOf") or value.get("oneOf")
    if forms:
        said = [kind(one, schema) for one in forms if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(said))
    types = value.get("type", "anything")
    names = [types] if isinstance(types, str) else types
    said = [one_type(name, value, schema) for name in names if name != "null"]
    return " or ".join(said)


def one_type(name: str, value: dict[str, Any], schema: dict[str, Any]) -> str:
    if name == "array":
        items = value.get("items")
        return f"list of {kind(items, schema)}" if isinstance(items, dict) else "list"
    if name == "object":
        rest = value.get("additionalProperties")
        if value.get("properties"):
            return "mapping of " + ", ".join(f"`{key}`" for key in value["properties"])
        return f"name: {kind(rest, schema)}" if isinstance(rest, dict) else "mapping"
    word = {"integer": "whole number", "boolean": "true or false", "string": "text"}.get(name, name)
    low, high = value.get("minimum"), value.get("maximum")
    if low is not None and high is not None:
        return f"{word} from {low:,} to {high:,}"
    return f"{word} from {low:,}" if low is not None else word


# --- Python, from docstrings ---


def api_pages() -> dict[str, str]:
    """A page for each module, with what its `__all__` names."""
    pages = {}
    for module, title in MODULES.items():
        loaded = importlib.import_module(module)
        head = f"{title}: ``{module}``"
        lines = [head, "=" * len(head), "", f".. automodule:: {module}", "   :no-members:", ""]
        for name in loaded.__all__:
            try:
                value = getattr(loaded, name)
            except ImportError:  # the class of a library that isn't here; the module's text has it
                continue
            if name.startswith("_") or inspect.ismodule(value):
                continue
            if inspect.isclass(value):
                lines += [f".. autoclass:: {module}.{name}", "   :members:", ""]
            elif callable(value):
                lines += [f".. autofunction:: {module}.{name}", ""]
            else:
                lines += [f".. py:data:: {module}.{name}", ""]
        pages[f"reference/{module}.rst"] = "\n".join(lines)
    return pages


# --- the whole ---


def build(folder: Path) -> int:
    """The number of failures: 0, or 1 after Sphinx has said what is wrong."""
    from sphinx.application import Sphinx

    source, html = folder / "source", folder / "html"
    for made in (source, html):
        shutil.rmtree(made, ignore_errors=True)
    source.mkdir(parents=True)
    compose(source)
    site = Sphinx(
        srcdir=source,
        confdir=None,
        outdir=html,
        doctreedir=folder / "doctrees",
        buildername="html",
        confoverrides=CONFIG,
        status=None,
        warningiserror=True,
        freshenv=True,
    )
    site.build(force_all=True)
    return 1 if site.statuscode else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "python"))
    where = Path(sys.argv[1]).resolve() if len(sys.argv) == 2 else None
    if where is None:
        sys.exit("usage: make_site.py FOLDER")
    failed = build(where)
    if not failed:
        print(f"file://{where}/html/index.html")
    sys.exit(failed)
