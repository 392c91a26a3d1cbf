"""Makes a rank of ``num_parallel`` look like a node of its own.

The launcher starts all ranks on one machine, each with all of the step's devices; ``LOCAL_RANK``
picks one (docs/decisions/0006-ranks.md). A flow's nodes are machines with one process each: their
code takes ``cuda:0``, starts processes, and expects the variables of ``torchrun --nnodes N
--nproc_per_node 1``.
"""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

_LISTS = (
    *("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"),
    *("HABANA_VISIBLE_MODULES", "NEURON_RT_VISIBLE_CORES"),
)
_NEVER_DEALT = ("google",)  # chips side by side each need a box and a port, which the lease sets


def become_node(rank: Any, task: Dict[str, Any]) -> None:
    """Set this process's variables, and reduce the devices in ``task`` to its own.

    Args:
        rank: the worker's :class:`stoker._worker.ranks.Rank`.
        task: the content of ``task.json``.
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
            return  # like any rank: all devices, and LOCAL_RANK picks one
        size = len(devices) // n
        granted["devices"] = devices[k * size : (k + 1) * size]
        _narrow(n, k)
    variables.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", GROUP_WORLD_SIZE=str(n))
    variables.update(NODE_RANK=str(k), GROUP_RANK=str(k))


def _narrow(n: int, k: int) -> None:
    """Reduce each variable that lists devices or cores to the k-th of n equal parts."""
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
    """The k-th of n parts of a list; None: the variable is empty or can't be divided."""
    entries: List[str] = []
    for one in (said or "").split(","):
        low, _, high = one.partition("-")
        if low.isdigit() and high.isdigit():
            entries += map(str, range(int(low), int(high) + 1))
        elif one:
            entries.append(one)
    size, rest = divmod(len(entries), n)
    return None if rest or not size else entries[k * size : (k + 1) * size]
