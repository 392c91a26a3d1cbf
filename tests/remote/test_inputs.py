"""Inputs of a step on another machine are the agent's own: what is done to them reaches neither the share nor another
task.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import Drive

WAYS = {
    "overwrites": "chmod u+w $F; echo y > $F",
    "appends": "chmod u+w $F; echo y >> $F",
    "edits": "sed -i s/x/y/ $F",
    "removes": "rm -f $F",
    "moves another there": "echo y > t; mv -f t $F",
}


def content(share: Path) -> dict[str, str]:
    return {
        str(p.relative_to(share)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted((share / "artifacts").rglob("*"))
        if p.is_file()
    }


def made(drive: Drive) -> dict[str, Any]:
    script = "echo xxx > $STOKER_OUTPUT/small; head -c 3000000 /dev/zero | tr '\\0' x > $STOKER_OUTPUT/large; mkdir $STOKER_OUTPUT/folder; echo xxx > $STOKER_OUTPUT/folder/a"
    end = drive.end(drive.task(script, "make", ["small", "large", "folder"]))
    assert end["ok"], end
    return json.loads((drive.dir("make") / "result.json").read_text())["outputs"]


def links(drive: Drive, step: str, outputs: dict[str, Any]) -> dict[str, Any]:
    """The task's inputs, as exec lays them out."""
    folder = drive.dir(step) / "in"
    folder.mkdir(parents=True)
    inputs = {}
    for name, one in outputs.items():
        path = drive.store / "artifacts" / one["digest"][:2] / one["digest"][2:]
        (folder / name).symlink_to(path)
        inputs[name] = {
            "digest": one["digest"],
            "path": str(path),
            "format": one.get("format", "file"),
        }
    return inputs


@pytest.mark.parametrize("way", WAYS)
def test_a_change_stays_with_its_task(drive: Drive, way: str) -> None:
    outputs = made(drive)
    was = content(drive.share)
    assert len(was) >= 3
    inputs = links(drive, "hurts", outputs)
    files = " ".join(f"$STOKER_TASK_DIR/in/{one}" for one in ("small", "large", "folder/a"))
    hurt = f"for F in {files}; do head -c 1 $F; {WAYS[way]}; done; true"
    end = drive.end(drive.task(hurt, "hurts", inputs=inputs))
    assert end["ok"], end
    assert (drive.dir("hurts") / "stdout.log").read_text() == "xxx"
    assert content(drive.share) == was, "the share has what it had"
    inputs = links(drive, "reads", outputs)
    look = f"for F in {files}; do head -c 3 $F; wc -c < $F; done"
    end = drive.end(drive.task(look, "reads", inputs=inputs))
    assert end["ok"], end
    assert (drive.dir("reads") / "stdout.log").read_text().split() == ["xxx4", "xxx3000000", "xxx4"]
