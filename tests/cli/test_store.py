"""`stoker store`: its path, checking it, freeing its space."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STOKER = ROOT / ".venv" / "bin" / "stoker"
PIPELINE = """\
stoker: 1
name: two
steps:
  make:
    run: printf 'made by make' > "$STOKER_OUTPUT/data"
    outputs: [data]
  use:
    run: cp "$STOKER_INPUT_data" "$STOKER_OUTPUT/copy" && echo used >> "$STOKER_OUTPUT/copy"
    inputs: {data: {from: make.data}}
    outputs: [copy]
"""


def stoker(cwd: Path, *args: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if k != "STOKER_STORE"}
    clean |= {"STOKER_ACCEL": "none", "STOKER_LEASE_DIR": str(cwd)}
    return subprocess.run([STOKER, *args], cwd=cwd, env=clean, capture_output=True, text=True)


def answer(cwd: Path, *args: str, status: int = 0) -> Any:
    done = stoker(cwd, *args, "--json")
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    done = stoker(tmp_path, "run", "pipeline.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path


def artifacts(project: Path) -> list[Path]:
    return sorted(p for p in (project / ".stoker" / "artifacts").glob("*/*"))


def test_path(project: Path) -> None:
    below = project / "a" / "b"
    below.mkdir(parents=True)
    assert stoker(below, "store", "path").stdout == f"{project}/.stoker\n"
    assert "format 1" in answer(below, "store", "path")["about"]


def test_usage(project: Path) -> None:
    for args in (
        ["store"],
        ["store", "burn"],
        ["store", "gc", "x"],
        ["store", "gc", "--keep", "soon"],
    ):
        done = stoker(project, *args)
        assert done.returncode == 2, args
        assert done.stderr.strip(), args
    outside = stoker(Path("/proc"), "store", "path")
    assert outside.returncode == 2 and "STOKER_STORE" in outside.stderr


def test_verify_finds_and_repairs(project: Path) -> None:
    good = answer(project, "store", "verify")
    assert good["checked"] == 2 and good["bad"] == []
    changed, gone = artifacts(project)
    changed.chmod(0o644)
    changed.write_text("x" * changed.stat().st_size)
    gone.unlink()
    bad = answer(project, "store", "verify", status=3)["bad"]
    assert {b["digest"]: b["what"].split(":")[0] for b in bad} == {
        changed.parent.name + changed.name: "changed",
        gone.parent.name + gone.name: "missing",
    }
    assert answer(project, "store", "verify", "--repair", status=3)["repaired"] is True
    assert answer(project, "store", "verify") | {"checked": 0} == good | {"checked": 0, "bytes": 0}
    again = stoker(project, "run", "pipeline.yaml")  # what is missing is made again
    assert again.returncode == 0, again.stderr
    assert answer(project, "store", "verify") == good


def test_gc_keeps_what_is_named(project: Path) -> None:
    (project / "pipeline.yaml").write_text(PIPELINE.replace("made by make", "made anew"))
    assert stoker(project, "run", "pipeline.yaml").returncode == 0
    assert len(artifacts(project)) == 4
    default = answer(project, "store", "gc")
    assert default["runs_removed"] == 0 and default["artifacts_removed"] == 0
    args = ["store", "gc", "--keep", "0", "--keep-runs", "1"]
    dry = answer(project, *args, "--dry-run")
    assert dry["runs_removed"] == 1 and dry["artifacts_removed"] == 2 and dry["bytes_freed"] > 0
    assert len(artifacts(project)) == 4
    assert answer(project, *args) == dry | {"dry_run": False}
    assert len(artifacts(project)) == 2
    assert len(answer(project, "runs")) == 1
    assert answer(project, "store", "verify")["bad"] == []


def test_a_store_from_the_future(project: Path) -> None:
    with sqlite3.connect(project / ".stoker" / "store.db") as db:
        db.execute("PRAGMA user_version = 9")
    done = stoker(project, "store", "verify")
    assert done.returncode == 3
    assert (
        f"store {project}/.stoker was written by a newer Stoker (format 9, this one knows 1)"
        in done.stderr
    )
    assert "upgrade Stoker" in done.stderr
