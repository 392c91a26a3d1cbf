"""Configurations of runs and steps, and the snapshot of a run, with ZenML's attributes."""

from __future__ import annotations

import enum
import json
import time
import uuid
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from .._base import registry
from .._definition.docker import DockerSettings
from .._definition.settings import CachePolicy, ResourceSettings
from .._definition.types import ExecutionMode, Model
from .._engine.config import RunConfiguration
from . import fields, records
from .responses import Response, Source

VERSION = "0.98.0"  # of the interface
_HOOKS = {
    "start_hook_source": "on_start",
    "end_hook_source": "on_end",
    "success_hook_source": "on_success",
    "failure_hook_source": "on_failure",
}
_SWITCHES = (
    *("enable_heartbeat", "enable_pipeline_logs", "enable_step_logs", "enable_artifact_metadata"),
    *("enable_artifact_visualization", "runtime", "group", "experiment_tracker"),
)


_COMMON = (
    *("name", "enable_cache", "parameters", "settings", "environment", "secrets", "extra"),
    *("substitutions", "model", "retry", "enable_step_logs", "enable_artifact_metadata"),
    *("enable_artifact_visualization", *_HOOKS),
)


def in_json(value: Any) -> Any:
    """A parameter as JSON has it: pydantic's models as mappings, members of enumerations by value."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, (list, tuple)):
        return type(value)(map(in_json, value)) if type(value) in (list, tuple) else value
    if isinstance(value, dict):
        return {key: in_json(one) for key, one in value.items()}
    return value.value if isinstance(value, enum.Enum) else value


class Configuration:
    """What a run and a step have in common; the rest is as in Stoker's own client."""

    _fields: Tuple[str, ...] = _COMMON

    def __init__(
        self,
        native: RunConfiguration,
        name: str,
        outer: Mapping[str, Any],
        began_ms: Any = None,
    ) -> None:
        self._native = native
        self.name = name
        self.extra = {**outer, **native.extra}
        given = native.model
        self.model = Model(**_fields(given)) if given else None
        self._began = None if began_ms is None else began_ms / 1000

    @property
    def parameters(self) -> Dict[str, Any]:
        """Parameters by name; pydantic's models as dicts. What a step looks up when it starts isn't
        one."""
        given = self._native.parameters.items()
        late = {k for k, v in given if isinstance(v, dict) and registry.late.keys() & v.keys()}
        kept = {k: v for k, v in given if k not in late}
        return {k: in_json(v) for k, v in kept.items()}

    @property
    def environment(self) -> Dict[str, str]:
        """Environment variables."""
        return dict(self._native._said.get("environment") or {})

    @property
    def secrets(self) -> List[str]:
        """Names of secrets."""
        return list(self._native._said.get("secrets") or ())

    @property
    def substitutions(self) -> Dict[str, str]:
        """Placeholders of names; in a run with those that every name has."""
        return {**_stamps(self._began), **self._native.substitutions}

    @property
    def resource_settings(self) -> ResourceSettings:
        """What is asked for; empty if nothing is."""
        found: ResourceSettings = self.settings.get("resources") or ResourceSettings()
        return found

    @property
    def settings(self) -> Dict[str, Any]:
        """Settings by key; memory is a text and CPUs are a float, as ZenML has them."""
        found = dict(self._native.settings)
        if "resources" in found:
            given = {k: v for k, v in found["resources"].given().items() if v is not None}
            if isinstance(given.get("memory"), int):
                given["memory"] = _size(given["memory"])
            if given.get("cpu_count") is not None:
                given["cpu_count"] = float(given["cpu_count"])
            found["resources"] = ResourceSettings(**given)
        return found

    @property
    def docker_settings(self) -> DockerSettings:
        """The image's settings; the default ones if none are given."""
        found: DockerSettings = self._native.settings.get("docker") or DockerSettings()
        return found

    @property
    def execution_mode(self) -> ExecutionMode:
        """What a failed step does to the others."""
        return ExecutionMode(self._native.execution_mode or "continue_on_failure")

    def __eq__(self, other: object) -> bool:
        """Whether it is of the same kind and says the same."""
        return type(other) is type(self) and vars(self._native) == vars(other._native)

    __hash__ = None  # type: ignore[assignment]

    def model_dump(self, **_: Any) -> Dict[str, Any]:
        """Its fields."""
        return {name: _dumped(getattr(self, name)) for name in self._fields}

    def model_dump_json(self, **_: Any) -> str:
        """The same as JSON."""
        return json.dumps(fields.in_json(self.model_dump()))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _HOOKS:
            return _hook((self._native._said.get("hooks") or {}).get(_HOOKS[name]))
        if name in _SWITCHES:
            return self._native._zenml.get(name)
        return getattr(self._native, name)


class PipelineConfiguration(Configuration):
    """The configuration of a run."""

    _fields = (*_COMMON, "execution_mode", "tags", "init_hook_kwargs")
    cache_policy = None
    pause_hook_source = resume_hook_source = None
    skip_successful_steps = False

    @property
    def _life(self) -> Dict[str, Any]:
        return dict(self._native._zenml.get("lifetime") or {})

    @property
    def init_hook_source(self) -> Optional[Source]:
        """The hook before the run, or None."""
        return _hook(self._life.get("on_init"))

    @property
    def init_hook_kwargs(self) -> Optional[Dict[str, Any]]:
        """Its arguments, or None."""
        found: Optional[Dict[str, Any]] = self._life.get("on_init_kwargs")
        return found

    @property
    def cleanup_hook_source(self) -> Optional[Source]:
        """The hook after the run, or None."""
        return _hook(self._life.get("on_cleanup"))

    @property
    def steps_to_skip(self) -> List[str]:
        """None: a run can't be replayed in part."""
        return []

    @property
    def step_input_overrides(self) -> Dict[str, Any]:
        """None, as :attr:`steps_to_skip`."""
        return {}

    step_default_input_overrides = step_input_overrides


class StepConfiguration(Configuration):
    """The configuration of a step."""

    template = step_type = None
    stored: Optional[Callable[[str], Tuple[Source, ...]]] = None  # output → its materializer
    _fields = (*_COMMON, "step_type", "command", "heartbeat_healthy_threshold")

    @property
    def command(self) -> Optional[List[str]]:
        """The command of a ``CommandStep``."""
        found: Optional[List[str]] = self._native._zenml.get("command")
        return found

    @property
    def cache_policy(self) -> CachePolicy:
        """What counts in its cache key."""
        cache = self._native._said.get("cache")
        given = cache if isinstance(cache, dict) else {}
        return CachePolicy(
            ignored_inputs=given.get("ignore_inputs"),
            file_dependencies=given.get("files"),
            expires_after=given.get("expires"),
        )

    @property
    def heartbeat_healthy_threshold(self) -> int:
        """Minutes; the engine watches steps by itself."""
        return int(self._native._zenml.get("heartbeat_healthy_threshold") or 30)

    @property
    def step_operator(self) -> Optional[str]:
        """The backend or stack that was named for it, or None."""
        given = self._native._said.get("backend")
        if isinstance(given, dict):
            return str(given.get("stack") or next(iter(given), None) or "") or None
        return given if isinstance(given, str) else None

    def uses_step_operator(self, name: str) -> bool:
        """Whether it runs on this backend or stack."""
        return self.step_operator == name

    def uses_experiment_tracker(self, name: str) -> bool:
        """Whether this tracker was named for it."""
        return self.experiment_tracker in (True, name)

    @property
    def outputs(self) -> Dict[str, Any]:
        """Output → its configuration."""
        kept = self._native._zenml.get("outputs") or {}
        given = self._native._said.get("outputs") or {}
        found = {name: OutputConfiguration(name, kept.get(name) or {}) for name in given}
        stored = self.stored
        if stored is not None:
            for name, one in found.items():
                one.materializer_source = stored(name)
        return found

    @property
    def external_input_artifacts(self) -> Dict[str, Any]:
        """None: what a step takes from the store is in its inputs."""
        return {}

    model_artifacts_or_metadata = client_lazy_loaders = external_input_artifacts


class OutputConfiguration:
    """The configuration of an output."""

    materializer_source: Tuple[Source, ...] = ()  # of a step that ran
    default_materializer_source = None

    def __init__(self, name: str, kept: Mapping[str, Any]) -> None:
        self.name = name
        self.artifact_config = kept or None


class InputSpec:
    """Where an input comes from."""

    def __init__(self, step: str, output: str) -> None:
        self.step_name, self.output_name = step, output
        self.chunk_index = self.chunk_size = None


class StepSpec:
    """A step's place in its pipeline."""

    enable_heartbeat = False

    def __init__(
        self, source: str, upstream: List[str], name: str, inputs: Mapping[str, List[InputSpec]]
    ) -> None:
        self.source = Source(source.replace(":", "."))
        self.upstream_steps = upstream
        self.invocation_id = self.pipeline_parameter_name = name
        self.normalized_inputs = dict(inputs)

    @property
    def inputs(self) -> Dict[str, Any]:
        """Input → where it comes from; a list if it comes from several."""
        return {k: v[0] if len(v) == 1 else v for k, v in self.normalized_inputs.items()}

    def is_scalar_input(self, name: str) -> bool:
        """Whether an input comes from one output."""
        return len(self.normalized_inputs[name]) == 1


class ExceptionInfo:
    """Why a run or step failed."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.traceback = str(error.get("traceback") or "")
        self.message = str(error.get("text") or error.get("message") or "")
        line = str(error.get("where") or "").rpartition(":")[2]
        self.user_code_line = int(line) if line.isdigit() else None
        self.source = self.message.partition(":")[0] or None
        self.error = dict(error)

    def model_dump(self, **_: Any) -> Dict[str, Any]:
        """Its fields."""
        names = ("traceback", "message", "source", "user_code_line")
        return {name: getattr(self, name) for name in names}

    def __getitem__(self, key: str) -> Any:
        return self.error[key]


class LogsResponse(Response):
    """What a step, or all steps of a run, printed."""

    _absent = ("log_store_id",)

    def __init__(self, owner: Any, source: str, run: Any, step: Any) -> None:
        self._owner, self.source = owner, source
        self.id = records.id_of("logs", str(owner.id))
        self.pipeline_run_id, self.step_run_id = run, step
        self.artifact_store_id = records.id_of("component", "artifact_store/default")

    @property
    def name(self) -> str:  # type: ignore[override]
        """Its source."""
        return self.source

    @property
    def text(self) -> str:
        """What was printed."""
        return str(self._owner.native.logs)


class PipelineSnapshotResponse(Response):
    """The document of a run: what it was started with."""

    _absent: Tuple[str, ...] = (
        *("build", "schedule", "code_reference", "code_path", "template_id", "source_snapshot_id"),
        *("description", "deployment", "config_template", "config_schema"),
    )
    name: Any = None
    runnable = deployable = False
    client_version = server_version = VERSION

    def __init__(self, run: Any) -> None:
        self._run = run
        self.id: uuid.UUID = records.id_of("snapshot", run.native.id)
        self.created = self.updated = run.created
        self.pipeline, self.stack = run.pipeline, run.stack
        self.pipeline_configuration = run.config
        self.run_name_template = run.name
        self.client_environment = run.client_environment
        self.is_dynamic = bool(getattr(run.native, "record", None))
        self.tags: List[Any] = []

    @property
    def pipeline_id(self) -> uuid.UUID:
        """Its pipeline's id."""
        return uuid.UUID(str(self.pipeline.id))

    @property
    def step_configurations(self) -> Dict[str, Any]:
        """Name → step, with ``config`` and ``spec``."""
        return dict(self._run.steps)

    @property
    def latest_run_id(self) -> uuid.UUID:
        """The run."""
        return uuid.UUID(str(self._run.id))

    @property
    def latest_run_status(self) -> Any:
        """The run's status."""
        return self._run.status


def _dumped(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _dumped(one) for key, one in value.items()}
    for dump in ("model_dump", "given"):
        if hasattr(value, dump):
            return getattr(value, dump)()
    return value


def _fields(given: Mapping[str, Any]) -> Dict[str, Any]:
    known = Model._fields
    return {k: v for k, v in given.items() if k in known}


def _size(n_bytes: int) -> str:
    """A size of memory with the largest unit that divides it."""
    for unit, size in _UNITS:
        if n_bytes and n_bytes % size == 0:
            return f"{n_bytes // size}{unit}"
    return f"{n_bytes}B"


_POWERS = (("T", 4), ("G", 3), ("M", 2), ("K", 1))
_UNITS = [(f"{u}B", 1000**n) for u, n in _POWERS] + [(f"{u}iB", 1024**n) for u, n in _POWERS]


def _hook(given: Any) -> Optional[Source]:
    if callable(given):
        return Source(f"{given.__module__}.{given.__qualname__}")
    source = given.get("python") if isinstance(given, dict) else given
    return Source(str(source).replace(":", ".")) if source else None


def _stamps(began: Optional[float]) -> Dict[str, str]:
    if began is None:
        return {}
    now = time.gmtime(began)
    return {"date": time.strftime("%Y_%m_%d", now), "time": time.strftime("%H_%M_%S", now)}
