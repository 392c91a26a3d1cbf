"""The `stoker` that tests try: the one way to find it, for every folder of tests (pythonpath in pyproject.toml)."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def find_binary() -> Path:
    """$STOKER_BIN where it is set, else what `make build` made. FileNotFoundError: there is none."""
    said = os.environ.get("STOKER_BIN")
    built = [ROOT / ".venv/bin/stoker", ROOT / "build/src/cli/stoker"]
    places = [Path(said)] if said else built
    for place in places:
        if place.is_file():
            return place.absolute()
    raise FileNotFoundError(f"no stoker binary at {', '.join(map(str, places))}: run `make build`")
