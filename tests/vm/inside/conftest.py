"""These tests want a machine that is all theirs: tests/vm/vm.py makes one and says what to expect in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import Cli

WANT = os.environ.get("STOKER_VM_WANT")
collect_ignore_glob = [] if WANT else ["test_*.py"]


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    terminal = Cli(tmp_path)
    yield terminal
    terminal.close()


@pytest.fixture
def limited() -> bool:
    """Whether this situation has control groups; where not, the watchdog stands in."""
    return "not limited" not in str(WANT)
