"""Ranks on a real NVIDIA GPU: accelerate on one, mixed precision, NCCL with as many as there are."""

from __future__ import annotations

import json
import subprocess
from typing import Any, Callable

import pytest
from cli_tools import PYTHON, Cli

pytestmark = [pytest.mark.gpu, pytest.mark.torch]
Say = Callable[[str], None]


@pytest.fixture
def torch() -> Any:
    module = pytest.importorskip("torch", reason="PyTorch is not installed")
    if module.version.cuda is None:
        pytest.skip(f"torch {module.__version__} is a build without CUDA")
    return module


def returned(cli: Cli, flow: str) -> Any:
    """What the step 'train' of a program returned."""
    cli.write("flow.py", flow + MAIN)
    done = subprocess.run(
        [PYTHON, "flow.py"],
        cwd=cli.folder,
        env=cli.env | {"STOKER_BIN": str(cli.binary)},
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )
    print(done.stdout[-4000:], done.stderr[-4000:])
    assert done.returncode == 0
    return json.loads(done.stdout.splitlines()[-1])


MAIN = """
@pipeline
def flow():
    train()

if __name__ == "__main__":
    import json
    print(json.dumps(flow().steps["train"].output.load()))
"""

ACCELERATE = """
from stoker import ResourceSettings, pipeline, run_with_accelerate, step

@run_with_accelerate({options})
@step(enable_cache=False, settings={{"resources": ResourceSettings(gpu_count=1)}})
def train() -> dict:
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=1e-2))
    x = torch.randn(512, 64, device=accelerator.device)
    y = x[:, :1] * 2
    losses = []
    for _ in range(200):
        with accelerator.autocast():
            inner = torch.mm(x, x.T).dtype
            loss = torch.nn.functional.mse_loss(model(x).float(), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(float(loss))
    return {{
        "device": accelerator.device.type,
        "ranks": accelerator.num_processes,
        "precision": accelerator.mixed_precision,
        "inner": str(inner),
        "losses": [losses[0], losses[-1]],
    }}
"""


def test_accelerate_on_one_gpu(cli: Cli, torch: Any, proof: Say) -> None:
    said = returned(cli, ACCELERATE.format(options=""))
    assert (said["device"], said["ranks"], said["precision"]) == ("cuda", 1, "no")
    assert said["inner"] == "torch.float32"
    first, last = said["losses"]
    assert last < first / 10
    used = cli.json("show", "latest")["steps"]["train"]["used"]
    assert used["verdict"]["used"] == 1
    proof(f"`@run_with_accelerate` on one GPU: loss {first:.3f} to {last:.3f} in 200 steps")


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_mixed_precision(cli: Cli, torch: Any, proof: Say, precision: str) -> None:
    if precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        pytest.skip("this GPU has no bf16")
    said = returned(cli, ACCELERATE.format(options=f"mixed_precision={precision!r}"))
    assert (said["device"], said["precision"]) == ("cuda", precision)
    assert said["inner"] == {"bf16": "torch.bfloat16", "fp16": "torch.float16"}[precision]
    first, last = said["losses"]
    assert last < first / 10
    proof(f"`mixed_precision={precision!r}`: {said['inner']}, loss {first:.3f} to {last:.3f}")


NCCL = """
from stoker import ResourceSettings, pipeline, step, torchrun

@torchrun(all_ranks=True)
@step(enable_cache=False, settings={{"resources": ResourceSettings(gpu_count={n})}})
def train() -> list:
    import os, torch
    import torch.distributed as dist

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    x = torch.full((1 << 20,), float(dist.get_rank() + 1), device="cuda")
    dist.all_reduce(x)
    said = [dist.get_world_size(), float(x.min()), float(x.max()), torch.cuda.current_device()]
    dist.destroy_process_group()
    return said
"""


def test_nccl_all_reduce(cli: Cli, torch: Any, proof: Say) -> None:
    """One rank on each GPU that is free; with one GPU NCCL still has to start and to sum."""
    n = len([d for d in cli.json("gpus")["devices"] if d["status"] == "free"])
    assert n >= 1
    total = n * (n + 1) / 2
    assert returned(cli, NCCL.format(n=n)) == [[n, total, total, k] for k in range(n)]
    proof(
        f"NCCL, all-reduce of 4 MiB on {n} {'ranks' if n > 1 else 'rank'}: every element {total:g}"
    )
