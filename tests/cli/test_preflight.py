"""Checks before a run: frameworks that can't use the devices of their steps, and faulty devices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_tools import PYTHON, Cli, Run

CPU = "__version__ = '2.13.0+cpu'\ncuda = None\nhip = None\n"
CUDA13 = "__version__ = '2.13.0+cu130'\ncuda = '13.0'\nhip = None\n"
GPU = {"gpu_count": 1}
Environment = Callable[..., str]


@pytest.fixture
def environment(cli: Cli) -> Environment:
    """A virtual environment with a fake torch that has this version.py; returns its interpreter."""

    def make(torch: str | None, **packages: str) -> str:
        root = cli.folder / "venv"
        cli.write("venv/pyvenv.cfg", f"home = {Path(PYTHON).parent}\nversion = 3.11.2\n")
        site = "venv/lib/python3.11/site-packages"
        if torch is not None:
            cli.write(f"{site}/torch/__init__.py", "raise SystemExit('imported')\n")
            cli.write(f"{site}/torch/version.py", torch)
        for name, version in packages.items():
            cli.write(f"{site}/{name}-{version}.dist-info/METADATA", "")
            cli.write(f"{site}/{name}/__init__.py", "")
        python = root / "bin" / "python"
        python.parent.mkdir(exist_ok=True)
        if not python.exists():
            python.symlink_to(PYTHON)
        return str(python)

    return make


def host(cli: Cli, *devices: dict[str, Any], driver: str = "580.65.06", cuda: int = 13000) -> None:
    """A fake host with NVIDIA's driver and these devices."""
    listed = [{"uuid": f"GPU-{i}", "memory_bytes": 1 << 33, **d} for i, d in enumerate(devices)]
    doc = {"driver": driver, "cuda_version": cuda, "devices": listed}
    cli.env["STOKER_ACCEL"] = f"fake:{cli.write('devices.json', json.dumps(doc))}"


def step(cli: Cli, **more: Any) -> dict[str, Any]:
    return {"run": f"touch {cli.folder / 'ran'}", "resources": GPU, "uses": ["torch"], **more}


def refused(cli: Cli, done: Run, *texts: str) -> None:
    """It ended before anything started, and says why."""
    assert done.code == 2
    for text in texts:
        assert text in " ".join(done.err.split())
    assert not (cli.folder / "ran").exists()
    assert cli.json("runs") == [] if (cli.folder / ".stoker").exists() else True


@pytest.mark.parametrize("policy", ["fit", "strict"])
def test_cpu_only_torch_is_refused(cli: Cli, environment: Environment, policy: str) -> None:
    host(cli, {"cc": "9.0"})
    python = environment(CPU)
    done = cli.run({"train": step(cli)}, "--policy", policy, "--python", python)
    refused(
        cli,
        done,
        "step 'train': torch 2.13.0+cpu is a CPU-only build: it can't use this host's NVIDIA GPU",
        "install a build of torch for CUDA 13.x",
        str(cli.folder / "venv/lib/python3.11/site-packages/torch"),
        "p.json:",
    )


def test_the_python_of_the_front_counts(cli: Cli, environment: Environment) -> None:
    host(cli, {})
    origin = {"python": environment(CPU)}
    refused(cli, cli.run({"train": step(cli)}, origin=origin), "CPU-only build")


def test_driver_too_old(cli: Cli, environment: Environment) -> None:
    host(cli, {"cc": "9.0"}, driver="535.104", cuda=12020)
    done = cli.run({"train": step(cli)}, "--python", environment(CUDA13))
    refused(
        cli,
        done,
        "torch 2.13.0+cu130 needs driver 580 or newer; this host has 535.104",
        "install a build of torch for CUDA 12.x",
    )


def test_as_json(cli: Cli, environment: Environment) -> None:
    host(cli, {})
    done = cli.run({"train": step(cli)}, "--json", "--python", environment(CPU))
    error = json.loads(done.out)["error"]
    assert error["class"] == "resources" and "CPU-only" in error["text"] and error["hint"]


def test_plan_says_so_too(cli: Cli, environment: Environment) -> None:
    host(cli, {})
    name = cli.document({"train": step(cli)})
    assert "CPU-only build" in cli("plan", "--python", environment(CPU), name).err


def test_what_fits_runs(cli: Cli, environment: Environment) -> None:
    host(cli, {"cc": "9.0"})
    done = cli.run({"train": step(cli)}, "--python", environment(CUDA13))
    assert done.code == 0 and (cli.folder / "ran").exists()
    assert done.shown["notes"] == []


def test_only_steps_that_get_devices_are_looked_at(cli: Cli, environment: Environment) -> None:
    python = environment(CPU)
    host(cli, {})
    assert cli.run({"train": step(cli, resources={})}, "--python", python).code == 0
    host(cli)  # without any device, policy fit runs it on the CPU
    assert cli.run({"train": step(cli)}, "--python", python).code == 0


@pytest.mark.parametrize("uses,n_notes", [(None, 1), ([], 0)])
def test_a_step_that_is_known_to_use_none(
    cli: Cli, environment: Environment, uses: Any, n_notes: int
) -> None:
    host(cli, {})
    cli.write("mod.py", "def main() -> None: pass\n")
    python = {"python": "mod:main", "resources": GPU, "uses": uses}
    done = cli("plan", "--json", "--python", environment(CPU), cli.document({"train": python}))
    assert done.code == 0
    assert len([note for note in json.loads(done.out)["notes"] if "CPU-only" in note]) == n_notes


def test_the_user_may_insist(cli: Cli, environment: Environment) -> None:
    host(cli, {})
    insisting = step(cli, environment={"STOKER_ALLOW_CPU_BUILD": "1"})
    done = cli.run({"train": insisting}, "--python", environment(CPU))
    assert done.code == 0
    assert "step 'train': torch 2.13.0+cpu is a CPU-only build" in done.shown["notes"][0]


def test_a_torch_for_the_data_beside_jax(cli: Cli, environment: Environment) -> None:
    host(cli, {})
    python = environment(CPU, jax="0.10.2", jaxlib="0.10.2", jax_cuda12_plugin="0.10.2")
    done = cli.run({"train": step(cli, uses=["torch", "jax"])}, "--python", python)
    assert done.code == 0
    assert [n for n in done.shown["notes"] if "torch" in n and "CPU-only" in n]
    refused_one = cli.run({"other": step(cli, uses=["torch"])}, "--python", python)
    assert refused_one.code == 2


def test_warnings_of_devices_become_notes(cli: Cli, environment: Environment) -> None:
    host(cli, {"pcie_width": 4, "pcie_width_max": 16, "persistence": 0})
    done = cli.run({"train": step(cli)}, "--python", environment(CUDA13))
    (note,) = done.shown["notes"]
    assert "GPU 0" in note and "4 of its 16 PCIe lanes" in note


def test_a_device_that_is_not_fit_is_passed_over(cli: Cli, environment: Environment) -> None:
    python = environment(CUDA13)
    host(cli, {"ecc_uncorrected": 3}, {})
    done = cli.run({"train": step(cli)}, "--python", python)
    assert done.code == 0
    assert [d["uuid"] for d in done.steps["train"]["granted"]["devices"]] == ["GPU-1"]
    assert any("GPU 0" in n and "uncorrected" in n for n in done.shown["notes"])
    host(cli, {"ecc_uncorrected": 3}, {"compute_mode": 2})
    (cli.folder / "ran").unlink()
    refused_one = cli.run({"again": step(cli)}, "--python", python)
    assert refused_one.code == 2 and "compute mode 'prohibited'" in refused_one.err


FLOW = """
import torch
from stoker import ResourceSettings, pipeline, step


@step(settings={"resources": ResourceSettings(gpu_count=1)})
def train() -> str:
    open("ran", "w").close()
    return torch.__version__


@pipeline
def p():
    train()


p()
"""


def test_a_python_file_that_imports_it(cli: Cli) -> None:
    host(cli, {})
    cli.write("site/torch/__init__.py", "from .version import __version__\n")
    cli.write("site/torch/version.py", CPU)
    cli.env["PYTHONPATH"] += f":{cli.folder / 'site'}"
    cli.write("flow.py", FLOW)
    done = cli("run", "--python", PYTHON, "flow.py", timeout=60)
    assert done.code != 0 and not (cli.folder / "ran").exists()
    assert "flow.py:6: step 'train': torch 2.13.0+cpu is a CPU-only build" in done.err
    done = cli("run", "--python", PYTHON, "flow.py", timeout=60, STOKER_ALLOW_CPU_BUILD="1")
    assert done.code == 0 and (cli.folder / "ran").exists()


def test_python_steps_of_unknown_use(cli: Cli, environment: Environment) -> None:
    host(cli, {})
    cli.write("mod.py", "def f(): pass\n")
    steps = {"train": {"python": "mod:f", "resources": GPU}}
    name = cli.document(steps)
    shown = json.loads(cli("plan", "--json", "--python", environment(CPU), name).out)
    assert any("CPU-only build" in note for note in shown["notes"])
