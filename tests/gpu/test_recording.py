"""The stand-in for NVML, fed with the answers of this machine's NVML, gives Stoker the same
devices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable

import pytest
from cli_tools import Cli

pytestmark = pytest.mark.gpu
Say = Callable[[str], None]
ROOT = Path(__file__).resolve().parents[2]
RECORDER = ROOT / "tools/record_nvml.py"
STAND_IN = ROOT / "build/src/host/accel/libnvidia-ml-fake.so"
# Values that don't change between two reads. Of others only whether they are known counts.
FIXED = """vendor kind index uuid model profile parent slices memory_bytes pci node driver numa cpus compute_capability usable
power_limit_mw sm_max_mhz memory_max_mhz pcie_gen_max pcie_width_max n_nvlinks_up ecc ecc_uncorrected_total remap_pending
remap_failed remapped_rows retired_pages retired_pending persistence compute_mode links""".split()  # noqa: SIM905
MOVING = """busy_percent memory_used temperature_c fan_percent power_mw energy_mj sm_mhz memory_mhz pcie_gen pcie_tx_bytes_s
nvlink_tx_bytes ecc_corrected throttle""".split()  # noqa: SIM905


def facts(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {**{key: device[key] for key in FIXED}, **{key: device[key] is not None for key in MOVING}}
        for device in answer["devices"]
    ]


def test_recording_answers_the_same(cli: Cli, proof: Say, tmp_path: Path) -> None:
    library = os.environ.get("STOKER_NVML") or "libnvidia-ml.so.1"
    record = [sys.executable, RECORDER, "--library", library]
    recording = tmp_path / "machine.nvml"
    recording.write_text(subprocess.run(record, capture_output=True, text=True, check=True).stdout)
    real = cli.json("gpus")
    assert real["devices"]
    cli.env |= {"STOKER_NVML": str(STAND_IN), "STOKER_FAKE_NVML": str(recording)}
    again = cli.json("gpus")
    assert (again["driver"], again["cuda"]) == (real["driver"], real["cuda"])
    assert facts(again) == facts(real)
    anonymous = subprocess.run(
        [*record, "--anonymous"], capture_output=True, text=True, check=True
    ).stdout
    n_answers = sum(" = " in line for line in anonymous.splitlines())
    proof(
        f"{n_answers} answers of NVML recorded; through the stand-in library they make the same devices"
    )
    if os.environ.get("STOKER_GPU_PROOF"):
        name = real["devices"][0]["model"].removeprefix("NVIDIA ").replace(" ", "-")
        kept = ROOT / f"src/host/accel/testdata/recorded-{len(real['devices'])}x{name}.nvml"
        kept.write_text(
            f"# Recorded by tools/record_nvml.py --anonymous, driver {real['driver']}.\n{anonymous}"
        )
