"""Finds the `stoker` under test, for all folders of tests (pythonpath in pyproject.toml)."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# where stores of tests are noted: not in the state of who runs them
os.environ.setdefault("XDG_STATE_HOME", str(ROOT / "build/tests-state"))


def find_binary() -> Path:
    """$STOKER_BIN if it is set, else the binary of `make build`. FileNotFoundError: neither
    exists."""
    said = os.environ.get("STOKER_BIN")
    built = [ROOT / ".venv/bin/stoker", ROOT / "build/src/cli/stoker"]
    places = [Path(said)] if said else built
    for place in places:
        if place.is_file():
            return place.absolute()
    raise FileNotFoundError(f"no stoker binary at {', '.join(map(str, places))}: run `make build`")
