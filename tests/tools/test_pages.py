"""The pages that people read: links and named files exist, and no line is over 100 columns."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split()
    if not name.startswith("docs/dev/")  # checklists of work that is under way
]
LINK = re.compile(r"\]\((?!https?:)([^)\s]*)\)")
NAMED = re.compile(
    r"`((?:src|python|tests|tools|bench|schema|docs|examples|include)/[\w./-]+\.\w+)"
)
MADE = {"docs/gpu-proof.md"}  # by `make test-gpu`


def prose(page: Path) -> list[str]:
    """The lines that are in no block of code."""
    lines, in_code = [], False
    for line in page.read_text(encoding="utf-8").splitlines():
        in_code ^= line.lstrip().startswith("```")
        lines += [] if in_code else [line]
    return lines


def anchors(page: Path) -> set[str]:
    heads = [line.lstrip("#") for line in prose(page) if line.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path) -> None:
    for line in prose(page):
        for link in LINK.findall(line):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link
        for name in NAMED.findall(line):
            is_sample = re.search("NAME|TOPIC", name) is not None
            assert is_sample or name in MADE or (ROOT / name).exists(), name
        is_free = line.lstrip().startswith("|") or re.search(r"https?://|\]\(", line)
        assert is_free or len(line) <= 100, line
