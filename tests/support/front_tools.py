"""Shared parts of the tests of the Python front: paths of package and engine, running files."""

from __future__ import annotations

import compileall
import functools
import importlib
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, NoReturn, Optional

import pytest
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python"
WAIT_S = 120  # far above what anything here takes
if str(PACKAGE) not in sys.path:
    sys.path.insert(0, str(PACKAGE))


@functools.cache
def engine() -> Optional[str]:
    """Path of a ``stoker`` that can run pipelines, or None."""
    try:
        return str(find_binary())
    except FileNotFoundError:
        return None


needs_engine = pytest.mark.skipif(engine() is None, reason="no stoker binary is built")


def cannot(reason: str) -> NoReturn:
    """Skip what this machine can't do; in CI (the variable CI is set), where all is installed, that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def needed(module: str) -> Any:
    """A module that the test is about; see :func:`cannot` for where it isn't installed."""
    try:
        return importlib.import_module(module)
    except ImportError as bad:
        cannot(f"{module} isn't installed, which `make deps-test-all` does: {bad}")


def carried(folder: Path, stoker: Path | str) -> Path:
    """What `stoker carry` lays into a folder for pods, compiled: each pod would do it for itself."""
    subprocess.run([stoker, "carry", folder], check=True)
    if not (folder / "python").exists():  # a build without the front beside it
        shutil.copytree(PACKAGE / "stoker", folder / "python/stoker")
    compileall.compile_dir(folder / "python", quiet=2)
    return folder


def environment(store: Path, **more: str) -> dict[str, str]:
    """Environment of a program that uses Stoker with its own store."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "ZENML_", "PYTHONPATH"))
    }
    kept.update({"PYTHONPATH": str(PACKAGE), "STOKER_STORE": str(store), **more})
    if engine() is not None:
        kept["STOKER_BIN"] = str(engine())
    return kept


def run_python(
    folder: Path, source: str, *args: str, name: str = "prog.py", ok: bool = True, **env: str
) -> subprocess.CompletedProcess[str]:
    """Write a program into ``folder`` and run it there; its store is ``folder/.stoker``."""
    file = folder / name
    file.write_text(textwrap.dedent(source))
    done = subprocess.run(
        [sys.executable, str(file), *args],
        cwd=folder,
        env=environment(folder / ".stoker", **env),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    if ok:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def subset(whole: Any, part: dict[str, Any]) -> None:
    """Every key of ``part`` has its value in ``whole``."""
    for key, value in part.items():
        assert key in whole, (key, whole)
        assert whole[key] == value, (key, whole[key])
