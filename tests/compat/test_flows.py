"""The family of flow programs (tests/compat/flows) on Stoker, compared with records of real
Metaflow."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from compat_tools import metaflow_python
from front_tools import PACKAGE, ROOT, engine, needs_engine

sys.path.insert(0, str(Path(__file__).parent / "flows"))

import family
import play

DATA = ROOT / "tests" / "data" / "metaflow"
RECORDED = json.loads((DATA / "recorded.json").read_text())["cases"]
BETTERMENTS = json.loads((DATA / "betterments.json").read_text())
CASES = {one.name: one for one in family.cases()}
PLAYED: set[str] = set()
NEEDED: set[str] = set()  # the betterments' reasons
LIVE = ("plain-foreach", "catch-branch", "resume_join-nested_foreach", "tags-linear")

quick = [name for name, one in CASES.items() if one.quick]
rest = [name for name, one in CASES.items() if not one.quick]


def on_purpose(name: str, difference: str) -> bool:
    """Whether tests/data/metaflow lists it as a deliberate improvement, with its reason."""
    found = [
        one["why"]
        for one in BETTERMENTS
        if re.search(one["cases"], name) and re.search(one["difference"], difference)
    ]
    NEEDED.update(found)
    return bool(found)


def compare(name: str, ours: dict[str, Any]) -> None:
    """Equal to the record, except for deliberate improvements."""
    theirs = json.loads(json.dumps(RECORDED[name]["seen"]))
    play.comparable(ours, theirs)
    left = [one for one in play.differences(ours, theirs) if not on_purpose(name, one)]
    assert not left, f"{name}: ours | theirs\n" + "\n".join(left)
    PLAYED.add(name)


@needs_engine
@pytest.mark.parametrize("name", quick)
def test_flow(tmp_path: Path, name: str) -> None:
    side = play.stoker(str(engine()), PACKAGE)
    compare(name, play.play(side, CASES[name], tmp_path))


@needs_engine
@pytest.mark.slow
@pytest.mark.parametrize("name", rest)
def test_flow_of_the_rest(tmp_path: Path, name: str) -> None:
    test_flow(tmp_path, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", LIVE)
def test_the_recording_is_true(tmp_path: Path, name: str) -> None:
    """Real Metaflow does what the record says."""
    seen = play.play(play.real(metaflow_python()), CASES[name], tmp_path)
    recorded = json.loads(json.dumps(RECORDED[name]["seen"]))
    play.comparable(seen, recorded)
    assert play.differences(seen, recorded) == []


def test_every_program_is_recorded() -> None:
    assert set(RECORDED) == set(CASES)
    stale = [n for n, one in CASES.items() if RECORDED[n]["program"] != play.digest(one)]
    assert not stale, f"`make record-metaflow` records these again: {stale}"


def test_every_betterment_is_needed() -> None:
    """Each of which all programs have been played: with the slow ones all, else those of the quick ones."""
    meant = [(b["why"], {n for n in CASES if re.search(b["cases"], n)}) for b in BETTERMENTS]
    assert not [why for why, names in meant if not names]
    unused = [why for why, names in meant if names <= PLAYED and why not in NEEDED]
    assert not unused, f"no longer a difference: remove these from betterments.json: {unused}"
