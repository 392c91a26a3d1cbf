"""Each open and read of an agent's container fails once: saved data stays, and a second try
works."""

from __future__ import annotations

import json
import re

from conftest import Drive
from waiting import wait_for

POINTS = ("sys.open", "sys.read", "sys.dir.open", "sys.dir.read")
WAYS = {"sys.open": "emfile", "sys.read": "eio", "sys.dir.open": "eacces", "sys.dir.read": "eio"}
SAVES = """
mkdir -p $STOKER_CHECKPOINT_DIR
echo 1 > $STOKER_CHECKPOINT_DIR/.a && mv $STOKER_CHECKPOINT_DIR/.a $STOKER_CHECKPOINT_DIR/a
until [ -e "$GATE" ]; do sleep 0.05; done
echo 5 > $STOKER_OUTPUT/x
"""


def saved(drive: Drive, task: int) -> list[str]:
    listed = drive.key(task=task).parent / "checkpoints.json"
    if not listed.exists():
        return []
    found = json.loads(listed.read_text())
    for about in found.values():  # and what it names is there
        digest = about["digest"]
        there = listed.parent / "checkpoints" / digest / digest[:2]
        assert (there / digest[2:]).exists() or (there / f"{digest[2:]}.tree").exists(), found
    return list(found)


def test_each_place_fails_once(drive: Drive) -> None:
    gate = drive.share.parent / "gate"
    logs: list[str] = []
    forget = drive.cluster._forget

    def keep_log(name: str) -> None:
        logs.append((drive.cluster.folder / f"{name}.log").read_text())
        forget(name)

    drive.cluster._forget = keep_log  # type: ignore[method-assign]

    def run(task: int, failpoints: str, attempt: int = 1) -> dict:
        drive.cluster.env |= {"STOKER_FAILPOINTS": failpoints, "STOKER_SHARE_WAIT": "6"}
        job = drive.task(
            SAVES.replace("$GATE", str(gate)), task=task, id=task, attempt=attempt, outputs=["x"]
        )
        process = drive.begin(job, env={"STOKER_SHARE_WAIT": "15"})
        gate.touch()
        return drive.finish(process)[-1]

    end = run(0, ",".join(f"{point}:1+:log" for point in POINTS))
    assert end["ok"], end
    assert saved(drive, 0) == ["a"]
    wait_for(lambda: logs, why="its job wasn't forgotten")
    names = sorted(set(re.findall(r"^failpoint (\S+) \d+$", logs[0], re.M)))
    places = [n for n in names if re.search(r"/(agent|share)|sys.dir", n)]
    assert len(places) >= 5, names
    for i, name in enumerate(places, 1):
        end = run(i, f"{name}:1:{WAYS[name.split('/')[0]]}")
        assert end["ok"] or len(end["text"]) > 20, (name, end)
        if end["ok"]:
            assert saved(drive, i) == ["a"], (name, end)
        else:
            again = run(i, "", attempt=2)
            assert again["ok"] and saved(drive, i) == ["a"], (name, end, again)
    # However often the folder can't be read from some moment on, what is in the share stays.
    n = len(places) + 1
    for first in (2, 4):
        before = run(n, "")
        assert before["ok"] and saved(drive, n) == ["a"]
        run(n, f"sys.dir.open:{first}+:eio", attempt=2)
        assert saved(drive, n) == ["a"]
        n += 1
    print(f"{len(places)} places")
