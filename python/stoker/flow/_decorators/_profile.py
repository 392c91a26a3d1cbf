"""@gpu_profile: the step's devices over time, in the run's card and as artifacts."""

from __future__ import annotations

from typing import Any, Dict, List

from ..._base.errors import StokerError
from ..exception import MetaflowException
from ._base import StepDecorator


class GpuProfile(StepDecorator):
    """``@gpu_profile(interval=1)``: see :func:`stoker.gpu_profile`.

    With ``include_artifacts`` the step gets ``self.gpu_profile_data`` and
    ``self.gpu_profile_num_gpus``; each node of ``num_parallel`` those of its own devices.
    """

    name = "gpu_profile"
    defaults: Dict[str, Any] = {
        "with_card": True,
        "include_artifacts": True,
        "artifact_prefix": "gpu_profile_",
        "interval": 1,
    }

    def init(self) -> None:
        from ..._definition.settings import GpuProfile as Setting

        try:
            self._setting = Setting(**self.attributes)
        except StokerError as bad:
            raise MetaflowException(f"@{bad}") from None

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        return {"gpu_profile": self._setting.as_spec()}

    def task_end(self, running: Any) -> None:
        if not self.attributes["include_artifacts"]:
            return
        from ..._worker.profile import profile_of

        devices = (running.task.get("granted") or {}).get("devices") or []
        data, number = profile_of(running.attempt.directory, devices)
        own = {one.get("uuid") for one in devices}
        if running.declared.get("ranks"):
            data["profile"] = {key: one for key, one in data["profile"].items() if key in own}
        prefix = self.attributes["artifact_prefix"]
        running.set(f"{prefix}data", data)
        running.set(f"{prefix}num_gpus", number)
