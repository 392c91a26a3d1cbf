"""Jobs that the controller has forgotten: with an accounting database Stoker learns how they ended,
without one they are lost, and begin again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from front_tools import cannot
from slurm_cluster import ACCOUNTING, SYSTEM, Cluster, Project, lacking
from waiting import wait_for


@pytest.fixture(params=[False, True], ids=["absent", "present"])
def forgetful(request: pytest.FixtureRequest) -> Iterator[tuple[Cluster, bool]]:
    """A Slurm whose controller forgets jobs soon, with slurmdbd or without."""
    has = bool(request.param)
    missing = [name for name in ACCOUNTING if shutil.which(name, path=f"{SYSTEM}:/usr/libexec")]
    if lacking() or (has and len(missing) < len(ACCOUNTING)):
        cannot(lacking() or "slurmdbd and mariadb-server are not installed (tools/debian-test-all.txt)")  # fmt: skip
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    folder.chmod(0o755)
    try:
        cluster = Cluster(folder, more="MinJobAge=2\n", has_accounting=has)
        yield cluster, has
        cluster.close()
    finally:
        shutil.rmtree(folder)


@pytest.mark.slow
def test_forgotten(forgetful: tuple[Cluster, bool], tmp_path: Path) -> None:
    """An administrator cancels the job while no engine is there, and the controller forgets it."""
    cluster, has_accounting = forgetful
    (folder := tmp_path / "project").mkdir()
    project = Project(folder, cluster, tmp_path / "share")
    run = f"[ $STOKER_ATTEMPT -gt 1 ] || {{ trap '' TERM; touch {tmp_path}/begun; sleep 300; }}"
    engine = project.begin("run", project.document({"a": {"run": run, "grace": 60}}), "--with", "lab")  # fmt: skip
    wait_for((tmp_path / "begun").exists, why=cluster.jobs)
    engine.kill()
    engine.communicate(timeout=60)
    job = cluster.wait_for_job("-a-0-1", "RUNNING")
    cluster.ask("scancel", job["id"])
    wait_for(lambda: not cluster.jobs("-a-0-1"), why=cluster.jobs, timeout_s=150)
    assert not list(project.share.glob("runs/*/a/0/1/end.json")), "its agent told the end"
    resumed = project("resume", "latest", "--with", "lab")
    told = project.show()["steps"]["a"]
    if has_accounting:
        assert told["error"]["class"] == "cancelled", told
    else:
        assert resumed.returncode == 0 and told["attempts"] == 2, resumed.stderr
