"""The figures of kills and resumes in docs/benchmarks.md: written for each kind, and kept when the
rest is rewritten."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "benchmarks.md"
    page.write_text("# Benchmarks\n\n| what |\n|---|\n| a |\n")
    return page


def crash_writes(page: Path, row: str) -> None:
    code = f"import crash, pathlib; crash.write_page(pathlib.Path({str(page)!r}), {{{row.split()[1]!r}: {row!r}}})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests/crash", check=True)


def test_rows_of_other_kinds_stay(page: Path) -> None:
    crash_writes(page, "| ranks | 5 |")
    crash_writes(page, "| python | 3 |")
    crash_writes(page, "| ranks | 7 |")
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\n| what |\n|---|\n| a |\n\n## Kills and resumes\n")
    assert text.endswith("|\n| python | 3 |\n| ranks | 7 |\n") and text.count("## Kills") == 1


def test_bench_keeps_it(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash_writes(page, "| ranks | 5 |")
    section = page.read_text().partition("## ")[2]
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import bench

    one = bench.Bench.__new__(bench.Bench)
    one.args, one.load, one.rows = argparse.Namespace(out=page), 0.0, []
    one.write()
    one.write()
    assert page.read_text().endswith("|\n\n## " + section)
    assert "| a |" not in page.read_text()
