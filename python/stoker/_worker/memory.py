"""Give memory back within a step: the helpers that the peers' users copy, harmless where there is nothing to give."""

from __future__ import annotations

import gc
import sys
from typing import Any

from .._base.errors import warn
from .frameworks import keep_peaks


def cleanup_memory() -> int:
    """Collect garbage and give cached device memory of this process back to the devices.

    Between steps there is nothing to clean: each is a process of its own, and its memory is freed with it. It is still
    useful *within* a step: between two models that are trained one after the other, or before a child process is
    started that needs the device too. What live variables hold can't be freed: ``del`` them first.

    Peaks are counted anew from here (``torch.cuda.max_memory_allocated()``); the run's record keeps those from
    before. Imports nothing, and opens no device: without torch and CuPy, or before they have used one, only garbage
    is collected.

    Returns:
        Bytes of device memory that went back, over all devices.
    """
    while gc.collect():
        pass
    return _torch() + _cupy()


def cleanup_gpu_memory(force: bool = False) -> int:
    """:func:`cleanup_memory` under ZenML's name; as there, without ``force`` it only warns.

    Returns:
        Bytes of device memory that went back.
    """
    if not force:
        warn("cleanup_gpu_memory(): nothing is freed without force=True")
        return 0
    return cleanup_memory()


def _torch() -> int:
    torch: Any = sys.modules.get("torch")
    cuda: Any = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return 0
    devices = range(int(cuda.device_count()))
    before = sum(int(cuda.memory_reserved(i)) for i in devices)
    keep_peaks(torch)
    cuda.empty_cache()
    cuda.ipc_collect()
    for i in devices:
        cuda.reset_peak_memory_stats(i)
    return max(0, before - sum(int(cuda.memory_reserved(i)) for i in devices))


def _cupy() -> int:
    cupy: Any = sys.modules.get("cupy")
    if cupy is None:
        return 0
    pools = [cupy.get_default_memory_pool(), cupy.get_default_pinned_memory_pool()]
    before = int(pools[0].total_bytes())
    for pool in pools:
        pool.free_all_blocks()
    return max(0, before - int(pools[0].total_bytes()))
