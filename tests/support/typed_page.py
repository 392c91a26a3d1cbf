"""The commands that a page shows for machines elsewhere, typed as they stand there."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any, Protocol

import yaml
from blocks import Block, blocks_of
from waiting import wait_for

QUICK = {"a": {"run": "echo typed"}}
LONG = {"a": {"run": "echo begun; sleep 2"}}  # sleeps: the engine is killed, the step goes on
ENDLESS = {"a": {"run": "echo begun; exec sleep 1000"}}


class Project(Protocol):
    folder: Path

    def begin(self, *words: str) -> subprocess.Popen[str]: ...
    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]: ...


def typed_blocks(page: str, test: str) -> list[Block]:
    """The blocks that the page leaves to this test."""
    own = "tests/" + test.rpartition("/tests/")[2]
    found = [b for b in blocks_of(page) if b.kind == "typed" and b.mark.endswith(f" {own}")]
    assert found, f"{page} leaves nothing to {own}"
    return found


def stack_of(page: str, values: dict[str, Any], **options: Any) -> tuple[str, dict[str, Any]]:
    """The first stack that the page shows, with the test's values in the place of the page's."""
    text = next(b.text for b in blocks_of(page) if b.name == "stoker.yaml")
    ((name, shown),) = yaml.safe_load(text)["stacks"].items()
    assert set(values) <= set(shown), f"{page} shows no {set(values) - set(shown)}"
    shown |= values
    if options or "options" in shown:
        shown["options"] = {**shown.get("options", {}), **options}
    return name, shown


def _begin(project: Project, name: str, steps: dict[str, Any]) -> subprocess.Popen[str]:
    """A run of p.yaml whose step runs there."""
    (project.folder / "p.yaml").write_text(json.dumps({"stoker": 1, "name": "p", "steps": steps}))
    before = len(_runs(project))
    engine = project.begin("run", "--no-cache", "--with", name, "p.yaml")
    wait_for(lambda: len(_runs(project)) > before and _is_running(project))
    return engine


def _runs(project: Project) -> list[Any]:
    runs: list[Any] = json.loads(project("runs", "--json").stdout or "[]")
    return runs


def _is_running(project: Project) -> bool:
    shown = project("show", "latest", "--json").stdout
    return bool(shown) and json.loads(shown)["steps"]["a"]["status"] == "running"


def type_page(
    page: str, test: str, project: Project, values: dict[str, Any], **options: Any
) -> str:
    """Writes the page's stack with the test's values, and types each line of its blocks.

    Before `resume` the engine of a run is killed, before `cancel` a run has begun that wouldn't
    end. Each command must succeed. Returns what they printed.
    """
    name, stack = stack_of(page, values, **options)
    (project.folder / "stoker.yaml").write_text(json.dumps({"stacks": {name: stack}}))
    (project.folder / "p.yaml").write_text(json.dumps({"stoker": 1, "name": "p", "steps": QUICK}))
    said = ""
    for line in (line for block in typed_blocks(page, test) for line in block.commands):
        here = {"RUN": "latest", "FOLDER": f"{project.folder.parent}/exported"}
        program, *words = [here.get(w, w) for w in shlex.split(line, comments=True)]
        assert program == "stoker", line
        engine = None
        if words[0] == "resume":
            engine = _begin(project, name, LONG)
            engine.send_signal(signal.SIGKILL)
            engine.communicate(timeout=60)
        elif words[0] == "cancel":
            engine = _begin(project, name, ENDLESS)
        done = project(*words)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        said += done.stdout + done.stderr
        if engine is not None:
            engine.communicate(timeout=100)
            assert engine.returncode != 0, line
    return said
