"""``zenml.models``: its classes, made from one table at their first use.

A response is Stoker's own class, which is its body, metadata and resources as well, so ``isinstance``
and annotations are right. Filters and requests carry what they are given, to
:class:`stoker._zen.zen_store.ZenStore`. What Stoker never makes is a class without instances.
"""

from __future__ import annotations

import enum
import importlib
from typing import Any, Callable, Dict, Iterator, Optional, Tuple, Union

from .._base.errors import SettingsError
from .enums import LogicalOperators
from .page import Page as Page
from .responses import ProjectResponse as ProjectResponse
from .responses import Response
from .responses import UserResponse as UserResponse

# What Stoker has → its module.
_HERE = {
    **dict.fromkeys(("ArtifactResponse", "ArtifactVersionResponse"), "artifacts"),
    **dict.fromkeys(("ComponentResponse", "FlavorResponse", "StackResponse"), "stacks"),
    **dict.fromkeys(("ModelResponse", "ModelVersionResponse"), "models"),
    **dict.fromkeys(("ModelVersionArtifactResponse", "ModelVersionPipelineRunResponse"), "models"),
    **dict.fromkeys(("PipelineResponse", "PipelineRunResponse"), "runs"),
    **dict.fromkeys(("ExceptionInfo", "LogsResponse", "PipelineSnapshotResponse"), "configuration"),
    **dict.fromkeys(("StepRunInputResponse", "StepRunResponse"), "steps"),
    **dict.fromkeys(
        (
            *("ArtifactVersionIdentifier", "ModelVersionIdentifier", "PipelineRunIdentifier"),
            *("StepRunIdentifier", "RunMetadataResource", "TagResource"),
        ),
        "identifiers",
    ),
    "LazyArtifactVersionResponse": "lazy",
    "RunTemplateResponse": "snapshots",
    "ScheduleResponse": "schedules",
    "SecretResponse": "secrets",
    "ServerSettingsResponse": "answers",
    "TagResponse": "tags",
    "HookInvocationResponse": "invocations",
    **dict.fromkeys(("ArtifactVisualizationResponse", "LoadedVisualization"), "visuals"),
}
_PARTS = {
    **{"A": "Response", "F": "Filter", "R": "Request", "U": "Update"},
    **{"B": "ResponseBody", "M": "ResponseMetadata", "S": "ResponseResources"},
}
# What a name begins with → which of the parts above ZenML has.
_TABLE = {
    **dict.fromkeys(
        (
            *("Artifact", "ArtifactVersion", "Base", "CodeRepository", "Component", "Deployment"),
            *("Flavor", "Model", "ModelVersion", "Pipeline", "PipelineRun", "PipelineSnapshot"),
            *("RunTemplate", "Schedule", "Secret", "Service", "ServiceConnector", "Stack"),
            *("StepRun", "Tag", "Webhook"),
        ),
        "AFRUBMS",
    ),
    **dict.fromkeys(("ApiTransaction", "CuratedVisualization", "Logs"), "ARUBMS"),
    **dict.fromkeys(("HookInvocation", "PipelineBuild", "ProjectScoped"), "AFRBMS"),
    **dict.fromkeys(("ResourceRequest", "RunWaitCondition"), "AFRBMS"),
    **dict.fromkeys(("APIKey", "Project", "ServiceAccount", "User"), "AFRUBM"),
    **dict.fromkeys(("ModelVersionArtifact", "ModelVersionPipelineRun"), "AFRB"),
    **dict.fromkeys(("PlatformEventTrigger", "ScheduleTrigger", "WebhookTrigger"), "ARUB"),
    **dict.fromkeys(
        ("LogsEntries", "OAuthDeviceAuthorization", "PipelineSnapshotPrune", "RunStatistics"), "AR"
    ),
    **dict.fromkeys(("StepHeartbeat", "StreamBatch"), "AR"),
    **dict.fromkeys(
        (
            *("APIKeyRotate", "DefaultComponent", "DefaultStack", "OAuthDeviceToken"),
            *("OAuthDeviceVerification", "PipelineSnapshotRun", "ResourceRequestRenewal"),
            *("RunMetadata", "RunWaitConditionResolve", "ServerActivation"),
            "WebhookRotateSecret",
        ),
        "R",
    ),
    **dict.fromkeys(("OAuthRedirect", "OAuthToken", "WebhookCreate", "WebhookSecret"), "A"),
    "Taggable": "F",
    **dict.fromkeys(("RunWaitConditionLease", "WebhookEventStats"), "U"),
    **{"APIKeyInternal": "AU", "ArtifactVisualization": "ARBMS", "BaseDated": "B"},
    **{"BaseIdentified": "A", "CodeReference": "ARBM", "LogsEntries": "AF"},
    **{"OAuthDevice": "AFUBMS", "OAuthDeviceInternal": "ARU", "ServerSettings": "AUBMS"},
    **{"ServiceAccountInternal": "RU", "StepRunInput": "A", "TagResource": "ARB"},
    **{"Trigger": "FRUBMS", "UserScoped": "AFRBM"},
}
_VALUES = (
    *("APIKey", "AuthenticationMethodModel", "BuildItem", "ComponentBase", "ComponentInfo"),
    *("DeployedStack", "DeploymentOperationalState", "ExternalUserModel", "LoadedVisualization"),
    *("LogEntry", "MetadataGrouping", "MetadataMetric", "OAuthDeviceUserAgentHeader"),
    *("PipelineBuildBase", "PipelineRunDAG", "PipelineRunTriggerInfo", "PipelineSnapshotBase"),
    *("PlatformEventTrigger", "ProjectStatistics", "ResourcePoolAllocation"),
    *("ResourcePoolQueueItem", "ResourceRequestDemand", "ResourceTypeModel", "ResourcesInfo"),
    *("RunMetadataEntry", "RunStatisticsGroup", "ServerLoadInfo", "ServerModel"),
    *("ServerStatistics", "ServiceConnectorConfiguration", "ServiceConnectorInfo"),
    *("ServiceConnectorRequirements", "ServiceConnectorResourcesInfo"),
    *("ServiceConnectorResourcesModel", "ServiceConnectorTypeModel"),
    *("ServiceConnectorTypedResourcesModel", "ServiceType", "SimpleGrouping", "SimpleMetric"),
    *("SourceEntity", "StackDeploymentConfig", "StackDeploymentInfo", "StreamEvent"),
    *("TimeGrouping", "TriggerExecutionInfo", "TriggerSnapshotDispatchState", "UserAuthModel"),
    *("WebhookStats", "WebhookTrigger", "WebhookTriggerExecutionInfo", "BoolFilter"),
    *("NumericFilter", "StrFilter", "UUIDFilter"),
)
_ENUMS = {
    "ServerDatabaseType": "sqlite mysql other",
    "ServerDeploymentType": (
        "local docker kubernetes aws gcp azure alpha other hf_spaces sandbox cloud"
    ),
    "StatisticsAggregation": "avg sum min max",
    "StatisticsGroupingType": (
        "status pipeline snapshot source_snapshot stack trigger user time metadata tag"
    ),
    "StatisticsMetricSource": (
        "duration step_count cached_step_count output_artifact_count metadata"
    ),
    "StatisticsTimeGranularity": "hour day week month",
    "TriggerDispatchErrorSeverity": "Minor Major Critical",
    "TriggerDispatchStatusCode": (
        "SUCCESS SKIPPED_CONCURRENCY SKIPPED_MAX_RUNS SKIPPED_TRIGGER_CYCLE ERROR"
    ),
}
_TRIGGERS = ("ScheduleTrigger", "PlatformEventTrigger", "WebhookTrigger")
_UNIONS = {
    "StatisticsGrouping": ("SimpleGrouping", "TimeGrouping", "MetadataGrouping"),
    "StatisticsMetric": ("SimpleMetric", "MetadataMetric"),
    "TRIGGER_CREATE_TYPE_UNION": tuple(f"{one}Request" for one in _TRIGGERS),
    "TRIGGER_RETURN_TYPE_UNION": tuple(f"{one}Response" for one in _TRIGGERS),
    "TRIGGER_UPDATE_TYPE_UNION": tuple(f"{one}Update" for one in _TRIGGERS),
}
# Filter → its fields besides those that all have. The others ask for what there is none of.
_OWN = "scope_user user project name"
_FIELDS = {
    "Base": "",
    "Artifact": f"{_OWN} tags has_custom_name",
    "ArtifactVersion": (
        "run_metadata tags scope_user user project artifact artifact_id version version_number uri "
        "materializer type data_type artifact_store_id model_version_id only_unused has_custom_name "
        "model pipeline_run"
    ),
    "CodeRepository": _OWN,
    "Component": "scope_user user scope_type name flavor type connector_id stack_id",
    "Deployment": f"{_OWN} tags url status pipeline snapshot_id deployer_id",
    "Flavor": "scope_user user name display_name type integration",
    "Model": f"{_OWN} tags",
    "ModelVersion": f"{_OWN} run_metadata tags number stage model",
    "ModelVersionArtifact": (
        "model_version_id artifact_version_id artifact_name only_data_artifacts "
        "only_model_artifacts only_deployment_artifacts has_custom_name user"
    ),
    "ModelVersionPipelineRun": "model_version_id pipeline_run_id pipeline_run_name user",
    "Pipeline": f"{_OWN} tags latest_run_status latest_run_user",
    "PipelineRun": (
        f"{_OWN} run_metadata tags index orchestrator_run_id pipeline_id stack_id schedule_id "
        "build_id snapshot_id code_repository_id template_id source_snapshot_id model_version_id "
        "linked_to_model_version_id status in_progress start_time end_time pipeline_name pipeline "
        "stack code_repository model stack_component templatable triggered_by_step_run_id "
        "triggered_by_deployment_id trigger_id parent_run_id root_runs_only"
    ),
    "PipelineSnapshot": (
        f"{_OWN} tags named_only pipeline stack build_id schedule_id source_snapshot_id runnable "
        "deployable deployed trigger_id"
    ),
    "Project": "name display_name",
    "ProjectScoped": "scope_user user project",
    "RunTemplate": (
        f"{_OWN} tags hidden pipeline_id build_id stack_id code_repository_id pipeline stack"
    ),
    "Schedule": (
        f"{_OWN} pipeline_id orchestrator_id active cron_expression start_time end_time "
        "interval_second catchup run_once_start_time is_archived"
    ),
    "Secret": "scope_user user name private",
    "Service": (
        f"{_OWN} type flavor config pipeline_name pipeline_step_name running model_version_id "
        "pipeline_run_id"
    ),
    "Stack": "scope_user user name description component_id component",
    "StepRun": (
        f"{_OWN} run_metadata code_hash cache_key status start_time end_time pipeline_run_id "
        "snapshot_id original_step_run_id model_version_id model version exclude_retried "
        "cache_expires_at cache_expired"
    ),
    "Tag": "scope_user user name color exclusive resource_type",
    "Taggable": "tags",
    "User": "name full_name email active email_opted_in external_user_id",
    "UserScoped": "scope_user user",
}
_ALL = "id created updated"

NAMES: Tuple[str, ...] = tuple(
    dict.fromkeys(
        (
            *(f"{one}{_PARTS[letter]}" for one, letters in _TABLE.items() for letter in letters),
            *(*_HERE, *_VALUES, *_ENUMS, *_UNIONS),
            *("BaseZenModel", "Page", "ResourceRequestReclaimTolerance", "RunMetadataFilterMixin"),
        )
    )
)


class BaseZenModel:
    """An object with the fields that it is given."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)

    def model_dump(self, **_: Any) -> Dict[str, Any]:
        """The fields."""
        return dict(self.__dict__)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this {type(self).__name__} was made without '{name}'")

    def __repr__(self) -> str:
        shown = ", ".join(f"{key}={value!r}" for key, value in self.__dict__.items())
        return f"{type(self).__name__}({shown})"


class StepConfigurationUpdate(BaseZenModel):
    """What a step of a run is configured with; a field that isn't given is None."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None

    def __iter__(self) -> Iterator[Tuple[str, Any]]:
        return iter(self.__dict__.items())


class PipelineRunConfiguration(StepConfigurationUpdate):
    """What a run is configured with, as ``trigger_pipeline`` takes it; ``steps`` are such, too."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        if given.get("steps") is not None:
            made = {k: StepConfigurationUpdate(**dict(v)) for k, v in given["steps"].items()}
            self.__dict__["steps"] = made

    @classmethod
    def model_validate(cls, fields: Dict[str, Any]) -> PipelineRunConfiguration:
        """One with these fields."""
        return cls(**fields)

    def model_dump(self, **_: Any) -> Dict[str, Any]:
        """The fields that are given."""
        given = {key: value for key, value in self.__dict__.items() if value is not None}
        steps = given.pop("steps", None)
        return {
            **given,
            **({"steps": {k: v.model_dump() for k, v in steps.items()}} if steps else {}),
        }


class BaseRequest(BaseZenModel):
    """What something is made with.

    Raises:
        ValueError: a name that is no text.
    """

    def __init__(self, **given: Any) -> None:
        if not isinstance(given.get("name", ""), (str, type(None))):
            raise SettingsError(f"{type(self).__name__}: the name {given['name']!r} is no text")
        super().__init__(**given)


class BaseUpdate(BaseZenModel):
    """What is to be changed."""


class BaseFilter(BaseZenModel):
    """What a list is asked for.

    Raises:
        KeyError: a field that this filter doesn't have.
        ValueError: a page or a column that can't be.
    """

    _known: Optional[Tuple[str, ...]] = tuple(_ALL.split())  # None: any

    def __init__(
        self,
        *,
        sort_by: str = "created",
        logical_operator: Any = "and",
        page: int = 1,
        size: int = 20,
        **given: Any,
    ) -> None:
        known = (
            (*given, *_ALL.split(), sort_by.rpartition(":")[2])
            if self._known is None
            else self._known
        )
        for name in given:
            if name not in known:
                shown = ", ".join(known)
                raise KeyError(f"{type(self).__name__} has no '{name}'; it has {shown}")
        if sort_by.rpartition(":")[2] not in known:
            raise ValueError(f"{type(self).__name__} can't sort by '{sort_by}'")
        if page < 1 or size < 1:
            raise ValueError(f"page {page} of size {size}: pages and sizes count from 1")
        operator = LogicalOperators(getattr(logical_operator, "value", logical_operator))
        super().__init__(
            **{"sort_by": sort_by, "logical_operator": operator, "page": page, "size": size},
            **{**dict.fromkeys(self._known or ()), **given},
        )

    def asked(self) -> Dict[str, Any]:
        """The arguments of the client's list."""
        return {key: value for key, value in self.__dict__.items() if value is not None}


class _Never(Response):
    """What Stoker never makes: it serves ``isinstance`` and annotations."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise NotImplementedError(f"Stoker makes no {type(self).__name__}")


def _response(name: str) -> Any:
    if name in _HERE:
        return getattr(importlib.import_module(f"{__package__}.{_HERE[name]}"), name)
    if name[: -len("Response")] in _BASES:
        return Response
    return _class(name, _Never)


_BASES = ("Base", "BaseDated", "BaseIdentified")


class _Scope(type):
    """The class of responses that belong to a user or project: which do, their names say."""

    without: Tuple[str, ...] = ()

    def __instancecheck__(cls, one: Any) -> bool:
        return cls.__subclasscheck__(type(one))

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, Response) and kind.__name__ not in cls.without


class UserScopedResponse(metaclass=_Scope):
    """What a user has made."""

    without = (
        *("UserResponse", "ProjectResponse", "ServerSettingsResponse"),
        *("ModelVersionArtifactResponse", "ModelVersionPipelineRunResponse"),
    )


class ProjectScopedResponse(metaclass=_Scope):
    """What belongs to a project."""

    without = (
        *(*UserScopedResponse.without, "ComponentResponse", "FlavorResponse", "SecretResponse"),
        *("StackResponse", "TagResponse"),
    )


def _class(name: str, base: Any, **more: Any) -> Any:
    return type(name, (base,), {"__doc__": base.__doc__, "__module__": __name__, **more})


def _filter(name: str) -> Any:
    fields = _FIELDS.get(name[: -len("Filter")])
    known = None if fields is None else (*fields.split(), *_ALL.split())
    base: Any = BaseFilter
    for scope in ("UserScopedFilter", "ProjectScopedFilter"):
        if known and name != scope and set(_FIELDS[scope[:-6]].split()) <= set(known):
            base = __getattr__(scope) if scope not in globals() else globals()[scope]
    return _class(name, base, _known=known)


_MAKES: Dict[str, Callable[[str], Any]] = {
    "Response": _response,
    "Filter": _filter,
    "Request": lambda name: _class(name, BaseRequest),
    "Update": lambda name: _class(name, BaseUpdate),
}


def _made(name: str) -> Any:
    if name == "RunMetadataFilterMixin":
        return _class(name, BaseFilter, _known=("run_metadata", *_ALL.split()))
    if name == "ResourceRequestReclaimTolerance":
        return getattr(importlib.import_module(f"{__package__}.enums"), name)
    if name in _ENUMS:
        members = {value.upper(): value for value in _ENUMS[name].split()}
        return enum.Enum(name, members, module=__name__, type=str)
    if name in _UNIONS:
        return Union[tuple(__getattr__(one) for one in _UNIONS[name])]
    if name in _HERE:
        return _response(name)
    if name in _VALUES:
        return _class(name, BaseZenModel)
    for part in ("Body", "Metadata", "Resources"):
        if name.endswith(f"Response{part}"):
            return _whole(name[: -len(part)])
    return next(how(name) for end, how in _MAKES.items() if name.endswith(end))


def _whole(name: str) -> Any:
    """The response of which a class of ZenML's is a part."""
    return globals().setdefault(name, globals().get(name) or _response(name))


def __getattr__(name: str) -> Any:
    if name not in NAMES:
        raise AttributeError(f"zenml.models has no '{name}'")
    made = _made(name)
    globals()[name] = made
    return made
