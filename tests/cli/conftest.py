"""Each test gets its own folder, store, lease folder and environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import Cli


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    terminal = Cli(tmp_path)
    yield terminal
    terminal.close()
