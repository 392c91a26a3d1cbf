"""tools/figures.py counts correctly, and `--check` names figures over their limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small project whose figures are all within their limits."""
    for folder in ("src/base", "src/cli", "python/stoker", "tests", "docs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "README.md").write_text("# It\n")
    (tmp_path / "python/stoker/__init__.py").write_text("")
    (tmp_path / "src/base/text.c").write_text("int f(int a)\n{\n    return a;\n}\n" * 100)
    return tmp_path


def check(tree: Path) -> tuple[int, str]:
    command = [sys.executable, str(ROOT / "tools/figures.py"), "--root", str(tree), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout


def test_nothing_over(tree: Path) -> None:
    assert check(tree) == (0, "")


@pytest.mark.parametrize(
    "path, text, said",
    [
        ("src/base/a.c", "int f(int a)\n{\n    return a ? 1 : 2;\n}\n" * 30, "`?:` per 1,000"),
        (
            "src/base/a.c",
            '#include <jansson.h>\n#include "x"\n' * 2,
            "files that include jansson.h: 1",
        ),
        ("src/cli/cli_a.c", "\n" * 251, "lines of the longest file in cli: 251"),
        ("python/stoker/a.py", "from . import b\n", ""),
        ("docs/a.md", "word " * 21, "Markdown lines over 100 columns: 1"),
        ("README.md", "\n" * 171, "lines of README.md: 171"),
    ],
)
def test_over(tree: Path, path: str, text: str, said: str) -> None:
    (tree / path).write_text(text)
    status, output = check(tree)
    assert (status, said in output) == (int(said != ""), True)
    assert output.count("\n") == int(said != "")


def test_what_is_no_code_is_not_counted(tree: Path) -> None:
    (tree / "src/base/a.c").write_text('/* a ? b : c */ const char *t = "a ? b : c"; // ?\n' * 90)
    assert check(tree) == (0, "")


def test_a_circle_of_imports(tree: Path) -> None:
    (tree / "python/stoker/a.py").write_text("from . import b\n")
    (tree / "python/stoker/b.py").write_text("from . import a\n")
    assert check(tree) == (1, "circles of Python imports: 1, at most 0\n")
