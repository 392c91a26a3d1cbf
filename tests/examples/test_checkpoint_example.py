"""examples/checkpoints: killed in three ways, it gives the same model as an undisturbed run, and
repeats nothing."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stoker_binary import find_binary
from waiting import WAIT_S, wait_for

ROOT = Path(__file__).resolve().parents[2]
STOKER = find_binary()


def begin(folder: Path, *command: str | Path, **env: str) -> subprocess.Popen[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("STOKER_")}
    kept |= {"STOKER_ACCEL": "none", "STOKER_BIN": str(STOKER), "EPOCHS": "24", **env}
    kept |= {"PYTHONPATH": str(ROOT / "python"), "STOKER_STORE": str(folder / ".stoker")}
    return subprocess.Popen(
        command, cwd=folder, env=kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def result(program: subprocess.Popen[str]) -> tuple[str, list[int]]:
    """The printed loss, and the epochs at which processes started."""
    out, err = program.communicate(timeout=WAIT_S)
    found = re.search(r"loss ([\d.]+), its processes began with epochs \[(.*)\]", out)
    assert found, out + err
    return found[1], [int(epoch) for epoch in found[2].split(",")]


def step_of(folder: Path, attempt: int, n_saved: int) -> int:
    """The pid of an attempt's process, once at least so many checkpoints have been saved."""
    saved = ".stoker/runs/*/train/0/checkpoints/*.[0-9][0-9][0-9][0-9][0-9][0-9]"
    wait_for(
        lambda: any(int(p.name[-6:]) >= n_saved for p in folder.glob(saved)),
        why=f"checkpoint {n_saved}",
    )
    pattern = f".stoker/runs/*/train/0/{attempt}/stdout.log"
    said = wait_for(
        lambda: [p.read_text() for p in folder.glob(pattern) if p.read_text()],
        why=f"attempt {attempt}",
    )
    return int(said[0].split()[1])


def test_the_same_model_whatever_happens(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    plain, disturbed = tmp_path / "plain", tmp_path / "disturbed"
    for folder in (plain, disturbed):
        shutil.copytree(ROOT / "examples" / "checkpoints", folder)
    loss, began = result(begin(plain, sys.executable, "train.py"))
    assert began == [0]

    program = begin(disturbed, sys.executable, "train.py", PAUSE_S="0.15")
    os.kill(step_of(disturbed, 1, 1), signal.SIGKILL)  # charged: its only retry
    os.kill(step_of(disturbed, 2, 2), signal.SIGTERM)  # a preemption: free
    engine = int(Path(step_folder(disturbed), "lock").read_text().split()[0])
    step_of(disturbed, 3, 4)  # the third is what it saved when it was told
    os.kill(engine, signal.SIGTERM)  # its machine is wanted back
    out, err = program.communicate(timeout=WAIT_S)
    assert "interrupted" in out + err

    resumed = begin(disturbed, STOKER, "resume", PAUSE_S="0")
    again, began = result(resumed)
    assert again == loss
    assert began == sorted(set(began)) and began[0] == 0 and len(began) == 4, began
    assert began[1] % 5 == 0 and began[1] >= 5, "the last that it saved before it was killed"
    assert began[2] >= 10 and 15 <= began[3] <= 24, began


def step_folder(folder: Path) -> Path:
    (run,) = folder.glob(".stoker/runs/*")
    return run
