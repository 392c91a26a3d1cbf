"""Each test gets its own folder and store; `ui` starts a server of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cli_tools import Cli
from ui_server import Ui


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    terminal = Cli(tmp_path)
    yield terminal
    terminal.close()


@pytest.fixture
def ui(cli: Cli) -> Callable[..., Ui]:
    return lambda *options, **env: Ui(cli, *options, **env)
