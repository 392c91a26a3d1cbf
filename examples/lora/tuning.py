"""Fine-tuning on all ranks of a step or a flow's node; what train.py and flow.py share."""

import os
from typing import Any, Callable

import torch
import torch.distributed as dist
from model import (
    Tokens,
    adapter,
    add_lora,
    batch_of,
    load,
    loss_of,
    polite_text,
    write,
)
from torch.nn.parallel import DistributedDataParallel

from stoker import log_metrics

BATCH, SAVE_EVERY = 32, 10


def begin() -> torch.device:
    """Joins the other ranks: NCCL where each has a GPU, else gloo."""
    gpu = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    dist.init_process_group("nccl" if gpu else "gloo")
    if not gpu:
        torch.set_num_threads(1)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    return device


def tune(
    weights: Any,
    path: str,
    rank: int,
    lr: float,
    steps: int,
    state: Any,
    save: Callable[[Any, int], None],
) -> dict[str, Any]:
    """The adapter, its loss on text that it hasn't seen, and what the model now writes.

    Args:
        weights, path: as in model.load. rank: of the two matrices.
        state: the last that was saved, or None. save: keeps a state after so many steps.
    """
    device = begin()
    me, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    tokens = Tokens(path)
    model = add_lora(load(path, weights), rank).to(device)
    parallel = DistributedDataParallel(model)
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=lr)
    text, unseen = (tokens.encode(polite_text(n, seed)) for n, seed in ((2000, 3), (200, 4)))
    first = 0
    if state is not None:
        model.load_state_dict(state["adapter"], strict=False)
        optimizer.load_state_dict(state["optimizer"])
        first = state["steps"]
    print(
        f"process {os.getpid()}, rank {me} of {ranks} on {device}, begins with step {first}",
        flush=True,
    )
    for step in range(first, steps):
        rows = batch_of(text, BATCH, step, me, ranks)
        loss = loss_of(parallel, (rows[0].to(device), rows[1].to(device)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log_metrics({"loss": loss.item()}, step=step)
        if (step + 1) % SAVE_EVERY == 0:
            state = {"adapter": adapter(model), "optimizer": optimizer.state_dict()}
            save({**state, "steps": step + 1}, step + 1)
    model.eval()
    with torch.no_grad():
        rows = batch_of(unseen, 64, seed=0)
        final = loss_of(model, (rows[0].to(device), rows[1].to(device))).item()
    sample = write(model.cpu(), tokens, "please, the ")
    dist.destroy_process_group()
    return {"adapter": adapter(model), "loss": final, "sample": sample, "rank": rank, "lr": lr}
