"""@resources, and what @kubernetes and @batch ask for: one request of the engine.

A step that says ``@kubernetes`` or ``@batch`` runs wherever the run does, with what it asks for there; their
other options are kept in the document, for the backends of these names.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple

from ..exception import MetaflowException
from ._base import StepDecorator

_COUNTED = ("cpu", "memory", "disk")
_KUBERNETES = (
    "cpu memory disk gpu gpu_vendor shared_memory image image_pull_policy image_pull_secrets "
    "service_account secrets node_selector namespace tolerations labels annotations use_tmpfs "
    "tmpfs_tempdir tmpfs_size tmpfs_path persistent_volume_claims port compute_pool executable "
    "hostname_resolution_timeout qos extended_resources security_context"
)
_BATCH = (
    "cpu gpu memory disk image queue iam_role execution_role shared_memory max_swap swappiness "
    "inferentia trainium efa host_volumes efs_volumes use_tmpfs aws_batch_tags tmpfs_tempdir "
    "tmpfs_size tmpfs_path ephemeral_storage log_driver log_options executable privileged"
)
_NEURON = {"trainium": "Trainium", "inferentia": "Inferentia"}


class Resources(StepDecorator):
    """``@resources(cpu=4, memory=32000, gpu=1)``: MB of memory and disk; what isn't said isn't asked for."""

    name = "resources"
    defaults: Dict[str, Any] = {
        "cpu": None,
        "gpu": None,
        "disk": None,
        "memory": None,
        "shared_memory": None,
    }


class _Compute(StepDecorator):
    """What asks for resources and has options of a place."""

    requests: Tuple[str, ...] = ("cpu", "gpu", "disk", "memory", "shared_memory")

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        kept = {key: _plain(value) for key, value in self.given.items() if key not in self.requests}
        return {"backend": {self.name: kept}}


class Kubernetes(_Compute):
    """``@kubernetes(image=…, gpu=1)``."""

    name = "kubernetes"
    defaults: Dict[str, Any] = dict.fromkeys(_KUBERNETES.split())

    def init(self) -> None:
        vendor = self.given.get("gpu_vendor")
        if vendor is not None and str(vendor).lower() not in ("nvidia", "amd"):
            raise MetaflowException(
                f"@kubernetes: gpu_vendor is {vendor!r}; it is 'nvidia' or 'amd'"
            )


class Batch(_Compute):
    """``@batch(queue=…, trainium=1)``; ``trainium`` and ``inferentia`` count devices."""

    name = "batch"
    requests = (*_Compute.requests, *_NEURON)
    defaults: Dict[str, Any] = dict.fromkeys(_BATCH.split())

    def init(self) -> None:
        if "trainium" in self.given and "inferentia" in self.given:
            raise MetaflowException(
                "@batch: trainium and inferentia exclude each other; ask for one"
            )


def _plain(value: Any) -> Any:
    from .._graph import to_pod

    return to_pod(value)


def request_of(step: str, decorators: List[Any]) -> Dict[str, Any]:
    """The step's ``resources``: of what several decorators say, the largest.

    Raises:
        MetaflowException: a value that is no number.
    """
    asked: Dict[str, Any] = {}
    vendor: Optional[str] = None
    for one in decorators:
        if not isinstance(one, (Resources, _Compute)):
            continue
        for key, value in one.given.items():
            if key in (*_COUNTED, "gpu", "shared_memory", *_NEURON):
                number = _number(step, one, key, value)
                asked[key] = max(asked.get(key, number), number)
        vendor = one.given.get("gpu_vendor", vendor)
    request: Dict[str, Any] = {}
    if asked.get("cpu"):
        request["cpu_count"] = _whole(asked["cpu"])
    if asked.get("memory"):
        request["memory"] = f"{_whole(asked['memory'])}MB"
    if "gpu" in asked:
        request["gpu_count"] = int(asked["gpu"])
        if vendor is not None and asked["gpu"]:
            request["gpu_vendor"] = str(vendor).lower()
    for key, model in _NEURON.items():
        if asked.get(key):
            request.update(gpu_count=int(asked[key]), gpu_vendor="aws", gpu_class=model)
    return request


def _number(step: str, one: Any, key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    counted = key in ("gpu", *_NEURON)
    if number < 0 or (counted and number != int(number)):
        what = "a whole number" if counted else "a number"
        raise MetaflowException(
            f"step '{step}': @{one.name}: {key} is {value!r}; it must be {what} from 0 on"
        )
    return number


def _whole(number: float) -> Any:
    return int(number) if number == int(number) else number
