"""Systems other than Linux are refused in a sentence that names the system and a way out."""

from __future__ import annotations

import sys

import pytest

from stoker._base import binary
from stoker._base.errors import EngineError


@pytest.mark.parametrize(
    ("platform", "words"),
    [
        ("darwin", ("macOS", "container")),
        ("win32", ("Windows", "WSL2")),
        ("freebsd14", ("freebsd14",)),
    ],
)
def test_refused(platform: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(EngineError) as caught:
        binary.find()
    assert "Linux only" in str(caught.value)
    assert all(word in str(caught.value) for word in words)


def test_linux_is_not_refused() -> None:
    assert binary.refusal("linux") is None
