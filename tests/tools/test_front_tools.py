"""What tests/support does where a package or a reader that a test needs isn't there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from front_tools import needed
from waiting import held


def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert needed("os.path") is os.path
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="nowhere isn't installed"):
        needed("nowhere")
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.fail.Exception, match="nowhere isn't installed"):
        needed("nowhere")


def test_who_waits_for_a_reader_that_has_ended_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ended = subprocess.Popen(["true"])
    ended.wait()
    with pytest.raises(AssertionError, match="its reader has ended"):
        held(tmp_path / "pipe", ended)
