"""`stoker compat`: the folder that it prints, and the environment of a program that it starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
STOKER = find_binary()
SHIM = ROOT / "python" / "stoker" / "_compat"


def compat(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [STOKER, "compat", *args],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_path() -> None:
    done = compat("--path")
    assert done.returncode == 0 and Path(done.stdout.strip()) == SHIM


def test_the_command_sees_the_shim_first() -> None:
    done = compat(
        "--", "sh", "-c", 'echo "$STOKER_COMPAT $PYTHONPATH"; exit 7', PYTHONPATH="/theirs"
    )
    assert done.returncode == 7
    assert done.stdout.strip() == f"1 {SHIM}:{ROOT / 'python'}:/theirs"


def test_options_of_the_command_are_its_own() -> None:
    done = compat("--", "printf", "%s|", "--json", "--path", PYTHONPATH="")
    assert done.stdout == "--json|--path|"


def test_zenml_resolves_for_an_interpreter_without_stoker() -> None:
    code = "import zenml, stoker; print(zenml.step is not None, stoker.__version__)"
    done = compat("--", "/usr/bin/python3", "-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True 0.")


def test_wrong_usage() -> None:
    assert compat().returncode == 2
    assert compat("--path", "--", "true").returncode == 2


def test_a_command_that_is_not_there() -> None:
    done = compat("--", "/nonexistent/python")
    assert done.returncode == 2 and "/nonexistent/python" in done.stderr
