"""Stores of an older Stoker (tests/data/stores) can be listed, used and continued."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import tarfile
from pathlib import Path

import pytest
from cli_tools import ROOT, Cli

STORES = ROOT / "tests/data/stores"


@pytest.fixture(params=[2, 3])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Cli:
    with tarfile.open(STORES / f"format-{request.param}.tgz") as tar:
        tar.extractall(tmp_path, filter="tar")
    return Cli(tmp_path)


def version(cli: Cli) -> int:
    with sqlite3.connect(cli.store / "store.db") as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def by_name(cli: Cli) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for run in json.loads(cli("runs", "--json").out):
        found.setdefault(run["pipeline"], []).append(run["status"])
    return found


def test_what_a_killed_engine_left_is_resumed(old: Cli) -> None:
    assert old("resume", "latest").code == 0
    assert by_name(old) == {"simple": ["succeeded"], "train": ["succeeded", "failed"]}
    assert Path(old.json("show", "latest")["steps"]["fit"]["outputs"]["model"]["path"]).exists()


def test_its_cache_and_its_logs_are_used(old: Cli) -> None:
    run = old("run", "q.yaml")
    assert run.code == 0
    assert run.statuses == {"prepare": "cached", "fit": "succeeded"}
    former = json.loads(old("runs", "--json").out)[2]["run"]
    assert "prepared" in old("logs", former, "prepare").out


def test_a_migration_that_was_killed_is_done_by_the_next(tmp_path: Path) -> None:
    with tarfile.open(STORES / "format-2.tgz") as tar:
        tar.extractall(tmp_path, filter="tar")
    cli = Cli(tmp_path)
    died = cli("run", "q.yaml", STOKER_FAILPOINTS="store.migrate.mid:1:kill")
    assert died.code == -signal.SIGKILL
    assert version(cli) == 2
    listed = subprocess.run([cli.binary, "runs"], cwd=cli.folder, env=cli.env, capture_output=True)
    assert listed.returncode != 0 and b"older format 2" in listed.stderr
    assert cli("run", "q.yaml").code == 0
    assert version(cli) > 2
