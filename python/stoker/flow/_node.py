"""A rank of ``num_parallel`` as its step sees it: a node of its own.

The launcher starts all ranks on one machine, each with all of the step's devices, where ``LOCAL_RANK`` picks
(docs/decisions/0006-ranks.md). A flow's nodes are machines with one process each: what is written for them takes
``cuda:0``, starts processes of its own, and expects what ``torchrun --nnodes N --nproc_per_node 1`` sets.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

_LISTS = (
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    *("HABANA_VISIBLE_MODULES", "NEURON_RT_VISIBLE_CORES"),
)
_NEVER_DEALT = ("google",)  # chips side by side need a box and a port each, which the lease gives


def become_node(rank: Any, task: Dict[str, Any]) -> None:
    """Set this process's variables, and leave in ``task`` the devices that are its own.

    Args:
        rank: the worker's :class:`stoker._worker.ranks.Rank`.
        task: what ``task.json`` says.
    """
    n, k, variables = rank.world, rank.number, os.environ
    variables["MF_PARALLEL_MAIN_IP"] = variables.get("MASTER_ADDR") or "127.0.0.1"
    variables["MF_PARALLEL_NUM_NODES"] = str(n)
    variables["MF_PARALLEL_NODE_INDEX"] = str(k)
    variables["MF_PARALLEL_CONTROL_TASK_ID"] = str(task["task"])
    granted: Dict[str, Any] = task.get("granted") or {}
    devices: List[Dict[str, Any]] = granted.get("devices") or []
    if devices:
        if len(devices) % n or any(one.get("vendor") in _NEVER_DEALT for one in devices):
            return  # as any rank: all of them, and LOCAL_RANK picks
        size = len(devices) // n
        granted["devices"] = devices[k * size : (k + 1) * size]
        _narrow(n, k)
    variables.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", GROUP_WORLD_SIZE=str(n))
    variables.update(NODE_RANK=str(k), GROUP_RANK=str(k))


def _narrow(n: int, k: int) -> None:
    """Of each variable that lists devices or cores the k-th of n equal parts."""
    for name in _LISTS:
        part = _part(os.environ.get(name), n, k)
        if part is None:
            continue
        os.environ[name] = ",".join(part)
        if name == "NEURON_RT_VISIBLE_CORES":
            os.environ["NEURON_RT_NUM_CORES"] = str(len(part))
        if name == "ROCR_VISIBLE_DEVICES" and "HIP_VISIBLE_DEVICES" in os.environ:
            os.environ["HIP_VISIBLE_DEVICES"] = ",".join(map(str, range(len(part))))


def _part(said: Optional[str], n: int, k: int) -> Optional[List[str]]:
    """None: it says nothing, or can't be dealt out."""
    entries: List[str] = []
    for one in (said or "").split(","):
        low, _, high = one.partition("-")
        if low.isdigit() and high.isdigit():
            entries += map(str, range(int(low), int(high) + 1))
        elif one:
            entries.append(one)
    size, rest = divmod(len(entries), n)
    return None if rest or not size else entries[k * size : (k + 1) * size]
