"""Programs for ZenML (tests/compat/zenml) on Stoker, compared with what real ZenML told."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from compat_tools import end_servers
from front_tools import ROOT, WAIT_S, engine, environment, needs_engine

PROGRAMS = Path(__file__).parent / "zenml"
DATA = ROOT / "tests" / "data" / "zenml"
RECORDED = json.loads((DATA / "recorded.json").read_text())["programs"]
DIFFERENCES = json.loads((DATA / "differences.json").read_text())
NAMES = sorted(p.stem for p in PROGRAMS.glob("*.py") if p.stem not in ("facts", "asked"))


def digest(name: str) -> str:
    return hashlib.sha256((PROGRAMS / f"{name}.py").read_bytes()).hexdigest()


def facts_of(text: str) -> dict[str, str]:
    lines = (line[5:] for line in text.splitlines() if line.startswith("FACT "))
    return dict(line.split(" = ", 1) for line in lines)


def same(theirs: str, ours: str) -> bool:
    """Equal; of exceptions, ours is one of theirs."""
    if theirs.startswith("raises ") and ours.startswith("raises "):
        return theirs[7:].partition("<")[0] in ours[7:].split("<")
    return theirs == ours


@needs_engine
@pytest.mark.parametrize("name", NAMES)
def test_it_tells_what_zenml_tells(tmp_path: Path, name: str) -> None:
    for file in PROGRAMS.glob("*.py"):
        (tmp_path / file.name).write_text(file.read_text())
    try:
        done = subprocess.run(
            [str(engine()), "compat", "--", sys.executable, f"{name}.py"],
            cwd=tmp_path,
            env=environment(tmp_path / ".stoker", XDG_CONFIG_HOME=str(tmp_path / "config")),
            capture_output=True,
            text=True,
            timeout=WAIT_S * (3 if name == "whole_deploy" else 1),
        )
    finally:
        left = end_servers(tmp_path / ".stoker")
    assert not left
    assert done.returncode == 0, done.stderr
    ours, theirs = facts_of(done.stdout), RECORDED[name]["facts"]
    wrong = {k for k, v in theirs.items() if not same(v, ours.get(k, "nothing"))}
    told = "\n".join(f"{k}: {theirs[k]} | {ours.get(k)}" for k in sorted(wrong))
    assert wrong == set(DIFFERENCES.get(name, {})), f"theirs | ours\n{told}"


@needs_engine
def test_a_step_finds_what_its_own_run_has_made(tmp_path: Path) -> None:
    """Also while the program that began the run hasn't told the model's version of it."""
    known = '    fact("of this run"'
    never = "    from stoker._zen.models import ModelVersionResponse as Version\n"
    never += "    Version.link_run = lambda *_: None\n"
    text = (PROGRAMS / "lazy.py").read_text()
    (tmp_path / "lazy.py").write_text(text.replace(known, never + known))
    (tmp_path / "facts.py").write_text((PROGRAMS / "facts.py").read_text())
    done = subprocess.run(
        [str(engine()), "compat", "--", sys.executable, "lazy.py"],
        cwd=tmp_path,
        env=environment(tmp_path / ".stoker", XDG_CONFIG_HOME=str(tmp_path / "config")),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert facts_of(done.stdout) == RECORDED["lazy"]["facts"], done.stderr


def test_values_of_large_libraries_come_back_as_in_zenml() -> None:
    """Recorded on both sides by hand: CI hasn't polars, XGBoost, LightGBM and datasets."""
    told = json.loads((DATA / "large.json").read_text())
    program = Path(__file__).parent / "zenml_large" / "libraries.py"
    assert told["program"] == hashlib.sha256(program.read_bytes()).hexdigest(), "record it again"
    assert told["theirs"].keys() == told["ours"].keys()
    for name, value in told["theirs"].items():
        assert same(value, told["ours"][name]), name


def test_every_program_is_recorded() -> None:
    assert set(RECORDED) == set(NAMES)
    stale = [name for name in NAMES if RECORDED[name]["program"] != digest(name)]
    assert not stale, f"`make record-zenml` records these again: {stale}"


def test_every_difference_has_a_reason() -> None:
    for name, some in DIFFERENCES.items():
        assert all(len(why) > 20 for why in some.values())
        assert some.keys() <= RECORDED[name]["facts"].keys()
