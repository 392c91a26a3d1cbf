"""Configuration layers: the options of decorators, ``configure``, ``with_options`` and run files,
merged.

A *layer* is a plain dict with the spec's settings keys (docs/formats/spec.md) and three more:
``hooks`` has callables or sources, ``policy`` a :class:`CachePolicy`, ``override`` the run's
switches that win over every step. From low to high: pipeline decorator < run configuration <
``with_options`` for the pipeline; then, per key, step decorator < ``configure`` < run
configuration's ``steps``.
"""

from __future__ import annotations

import math
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    List,
    Mapping,
    Optional,
    Sequence,
    Union,
)

from .._base import registry
from .._base.binary import output_of
from .._base.errors import SettingsError, lenient, refuse_unknown, warn
from .checked import Checked, plain
from .settings import (
    BACKENDS,
    CachePolicy,
    OnOOM,
    StepRetryConfig,
    gang_layer,
    gpu_profile_layer,
    on_oom_layer,
    sample_layer,
    settings_layer,
    time_seconds,
    xid_layer,
)

if TYPE_CHECKING:
    from typing import TypedDict

    from .types import ExecutionMode, Model, Schedule
else:
    # At run time only the names count. A worker may run on Python 3.7, which has no TypedDict.

    class TypedDict:
        def __init_subclass__(cls, total=True):
            cls.__annotations__ = {
                name: kind
                for base in reversed(cls.__mro__)
                for name, kind in getattr(base, "__annotations__", {}).items()
            }


Hook = Union[str, Callable[..., Any]]


class CommonOptions(TypedDict, total=False):
    """Keywords of both decorators; documented at :func:`stoker.step` and
    :func:`stoker.pipeline`."""

    name: Optional[str]
    enable_cache: Optional[bool]
    enable_artifact_metadata: Optional[bool]
    enable_artifact_visualization: Optional[bool]
    enable_step_logs: Optional[bool]
    environment: Optional[Dict[str, Any]]
    secrets: Optional[Sequence[Any]]
    settings: Optional[Mapping[str, Any]]
    extra: Optional[Dict[str, Any]]
    on_failure: Optional[Hook]
    on_success: Optional[Hook]
    on_start: Optional[Hook]
    on_end: Optional[Hook]
    model: Optional[Model]
    retry: Union[StepRetryConfig, Mapping[str, Any], int, None]
    substitutions: Optional[Dict[str, str]]
    cache_policy: Union[CachePolicy, str, None]
    timeout: Union[float, str, None]
    grace: Union[float, str, None]
    timeout_notice: Union[float, str, None]
    keep_checkpoints: Optional[bool]
    isolation: Optional[str]
    on_oom: Union[OnOOM, Mapping[str, Any], bool, None]
    xid: Optional[Mapping[Union[int, str], str]]
    sample: Union[float, str, None]
    gpu_profile: Union[Mapping[str, Any], bool, None]
    gang: Union[Mapping[str, Any], int, str, None]
    description: Optional[str]
    tags: Optional[Sequence[Any]]


class StepOptions(CommonOptions, total=False):
    """Keywords of ``@step``."""

    step_type: Any
    experiment_tracker: Union[bool, str, None]
    step_operator: Union[bool, str, None]
    output_materializers: Any
    parameters: Optional[Dict[str, Any]]
    runtime: Any
    heartbeat_healthy_threshold: int
    group: Any


class PipelineOptions(CommonOptions, total=False):
    """Keywords of ``@pipeline``."""

    dynamic: Optional[bool]
    depends_on: Any
    enable_heartbeat: Optional[bool]
    enable_pipeline_logs: Optional[bool]
    on_pause: Optional[Hook]
    on_resume: Optional[Hook]
    on_init: Optional[Hook]
    on_init_kwargs: Optional[Dict[str, Any]]
    on_cleanup: Optional[Hook]
    execution_mode: Union[ExecutionMode, str, None]


Layer = Dict[str, Any]

HOOKS = ("on_start", "on_success", "on_failure", "on_end")
STEP_KEYS = list(StepOptions.__annotations__)
PIPELINE_KEYS = list(PipelineOptions.__annotations__)
# Kept with the record: ZenML's server uses them to display or store a run.
_KEPT = [
    "enable_artifact_metadata",
    "enable_artifact_visualization",
    "enable_step_logs",
    "enable_pipeline_logs",
    "enable_heartbeat",
    "heartbeat_healthy_threshold",
    "group",
    "runtime",
    "substitutions",
]
# Kept too, but with a note that they have no effect, because the user expects one.
_LOUD = {
    "experiment_tracker": "no experiment tracker is connected; `trackers` in stoker.yaml sends "
    "whole runs to MLflow, W&B or TensorBoard",
    "on_init": "programs for ZenML have init hooks",
    "on_cleanup": "programs for ZenML have cleanup hooks",
    "on_pause": "pausing comes with dynamic pipelines",
    "on_resume": "pausing comes with dynamic pipelines",
    "depends_on": "it belongs to dynamic pipelines",
}
_ALIASES = {
    "extra_name_placeholders": "substitutions",
    "model_version": "model",
    "failure_hook_source": "on_failure",
    "success_hook_source": "on_success",
    "start_hook_source": "on_start",
    "end_hook_source": "on_end",
    "init_hook_source": "on_init",
    "cleanup_hook_source": "on_cleanup",
}


_RESOURCES = {
    "gpu": "gpu_count",
    "gpus": "gpu_count",
    "num_gpus": "gpu_count",
    "gpu_count": "gpu_count",
    "gpu_memory": "gpu_memory",
    "cpu": "cpu_count",
    "cpus": "cpu_count",
    "cpu_count": "cpu_count",
    "memory": "memory",
}


def checked_options(where: str, options: Mapping[str, Any], known: Sequence[str]) -> Dict[str, Any]:
    """The options under their current names. Unknown ones are refused (in the shim: a warning)."""
    renamed = {_ALIASES.get(k, k): v for k, v in options.items()}
    for name, field in _RESOURCES.items():
        if name in renamed and name not in known and not lenient():
            raise SettingsError(
                f"{where}: unknown option '{name}'; resources are a setting: "
                f"settings={{'resources': ResourceSettings({field}={renamed[name]!r})}}"
            )
    refuse_unknown(where, "option", renamed, known)
    return {k: v for k, v in renamed.items() if k in known}


def make_layer(where: str, options: Mapping[str, Any]) -> Layer:
    """The layer for a set of decorator options; None means "not given".

    Raises:
        SettingsError: a wrong value; the sentence begins with ``where``.
    """
    layer: Layer = {}
    for key, value in options.items():
        if value is None:
            continue
        if key in HOOKS:
            layer.setdefault("hooks", {})[key] = _hook(where, key, value)
        elif key in _KEPT:
            _keep(layer, key, value)
        elif key in _LOUD:
            if value:
                if not registry.is_connected(key):
                    warn(f"{where}: {key} is kept but has no effect: {_LOUD[key]}")
                _keep(layer, key, value)
        else:
            maker = _MAKERS.get(key)
            if maker is not None:
                layer = merge(layer, maker(where, value))
    return layer


def _keep(layer: Layer, key: str, value: Any) -> None:
    layer.setdefault("extra", {}).setdefault("zenml", {})[key] = plain(_named(value))


def _named(value: Any) -> Any:
    return f"{value.__module__}.{value.__qualname__}" if callable(value) else value


def merge(low: Layer, high: Mapping[str, Any]) -> Layer:
    """A new layer in which ``high`` wins key by key, recursively. None doesn't count; secrets and
    tags are joined."""
    lists = {key: [*low[key], *high[key]] for key in _JOINED if low.get(key) and high.get(key)}
    return {**_merged(low, high), **{key: list(dict.fromkeys(lists[key])) for key in lists}}


_JOINED = ("secrets", "tags")


def _merged(low: Layer, high: Mapping[str, Any]) -> Layer:
    merged = dict(low)
    for key, value in high.items():
        if value is None:
            continue
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, Mapping) and key != "retry":
            before = _uncovered(before, value) if key == "resources" else before
            merged[key] = _merged(before, value)
        else:
            merged[key] = value
    return merged


def _uncovered(low: Layer, high: Mapping[str, Any]) -> Layer:
    """``low`` without what would hide settings of ``high``: a kind in ``high`` removes ``any_of``,
    a number removes that number from its entries."""
    said = [key for key in ("gpu_count", "gpu_memory") if high.get(key) is not None]
    if not low.get("any_of") or high.get("any_of") is not None:
        return low
    if high.get("gpu_class") is not None or high.get("gpu_vendor") is not None:
        return {key: value for key, value in low.items() if key != "any_of"}
    rest = [{k: v for k, v in one.items() if k not in said} for one in low["any_of"]]
    return {**low, "any_of": rest}


def _hook(where: str, key: str, value: Any) -> Any:
    if isinstance(value, Mapping) and "source" in value:
        value = value["source"]
    if isinstance(value, str):
        module, _, name = value.replace(":", ".").rpartition(".")
        if not module:
            raise SettingsError(
                f"{where}: {key} {value!r} is not a source path; write 'module.function'"
            )
        return f"{module}:{name}"
    if not callable(value):
        raise SettingsError(
            f"{where}: {key} must be a function or a source path, not {type(value).__name__}"
        )
    return value


def _cache_switch(where: str, value: Any) -> Layer:
    if not isinstance(value, bool):
        raise SettingsError(f"{where}: enable_cache {value!r} must be True or False")
    return {"cache": {"enabled": value}}


def _policy(where: str, value: Any) -> Layer:
    policy = CachePolicy.from_any(value, where)
    cache: Dict[str, Any] = {}
    if policy.caches_nothing:
        cache["enabled"] = False
    if policy.expires_after is not None:
        cache["expires"] = policy.expires_after
    if policy.ignored_inputs:
        cache["ignore_inputs"] = list(policy.ignored_inputs)
    if policy.file_dependencies:
        cache["files"] = [str(path) for path in policy.file_dependencies]
    if policy.track not in (True, False, "strict"):
        raise SettingsError(
            f"{where}: cache_policy: track {policy.track!r} is not True, False or 'strict'"
        )
    if policy.track is not True:
        cache["track"] = policy.track
    return {"cache": cache, "policy": policy}


def _retry(where: str, value: Any) -> Layer:
    if isinstance(value, int) and not isinstance(value, bool):
        value = {"max_retries": value}
    if isinstance(value, Mapping):
        try:
            value = StepRetryConfig(**value)
        except SettingsError as bad:
            raise SettingsError(f"{where}: {bad}") from None
    if not isinstance(value, StepRetryConfig):
        raise SettingsError(f"{where}: retry must be a StepRetryConfig, not {type(value).__name__}")
    return {"retry": value.as_spec()}


def _environment(where: str, value: Any) -> Layer:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where}: environment must be a mapping, not {type(value).__name__}")
    for key, text in value.items():
        if not isinstance(key, str) or not key or "=" in key or "\0" in key:
            raise SettingsError(f"{where}: environment variable name {key!r} can't be used")
        if not isinstance(text, (str, int, float, bool)):
            raise SettingsError(
                f"{where}: environment variable {key} must be text, not {type(text).__name__}"
            )
    return {"environment": {k: v if isinstance(v, str) else str(v) for k, v in value.items()}}


def _secrets(where: str, value: Any) -> Layer:
    if isinstance(value, str) or not isinstance(value, (list, tuple, set)):
        raise SettingsError(f"{where}: secrets must be a list of names, not {value!r}")
    return {"secrets": [str(v) for v in value]}


def _tags(where: str, value: Any) -> Layer:
    if isinstance(value, str) or not isinstance(value, (list, tuple, set)):
        raise SettingsError(f"{where}: tags must be a list of strings, not {value!r}")
    names, told = [], {}
    for tag in value:
        fields = tag if isinstance(tag, Mapping) else vars(tag) if hasattr(tag, "__dict__") else {}
        name = tag.get("name") if isinstance(tag, Mapping) else getattr(tag, "name", tag)
        names.append(str(name))
        said = {
            k: fields[k] for k in ("exclusive", "cascade", "color") if fields.get(k) is not None
        }
        if said:
            told[str(name)] = said
    layer: Layer = {"tags": names}
    return {**layer, "extra": {"zenml": {"tags": told}}} if told else layer


def _extra(where: str, value: Any) -> Layer:
    if not isinstance(value, Mapping):
        raise SettingsError(f"{where}: extra must be a mapping, not {type(value).__name__}")
    return {"extra": plain(value)}


def _duration(key: str) -> Callable[[str, Any], Layer]:
    def make(where: str, value: Any) -> Layer:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if number and math.isfinite(value) and value > 0:
            return {key: value}
        if isinstance(value, str) and time_seconds(value) is not None:
            return {key: value.strip()}
        raise SettingsError(
            f"{where}: {key} {value!r} is not a duration; give seconds, or text such as '90s', '10m', '2h'"
        )

    return make


def _keep_checkpoints(where: str, value: Any) -> Layer:
    if not isinstance(value, bool):
        raise SettingsError(f"{where}: keep_checkpoints is {value!r}; it must be True or False")
    return {"keep_checkpoints": value}


def _isolation(where: str, value: Any) -> Layer:
    if value not in ("fork", "spawn"):
        raise SettingsError(f"{where}: isolation {value!r} is neither 'fork' nor 'spawn'")
    return {"isolation": value}


def _model(where: str, value: Any) -> Layer:
    if isinstance(value, str):
        return {"extra": {"model": {"name": value}}}
    return {"extra": {"model": value.given() if isinstance(value, Checked) else plain(value)}}


def _mode(where: str, value: Any) -> Layer:
    mode = str(getattr(value, "value", value))
    if mode not in ("fail_fast", "stop_on_failure", "continue_on_failure"):
        raise SettingsError(
            f"{where}: execution_mode {mode!r} is unknown; "
            "it is fail_fast, stop_on_failure or continue_on_failure"
        )
    return {"mode": mode}


def _step_operator(where: str, value: Any) -> Layer:
    """The layer for where the step runs: a backend, or a stack that the project may lack."""
    if value is True:
        return {"extra": {"zenml": {"step_operator": True}}}  # the stack's own, if it has one
    if value is False:
        return {}
    backend = BACKENDS.get(str(value))
    if backend == "local":
        return {"backend": "local"}  # even if the pipeline names another backend
    return {"backend": {backend: {}} if backend is not None else {"stack": str(value)}}


_MAKERS: Dict[str, Callable[[str, Any], Layer]] = {
    "step_operator": _step_operator,
    "enable_cache": _cache_switch,
    "cache_policy": _policy,
    "settings": lambda where, value: settings_layer(value, where),
    "environment": _environment,
    "secrets": _secrets,
    "tags": _tags,
    "extra": _extra,
    "retry": _retry,
    "timeout": _duration("timeout"),
    "grace": _duration("grace"),
    "timeout_notice": _duration("timeout_notice"),
    "keep_checkpoints": _keep_checkpoints,
    "isolation": _isolation,
    "on_oom": lambda where, value: on_oom_layer(value, where),
    "xid": lambda where, value: xid_layer(value, where),
    "sample": lambda where, value: sample_layer(value, where),
    "gpu_profile": lambda where, value: gpu_profile_layer(value, where),
    "gang": lambda where, value: gang_layer(value, where),
    "model": _model,
    "execution_mode": _mode,
    "description": lambda where, value: {"description": str(value)},
}


class StepPatch:
    """A run configuration's part for one step: a layer, parameters, another name."""

    def __init__(self, where: str, options: Mapping[str, Any]) -> None:
        known = [*STEP_KEYS, *_RUN_ONLY_STEP]
        checked = checked_options(where, options, known)
        self.parameters: Dict[str, Any] = dict(checked.get("parameters") or {})
        self.layer = make_layer(where, {k: v for k, v in checked.items() if k in STEP_KEYS})
        for key in ("external_input_artifacts", "model_artifacts_or_metadata", "outputs"):
            if checked.get(key):
                warn(f"{where}: {key} in a run configuration has no effect; set it in code")


_RUN_ONLY_STEP = [
    "outputs",
    "caching_parameters",
    "external_input_artifacts",
    "model_artifacts_or_metadata",
    "client_lazy_loaders",
    "template",
    "upstream_steps",
]
_RUN_KEYS = [
    *PIPELINE_KEYS,
    *["run_name", "schedule", "build", "steps", "parameters"],
]


class RunConfig:
    """A run configuration (a YAML or JSON file, or the arguments of ``with_options``)."""

    def __init__(self, where: str, options: Mapping[str, Any]) -> None:
        checked = checked_options(where, options, _RUN_KEYS)
        self.where = where
        given = checked.get("schedule")
        self.schedule: Optional[Schedule] = _schedule(given)
        self.run_name: Optional[str] = checked.get("run_name")
        self.parameters: Dict[str, Any] = dict(checked.get("parameters") or {})
        self.layer = make_layer(where, checked)
        if checked.get("enable_cache") is not None:
            self.layer["override"] = {"cache": {"enabled": checked["enable_cache"]}}
        self.steps: Dict[str, StepPatch] = {}
        for name, patch in (checked.get("steps") or {}).items():
            self.steps[name] = as_patch(f"{where}: step '{name}'", patch)


def _schedule(given: Any) -> Optional[Schedule]:
    from .types import Schedule

    return Schedule(**given) if isinstance(given, dict) else given


def as_patch(where: str, patch: Any) -> StepPatch:
    """A step's part of a run configuration, from a mapping or an object with fields."""
    if isinstance(patch, StepPatch):
        return patch
    fields = patch.model_dump(exclude_unset=True) if hasattr(patch, "model_dump") else patch
    if fields is None:
        fields = {}
    if not isinstance(fields, Mapping):
        raise SettingsError(f"{where} must be a mapping, not {type(fields).__name__}")
    return StepPatch(where, fields)


class MissingConfigError(FileNotFoundError, SettingsError):
    """There is no run configuration at a path."""


def load_run_config(path: str) -> Mapping[str, Any]:
    """Read a run configuration; the engine turns YAML into JSON.

    Raises:
        SettingsError: the file can't be read, or isn't a mapping; without a file it is a
            FileNotFoundError too.
    """
    import json
    import os

    if not os.path.exists(path):
        raise MissingConfigError(f"run configuration {path}: there is no such file")
    if str(path).endswith(".json"):
        try:
            with open(path, encoding="utf-8-sig") as stream:
                data = json.load(stream)
        except (OSError, ValueError) as bad:
            raise SettingsError(f"run configuration {path}: {bad}") from None
    else:
        try:
            data = json.loads(output_of(["spec", "convert", str(path)]))
        except (RuntimeError, ValueError) as bad:
            raise SettingsError(f"run configuration {path}: {bad}") from None
    if not isinstance(data, dict):
        raise SettingsError(f"run configuration {path}: its top level must be a mapping")
    return data


def hook_layers(layers: List[Layer]) -> Dict[str, Any]:
    """The hooks that result from merging the layers, low to high."""
    hooks: Dict[str, Any] = {}
    for layer in layers:
        hooks.update(layer.get("hooks") or {})
    return hooks
