"""The family of flow programs (tests/compat/flows) on Stoker, against what real Metaflow did with them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from compat_tools import metaflow_python
from front_tools import PACKAGE, ROOT, engine, needs_engine

sys.path.insert(0, str(Path(__file__).parent / "flows"))

import family  # noqa: E402
import play  # noqa: E402
from betterments import differs_on_purpose  # noqa: E402

RECORDED = json.loads((ROOT / "tests" / "data" / "metaflow" / "recorded.json").read_text())["cases"]
CASES = {one.name: one for one in family.cases()}
LIVE = ("plain-foreach", "catch-branch", "resume_join-nested_foreach", "tags-linear")

quick = [name for name, one in CASES.items() if one.quick]
rest = [name for name, one in CASES.items() if not one.quick]


def compare(name: str, ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Equal, but for what is better on purpose."""
    found = play.differences(ours, theirs)
    left = [one for one in found if not differs_on_purpose(name, one)]
    assert not left, f"{name}: ours | theirs\n" + "\n".join(left)


@needs_engine
@pytest.mark.parametrize("name", quick)
def test_flow(tmp_path: Path, name: str) -> None:
    side = play.stoker(str(engine()), PACKAGE)
    compare(name, play.play(side, CASES[name], tmp_path), RECORDED[name]["seen"])


@needs_engine
@pytest.mark.slow
@pytest.mark.parametrize("name", rest)
def test_flow_of_the_rest(tmp_path: Path, name: str) -> None:
    test_flow(tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIVE)
def test_the_recording_is_true(tmp_path: Path, name: str) -> None:
    """Real Metaflow does today what was recorded."""
    seen = play.play(play.real(metaflow_python()), CASES[name], tmp_path)
    assert play.differences(seen, RECORDED[name]["seen"]) == []


def test_every_program_is_recorded() -> None:
    assert set(RECORDED) == set(CASES)
    stale = [n for n, one in CASES.items() if RECORDED[n]["program"] != play.digest(one)]
    assert not stale, f"`make record-metaflow` records these again: {stale}"
