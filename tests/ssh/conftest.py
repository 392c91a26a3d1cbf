"""Hosts with a real sshd for all tests of this folder, and a project that uses them."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator

import pytest
from ssh_hosts import Lab, all_hosts, lab  # noqa: F401
from ssh_project import Project


@pytest.fixture
def project(tmp_path: Path, lab: Lab) -> Iterator[Project]:  # noqa: F811
    mine = Project(tmp_path / "project", lab)
    yield mine
    mine.close()
