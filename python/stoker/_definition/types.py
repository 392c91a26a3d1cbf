"""Small public types of the ZenML dialect: enums, artifact configuration, external artifacts,
models."""

from __future__ import annotations

import enum
from typing import Any, Dict, List, Optional, Sequence, Union

from .._base.errors import SettingsError, warn
from .checked import Checked, dataclass


class ExecutionMode(str, enum.Enum):
    """What the run does when a step fails.

    Example::

        @pipeline(execution_mode=ExecutionMode.FAIL_FAST)
        def digits(): ...
    """

    FAIL_FAST = "fail_fast"
    STOP_ON_FAILURE = "stop_on_failure"
    CONTINUE_ON_FAILURE = "continue_on_failure"

    def __str__(self) -> str:
        return self.value


class ExecutionStatus(str, enum.Enum):
    """The status of a run or step in the dialect's words; also equal to the engine's word.

    ``ExecutionStatus.COMPLETED == "completed" == "succeeded"``.

    Example::

        assert run.status == ExecutionStatus.COMPLETED
    """

    INITIALIZING = "initializing"
    PROVISIONING = "provisioning"  # the engine has no such state, and none of those marked *
    QUEUED = "queued"  # *
    RUNNING = "running"
    FAILED = "failed"
    COMPLETED = "completed"
    CACHED = "cached"
    SKIPPED = "skipped"
    RETRYING = "retrying"
    RETRIED = "retried"  # *
    CANCELLING = "cancelling"  # *
    CANCELLED = "cancelled"  # *
    PAUSED = "paused"  # *
    RESUMING = "resuming"  # *
    STOPPED = "stopped"
    STOPPING = "stopping"  # *

    @classmethod
    def of(cls, engine_word: str) -> ExecutionStatus:
        """The status for one of the engine's words (docs/formats/engine-command-line.md)."""
        return _STATUS_OF.get(engine_word) or cls(engine_word)

    @property
    def is_finished(self) -> bool:
        """Whether the run or step has ended."""
        return self in (self.COMPLETED, self.CACHED, self.FAILED, self.SKIPPED, self.STOPPED)

    @property
    def is_successful(self) -> bool:
        """Whether it succeeded, by running or from the cache."""
        return self in (self.COMPLETED, self.CACHED)

    @property
    def is_failed(self) -> bool:
        """Whether it failed."""
        return self is ExecutionStatus.FAILED

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) and not isinstance(other, ExecutionStatus):
            return other == self.value or _STATUS_OF.get(other) is self
        return self is other

    def __hash__(self) -> int:
        return hash(self.value)

    def __str__(self) -> str:
        return self.value


_STATUS_OF: Dict[str, ExecutionStatus] = {
    "waiting": ExecutionStatus.INITIALIZING,
    "ready": ExecutionStatus.INITIALIZING,
    "succeeded": ExecutionStatus.COMPLETED,
    "cancelled": ExecutionStatus.STOPPED,
    "interrupted": ExecutionStatus.FAILED,
}


class ArtifactType(str, enum.Enum):
    """The kind of an artifact, for display."""

    DATA_ANALYSIS = "DataAnalysisArtifact"
    DATA = "DataArtifact"
    MODEL = "ModelArtifact"
    SCHEMA = "SchemaArtifact"
    SERVICE = "ServiceArtifact"
    STATISTICS = "StatisticsArtifact"
    BASE = "BaseArtifact"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class ArtifactConfig(Checked):
    """Names and describes an output: ``-> Annotated[int, ArtifactConfig(name="count",
    tags=["x"])]``.

    Example::

        @step
        def train() -> Annotated[float, ArtifactConfig(name="loss", tags=["final"])]: ...
    """

    name: Optional[str] = None
    version: Union[str, int, None] = None
    tags: Optional[Sequence[str]] = None
    run_metadata: Optional[Dict[str, Any]] = None
    artifact_type: Optional[ArtifactType] = None


@dataclass(frozen=True)
class ExternalArtifact(Checked):
    """A Python value, or a stored artifact, as the input of a step.

    Give ``value`` (Stoker stores it before the run starts; its content counts in the cache key, so
    an equal value is a cache hit), or ``id`` (a digest), or ``name`` and ``version`` of a stored
    artifact.

    Example::

        train(data=ExternalArtifact(value=numpy.zeros(3)))
    """

    value: Any = None
    id: Optional[str] = None
    name: Optional[str] = None
    version: Union[str, int, None] = None
    materializer: Any = None
    store_artifact_metadata: bool = True
    store_artifact_visualizations: bool = True

    __eq__ = object.__eq__  # a value's __eq__ may return anything: an array's does
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        if self.id is not None and self.name is not None:
            raise ValueError("ExternalArtifact: give either id or name, not both")
        if self.value is not None and (self.id is not None or self.name is not None):
            raise ValueError("ExternalArtifact: give either a value or a stored artifact, not both")


@dataclass(frozen=True)
class Model(Checked):
    """The model that a pipeline or step uses; kept with the run's record.

    Example::

        @pipeline(model=Model(name="digits-net", version="3"))
        def digits(): ...
    """

    name: str
    version: Union[str, int, None] = None
    license: Optional[str] = None
    description: Optional[str] = None
    audience: Optional[str] = None
    use_cases: Optional[str] = None
    limitations: Optional[str] = None
    trade_offs: Optional[str] = None
    ethics: Optional[str] = None
    tags: Optional[List[str]] = None
    save_models_to_registry: bool = True
    suppress_class_validation_warnings: bool = False


@dataclass(frozen=True)
class Schedule(Checked):
    """When a pipeline runs by itself: a cron expression, each ``interval_second`` from
    ``start_time``, or once. Under ``stoker compat`` systemd or cron keeps it; else it is refused.

    Times without a zone are of this machine's; texts are ISO 8601.

    Example::

        Schedule(cron_expression="0 3 * * *")
    """

    name: Optional[str] = None
    cron_expression: Optional[str] = None
    start_time: Any = None
    end_time: Any = None
    interval_second: Any = None
    catchup: bool = False
    run_once_start_time: Any = None

    def __post_init__(self) -> None:
        for key in ("start_time", "end_time", "run_once_start_time"):
            object.__setattr__(self, key, _moment(key, getattr(self, key)))
        import datetime

        every = self.interval_second
        if every is not None and not isinstance(every, datetime.timedelta):
            object.__setattr__(self, "interval_second", datetime.timedelta(seconds=float(every)))
        periodic = self.start_time and self.interval_second
        if self.cron_expression and (periodic or self.run_once_start_time):
            ignored = "interval_second" if periodic else "run_once_start_time"
            warn(f"Schedule: {ignored} has no effect, because there is a cron_expression")
        if not (self.cron_expression or periodic or self.run_once_start_time):
            raise SettingsError(
                "Schedule needs a cron_expression, a start_time with interval_second, or a "
                "run_once_start_time"
            )


def _moment(key: str, given: Any) -> Any:
    """The time with its zone; None for None."""
    import datetime

    if given is None:
        return None
    try:
        at = (
            given
            if isinstance(given, datetime.datetime)
            else datetime.datetime.fromisoformat(given)
        )
    except (TypeError, ValueError):
        raise SettingsError(f"Schedule: {key} is {given!r}, which is no time") from None
    return at if at.tzinfo else at.astimezone()


class PythonEnvironmentExportMethod(enum.Enum):
    """How the packages of this environment are listed."""

    PIP_FREEZE = "pip_freeze"
    UV_FREEZE = "uv_freeze"
    POETRY_EXPORT = "poetry_export"


class PythonPackageInstaller(str, enum.Enum):
    """What installs packages into an image."""

    PIP = "pip"
    UV = "uv"


def get_logger(logger_name: str) -> Any:
    """A logger that prints INFO and above to standard error, unless the program configured logging
    itself."""
    import logging

    logger = logging.getLogger(logger_name)
    if not logging.getLogger().handlers and not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
    return logger
