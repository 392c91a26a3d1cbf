"""@resources, @kubernetes and @batch: makes one request for the engine.

A step with ``@kubernetes`` or ``@batch`` runs there if the project has a stack with that backend,
else wherever the run does, with the same request. The document keeps all arguments for the backends
of these names, which know their meaning. This module checks them like Metaflow, so that a wrong one
is reported before code is packaged.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Dict, List, Optional, Tuple

from ..exception import MetaflowException
from ._base import StepDecorator, to_pod

_COUNTED = ("cpu", "memory", "disk")
_KUBERNETES = (
    "cpu memory disk gpu gpu_vendor gpu_type tpu tpu_accelerator tpu_topology trainium inferentia efa "
    "shared_memory image image_pull_policy image_pull_secrets service_account secrets node_selector "
    "namespace tolerations labels annotations use_tmpfs tmpfs_tempdir tmpfs_size tmpfs_path "
    "persistent_volume_claims port compute_pool executable hostname_resolution_timeout qos "
    "extended_resources security_context"
)
_BATCH = (
    "cpu gpu memory disk image queue iam_role execution_role shared_memory max_swap swappiness "
    "inferentia trainium efa host_volumes efs_volumes use_tmpfs aws_batch_tags tmpfs_tempdir "
    "tmpfs_size tmpfs_path ephemeral_storage log_driver log_options executable privileged"
)
_NEURON = {"trainium": "Trainium", "inferentia": "Inferentia"}
_VENDORS = ("nvidia", "amd", "intel")

# The values that Metaflow accepts: a phrase for them, and a test. Numbers may be texts, because
# ``--with`` passes texts.
_Check = Tuple[str, Callable[[Any], bool]]


def _as_float(value: Any) -> float:
    try:
        return float("nan") if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return float("nan")


def _from(low: int, high: float = math.inf) -> Callable[[Any], bool]:
    return lambda value: low <= _as_float(value) <= high and _as_float(value) % 1 == 0


def _texts(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, (list, tuple)) and all(isinstance(one, str) for one in value)
    )


_SIZE: _Check = ("a whole number of MB above 0", _from(1))
_COUNT: _Check = ("a whole number from 0 on", _from(0))
_FLAG: _Check = (
    "True or False",
    lambda value: isinstance(value, bool) or str(value).lower() in ("true", "false"),
)
_MAPPING: _Check = ("a dict", lambda value: isinstance(value, dict))
_LIST: _Check = ("a list of strings", _texts)
_PAIRS: _Check = ("a dict, or a list of 'key:value'", lambda v: isinstance(v, dict) or _texts(v))
_CHECKS: Dict[str, _Check] = {
    "shared_memory": _SIZE,
    "tmpfs_size": _SIZE,
    "use_tmpfs": _FLAG,
    "tmpfs_tempdir": _FLAG,
    "privileged": _FLAG,
    "gpu": _COUNT,
    "tpu": _COUNT,
    "trainium": _COUNT,
    "inferentia": _COUNT,
    "efa": _COUNT,
    "max_swap": _COUNT,
    "swappiness": ("a whole number from 0 to 100", _from(0, 100)),
    "ephemeral_storage": ("a whole number of GiB from 21 to 200", _from(21, 200)),
    "port": ("a port number", _from(1, 65535)),
    "hostname_resolution_timeout": ("a whole number of seconds", _from(1)),
    "host_volumes": _LIST,
    "efs_volumes": _LIST,
    "image_pull_secrets": _LIST,
    "log_options": _PAIRS,
    "aws_batch_tags": _MAPPING,
    "labels": _PAIRS,
    "annotations": _PAIRS,
    "node_selector": _PAIRS,
    "persistent_volume_claims": _MAPPING,
    "extended_resources": _MAPPING,
    "security_context": _MAPPING,
    "tolerations": (
        "a list of dicts",
        lambda v: isinstance(v, (list, tuple)) and all(isinstance(one, dict) for one in v),
    ),
    "qos": ("'Guaranteed' or 'Burstable'", lambda v: str(v).lower() in ("guaranteed", "burstable")),
}


class Resources(StepDecorator):
    """``@resources(cpu=4, memory=32000, gpu=1)``: MB of memory and disk; an attribute that isn't
    given requests nothing."""

    name = "resources"
    defaults: Dict[str, Any] = {
        "cpu": None,
        "gpu": None,
        "disk": None,
        "memory": None,
        "shared_memory": None,
    }


class _Compute(StepDecorator):
    """A decorator that requests resources and has a backend's options."""

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        return {"backend": {self.name: {key: to_pod(value) for key, value in self.given.items()}}}

    def init(self) -> None:
        for key, value in self.given.items():
            words, is_it = _CHECKS.get(key, ("", None))
            if is_it is not None and not is_it(to_pod(value)):
                raise MetaflowException(f"@{self.name}: {key} is {value!r}; it must be {words}")
        if "trainium" in self.given and "inferentia" in self.given:
            raise MetaflowException(
                f"@{self.name}: trainium and inferentia exclude each other; ask for one"
            )
        kinds = [key for key in ("gpu", "tpu", *_NEURON) if _as_float(self.given.get(key)) > 0]
        if len(kinds) > 1:
            raise MetaflowException(
                f"@{self.name}: no machine has both {' and '.join(kinds)}; ask for one kind of device"
            )


class Kubernetes(_Compute):
    """``@kubernetes(image=…, gpu=1)``; ``tpu`` counts chips, ``trainium`` and ``inferentia``
    devices."""

    name = "kubernetes"
    defaults: Dict[str, Any] = dict.fromkeys(_KUBERNETES.split())

    def init(self) -> None:
        super().init()
        vendor = self.given.get("gpu_vendor")
        if vendor is not None and str(vendor).lower() not in _VENDORS:
            raise MetaflowException(
                f"@kubernetes: gpu_vendor is {vendor!r}; it is 'nvidia', 'amd' or 'intel'"
            )

    def note(self) -> Optional[str]:
        """A note for ``gpu_vendor`` alone, which requests nothing; in Metaflow the configuration
        sets it for all steps."""
        if "gpu_vendor" not in self.given or "gpu" in self.given:
            return None
        return "@kubernetes(gpu_vendor=…) only chooses the GPUs' vendor, and asks for none: set gpu, too"


class Batch(_Compute):
    """``@batch(queue=…, trainium=1)``; ``trainium`` and ``inferentia`` count devices."""

    name = "batch"
    defaults: Dict[str, Any] = dict.fromkeys(_BATCH.split())


def compute_resource_attributes(
    decos: List[Any], compute_deco: Any, resource_defaults: Dict[str, Any]
) -> Dict[str, str]:
    """Resource → its value as text: the largest of ``@resources`` and of the decorator that sends
    the step elsewhere, else the default. For extensions of Metaflow's."""
    found = {key: value for key, value in resource_defaults.items() if value is not None}
    known = {**resource_defaults, **compute_deco.attributes}
    for key in known:
        said = [one.attributes.get(key) for one in decos if one.name == "resources"]
        given = [one for one in [*said, compute_deco.attributes.get(key)] if one is not None]
        if given and (said or key in resource_defaults):
            found[key] = max(given, key=float) if len(given) > 1 else given[0]
    return {key: str(value) for key, value in found.items()}


def request_of(step: str, decorators: List[Any]) -> Dict[str, Any]:
    """The step's ``resources``: the largest values of all its decorators.

    Raises:
        MetaflowException: a value isn't a number.
    """
    asked: Dict[str, Any] = {}
    vendor: Optional[str] = None
    for one in decorators:
        if not isinstance(one, (Resources, _Compute)):
            continue
        for key, value in one.given.items():
            if key in (*_COUNTED, "gpu", "tpu", "shared_memory", *_NEURON):
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
    if asked.get("tpu"):
        request.update(gpu_count=int(asked["tpu"]), gpu_vendor="google")
    for key, model in _NEURON.items():
        if asked.get(key):
            request.update(gpu_count=int(asked[key]), gpu_vendor="aws", gpu_class=model)
    return request


def _number(step: str, one: Any, key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    counted = key in ("gpu", "tpu", *_NEURON)
    if number < 0 or (counted and number != int(number)):
        what = "a whole number" if counted else "a number"
        raise MetaflowException(
            f"step '{step}': @{one.name}: {key} is {value!r}; it must be {what} from 0 on"
        )
    return number


def _whole(number: float) -> Any:
    return int(number) if number == int(number) else number
