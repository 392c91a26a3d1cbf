"""A real Slurm for all tests of this folder, and a project that uses it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Iterator

import pytest
from front_tools import cannot
from slurm_cluster import Cluster, Project, lacking


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    if lacking():
        cannot(lacking())
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # pytest's own are root's alone
    folder.chmod(0o755)
    try:
        cluster = Cluster(folder)
        yield cluster
        cluster.close()
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def project(tmp_path: Path, slurm: Cluster) -> Iterator[Project]:
    (folder := tmp_path / "project").mkdir()
    mine = Project(folder, slurm, tmp_path / "share")
    yield mine
    mine.close()
    slurm.clear()
