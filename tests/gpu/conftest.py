"""Tests on a real GPU: a folder for each, a C program that uses CUDA, and the kept results."""

from __future__ import annotations

import datetime
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
from cli_tools import Cli  # noqa: E402


def why_not() -> str:
    """Why these tests can't run here, or ""."""
    if not Path("/dev/nvidiactl").exists():
        return "no NVIDIA driver here (/dev/nvidiactl)"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for item in items:
        if reason and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    terminal = Cli(tmp_path)
    terminal.env["STOKER_ACCEL"] = "nvml"
    yield terminal
    terminal.close()


@pytest.fixture(scope="session")
def cuda_use(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("cuda") / "cuda_use"
    source = Path(__file__).with_name("cuda_use.c")
    subprocess.run(["cc", "-O2", "-o", program, source, "-ldl"], check=True)
    return program


class Proof:
    """Sentences that `make test-gpu` keeps in docs/gpu-proof.md."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        print(line)
        self.lines.append(line)


@pytest.fixture(scope="session")
def proof() -> Iterator[Proof]:
    kept = Proof()
    yield kept
    path = os.environ.get("STOKER_GPU_PROOF")
    if path and kept.lines:
        name = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
        ).stdout.strip()
        head = [
            "# On a real GPU",
            "",
            f"Printed by `make test-gpu` on {datetime.date.today()}: {name.replace(chr(10), '; ')}",
            f"(kernel {os.uname().release}, {os.cpu_count()} CPUs).",
            "",
        ]
        Path(path).write_text("\n".join(head + [f"- {line}" for line in kept.lines]) + "\n")
