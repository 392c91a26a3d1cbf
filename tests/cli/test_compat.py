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


def test_the_engine_is_the_one_that_was_called(tmp_path: Path) -> None:
    """An interpreter that knows nothing of Stoker finds it, without a name on PATH."""
    code = (
        "import zenml\n"
        "@zenml.step\ndef one() -> int:\n    return 1\n"
        "@zenml.pipeline\ndef p():\n    one()\n"
        "if __name__ == '__main__':\n    print(p().status)\n"
    )
    (tmp_path / "p.py").write_text(code)
    env = {name: value for name, value in os.environ.items() if name != "STOKER_BIN"}
    done = subprocess.run(
        [STOKER, "compat", "--", "/usr/bin/python3", "p.py"],
        cwd=tmp_path,
        env={**env, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout.strip() == "completed", done.stderr


def test_wrong_usage() -> None:
    assert compat().returncode == 2
    assert compat("--path", "--", "true").returncode == 2


def test_a_command_that_is_not_there() -> None:
    done = compat("--", "/nonexistent/python")
    assert done.returncode == 2 and "/nonexistent/python" in done.stderr
