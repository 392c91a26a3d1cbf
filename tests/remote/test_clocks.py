"""The clocks of the machines differ by two days: durations and the order of events don't change."""

# ruff: noqa: F401, F811 - the fixture of test_engine
from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from test_engine import Project, project

DAYS = 2 * 86400
LONG_MS = 3600_000  # no run here takes an hour, however busy the machine is
SHIFT = Path(__file__).resolve().parents[1] / "cli" / "shift.c"


@pytest.mark.parametrize("seconds", [DAYS, -DAYS])
def test_a_node_whose_clock_is_another(project: Project, tmp_path: Path, seconds: int) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("takes a C compiler")
    library, told = tmp_path / "shift.so", tmp_path / "seconds"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SHIFT], check=True)
    told.write_bytes(struct.pack("q", seconds))
    project.cluster.env |= {"LD_PRELOAD": str(library), "SHIFT_FILE": str(told)}
    here = {"backend": "local"}
    steps = {
        "before": {"run": "date +%s > $STOKER_OUTPUT/t; sleep 0.1", "outputs": ["t"], **here},
        "there": {
            "run": "date +%s > $STOKER_OUTPUT/t; sleep 0.1",
            "outputs": ["t"],
            "after": ["before"],
        },
        "after": {
            "run": "cat $STOKER_INPUT_a $STOKER_INPUT_b; sleep 0.1",
            "inputs": {"a": {"from": "before.t"}, "b": {"from": "there.t"}},
            **here,
        },
    }
    done = project("run", project.document(steps), "--with", "prod")
    assert done.returncode == 0, done.stderr
    before, there = map(int, project("logs", "latest/after").stdout.split()[-2:])
    assert abs(there - before - seconds) < LONG_MS / 1000  # it did see another time
    shown = project.show()
    took = {name: s["ended_ms"] - s["started_ms"] for name, s in shown["steps"].items()}
    took["the run"] = shown["ended_ms"] - shown["created_ms"]
    assert all(0 < ms < LONG_MS for ms in took.values()), took
    starts = [shown["steps"][name]["started_ms"] for name in ("before", "there", "after")]
    assert starts == sorted(starts)
    (end,) = (tmp_path / "share").glob("runs/*/there/0/1/end.json")
    said = json.loads(end.read_text())
    assert 0 < said["ended_ms"] - said["started_ms"] < LONG_MS
