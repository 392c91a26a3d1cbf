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
    "flags": (["--nice=100", "--mail-type=END"], '--mail-type="END"'),
}  # fmt: skip


def plan(folder: Path, step: dict[str, Any], *words: str, steps: dict[str, Any] | None = None,
         command: tuple[str, ...] = ("plan",), **stack: Any) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Of step `a`, and of other steps."""
    lab = {"backend": "slurm", "store": str(folder / "share"), **stack}
    (folder / "stoker.yaml").write_text(json.dumps({"stacks": {"lab": lab}}))
    document = {"stoker": 1, "name": "p", "steps": {**(steps or {}), "a": {"run": "true", **step}}}
    (folder / "p.json").write_text(json.dumps(document))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("STOKER_", "SBATCH_"))}
    return subprocess.run(
        [str(STOKER), *command, "p.json", "--with", "lab", *(words or ["--manifest"])],
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
    elsewhere = {
        "signal",
        "python",
        "keep",
        "poll",
        "array_min",
        "image",
        "container",
        "pilot",
        "pilot_gpus",
        "pilots",
        "pilot_idle",
    }  # below, and in test_slurm_runs.py, _arrays.py, _pilots.py, _containers.py
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


def test_pilot(tmp_path: Path) -> None:
    """The job of a step that flies is a pilot's: so large, and told before its end."""
    step = {
        "resources": {"cpu_count": 2, "memory": "1GiB"},
        "backend": {"slurm": {"pilot": 16, "pilot_idle": 3}},
    }
    done = plan(tmp_path, step)
    told = flags(done)
    assert (
        '--cpus-per-task="16"' in told
        and '--mem="8192M"' in told
        and '--signal="B:TERM@60"' in told
    )
    assert "STOKER_PILOT_IDLE_MS=3000" in done.stdout and "pilots/" in done.stdout


def test_pilot_with_gpus(tmp_path: Path) -> None:
    """As many GPUs as its CPUs hold tasks of a foreach, and no more than `pilot_gpus`."""
    one = {"resources": {"cpu_count": 2, "memory": "1GiB", "gpu_count": 1, "gpu_class": "A100"}}
    here = {"run": "true", "backend": "local"}
    steps = {
        "start": {**here, "foreach": "x", "outputs": ["x"], "next": "a"},
        "end": {**here, "join": True},
    }
    work = {"inputs": {"i": {"item": True}}, "next": "end", **one}
    for options, gpus, memory in (({}, 8, 8192), ({"pilot_gpus": 3}, 3, 3072)):
        step = {**work, "backend": {"slurm": {"pilot": 16, **options}}}
        told = flags(plan(tmp_path, step, steps=steps))
        assert f'--gres="gpu:a100:{gpus}"' in told and f'--mem="{memory}M"' in told, told
    told = flags(plan(tmp_path, {**one, "backend": {"slurm": {"pilot": 16}}}))
    assert '--gres="gpu:a100:1"' in told


def test_share_in_a_pilot(tmp_path: Path) -> None:
    """A part of a GPU's memory is for pilots; an exported script has none."""
    step = {"resources": {"gpu_memory": "4GB"}, "backend": {"slurm": {"pilot": 8}}}
    assert '--gres="gpu:1"' in flags(plan(tmp_path, step))
    (project := tmp_path / "project").mkdir()
    refused = plan(project, step, "--to", str(tmp_path / "out"), command=("export", "slurm-script"))
    assert refused.returncode != 0 and "gpu_memory" in refused.stderr, refused.stderr


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


NVIDIA = "nvcr.io/nvidia/pytorch:25.01-py3"
IMAGES: dict[str, tuple[dict[str, Any], dict[str, Any], str, str]] = {
    "option": ({"backend": {"slurm": {"image": "team/i:1"}}}, {}, "team/i:1", "team/i:1"),
    "docker": ({"docker": {"parent_image": "i"}}, {}, "i", "i"),
    "stack": ({}, {"default_image": "127.0.0.1:1/i:1"}, "127.0.0.1:1/i:1", "127.0.0.1:1#i:1"),
    "stack's option": ({}, {"options": {"image": "i:2"}}, "i:2", "i:2"),
    "step first": ({"docker": {"parent_image": "i:3"}}, {"default_image": "i:1"}, "i:3", "i:3"),
    "mapped": (
        {"docker": {"parent_image": NVIDIA}},
        {"image_map": {"nvcr.io/": "127.0.0.1:1/"}},
        "127.0.0.1:1/nvidia/pytorch:25.01-py3",
        "127.0.0.1:1#nvidia/pytorch:25.01-py3",
    ),
}


@pytest.mark.parametrize("name", IMAGES)
def test_image(tmp_path: Path, name: str) -> None:
    """Docker's name, and enroot's, for whoever runs it on the node."""
    step, stack, image, enroot = IMAGES[name]
    done = plan(tmp_path, step, **stack)
    assert done.returncode == 0, done.stderr
    assert f"export STOKER_IMAGE='{image}'\n" in done.stdout, done.stdout
    assert f"export STOKER_ENROOT_IMAGE='{enroot}'\n" in done.stdout
    text = done.stdout.partition("---\n")[2]
    checked = subprocess.run(["sh", "-n"], input=text, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(("vendor", "flag"), [("nvidia", "--nv"), ("amd", "--rocm"), (None, "")])
def test_gpu_flag(tmp_path: Path, vendor: str | None, flag: str) -> None:
    step = {"docker": {"parent_image": "i:1"}}
    if vendor:
        step["resources"] = {"gpu_count": 1, "gpu_vendor": vendor}
    assert f"export STOKER_GPU_FLAG='{flag}'\n" in plan(tmp_path, step).stdout


def test_odd_path(tmp_path: Path) -> None:
    """Container programs have no way to write it."""
    (folder := tmp_path / "a b").mkdir()
    done = plan(folder, {"docker": {"parent_image": "i:1"}})
    assert done.returncode != 0 and "a space or a comma" in done.stderr


@pytest.mark.parametrize(
    ("step", "stack", "words"),
    [
        ({"backend": {"slurm": {"partiton": "x"}}}, {}, ["'partiton'", "'partition'"]),
        ({"backend": {"slurm": {"flags": ["--array=1-3"]}}}, {}, ["--array"]),
        ({"backend": {"slurm": {"flags": ["-p x"]}}}, {}, ["'-p x'"]),
        ({"backend": {"slurm": {"flags": ["--clusters=b"]}}}, {}, ["'--clusters=b'", "SLURM_CONF"]),
        ({"backend": {"slurm": {"flags": ["--nice=1\n--array=2"]}}}, {}, ["'flags'", "not a list"]),
        ({"backend": {"slurm": {"partition": True}}}, {}, ["'partition'", "not true or false"]),
        ({"backend": {"slurm": {"partition": ["a"]}}}, {}, ["'partition'", "not a list"]),
        ({"backend": {"slurm": {"partition": ""}}}, {}, ["'partition'", "not an empty text"]),
        ({}, {"options": {"pilot": True}}, ["'pilot'", "not true or false"]),
        ({}, {"store": "/shared/a\\b"}, ["/shared/a\\b", "backslash"]),
        ({"backend": {"slurm": {"qos": "a\n#SBATCH --uid=0"}}}, {}, ["'qos'"]),
        ({"backend": {"slurm": {"gres": "gpu:2"}}}, {}, ["gpu:2", "gpu_count"]),
        ({"backend": {"slurm": {"image": "i:1", "container": "podman"}}}, {}, ["'container'", "'podman'"]),
        ({"docker": {"environment": {"A": "1"}}}, {}, ["docker", "'a'"]),
        ({"resources": {"gpu_memory": "4GB"}}, {}, ["gpu_memory"]),
        ({"resources": {"gpu_vendor": "google"}}, {}, ["google"]),
        ({"resources": {"any_of": [{"gpu_class": "A100"}, {"gpu_class": "H100"}]}}, {}, ["any_of"]),
        ({}, {"store": "s3://bucket/p"}, ["s3://bucket/p", "folder"]),
        ({}, {"carry": "image"}, ["carry"]),
        ({}, {"carry": "volume"}, ["carry_volume"]),
        ({}, {"runner_image": "i:1"}, ["runner_image"]),
        ({}, {"options": {"poll": -1}}, ["'poll'"]),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, step: dict[str, Any], stack: dict[str, Any], words: list[str]) -> None:  # fmt: skip
    done = plan(tmp_path, step, **stack)
    assert done.returncode != 0, done.stdout
    assert all(word in done.stderr for word in words), done.stderr


def test_a_flag_is_one_word(tmp_path: Path) -> None:
    given = ["--mail-user=a b", '--hint="x" --array=1-3']
    told = flags(plan(tmp_path, {"backend": {"slurm": {"flags": given}}}))
    assert '--mail-user="a b"' in told and '--hint="\\"x\\" --array=1-3"' in told


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
