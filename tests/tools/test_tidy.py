"""clang-tidy with the project's configuration finds a fault, and takes no cleanup attribute for one."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RIGHT = """#include <stdlib.h>
static void free_text(char **text) { free(*text); }
int f(int a);
int f(int a)
{
    __attribute__((cleanup(free_text))) char *text = malloc(10);
    return text == NULL ? 0 : a;
}
"""
WRONG = RIGHT.replace("? 0 : a", "|| text == NULL")


@pytest.mark.skipif(shutil.which("clang-tidy") is None, reason="clang-tidy is not installed")
@pytest.mark.parametrize("text, status", [(RIGHT, 0), (WRONG, 1)])
def test_finds(tmp_path: Path, text: str, status: int) -> None:
    (tmp_path / "a.c").write_text(text)
    words = ["clang-tidy", "--quiet", f"--config-file={ROOT}/.clang-tidy", "a.c", "--"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, "misc-redundant-expression" in done.stdout) == (status, bool(status))
