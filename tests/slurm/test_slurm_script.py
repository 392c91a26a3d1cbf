"""The batch script that `stoker plan --manifest` prints, and what is refused before a job is there.
Needs no Slurm."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import STOKER

# An option, and the line that it becomes.
OPTIONS: dict[str, tuple[Any, str]] = {
    "partition": ("gpu,long", '--partition="gpu,long"'),
    "account": ("lab", '--account="lab"'),
    "qos": ("high", '--qos="high"'),
    "constraint": ("[rack1|rack2]", '--constraint="[rack1|rack2]"'),
    "reservation": ("class", '--reservation="class"'),
    "time": ("1-12:00:00", '--time="1-12:00:00"'),
    "licenses": ("matlab:2", '--licenses="matlab:2"'),
    "exclusive": (True, "--exclusive"),
    "gres": ("shm:1", '--gres="shm:1"'),
    "gpu": (2, '--gres="gpu:2"'),
    "gpu_type": ("h100", '--gres="gpu:h100:1"'),
    "flags": (["--nice=100", "--mail-type=END"], "--mail-type=END"),
}  # fmt: skip


def plan(folder: Path, step: dict[str, Any], *words: str, **stack: Any) -> subprocess.CompletedProcess[str]:  # fmt: skip
    lab = {"backend": "slurm", "store": str(folder / "share"), **stack}
    (folder / "stoker.yaml").write_text(json.dumps({"stacks": {"lab": lab}}))
    document = {"stoker": 1, "name": "p", "steps": {"a": {"run": "true", **step}}}
    (folder / "p.json").write_text(json.dumps(document))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "SBATCH_"))}
    return subprocess.run(
        [str(STOKER), "plan", "p.json", "--with", "lab", *(words or ["--manifest"])],
        cwd=folder,
        env={**env, "STOKER_ACCEL": "none"},
        capture_output=True,
        text=True,
    )


def flags(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return re.findall(r"^#SBATCH (.*)$", done.stdout, re.M)


@pytest.mark.parametrize("name", OPTIONS)
def test_option(tmp_path: Path, name: str) -> None:
    """In the step and in the stack."""
    value, line = OPTIONS[name]
    assert line in flags(plan(tmp_path, {"backend": {"slurm": {name: value}}}))
    assert line in flags(plan(tmp_path, {}, options={name: value}))


def test_every_option_is_tried() -> None:
    """… and stands in docs/slurm.md."""
    root = Path(__file__).resolve().parents[2]
    table = (root / "src/tbl/slurm_options.def").read_text()
    rows = dict(re.findall(r"^X\((\w+), \w+, (\w+),", table, re.M))
    elsewhere = {"signal", "python", "keep", "poll"}  # below, and in test_slurm_runs.py
    taken = {n for n, how in rows.items() if how != "REFUSED"}
    assert set(OPTIONS) | elsewhere == taken
    page = (root / "docs/slurm.md").read_text()
    assert [n for n in taken if f"`{n}`" not in page] == []


def test_resources(tmp_path: Path) -> None:
    step = {"resources": {"cpu_count": 1.5, "memory": "2GiB", "gpu_count": 2, "gpu_class": "A100"}}
    told = flags(plan(tmp_path, {**step, "timeout": "10m", "gang": {"ranks": 2, "nodes": 3}}))
    for flag in ('--cpus-per-task="2"', '--mem="2048M"', '--gres="gpu:a100:2"', '--nodes="3"', "--no-requeue"):  # fmt: skip
        assert flag in told
    minutes = [int(t[8:-1]) for t in told if t.startswith("--time=")]
    assert minutes and minutes[0] > 10


def test_signal(tmp_path: Path) -> None:
    told = flags(plan(tmp_path, {"backend": {"slurm": {"time": "2:00:00", "signal": 120}}}))
    assert '--signal="B:TERM@120"' in told
    refused = plan(tmp_path, {"backend": {"slurm": {"signal": 120}}})
    assert refused.returncode != 0 and "'signal'" in refused.stderr


def test_python(tmp_path: Path) -> None:
    """The manifest of a store in a path with odd characters is what a shell reads back."""
    folder = tmp_path / "it's 100%"
    folder.mkdir()
    done = plan(folder, {})
    assert "100%%/share" in done.stdout
    text = done.stdout.partition("---\n")[2]
    checked = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    kept = re.search(r"^export STOKER_STORE=.*$", text, re.M)
    assert kept is not None
    said = subprocess.run(["sh", "-c", kept[0] + '; echo "$STOKER_STORE"'], capture_output=True, text=True)  # fmt: skip
    assert said.stdout.strip() == str(folder / "share")


@pytest.mark.parametrize(
    ("step", "stack", "words"),
    [
        ({"backend": {"slurm": {"partiton": "x"}}}, {}, ["'partiton'", "'partition'"]),
        ({"backend": {"slurm": {"flags": ["--array=1-3"]}}}, {}, ["--array"]),
        ({"backend": {"slurm": {"flags": ["-p x"]}}}, {}, ["'-p x'"]),
        ({"backend": {"slurm": {"qos": "a\n#SBATCH --uid=0"}}}, {}, ["'qos'"]),
        ({"backend": {"slurm": {"gres": "gpu:2"}}}, {}, ["gpu:2", "gpu_count"]),
        ({"backend": {"slurm": {"image": "i:1"}}}, {}, ["'image'"]),
        ({"docker": {"parent_image": "i:1"}}, {}, ["docker", "'a'"]),
        ({"resources": {"gpu_memory": "4GB"}}, {}, ["gpu_memory"]),
        ({"resources": {"gpu_vendor": "google"}}, {}, ["google"]),
        ({"resources": {"any_of": [{"gpu_class": "A100"}, {"gpu_class": "H100"}]}}, {}, ["any_of"]),
        ({}, {"store": "s3://bucket/p"}, ["s3://bucket/p", "folder"]),
        ({}, {"carry": "image"}, ["carry"]),
        ({}, {"carry": "volume"}, ["carry_volume"]),
        ({}, {"default_image": "i:1"}, ["default_image"]),
        ({}, {"options": {"poll": -1}}, ["'poll'"]),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, step: dict[str, Any], stack: dict[str, Any], words: list[str]) -> None:  # fmt: skip
    done = plan(tmp_path, step, **stack)
    assert done.returncode != 0, done.stdout
    assert all(word in done.stderr for word in words), done.stderr


def test_no_store(tmp_path: Path) -> None:
    done = plan(tmp_path, {}, store=None)
    assert done.returncode != 0 and "store" in done.stderr


def test_check_without_a_store(tmp_path: Path) -> None:
    (tmp_path / "stoker.yaml").write_text("stacks: {lab: {backend: slurm}}")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "SLURM_"))}
    done = subprocess.run(
        [str(STOKER), "stack", "check", "lab"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done
    assert "`store: /FOLDER`" in done.stdout and "s3:" not in done.stdout
