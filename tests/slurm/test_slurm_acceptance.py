"""Main uses on a real Slurm: the digits example, and a gang with real torch over two nodes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import ROOT, Project

has_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


def digits(project: Project, *words: str) -> str:
    """`python train.py` as a user has it, with the stack as the default place of its steps."""
    options = json.dumps({"with": "lab"})
    done = subprocess.run(
        [sys.executable, "train.py", *words],
        cwd=project.folder,
        env={**project.env, "STOKER_RUN_OPTIONS": options},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr + project.logs()
    return done.stdout + done.stderr


def steps(project: Project) -> dict[str, dict[str, Any]]:
    told: dict[str, dict[str, Any]] = project.show()["steps"]
    return told


@pytest.mark.slow
def test_digits(project: Project) -> None:
    """Each step is a job with this interpreter; the training has a GPU; an edited step runs again,
    and nothing else does."""
    project.say(options={**project.stack["options"], "python": sys.executable})
    text = (ROOT / "examples/digits/train.py").read_text()
    # What torch needs of a GPU, the nodes' simulated ones don't have.
    at = text.index("FRAMEWORK = ")
    text = text[:at] + 'FRAMEWORK = "scikit-learn"' + text[text.index("\n", at) :]
    train = project.folder / "train.py"
    train.write_text(text)
    assert "test accuracy 0.9" in digits(project)
    told = steps(project)
    assert {s["status"] for s in told.values()} == {"succeeded"}
    assert {s["granted"]["backend"] for s in told.values()} == {"slurm"}
    (device,) = told["train"]["granted"]["devices"]
    assert "A100" in device["model"]
    assert told["train"]["used"]["peak_memory_bytes"] > 10_000_000
    train.write_text(text.replace("hardest is", "the hardest digit is"))
    assert "the hardest digit is" in digits(project)
    ran = [name for name, s in steps(project).items() if s["status"] == "succeeded"]
    assert ran == ["report"]


@has_torch
@pytest.mark.slow
@pytest.mark.torch
def test_torch_on_two_nodes(project: Project, tmp_path: Path) -> None:
    """srun starts an agent on each node, and gloo adds up what the ranks of both have."""
    (project.folder / "add.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.ones(3) * (dist.get_rank() + 1)\n"
        "dist.all_reduce(x)\n"
        f"open('{tmp_path}/sum-%d' % dist.get_rank(), 'w').write(f\"{{x.tolist()}} {{os.environ['SLURMD_NODENAME']}}\")\n"
        "dist.destroy_process_group()\n"
    )
    gang = {"ranks": 2, "nodes": 2}
    done = project.run({"a": {"run": f"{sys.executable} add.py", "gang": gang, "timeout": 200}})
    assert done.returncode == 0, done.stderr + project.logs()
    told = [(tmp_path / f"sum-{rank}").read_text().rsplit(" ", 1) for rank in range(4)]
    assert [text for text, _ in told] == ["[10.0, 10.0, 10.0]"] * 4
    assert len({node for _, node in told}) == 2
