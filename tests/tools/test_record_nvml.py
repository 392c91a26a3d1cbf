"""The recorder of NVML's answers writes what the stand-in library answers from: there and back nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "src/host/accel/testdata"
LIBRARY = ROOT / "build/src/host/accel/libnvidia-ml-fake.so"


def record(machine: Path, *options: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/record_nvml.py", "--library", LIBRARY, *options],
        env={**os.environ, "STOKER_FAKE_NVML": str(machine)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout.splitlines()


def sections(lines: list[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for line in lines:
        if line.startswith("["):
            section = found.setdefault(line, set())
        elif not line.startswith("#"):
            section.add(line)
    return found


# Also those that were recorded on real machines; the old driver of one has other functions.
@pytest.mark.parametrize(
    "machine", [p.stem for p in sorted(DATA.glob("*.nvml")) if "old" not in p.stem]
)
def test_there_and_back(machine: str) -> None:
    path = DATA / f"{machine}.nvml"
    assert sections(record(path)) == sections(path.read_text().splitlines())


def test_errors_are_kept(tmp_path: Path) -> None:
    machine = tmp_path / "m.nvml"
    machine.write_text("[system]\nnvmlInit = !18\n")
    assert record(machine) == ["[system]", "nvmlInit = !18"]
    machine.write_text("[device 0]\nnvmlDeviceGetUUID = GPU-a\nnvmlDeviceGetPowerUsage = !999\n")
    assert "nvmlDeviceGetPowerUsage = !999" in record(machine)


def test_anonymous(tmp_path: Path) -> None:
    machine = tmp_path / "m.nvml"
    uuid = "GPU-5a1e0c9b-1111-2222-3333-444455556666"
    machine.write_text(
        f"[device 0]\nnvmlDeviceGetUUID = {uuid}\nnvmlDeviceGetComputeRunningProcesses = 4242:1\n"
    )
    text = "\n".join(record(machine, "--anonymous"))
    assert "nvmlDeviceGetUUID = GPU-00000000-0000-0000-0000-000000000001" in text
    assert uuid not in text and "4242" not in text
    assert uuid in "\n".join(record(machine)) and "4242" in "\n".join(record(machine))
