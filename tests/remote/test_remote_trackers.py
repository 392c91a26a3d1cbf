"""What a step on another machine logs and makes: at its end trackers and the lineage have it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from cluster import Cluster
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from test_engine import Project
from waiting import wait_for


@pytest.mark.parametrize("ranks", [1, 2])
def test_metrics_and_lineage(tmp_path: Path, cluster: Cluster, ranks: int) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    project = Project(folder, cluster)
    project.env |= {"STOKER_TRACKERS": "tensorboard", "STOKER_OPENLINEAGE": "events.jsonl"}
    project.env["STOKER_PYTHON"] = sys.executable
    line = '\'{"step":3,"loss":0.5}\''
    log = f"echo {line} >> $STOKER_METRICS"
    if ranks > 1:  # rank 0 has the task's file, the others one of their own
        log = f"test ${{RANK:-0}} != 0 || {log}"
    step = {"run": f"{log}; echo 5 > $STOKER_OUTPUT/x", "outputs": ["x"]}
    if ranks > 1:
        step["gang"] = {"ranks": ranks}
    done = project("run", "--with", "prod", project.document({"train": step}))
    assert done.returncode == 0 and "lacks" not in done.stderr, done.stderr
    run = project.show()["run"]

    def losses() -> list[tuple[int, float]]:
        many = EventMultiplexer().AddRunsFromDirectory(str(folder / ".stoker/tensorboard")).Reload()
        told = many.Runs().get(f"{run}/train", {}).get("scalars", [])
        return [(e.step, e.value) for e in many.Scalars(f"{run}/train", "loss")] if told else []

    wait_for(losses)  # on a busy machine trackers go on in the background
    assert losses() == [(3, 0.5)]
    found = [json.loads(text) for text in (folder / "events.jsonl").read_text().splitlines()]
    (end,) = (e for e in found if e["job"]["name"] == "p.train" and e["eventType"] == "COMPLETE")
    assert [o["name"] for o in end["outputs"]] == ["p.train.x"]
