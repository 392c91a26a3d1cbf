"""Options and stacks of machines over SSH, as files say them: needs no host."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from front_tools import ROOT
from stoker_binary import find_binary


def plan(folder: Path, stack: dict[str, object], options: dict[str, object]) -> str:
    """What `stoker plan` says of a step with these options."""
    (folder / "stoker.yaml").write_text(json.dumps({"stacks": {"lab": stack}}))
    step = {"run": "true", "backend": {"ssh": options}}
    (folder / "p.json").write_text(json.dumps({"stoker": 1, "name": "p", "steps": {"a": step}}))
    done = subprocess.run(
        [str(find_binary()), "plan", "--with", "lab", "p.json"],
        cwd=folder,
        env={**os.environ, "STOKER_ACCEL": "none"},
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def test_every_option_is_on_the_page() -> None:
    table = (ROOT / "src/tbl/ssh_options.def").read_text()
    rows = dict(re.findall(r"^X\((\w+), \w+, (\w+),", table, re.M))
    page = (ROOT / "docs/ssh.md").read_text()
    assert len(rows) > 10
    assert [n for n, how in rows.items() if how != "REFUSED" and f"`{n}`" not in page] == []


WRONG = [
    pytest.param({}, {"hots": "gpu1"}, "did you mean 'host'?", id="unknown option"),
    pytest.param({"hosts": []}, {}, "has no host in `hosts`", id="no hosts"),
    pytest.param({"hosts": ["a", "a"]}, {}, "'a'", id="a host twice"),
    pytest.param({"hosts": [7]}, {}, "must be a list of hosts", id="a number"),
    pytest.param({"image_map": {"a": "b"}}, {}, "no meaning for backend ssh", id="images"),
    pytest.param({}, {"host": "gpu9"}, "gpu9", id="another host"),
]


@pytest.mark.parametrize("stack, options, words", WRONG)
def test_wrong(
    tmp_path: Path, stack: dict[str, object], options: dict[str, object], words: str
) -> None:
    said = plan(tmp_path, {"backend": "ssh", "hosts": ["gpu1", "gpu2"], **stack}, options)
    assert words in said, said
