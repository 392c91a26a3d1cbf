"""The commands of docs/slurm.md, typed as they stand there, on a real Slurm."""

from __future__ import annotations

import sys

from slurm_cluster import Project
from typed_page import type_page


def test_typed(project: Project) -> None:
    said = type_page("docs/slurm.md", __file__, project, {"store": str(project.share)},
                     partition="main", python=sys.executable, poll=0.1)  # fmt: skip
    assert "typed" in said and "Slurm would take a job" in said
    assert list((project.folder.parent / "exported").rglob("*.sh"))
