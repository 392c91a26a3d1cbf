"""Runs programs that import ``zenml`` or ``metaflow`` with Stoker in their place; finds the real
Metaflow."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

from front_tools import PACKAGE, ROOT, cannot, engine, environment, run_python

SHIM = PACKAGE / "stoker" / "_compat"
SEEDS = ROOT / "tests" / "data" / "seeds"


def run_shimmed(
    folder: Path, source: str, ok: bool = True, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with the shim first on its path."""
    path = os.pathsep.join([str(SHIM), str(PACKAGE)])
    return run_python(folder, source, ok=ok, **{**env, "PYTHONPATH": path})


def metaflow_python() -> str:
    """An interpreter with the real Metaflow; `make build/metaflow/pyvenv.cfg` makes one, and `make test-all` does."""
    named = os.environ.get("STOKER_METAFLOW_PYTHON")
    for path in filter(None, (named, ROOT / "build" / "metaflow" / "bin" / "python")):
        if not os.access(path, os.X_OK):
            continue
        if subprocess.run([path, "-c", "import metaflow"], capture_output=True).returncode == 0:
            return str(path)
    cannot("Metaflow is not installed in build/metaflow (`make build/metaflow/pyvenv.cfg` does it)")


def end_servers(store: Path) -> list[int]:
    """End the servers of models that a store has; returns their processes."""
    if not (store / "store.db").exists():
        return []
    words = [str(engine()), "record", "list", "service", "--json"]
    told = subprocess.run(words, env=environment(store), capture_output=True, text=True, check=True)
    bodies = [one["body"] for one in json.loads(told.stdout)]
    pids = [body["process"]["pid"] for body in bodies if "process" in body]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    return pids
