"""``@gpu_profile``: the step's devices over time, in the run's card and as artifacts of the step.

The decorator only sets the step's ``gpu_profile`` setting: the engine samples at its interval, and draws the card.
With ``include_artifacts`` the worker stores the curves (``_worker/profile.py``).
"""

from __future__ import annotations

from typing import Any

from .._base import registry
from .._definition.settings import GpuProfile
from .._definition.step import mark_profile
from .step import Step


def gpu_profile(
    _target: Any = None,
    *,
    with_card: bool = True,
    include_artifacts: bool = True,
    artifact_prefix: str = "gpu_profile_",
    interval: float = 1,
) -> Any:
    """Profile the devices of a step: put it above or below ``@step``, bare or with arguments.

    Args:
        with_card: the run's card shows curves and the table of the step's devices.
        include_artifacts: the step gets two more outputs, ``<prefix>data`` and ``<prefix>num_gpus``. ``data`` is
            ``{"error", "cuda_version", "driver_version", "devices": [{"device_id", "name", "memory"}], "profile":
            {device_id: {"timestamp", "time_s", "gpu_utilization" (percent), "gpu_memory_used", "gpu_memory_total",
            "ram_used", "ram_total" (MB), "cpu_utilization" (percent of one CPU, of the step's processes)}}}``, each
            of the innermost a list over time; None is unknown. A step without devices has an ``error`` that says
            so, and no profile.
        artifact_prefix: how their names begin.
        interval: seconds between two samples, 0.01 or more.

    Raises:
        SettingsError: a value out of range.

    Example::

        @gpu_profile(interval=1)
        @step
        def train() -> float: ...
    """
    setting = GpuProfile(
        with_card=with_card,
        include_artifacts=include_artifacts,
        artifact_prefix=artifact_prefix,
        interval=interval,
    ).as_spec()

    def decorate(target: Any) -> Any:
        if isinstance(target, Step):
            return target.configure(gpu_profile=setting)
        of_flow = registry.first(registry.decorations, "gpu_profile", target, setting)
        return of_flow if of_flow is not None else mark_profile(target, setting)

    return decorate if _target is None else decorate(_target)
