"""Each test gets its own terminal, and receivers on the loopback interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import PYTHON, Cli
from receivers import Receiver


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    terminal = Cli(tmp_path)
    for name in list(terminal.env):
        if name.startswith(("MLFLOW_", "WANDB_", "OTEL_", "OPENLINEAGE_")):
            del terminal.env[name]
    terminal.env["STOKER_PYTHON"] = PYTHON  # which has the trackers
    yield terminal
    terminal.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.hold.set()
    made.server.shutdown()
    made.server.server_close()
