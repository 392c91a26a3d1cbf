#!/usr/bin/env python3
"""Runs the programs of tests/compat/flows with the real Metaflow and records what the tests compare
with.

    tools/record_metaflow.py PYTHON [NAME…]

PYTHON is an interpreter whose environment has Metaflow (`make record-metaflow` makes one). Cases whose programs haven't
changed keep their record; NAME… (or parts of names) are run in any case: all of them with "" (after a change of observe.py).
"""

from __future__ import annotations

import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "compat" / "flows"))
sys.path.insert(0, str(ROOT / "tests" / "compat"))
RECORDED = ROOT / "tests" / "data" / "metaflow" / "recorded.json"

import family  # noqa: E402
import play  # noqa: E402
import s3_tools  # noqa: E402


def main(python: str, names: list[str]) -> None:
    side = play.real(python)
    with tempfile.TemporaryDirectory() as top:
        asked = side.start(Path(top), "-c", "import metaflow; print(metaflow.__version__)")
        version = asked.stdout.split()[-1]
        known: dict[str, Any] = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
        known = known.get("cases", {}) if known.get("version") == version else {}

        def record(case: family.Case) -> tuple[str, Any]:
            mark = play.digest(case)
            before = known.get(case.name)
            if before and before["program"] == mark and not any(n in case.name for n in names):
                return case.name, before
            folder = Path(top) / case.name
            folder.mkdir()
            print(case.name, flush=True)
            return case.name, {"program": mark, "seen": play.play(side, case, folder)}

        with ThreadPoolExecutor(3) as pool:
            made = dict(sorted(pool.map(record, family.cases())))
        RECORDED.with_name("s3.txt").write_text(s3_tools.record(python, Path(top)))
    RECORDED.write_text(_text(version, made))


def _text(version: str, made: dict[str, Any]) -> str:
    """One line for each case, so that a diff shows which ones changed."""
    lines = [f"{json.dumps(k)}: {json.dumps(v, sort_keys=True)}" for k, v in made.items()]
    return f'{{"version": "{version}", "cases": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).absolute()), sys.argv[2:])
