"""`stoker store`: its path, its check, and freeing space."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 120
STOKER = find_binary()
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
    (project / "pyproject.toml").touch()
    assert stoker(below, "store", "path").stdout == f"{project}/.stoker\n"
    assert "format 4" in answer(below, "store", "path")["about"]


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


def test_looking_into_the_store_of_another_folder(project: Path) -> None:
    """--store takes a store of this machine as it takes one that machines share."""
    elsewhere = project / "elsewhere"
    elsewhere.mkdir()
    (run,) = answer(elsewhere, "runs", "--store", "../.stoker")
    for named in (f"{project}/.stoker", str(project), ".."):
        assert answer(elsewhere, "show", "--store", named)["run"] == run["run"]
    assert stoker(elsewhere, "logs", "-f", "--store", "../.stoker").returncode == 0
    assert stoker(elsewhere, "metrics", "--store", "../.stoker").returncode == 0
    none = stoker(elsewhere, "runs", "--store", "../nothing")
    assert none.returncode == 2 and "'../nothing' is neither a store" in none.stderr


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
        f"store {project}/.stoker was written by a newer Stoker (its format is 9, this Stoker's is 4)"
        in done.stderr
    )
    assert "upgrade Stoker" in done.stderr


@pytest.mark.parametrize("words", [["rm"], ["store", "rm"]])
def test_rm(project: Path, words: list[str]) -> None:
    """The named run is removed with the artifacts that only it uses; those that a later run took
    from the cache stay."""
    (first,) = (r["run"] for r in answer(project, "runs"))
    assert stoker(project, "run", "pipeline.yaml").returncode == 0
    changed = (project / "pipeline.yaml").read_text().replace("echo used", "echo changed")
    (project / "other.yaml").write_text(changed)
    assert stoker(project, "run", "other.yaml").returncode == 0
    last = answer(project, "runs")[0]["run"]
    assert len(artifacts(project)) == 3
    for wrong, part in (
        (words, "stoker rm RUN"),
        ([*words, first, "nothing"], "no run 'nothing'"),
        (["store", "gc", first], "one argument too many"),
    ):
        done = stoker(project, *wrong)
        assert done.returncode == 2 and part in done.stderr, done.stderr
    assert answer(project, *words, "--dry-run", last)["artifacts_removed"] == 1
    assert len(artifacts(project)) == 3 and len(answer(project, "runs")) == 3
    assert answer(project, *words, first, last)["runs_removed"] == 2
    assert len(artifacts(project)) == 2 and len(answer(project, "runs")) == 1
    assert not (project / ".stoker/runs" / first).exists()
    assert stoker(project, "store", "verify").returncode == 0
    steps = answer(project, "show", "latest")["steps"]
    assert all(Path(s["outputs"][k]["path"]).exists() for s in steps.values() for k in s["outputs"])
    assert stoker(project, "run", "pipeline.yaml").returncode == 0
    assert {s["status"] for s in answer(project, "show", "latest")["steps"].values()} == {"cached"}


def test_metadata(project: Path) -> None:
    assert answer(project, "metadata", "latest") == {}
    assert answer(project, "metadata", "latest", '{"a": 1, "b": [2]}') == {"a": 1, "b": [2]}
    assert answer(project, "metadata", "latest", '{"a": null}') == {"a": None, "b": [2]}
    assert answer(project, "metadata", "latest/make", '{"of": "make"}') == {"of": "make"}
    assert answer(project, "metadata", "latest/make.data", '{"rows": 1}') == {"rows": 1}
    shown = answer(project, "show", "latest")
    assert shown["metadata"] == {"a": None, "b": [2]} and shown["status"] == "succeeded"
    assert shown["steps"]["make"]["metadata"] == {"of": "make"}
    assert shown["steps"]["make"]["outputs"]["data"]["metadata"] == {"rows": 1}
    assert shown["steps"]["use"]["metadata"] == {}
    for wrong in (["latest/mike"], ["latest/make.date"], ["latest", "[1]"], ["latest", "{"], []):
        done = stoker(project, "metadata", *wrong)
        assert done.returncode == 2 and done.stderr.startswith("stoker: "), done.stderr


def test_metadata_and_resume(tmp_path: Path) -> None:
    """Metadata of a failed run stays, and doesn't prevent resuming it."""
    text = "stoker: 1\nname: p\nsteps:\n  a: {run: 'true'}\n  b: {run: test -e ok, after: [a]}\n"
    (tmp_path / "p.yaml").write_text(text)
    assert stoker(tmp_path, "run", "p.yaml").returncode == 1
    for target in ("latest", "latest/a", "latest/b"):
        assert answer(tmp_path, "metadata", target, '{"x": 1}') == {"x": 1}
    assert answer(tmp_path, "show", "latest")["status"] == "failed"
    (tmp_path / "ok").touch()
    assert stoker(tmp_path, "resume", "latest").returncode == 0
    shown = answer(tmp_path, "show", "latest")
    assert shown["status"] == "succeeded" and shown["metadata"] == {"x": 1}
    assert [s["metadata"] for s in shown["steps"].values()] == [{"x": 1}, {"x": 1}]
    assert shown["steps"]["a"]["attempts"] == 1


def test_a_live_run_is_left_alone(tmp_path: Path) -> None:
    text = "stoker: 1\nname: p\nsteps:\n  a: {run: touch up; while ! test -e go; do sleep 0.01; done}\n"
    (tmp_path / "p.yaml").write_text(text)
    engine = subprocess.Popen([STOKER, "run", "p.yaml"], cwd=tmp_path, stderr=subprocess.DEVNULL)
    try:
        while not (tmp_path / "up").exists():
            assert engine.poll() is None
        for command in (["store", "rm", "latest"], ["metadata", "latest", "{}"]):
            done = stoker(tmp_path, *command)
            assert done.returncode == 3 and "running" in done.stderr, done.stderr
    finally:
        (tmp_path / "go").touch()
    assert engine.wait(WAIT_S) == 0
    assert stoker(tmp_path, "metadata", "latest", '{"a": 1}').returncode == 0
    assert stoker(tmp_path, "store", "rm", "latest").returncode == 0
    assert answer(tmp_path, "runs") == []
