"""Ranks and their devices: CPUs near them, and a restart without the one that failed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import Cli
from launch_tools import launch, python, shell


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    terminal = Cli(tmp_path)
    yield terminal
    terminal.close()


def fake(folder: Path, *cpus: int) -> str:
    """Devices, each near to one CPU."""
    file = folder / "devices.json"
    file.write_text(json.dumps([{"uuid": f"GPU-{i}", "cpus": str(c)} for i, c in enumerate(cpus)]))
    return f"fake:{file}"


def test_cpus_are_those_near_the_device(tmp_path: Path, cli: Cli) -> None:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        pytest.skip("one CPU can't be split")
    accel = fake(tmp_path, cpus[-1], cpus[0])
    code = "print(sorted(os.sched_getaffinity(0)), os.environ['OMP_NUM_THREADS'])"
    done = launch("-n", "gpus", *python(code), STOKER_ACCEL=accel)
    assert sorted(done.out.splitlines()) == [f"[0] [{cpus[-1]}] 1", f"[1] [{cpus[0]}] 1"]
    cli.env["STOKER_ACCEL"] = accel
    words = [*python(code)[1:]]
    step = {"run": words, "gang": {"ranks": "gpus"}, "resources": {"gpu_count": 2}}
    run = cli.run({"a": step})
    assert sorted(run.text("a").splitlines()) == [f"[0] [{cpus[-1]}] 1", f"[1] [{cpus[0]}] 1"]


FAIL = """
echo $TORCHELASTIC_RESTART_COUNT $CUDA_VISIBLE_DEVICES
case $CUDA_VISIBLE_DEVICES in *GPU-b*) [ $RANK = 1 ] && exit 1; exec sleep 60;; esac
"""


def test_restart_without_the_device_that_failed(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b", "GPU-c")
    gang = {"ranks": "gpus", "min_ranks": 2, "restarts": 1}
    done = cli.run({"a": {"run": FAIL, "gang": gang, "resources": {"gpu_count": 3}}})
    assert done.code == 0
    again = [line for line in sorted(done.text("a").splitlines()) if line[4] == "1"]
    assert again == ["[0] 1 GPU-a,GPU-c", "[1] 1 GPU-a,GPU-c"]


def test_restart_from_a_shell(tmp_path: Path) -> None:
    """No mask is set there: what is left is named."""
    fails = '[ -z "$CUDA_VISIBLE_DEVICES" ] && [ $RANK = 0 ] && exit 1; '
    rest = '[ -z "$CUDA_VISIBLE_DEVICES" ] && exec sleep 60; echo $RANK $CUDA_VISIBLE_DEVICES'
    options = ("-n", "gpus", "--min-ranks", "1", "--restarts", "1")
    done = launch(*options, *shell(fails + rest), STOKER_ACCEL=fake(tmp_path, 0, 0))
    assert done.code == 0 and done.out == "[0] 0 GPU-1\n"
