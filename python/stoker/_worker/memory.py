"""Frees memory within a step: the helpers that ZenML's users copy; harmless if there is nothing to
free."""

from __future__ import annotations

import gc
import sys
from typing import Any

from .._base.errors import warn
from .frameworks import keep_peaks


def cleanup_memory() -> int:
    """Collect garbage and return this process's cached device memory to the devices.

    Between steps there is nothing to clean up: each step is a process, and its memory is freed with
    it. The function is useful *within* a step: between the training of two models, or before you
    start a child process that needs the device too. It can't free objects of live variables:
    ``del`` them first.

    It resets peaks (``torch.cuda.max_memory_allocated()``); the run's record keeps the earlier
    ones. It imports nothing and opens no device: if torch and CuPy aren't loaded, or have used no
    device, it only collects garbage.

    Returns:
        Bytes of device memory that were freed, over all devices.

    Example::

        @step
        def train() -> float:
            cleanup_memory()
            return fit()
    """
    while gc.collect():
        pass
    return _torch() + _cupy()


def cleanup_gpu_memory(force: bool = False) -> int:
    """:func:`cleanup_memory` under ZenML's name; as in ZenML, it only warns without ``force``.

    Returns:
        Bytes of device memory that were freed.

    Example::

        @step
        def train() -> float:
            cleanup_gpu_memory(force=True)
            return fit()
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
