"""Asked, granted, used, on a real NVIDIA GPU. `make test-gpu` runs these tests and keeps their
output."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, Callable

import pytest
from cli_tools import PYTHON, Cli, wait_for

pytestmark = pytest.mark.gpu
Say = Callable[[str], None]
ONE = {"gpu_count": 1}


def devices_of(cli: Cli) -> list[dict[str, Any]]:
    return cli.json("gpus")["devices"]


def used_of(cli: Cli, step: str) -> dict[str, Any]:
    return cli.json("show", "latest")["steps"][step]["used"]


def test_what_nvml_says(cli: Cli, proof: Say) -> None:
    answer = cli.json("gpus")
    usable = [d for d in answer["devices"] if d["uuid"]]
    assert usable and all(d["uuid"].startswith(("GPU-", "MIG-")) for d in usable)
    for device in usable:
        assert device["model"] and device["memory_bytes"] > 1 << 30
    proof(f"`stoker gpus`: {len(usable)} × {usable[0]['model']}")
    text = cli("gpus", "--prometheus").out
    assert "DCGM_FI_DEV_FB_USED{" in text and usable[0]["uuid"] in text
    proof("one device as JSON: `" + json.dumps(usable[0], separators=(",", ":"))[:1500] + "`")


def test_a_step_that_uses_it(cli: Cli, cuda_use: Path, proof: Say) -> None:
    done = cli.run({"train": {"run": f"{cuda_use} work 2048 5", "resources": ONE}}, timeout=120)
    assert done.code == 0, done.err
    used = used_of(cli, "train")
    device = used["devices"][0]
    assert used["verdict"]["used"] == 1, used
    assert device["peak_memory_bytes"] > 2 << 30 and device["busy_percent_mean"] > 10
    proof(f"a step that works 5 s on 2 GiB: `{json.dumps(used, separators=(',', ':'))}`")
    card = Path(cli.json("card", "latest")["card"]).read_text()
    assert "GPU 0 busy" in card and device["uuid"] in card


def test_a_step_that_does_not(cli: Cli, proof: Say) -> None:
    done = cli.run({"idle": {"run": "sleep 2", "resources": ONE}}, timeout=120)
    verdict = used_of(cli, "idle")["verdict"]
    assert verdict["granted"] == 1 and verdict["used"] == 0
    assert verdict["text"] in done.err
    proof(f'a step that sleeps: "{verdict["text"]}"')


def test_without_a_request_none_is_seen(cli: Cli, cuda_use: Path, proof: Say) -> None:
    done = cli.run(
        {
            "none": {"run": f"{cuda_use} count > $STOKER_OUTPUT/n", "outputs": ["n"]},
            "one": {
                "run": f"{cuda_use} count > $STOKER_OUTPUT/n",
                "outputs": ["n"],
                "resources": ONE,
            },
        },
        timeout=120,
    )
    assert (done.output("none", "n").strip(), done.output("one", "n").strip()) == ("0", "1")
    proof("CUDA sees 0 devices in a step without a request, 1 in a step that asked for 1")


def test_two_runs_take_turns(cli: Cli, cuda_use: Path, proof: Say) -> None:
    n = len([d for d in devices_of(cli) if d["status"] == "free"])
    steps = {"hold": {"run": f"mkdir MARK && {cuda_use} work 256 2 && rmdir MARK", "cache": False}}
    name = cli.document(steps, resources={"gpu_count": n})
    began = time.monotonic()
    runs = [cli.start("run", name) for _ in range(2)]
    assert [run.wait(timeout=120) for run in runs] == [0, 0]
    assert time.monotonic() - began > 4
    proof(f"two runs that each ask for all {n}: one after the other, never together")


def test_out_of_memory(cli: Cli, cuda_use: Path, proof: Say) -> None:
    done = cli.run({"greedy": {"run": f"{cuda_use} oom", "resources": ONE}}, timeout=120)
    error = done.steps["greedy"]["error"]
    assert done.code == 1 and error["class"] == "device_oom", error
    proof(f'CUDA out of memory: "{error["text"]}"')


def test_shares(cli: Cli, cuda_use: Path, proof: Say) -> None:
    share = {"gpu_memory": "4GiB"}
    done = cli.run(
        {
            "good": {"run": f"{cuda_use} work 1024 6", "resources": share},
            "over": {"run": f"{cuda_use} work 8192 6", "resources": share},
        },
        timeout=120,
    )
    assert done.statuses == {"good": "succeeded", "over": "failed"}
    error = done.steps["over"]["error"]
    assert error["class"] == "gpu_share"
    good, over = (done.steps[s]["granted"]["devices"][0]["uuid"] for s in ("good", "over"))
    proof(
        f'two shares of 4 GiB ({"one device" if good == over else "two devices"}): "{error["text"]}"'
    )


@pytest.mark.parametrize("period", [1.0, 0.1, 0.01])
def test_what_sampling_costs(cli: Cli, cuda_use: Path, proof: Say, period: float) -> None:
    cli.document({"work": {"run": f"{cuda_use} work 256 10", "resources": ONE, "sample": period}})
    engine = cli.start("run", "p.json")
    wait_for(
        lambda: (cli.store / "runs").exists() and list(cli.store.glob("runs/*/work/0/1/*.bin"))
    )
    ticks = os.sysconf("SC_CLK_TCK")

    def cpu_s() -> float:
        words = Path(f"/proc/{engine.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / ticks

    before, began = cpu_s(), time.monotonic()
    time.sleep(8)  # sleeps: what it uses of some seconds
    percent = 100 * (cpu_s() - before) / (time.monotonic() - began)
    assert engine.wait(timeout=60) == 0
    proof(f"sampling every {period} s costs {percent:.2f} % of a CPU")
    assert percent < 5 * max(1, 0.1 / period)


TORCH = """
import sys
from stoker import step, pipeline, ResourceSettings
import torch

@step(enable_cache=False, settings={"resources": ResourceSettings(gpu_count=1)})
def uses() -> float:
    x = torch.ones(1 << 24, device="cuda")
    for _ in range(500):
        x = x * 1.0001
    return float(x.sum())

@step(enable_cache=False, settings={"resources": ResourceSettings(gpu_count=1)})
def forgets() -> float:
    assert torch.cuda.device_count() == 1
    return float(torch.ones(1 << 20).sum())

@step(enable_cache=False, settings={"resources": ResourceSettings(gpu_count=1)})
def greedy() -> float:
    return float(torch.ones(1 << 45, device="cuda").sum())

@pipeline
def both():
    uses()
    forgets()
    greedy()

both()
"""


def test_torch(cli: Cli, proof: Say) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if torch.version.cuda is None:
        pytest.skip(f"torch {torch.__version__} is a build without CUDA")
    cli.write("flow.py", TORCH)
    cli("run", "flow.py", "--python", PYTHON, timeout=300)
    steps = cli.json("show", "latest")["steps"]
    assert steps["uses"]["used"]["verdict"]["used"] == 1
    assert steps["forgets"]["used"]["verdict"]["cause"] == "not_moved"
    assert steps["greedy"]["error"]["class"] == "device_oom"
    proof(
        f'torch {torch.__version__}, a step that forgets .cuda(): "{steps["forgets"]["used"]["verdict"]["text"]}"'
    )
    proof(f'torch, too large a tensor: "{steps["greedy"]["error"]["text"][:300]}"')
