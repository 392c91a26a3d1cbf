from __future__ import annotations

from pathlib import Path

import pytest
from crossing_tools import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = tmp_path / "project"
    folder.mkdir()
    return Place(folder)
