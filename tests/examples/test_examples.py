"""The examples do what they claim, from a copy, as a user starts them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
STOKER = find_binary()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the examples and their header, away from the repository's store."""
    for part in ("examples", "include"):
        shutil.copytree(
            ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns(".stoker", "__pycache__")
        )
    return tmp_path


def start(project: Path, *command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    leases = project / "leases"
    leases.mkdir(exist_ok=True)
    clean = {k: v for k, v in os.environ.items() if k != "STOKER_STORE"}
    clean |= {"STOKER_ACCEL": "none", "STOKER_LEASE_DIR": str(leases), **env}
    done = subprocess.run(
        command, cwd=project, env=clean, capture_output=True, text=True, timeout=300
    )
    print(done.stdout, done.stderr, sep="\n")
    return done


def steps(project: Path) -> dict[str, Any]:
    done = start(project, STOKER, "show", "latest", "--json")
    return json.loads(done.stdout)["steps"]


def accuracy(text: str) -> float:
    found = re.search(r"test accuracy (0\.\d+) on 359 images", text)
    assert found, text
    return float(found[1])


def check_digits(project: Path, framework: str) -> None:
    """First run, cached run, then a run after an edit of one step."""
    train = project / "examples" / "digits" / "train.py"
    first = start(project, sys.executable, train)
    assert first.returncode == 0
    assert accuracy(first.stdout) >= 0.95
    assert f"({framework})" in first.stdout
    assert ("PyTorch is not installed" in first.stdout) == (framework != "torch")
    assert "GPU" in first.stdout + first.stderr  # it asked for one, and is told that there was none
    done = steps(project)
    assert {s["status"] for s in done.values()} == {"succeeded"}
    assert done["train"]["asked"]["gpu_count"] == 1

    second = start(project, sys.executable, train)
    assert accuracy(second.stdout) == accuracy(first.stdout)
    assert {s["status"] for s in steps(project).values()} == {"cached"}

    text = train.read_text()
    train.write_text(text.replace("hardest is", "the hardest digit is"))
    third = start(project, sys.executable, train)
    assert "the hardest digit is" in third.stdout
    ran = [name for name, s in steps(project).items() if s["status"] == "succeeded"]
    assert ran == ["report"]


def test_digits_with_scikit_learn(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide = project / "hide"  # where PyTorch is installed all the same
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(
        "import importlib.util as u\nreal = u.find_spec\n"
        "u.find_spec = lambda n, p=None: None if n == 'torch' else real(n, p)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(hide))
    check_digits(project, "scikit-learn")


@pytest.mark.torch
def test_digits_with_torch(project: Path) -> None:
    check_digits(project, "torch")


def test_polyglot(project: Path) -> None:
    pipeline = project / "examples" / "polyglot" / "pipeline.yaml"
    command = [STOKER, "run", "--python", sys.executable, "--param", "n_points=5000"]
    assert start(project, *command, pipeline).returncode == 0
    done = steps(project)
    assert list(done) == ["points", "compile", "fit", "report"]
    assert {s["status"] for s in done.values()} == {"succeeded"}
    assert done["fit"]["metadata"]["points"] == 5000
    assert done["fit"]["metadata"]["slope"] == pytest.approx(2.5, abs=0.02)
    sentence = Path(done["report"]["outputs"]["sentence"]["path"]).read_text()
    assert "2.5 was drawn" in sentence

    assert start(project, *command, "--param", "slope=4", pipeline).returncode == 0
    assert {n: s["status"] for n, s in steps(project).items()} == {
        "points": "succeeded",
        "compile": "cached",
        "fit": "succeeded",
        "report": "succeeded",
    }


def test_polyglot_says_what_a_bad_parameter_is(project: Path) -> None:
    pipeline = project / "examples" / "polyglot" / "pipeline.yaml"
    run = start(project, STOKER, "run", "--param", "n_points=many", pipeline)
    assert run.returncode == 2
    assert "n_points" in run.stderr and "many" in run.stderr


def test_shares_of_a_machine_that_is_not_here(project: Path) -> None:
    sweep = project / "examples" / "shares" / "sweep.py"
    simulated = ("--simulate", "2xA100", "--python", sys.executable)
    done = start(project, STOKER, "run", *simulated, sweep)
    assert done.returncode == 0 and "best of 6 rates: 0.3" in done.stdout
    assert "1 CPU, 1 GB, 2 GB of 1" in done.stderr  # granted, cut to the width
    assert len(re.findall(r"^train\S*: 2\.0 GB of GPU-sim-0 \(NVIDIA A100", done.stdout, re.M)) == 6
    assert steps(project)["train"]["outputs"]["gpu_profile_num_gpus"]["value"] == 1
    done = start(project, sys.executable, sweep)  # here, where there is none
    assert done.returncode == 0 and "GPU-sim" not in done.stdout
