"""Six small trainings on as few GPUs as will do: each asks for a share of one, not for the whole device.

    python examples/shares/sweep.py
    stoker run --simulate 2xA100 examples/shares/sweep.py     (on a machine that isn't here)
    stoker top                                                (in another terminal, meanwhile)

A training that runs out of device memory is tried again with twice the share, and sees by its attempt that it is.
Without a GPU everything runs on the CPU, and the summary says so.
"""

import importlib.util
from typing import Annotated

import numpy as np

from stoker import (
    OnOOM,
    ResourceSettings,
    cleanup_memory,
    get_step_context,
    gpu_profile,
    log_metadata,
    pipeline,
    step,
)

TORCH = importlib.util.find_spec("torch") is not None
SHARE = ResourceSettings(
    cpu_count=1,
    memory="1GB",
    gpu_count=1,
    gpu_memory="2GB",
    any_of=["A100", "H100", {"gpu_vendor": "nvidia"}],  # in this order, as far as they are here
)


def fit(rate: float, seed: int, n_rounds: int) -> float:
    """Least squares by gradient descent; the mean squared error at the end."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(4096, 64)).astype(np.float32)
    y = x @ draw.normal(size=64).astype(np.float32)
    weights = np.zeros(64, dtype=np.float32)
    if TORCH:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        x, y, weights = (torch.tensor(part, device=device) for part in (x, y, weights))
    for _ in range(n_rounds):
        weights = weights - rate * (x.T @ (x @ weights - y)) / len(x)
    return float(((x @ weights - y) ** 2).mean())


@gpu_profile(interval=0.2)
@step(settings={"resources": SHARE}, on_oom=OnOOM(gpu_memory=2, max_retries=2))
def train(rate: float, seed: int = 7) -> Annotated[float, "error"]:
    """Two models one after the other: the first one's memory goes back before the second begins."""
    rough = fit(rate, seed, n_rounds=50)
    freed = cleanup_memory()
    error = fit(rate, seed, n_rounds=400)
    context = get_step_context()
    log_metadata({"rough": rough, "freed_bytes": freed, "attempt": context.attempt})
    return error


@step
def choose(rates: list, errors: list) -> Annotated[str, "summary"]:
    """The best rate of all."""
    error, rate = min(zip(errors, rates))
    return f"best of {len(rates)} rates: {rate}, mean squared error {error:.2g}"


@pipeline
def sweep() -> None:
    rates = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3]
    choose(rates, [train(rate) for rate in rates])


if __name__ == "__main__":
    run = sweep()
    print(run.steps["choose"].output.load())
    for name, one in run.steps.items():
        for device in one.resources["granted"].get("devices") or []:
            share = device.get("share_bytes", device.get("memory_bytes", 0)) / 1e9
            print(f"{name}: {share:.1f} GB of {device['uuid']} ({device['model']})")
