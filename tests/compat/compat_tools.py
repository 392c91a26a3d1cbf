"""Running programs that import ``zenml`` and get Stoker."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from front_tools import PACKAGE, ROOT, run_python

SHIM = PACKAGE / "stoker" / "_compat"
SEEDS = ROOT / "tests" / "data" / "seeds"


def run_shimmed(
    folder: Path, source: str, ok: bool = True, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with the shim first on its path."""
    path = os.pathsep.join([str(SHIM), str(PACKAGE)])
    return run_python(folder, source, ok=ok, **{**env, "PYTHONPATH": path})
