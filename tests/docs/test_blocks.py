"""Each block of code in README and docs is tried as its page shows it (see blocks.py)."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from blocks import ROOT, STOKER, TRIED, Shell, blocks_of, check_output, check_words

PAGES = [
    name
    for name in subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    if not name.startswith(("docs/dev/", "tests/")) and blocks_of(name)
]
ON_HOSTS = {"docs/tutorial.md"}  # gpu1, gpu2 and gpu3 are there
MOST = {"not run": 10, "words": 10}  # blocks that aren't run; the numbers may only go down


def environment(folder: Path, base: dict[str, str]) -> dict[str, str]:
    """A user's: `python` and `stoker` in PATH, no devices, a store in the folder."""
    drop = ("STOKER_", "OMP_", "CUDA_", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "PYTEST")
    kept = {k: v for k, v in base.items() if not k.startswith(drop)}
    path = f"{ROOT / '.venv/bin'}:{kept['PATH']}"
    (folder / "leases").mkdir()
    return kept | {
        "PATH": path,
        "PYTHONPATH": str(ROOT / "python"),
        "STOKER_BIN": STOKER,
        "STOKER_ACCEL": "none",
        "STOKER_LEASE_DIR": str(folder / "leases"),
        "XDG_CONFIG_HOME": str(folder / "config"),
    }


def marks_of(page: str) -> list[Any]:
    return [pytest.mark.slow] if page in ON_HOSTS else []


@pytest.mark.parametrize("page", [pytest.param(one, marks=marks_of(one)) for one in PAGES])
def test_page(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    base = dict(os.environ)
    if page in ON_HOSTS:
        base = request.getfixturevalue("lab").user.env()
    (project := tmp_path / "project").mkdir()
    (project / "pyproject.toml").write_text("")  # so that this folder is the project
    shutil.copy(ROOT / "README.md", project)  # which the first YAML of docs/steps.md reads
    blocks = blocks_of(page)
    shell = Shell(project, environment(tmp_path, base), blocks)
    for block in blocks:
        assert block.kind in TRIED, f"{block.where}: <!-- block: {block.mark} -->"
        shell.try_block(block)


def test_how_many_are_not_run(record_property: Any) -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]
    counted = Counter(block.kind for block in blocks)
    for block in blocks:
        if block.kind in MOST:
            reason = block.mark.partition(":")[2].strip()
            assert len(reason) > 8, f"{block.where}: no reason"
    record_property("said", ", ".join(f"{n} {kind}" for kind, n in counted.most_common()))
    assert all(counted[kind] <= most for kind, most in MOST.items()), counted


@pytest.mark.parametrize(
    "expected, said, ok",
    [
        (["a", "c"], "a\nb\nc\n", True),
        (["c", "a"], "a\nb\nc\n", False),
        (["a … d"], "a   b c d\n", True),
        (["a"], "ab\n", False),
    ],
)
def test_outputs_are_compared(expected: list[str], said: str, ok: bool) -> None:
    if ok:
        return check_output("p:1", "c", expected, said)
    with pytest.raises(AssertionError, match="no line"):
        check_output("p:1", "c", expected, said)


@pytest.mark.parametrize(
    "line, ok",
    [
        ("stoker run --policy strict p.yaml  # no --such option", True),
        ("A=1 stoker run --polcy strict p.yaml", False),
        ("stoker rum p.yaml", False),
        ("make test", True),
        ("make tset", False),
    ],
)
def test_words_are_checked(line: str, ok: bool) -> None:
    if ok:
        return check_words("p:1", line)
    with pytest.raises(AssertionError):
        check_words("p:1", line)
