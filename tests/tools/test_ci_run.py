"""What .ci/run prepares, and what it says when that fails; `make` and apt are played."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Each of the two waits until the other has begun.
MAKE = """#!/bin/sh
echo "make $*" >> said
case $1 in installed) other=compiled ;; compiled) other=installed ;; esac
[ -z "$other" ] || until grep -q "make $other" said; do :; done
case "$*" in *"$FAILS"*) exit 2 ;; esac
"""


def ci_run(folder: Path, fails: str) -> list[str]:
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", folder / ".ci/run")
    tools = {"make": MAKE, "apt-get": "#!/bin/sh\n", "id": "#!/bin/sh\necho 0\n"}
    tools["../.venv/bin/python"] = "#!/bin/sh\necho 7 passed, 0 failed\n"
    for name, text in tools.items():
        program = folder / "bin" / name
        (folder / "bin").mkdir(exist_ok=True)
        (folder / ".venv/bin").mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "FAILS": fails}
    done = subprocess.run(
        [folder / ".ci/run"], env=env, stdout=subprocess.PIPE, text=True, timeout=120
    )
    return done.stdout.splitlines()


def test_compiles_and_installs_at_once(tmp_path: Path) -> None:
    assert ci_run(tmp_path, "nothing")[-1] == "7 passed, 0 failed"
    first, *two = (tmp_path / "said").read_text().splitlines()[:3]
    assert ".debian-test-all" in first and sorted(two) == ["make compiled", "make installed"]


@pytest.mark.parametrize("fails", ["debian-lint", "installed", "compiled"])
def test_what_cannot_be_prepared_is_a_failure(tmp_path: Path, fails: str) -> None:
    assert ci_run(tmp_path, fails)[-1] == "0 passed, 1 failed"
