"""Settings objects: resources, retries, devices, caching.

Each is frozen and knows which of its fields were given (``given()``): settings are merged key by
key, and a default must not override a value from another level.
"""

from __future__ import annotations

import math
import re
from typing import (
    Any,
    Callable,
    Dict,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    Union,
)

from .._base import registry
from .._base.errors import SettingsError, did_you_mean, lenient, refuse_unknown, warn
from .checked import Checked, dataclass, plain
from .docker import DockerSettings

# The engine's units (src/tbl/units.def): memory as powers of 1000 or 1024, time in milliseconds.
MEMORY_UNITS = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
TIME_UNITS = {
    **{"": 1000, "ms": 1, "s": 1000, "sec": 1000, "m": 60000, "min": 60000},
    **{"h": 3600000, "d": 86400000, "w": 604800000},
}
_NUMBER = r"\s*([0-9]+(?:\.[0-9]+)?)\s*"
_MEMORY = re.compile(_NUMBER + rf"(?:([{''.join(MEMORY_UNITS)}])(i?)(b?)|(b))\s*", re.IGNORECASE)
_TIME = re.compile(_NUMBER + r"([a-z]*)\s*", re.IGNORECASE)


def memory_bytes(text: Union[str, int, float], where: str = "memory") -> int:
    """Bytes of a memory size: ``8GB`` (10^9), ``8GiB`` (2^30), ``8gb``, ``8 GiB``, ``1.5GB``,
    ``16Gi``, ``8G``.

    An int is a number of bytes.

    Raises:
        SettingsError: the text isn't a size, or isn't above 0.
    """
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        size = int(text)
    else:
        match = _MEMORY.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise SettingsError(
                f"{where} {text!r} is not a memory size; write a number and a unit, such as '8GB' or '512MiB'"
            )
        number, prefix, binary, _, _ = match.groups()
        base = 1024 if binary else 1000
        size = round(float(number) * base ** (MEMORY_UNITS[prefix.lower()] if prefix else 0))
    if size <= 0:
        raise SettingsError(f"{where} {text!r} must be above 0")
    return size


def time_seconds(text: Any) -> Optional[float]:
    """Seconds of a time such as ``90s``, ``1.5h`` or ``100ms``; None: the text isn't a time."""
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    factor = TIME_UNITS.get(match.group(2).lower()) if match else None
    return float(match.group(1)) * factor / 1000 if match and factor else None


@dataclass(frozen=True)
class ResourceSettings(Checked):
    """The resources that a step needs: CPUs, accelerators, memory.

    Attributes:
        cpu_count: CPUs, above 0; fractions are allowed.
        gpu_count: whole accelerators, 0 or more.
        gpu_class: name of the wanted kind, such as ``"A100"``.
        gpu_vendor: ``"nvidia"``, ``"amd"`` …; any if None.
        memory: size with a unit, such as ``"8GB"`` or ``"16GiB"`` (see :func:`memory_bytes`).
        gpu_memory: a share of one device: its memory as a size, or ``"auto"`` for a bit more than
            earlier runs of the step used. Several steps can then share one device; Stoker ends a
            step that exceeds its share.
        any_of: alternatives in order of preference, each merged over the other fields: settings or
            mappings of ``gpu_class``, ``gpu_vendor``, ``gpu_count`` and ``gpu_memory``; a text is a
            ``gpu_class``.

    The other fields belong to deployments and resource pools. Stoker keeps them with the run's
    record.

    Raises:
        SettingsError: a value is out of range, or a field is unknown.

    Example::

        ResourceSettings(cpu_count=4, memory="16GB", gpu_count=1, gpu_memory="20GB")
    """

    cpu_count: Optional[float] = None
    gpu_count: Optional[int] = None
    memory: Union[str, int, None] = None
    gpu_class: Optional[str] = None
    gpu_vendor: Optional[str] = None
    resources: Any = None
    reclaim_tolerance: Optional[str] = None
    allocation_wait_timeout_seconds: int = 3600
    initialization_lease_seconds: int = 3600
    min_replicas: Optional[int] = None
    max_replicas: Optional[int] = None
    autoscaling_metric: Optional[str] = None
    autoscaling_target: Optional[float] = None
    max_concurrency: Optional[int] = None
    gpu_memory: Union[str, int, None] = None
    any_of: Optional[Sequence[Any]] = None

    _renamed = {"pool_resources": "resources", "preemptible": ""}

    def __post_init__(self) -> None:
        cpu, gpu = self.cpu_count, self.gpu_count
        if cpu is not None and (not _is_number(cpu) or not math.isfinite(cpu) or cpu <= 0):
            raise SettingsError(f"ResourceSettings: cpu_count {cpu!r} must be a number above 0")
        if gpu is not None:
            if not _is_number(gpu) or not math.isfinite(gpu) or gpu != int(gpu) or gpu < 0:
                raise SettingsError(
                    f"ResourceSettings: gpu_count {gpu!r} must be a whole number, 0 or more"
                )
            object.__setattr__(self, "gpu_count", int(gpu))
        if self.memory is not None:
            memory_bytes(self.memory, "ResourceSettings: memory")
        _share_bytes(self.gpu_memory)
        if self.any_of is not None:
            object.__setattr__(self, "any_of", _alternatives(self.any_of))
        low, high = self.min_replicas, self.max_replicas
        if low is not None and high and low > high:
            raise SettingsError(
                f"ResourceSettings: min_replicas {low} is above max_replicas {high}"
            )

    @property
    def empty(self) -> bool:
        """Whether no resource is requested."""
        return not self.given()

    def get_memory(self, unit: str = "GB") -> Optional[float]:
        """The memory in ``unit`` (``"B"``, ``"MB"``, ``"GiB"`` …), or None if none is requested."""
        if self.memory is None:
            return None
        return memory_bytes(self.memory) / memory_bytes(f"1{getattr(unit, 'value', unit)}", "unit")

    def as_spec(self) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """(the fields that the engine understands, the other ones)."""
        given = self.given()
        spec = {k: given.pop(k) for k in _SPEC_RESOURCES if k in given}
        if "memory" in spec:
            spec["memory"] = memory_bytes(spec["memory"])
        if "gpu_memory" in spec:
            spec["gpu_memory"] = _share_bytes(spec["gpu_memory"])
        if "any_of" in spec:
            spec["any_of"] = [one.as_spec()[0] for one in self.any_of or ()]
        return spec, given


_ALTERNATIVE = ("gpu_count", "gpu_class", "gpu_vendor", "gpu_memory")
_SPEC_RESOURCES = ("cpu_count", "memory", "any_of", *_ALTERNATIVE)
_MAX_ALTERNATIVES = 8


def _share_bytes(given: Union[str, int, None]) -> Union[str, int, None]:
    """Bytes of a share, ``"auto"`` or None."""
    if given is None or (isinstance(given, str) and given.strip().lower() == "auto"):
        return None if given is None else "auto"
    size = memory_bytes(given, "ResourceSettings: gpu_memory")
    if size < 1 << 20:  # a unit is missing
        raise SettingsError(
            f"ResourceSettings: gpu_memory {given!r} is less than 1 MiB; write a number and a unit, such as '10GB'"
        )
    return size


def _alternatives(given: Any) -> Tuple[ResourceSettings, ...]:
    where = "ResourceSettings: any_of"
    if isinstance(given, (str, Mapping, ResourceSettings)) or not isinstance(given, Sequence):
        raise SettingsError(f"{where} must be a list of alternatives, not {given!r}")
    if not 0 < len(given) <= _MAX_ALTERNATIVES:
        raise SettingsError(
            f"{where} has {len(given)} alternatives; give between 1 and {_MAX_ALTERNATIVES}"
        )
    made = []
    for i, one in enumerate(given):
        fields = {"gpu_class": one} if isinstance(one, str) else one
        settings = _as_settings(ResourceSettings, fields, f"{where}[{i}]")
        for name in settings.given():
            if name not in _ALTERNATIVE:
                raise SettingsError(
                    f"{where}[{i}]: {name} can't differ between alternatives, only "
                    f"{', '.join(_ALTERNATIVE)} can: set it beside any_of"
                )
        made.append(settings)
    return tuple(made)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class StepRetryConfig(Checked):
    """How often and when to retry a failed step.

    Attributes:
        max_retries: attempts after the first one, 1 or more.
        delay: seconds before the first retry.
        backoff: factor between waits: the n-th wait is ``delay * backoff**(n-1)``.
        jitter: random share of the wait, 0 to 1.

    Example::

        @step(retry=StepRetryConfig(max_retries=3, delay=10, backoff=2))
        def fetch() -> str: ...
    """

    max_retries: int = 1
    delay: float = 0
    backoff: float = 1
    jitter: float = 0

    def __post_init__(self) -> None:
        for name, low in (("max_retries", 1), ("delay", 0), ("backoff", 0), ("jitter", 0)):
            value = getattr(self, name)
            whole = name != "max_retries" or (_is_number(value) and value == int(value))
            if not _is_number(value) or not math.isfinite(value) or value < low or not whole:
                kind = "a whole number" if name == "max_retries" else "a number"
                raise SettingsError(
                    f"StepRetryConfig: {name} {value!r} must be {kind}, {low} or more"
                )
        if self.jitter > 1:
            raise SettingsError(f"StepRetryConfig: jitter {self.jitter!r} must be between 0 and 1")

    def as_spec(self) -> Dict[str, Any]:
        """The spec's ``retry``."""
        return {
            "max_retries": int(self.max_retries),
            "delay": self.delay,
            "backoff": self.backoff,
            "jitter": self.jitter,
        }


@dataclass(frozen=True)
class OnOOM(Checked):
    """What the next attempt requests after the step ran out of memory. Counts separately from
    ``retry``.

    Attributes:
        memory, gpu_memory: factors above 1 for the host's and the device's memory: 2, or the text
            ``"x2"``. If neither is given, both are doubled; if one is given, the other isn't
            raised.
        max_retries: number of such attempts, 0 or more.

    The step reads its attempt from ``get_step_context().attempt`` and its new resources from
    ``.granted``.

    Example::

        @step(on_oom=OnOOM(memory=2, max_retries=1))
        def train() -> float: ...
    """

    memory: Union[float, str, None] = None
    gpu_memory: Union[float, str, None] = None
    max_retries: int = 1

    def __post_init__(self) -> None:
        for name in ("memory", "gpu_memory"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _factor(value, f"OnOOM: {name}"))
        n = self.max_retries
        if not _is_number(n) or not 0 <= n <= 1000 or n != int(n):
            raise SettingsError(
                f"OnOOM: max_retries {n!r} must be a whole number between 0 and 1000"
            )

    def as_spec(self) -> Dict[str, Any]:
        """The spec's ``on_oom``."""
        factors = {k: v for k, v in self.given().items() if k != "max_retries"}
        return {**(factors or {"memory": 2, "gpu_memory": 2}), "max_retries": int(self.max_retries)}


_FACTOR = r"\s*(?:[x×]\s*([0-9]+(?:\.[0-9]+)?)|([0-9]+(?:\.[0-9]+)?)\s*[x×]?)\s*"


def _factor(value: Any, where: str) -> float:
    match = re.fullmatch(_FACTOR, value, re.I) if isinstance(value, str) else None
    number = value if _is_number(value) else float(match.group(1) or match.group(2)) if match else 0
    if not 1 < number <= 1000:
        raise SettingsError(
            f"{where} {value!r} must be a factor above 1 and at most 1000, such as 2 or 'x2'"
        )
    return int(number) if number == int(number) else number


@dataclass(frozen=True)
class GpuProfile(Checked):
    """The settings of ``@gpu_profile``: see :func:`stoker.gpu_profile`."""

    with_card: bool = True
    include_artifacts: bool = True
    artifact_prefix: str = "gpu_profile_"
    interval: float = 1

    def __post_init__(self) -> None:
        for name in ("with_card", "include_artifacts"):
            if not isinstance(getattr(self, name), bool):
                raise SettingsError(
                    f"gpu_profile: {name} {getattr(self, name)!r} must be True or False"
                )
        prefix = self.artifact_prefix
        if not isinstance(prefix, str) or not re.fullmatch(
            r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}", prefix
        ):
            raise SettingsError(
                f"gpu_profile: artifact_prefix {prefix!r} must be the beginning of a name: "
                "letters, digits, _ and -"
            )
        sampling(self.interval, "gpu_profile: interval")

    def as_spec(self) -> Dict[str, Any]:
        """The spec's ``gpu_profile``: only the given fields, so that a layer changes nothing
        else."""
        return self.given() or self.model_dump()


def sampling(value: Any, where: str) -> float:
    """Seconds between two samples, as a number or a text such as ``"100ms"``.

    Raises:
        SettingsError: it isn't a duration, or not within 0.01 s (100 Hz) to 3600 s.
    """
    seconds = value if _is_number(value) else time_seconds(value) or -1
    if not 0.01 <= seconds <= 3600:
        raise SettingsError(f"{where} {value!r} must be between 0.01 and 3600 seconds")
    return float(seconds)


_XID_WORDS = ("ignore", "restart", "quarantine", "node")


def on_oom_layer(value: Any, where: str) -> Dict[str, Any]:
    """``on_oom=``: an :class:`OnOOM`, a mapping of its fields, or True to double both."""
    made = OnOOM() if value is True else _as_settings(OnOOM, value, f"{where}: on_oom")
    return {"on_oom": made.as_spec()}


def xid_layer(value: Any, where: str) -> Dict[str, Any]:
    """``xid=``: NVIDIA's error numbers → ``ignore``, ``restart``, ``quarantine`` (the device) or
    ``node``."""
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where}: xid must be a mapping, not {type(value).__name__}")
    made: Dict[str, str] = {}
    for key, word in value.items():
        number = str(key)
        if isinstance(key, bool) or not re.fullmatch(r"[1-9][0-9]{0,4}", number):
            raise SettingsError(f"{where}: xid {key!r} is not an Xid; Xids are numbers such as 109")
        if word not in _XID_WORDS:
            hint = did_you_mean(str(word), _XID_WORDS)
            raise SettingsError(
                f"{where}: xid {number}: {word!r} is none of {', '.join(_XID_WORDS)}{hint}"
            )
        made[number] = word
    return {"xid": made}


def sample_layer(value: Any, where: str) -> Dict[str, Any]:
    """``sample=``: seconds between two samples of the step and its devices."""
    return {"sample": sampling(value, f"{where}: sample")}


def gpu_profile_layer(value: Any, where: str) -> Dict[str, Any]:
    """``gpu_profile=``: True, a mapping of the decorator's arguments, or False."""
    if value is False:
        return {"gpu_profile": False}
    made = (
        GpuProfile() if value is True else _as_settings(GpuProfile, value, f"{where}: gpu_profile")
    )
    return {"gpu_profile": made.as_spec()}


def gang_layer(value: Any, where: str) -> Dict[str, Any]:
    """``gang``: a number of ranks, ``"2:4"`` (min:max), ``"gpus"`` (one per granted device), a
    mapping, or False.

    Raises:
        SettingsError: it is something else, or has an unknown key. The engine checks the values.
    """
    if value is False:
        return {"gang": False}
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        value = {"ranks": value}
    if not isinstance(value, Mapping):
        raise SettingsError(
            f"{where}: gang {value!r} must be a number of ranks, 'min:max', 'gpus', a mapping or False"
        )
    known = ("ranks", "restarts", "min_ranks", "nodes", "port", "hang")
    refuse_unknown(f"{where}: gang", "key", value, known)
    return {"gang": {k: plain(v) for k, v in value.items() if k in known}}


_DIRECT = {
    "on_oom": on_oom_layer,
    "xid": xid_layer,
    "sample": sample_layer,
    "gpu_profile": gpu_profile_layer,
    "gang": gang_layer,
}


@dataclass(frozen=True)
class CachePolicy(Checked):
    """The parts of a step's cache key.

    Attributes:
        include_step_code: the function's code and what it refers to.
        include_step_parameters: parameters and literal inputs.
        include_artifact_values / include_artifact_ids: contents of input artifacts.
        ignored_inputs: names of inputs that don't count.
        file_dependencies: files whose content counts.
        source_dependencies: functions, classes or modules (or their dotted names) whose code
            counts.
        cache_func: called without arguments when the run is built; its result is part of the key.
        expires_after: seconds after which a result is not reused.
        track: files, folders and environment variables that the step read count as well. With
            ``"strict"`` a result isn't cached if some reads can't be seen; with False only declared
            ones count.

    Example::

        @step(cache_policy=CachePolicy(expires_after=86400, file_dependencies=["data.csv"]))
        def load() -> str: ...
    """

    include_step_code: bool = True
    include_step_parameters: bool = True
    include_artifact_values: bool = True
    include_artifact_ids: bool = True
    ignored_inputs: Optional[Sequence[str]] = None
    file_dependencies: Optional[Sequence[str]] = None
    source_dependencies: Optional[Sequence[Any]] = None
    cache_func: Optional[Callable[[], Any]] = None
    expires_after: Optional[float] = None
    track: Union[bool, str] = True

    _renamed = {"python_dependencies": "source_dependencies"}

    @classmethod
    def default(cls) -> CachePolicy:
        """Everything counts."""
        return cls()

    @classmethod
    def no_cache(cls) -> CachePolicy:
        """Nothing counts, so nothing is cached."""
        return cls(
            include_step_code=False,
            include_step_parameters=False,
            include_artifact_values=False,
            include_artifact_ids=False,
        )

    @classmethod
    def from_any(cls, value: Any, where: str) -> CachePolicy:
        """A policy from a policy, its fields, or one of the names ``"default"`` and
        ``"no_cache"``."""
        if isinstance(value, CachePolicy):
            return value
        if isinstance(value, Mapping):
            made: CachePolicy = cls(**value)
            return made
        return cls.from_string(value, where)

    @classmethod
    def from_string(cls, value: Any, where: str = "CachePolicy") -> CachePolicy:
        """The policy of one of the names ``"default"`` and ``"no_cache"``."""
        if value == "default":
            return cls.default()
        if value in ("no_cache", "none"):
            return cls.no_cache()
        raise SettingsError(
            f"{where}: cache_policy {value!r} is unknown; give a CachePolicy, 'default' or 'no_cache'"
        )

    @property
    def caches_nothing(self) -> bool:
        """Whether no part of the key is left, so that a hit would be accidental."""
        return not (
            self.include_step_code
            or self.include_step_parameters
            or self.include_artifact_values
            or self.include_artifact_ids
            or self.file_dependencies
            or self.source_dependencies
            or self.cache_func
        )


_GENERAL = {"resources": ResourceSettings, "docker": DockerSettings}
_COMPONENTS = (
    "orchestrator",
    "step_operator",
    "artifact_store",
    "container_registry",
    "image_builder",
    "experiment_tracker",
    "model_deployer",
    "alerter",
    "data_validator",
    "feature_store",
    "annotator",
    "model_registry",
    "deployer",
)
BACKENDS = {
    "local": "local",
    "local_docker": "docker",
    "docker": "docker",
    "slurm": "slurm",
    "ssh": "ssh",
    "kubernetes": "kubernetes",
    "batch": "batch",
    "aws_batch": "batch",
}


def settings_layer(settings: Any, where: str) -> Dict[str, Any]:
    """The part of a configuration layer for ``settings={…}``.

    Keys are ``"docker"``, ``"resources"``, ``"on_oom"``, ``"xid"``, ``"sample"``,
    ``"gpu_profile"``, ``"gang"``, or ``<component>``, ``<component>.<flavor>``,
    ``<component>:<name>``; values are settings objects or mappings of their fields.

    Raises:
        SettingsError: an unknown key or field, or two keys for one component (a ValueError).
    """
    if not isinstance(settings, Mapping):
        raise SettingsError(f"{where}: settings must be a mapping, not {type(settings).__name__}")
    layer: Dict[str, Any] = {}
    kept: Dict[str, Any] = {}
    _refuse_twice(settings, where)
    for key, value in settings.items():
        if value is None:
            continue
        kind = _component_of(key)
        if key in _GENERAL:
            made = _as_settings(_GENERAL[key], value, f"{where}: settings['{key}']")
            if isinstance(made, ResourceSettings):
                layer["resources"], rest = made.as_spec()
                if rest:
                    kept["resources"] = rest
                if rest.get("resources"):
                    warn(
                        f"{where}: resources {plain(rest['resources'])!r} have no effect, because "
                        "Stoker has no "
                        "resource pools: set cpu_count, memory, gpu_count"
                    )
            else:
                layer["docker"] = made.given()
        elif kind in _COMPONENTS:
            _component(key, kind, value, layer, kept, where)
        elif key in _DIRECT:
            layer.update(_DIRECT[key](value, f"{where}: settings"))
        elif key in ("deployment", "deployer"):
            kept[key] = plain(value)
        elif key in BACKENDS and not lenient():
            raise SettingsError(
                f"{where}: unknown settings key '{key}'; a place's options for the step are "
                f"settings={{'step_operator.{key}': …}}"
            )
        else:
            refuse_unknown(
                where, "settings key", [key], [*_GENERAL, *_DIRECT, "deployment", *_COMPONENTS]
            )
    if kept:
        layer["extra"] = {"settings": kept}
    return layer


def _component_of(key: str) -> str:
    return re.split(r"[.:]", key, maxsplit=1)[0]


def _refuse_twice(settings: Mapping[str, Any], where: str) -> None:
    for kind in _COMPONENTS:
        keys = [k for k in settings if _component_of(k) == kind]
        if kind in keys and len(keys) > 1:
            other = next(k for k in keys if k != kind)
            raise SettingsError(
                f"{where}: settings '{kind}' and '{other}' are two keys for one component; keep one"
            )


def _component(
    key: str, kind: str, value: Any, layer: Dict[str, Any], kept: Dict[str, Any], where: str
) -> None:
    """Put a stack component's settings under its backend, or keep them with the record."""
    options = value.given() if isinstance(value, Checked) else plain(_fields_of(value))
    flavor = key[len(kind) + 1 :]
    backend = BACKENDS.get(flavor) if kind in ("orchestrator", "step_operator") else None
    if backend is not None and isinstance(options, dict):
        layer.setdefault("backend", {}).setdefault(backend, {}).update(options)
        return
    kept[key] = options
    if not registry.is_connected(kind):
        warn(
            f"{where}: settings with key '{key}' have no effect: there is no such component; they "
            "are kept"
        )


def _fields_of(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_unset=True)
    return value


def _as_settings(cls: Any, value: Any, where: str) -> Any:
    if isinstance(value, cls):
        return value
    value = _fields_of(value)
    if not isinstance(value, Mapping):
        raise SettingsError(
            f"{where} must be {'an' if cls is OnOOM else 'a'} {cls.__name__} or a mapping, not {type(value).__name__}"
        )
    try:
        return cls(**{str(k): v for k, v in value.items()})
    except SettingsError as bad:
        raise SettingsError(f"{where}: {bad}") from None
