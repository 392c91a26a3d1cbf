"""ZenML's enumerations: a table of what they hold. Each is made at its first use."""

from __future__ import annotations

import enum
from typing import Any, Dict, List

from .._definition.types import ArtifactType as ArtifactType
from .._definition.types import ExecutionMode as ExecutionMode
from .._definition.types import ExecutionStatus as ExecutionStatus

# Name → its members, as "NAME=value"; "NAME" alone has its name in small letters as its value.
_TABLE: Dict[str, str] = {
    "APITokenType": "GENERIC|WORKLOAD",
    "AnalyticsEventSource": ("ZENML_GO=zenml go|ZENML_INIT=zenml init|ZENML_SERVER=zenml server"),
    "AnnotationTasks": (
        "IMAGE_CLASSIFICATION|OBJECT_DETECTION_BOUNDING_BOXES|"
        "OCR=optical_character_recognition|TEXT_CLASSIFICATION"
    ),
    "ArtifactSaveType": "STEP_OUTPUT|MANUAL|PREEXISTING|EXTERNAL",
    "AuthScheme": (
        "NO_AUTH=NO_AUTH|HTTP_BASIC=HTTP_BASIC|"
        "OAUTH2_PASSWORD_BEARER=OAUTH2_PASSWORD_BEARER|EXTERNAL=EXTERNAL"
    ),
    "CliCategories": (
        "STACK_COMPONENTS=Stack Components|MODEL_DEPLOYMENT=Model Deployment|"
        "INTEGRATIONS=Integrations|MANAGEMENT_TOOLS=Management Tools|"
        "MODEL_CONTROL_PLANE=Model Control Plane|"
        "IDENTITY_AND_SECURITY=Identity and Security|OTHER_COMMANDS=Other Commands"
    ),
    "ColorVariants": "GREY|PURPLE|RED|GREEN|YELLOW|ORANGE|LIME|TEAL|TURQUOISE|MAGENTA|BLUE",
    "ContainerEngineType": "DOCKER|PODMAN",
    "ContainerRegistryFlavor": "DEFAULT|GITHUB|DOCKERHUB|GCP|AZURE",
    "CuratedVisualizationSize": "FULL_WIDTH|HALF_WIDTH",
    "DatabaseBackupStrategy": (
        "DISABLED|IN_MEMORY=in-memory|DUMP_FILE=dump-file|DATABASE|MYDUMPER|CUSTOM"
    ),
    "DeploymentStatus": "UNKNOWN|PENDING|RUNNING|ABSENT|ERROR",
    "DownloadType": "ARTIFACT_VERSION|STEP_LOGS|RUN_LOGS|SNAPSHOT_CODE",
    "EnvironmentType": (
        "BITBUCKET_CI|CIRCLE_CI|COLAB|CONTAINER|DOCKER|GENERIC_CI|GITHUB_ACTION|"
        "GITLAB_CI|KUBERNETES|NATIVE|NOTEBOOK|PAPERSPACE|WSL|LIGHTNING_AI_STUDIO|"
        "GITHUB_CODESPACES|VSCODE_REMOTE_CONTAINER|ZENML_CODESPACE"
    ),
    "GenericFilterOps": (
        "EQUALS|NOT_EQUALS=notequals|CONTAINS|STARTSWITH|ENDSWITH|ONEOF|"
        "NOT_ONEOF=notoneof|NOT_CONTAINS=notcontains|IS_NULL=isnull|IS_NOT_NULL=isnotnull|"
        "GTE|GT|LTE|LT|IN"
    ),
    "GroupType": "MANUAL|MAP",
    "HookType": (
        "RUN_START|RUN_SUCCESS|RUN_FAILURE|RUN_END|RUN_PAUSE|RUN_RESUME|STEP_START|"
        "STEP_END|STEP_SUCCESS|STEP_FAILURE|CUSTOM"
    ),
    "KubernetesServiceType": ("LOAD_BALANCER=LoadBalancer|NODE_PORT=NodePort|CLUSTER_IP=ClusterIP"),
    "LogicalOperators": "OR|AND",
    "MetadataResourceTypes": (
        "PIPELINE_RUN|STEP_RUN|ARTIFACT_VERSION|MODEL_VERSION|SCHEDULE|WAIT_CONDITION"
    ),
    "ModelStages": "NONE|STAGING|PRODUCTION|ARCHIVED|LATEST",
    "OAuthDeviceStatus": "PENDING|VERIFIED|ACTIVE|LOCKED",
    "OAuthGrantTypes": (
        "OAUTH_PASSWORD=password|OAUTH_DEVICE_CODE=urn:ietf:params:oauth:grant-"
        "type:device_code|ZENML_EXTERNAL=zenml-external|ZENML_API_KEY=zenml-api-key"
    ),
    "OnboardingStep": (
        "DEVICE_VERIFIED|PROJECT_CREATED|PIPELINE_RUN|"
        "STACK_WITH_REMOTE_ORCHESTRATOR_CREATED|STACK_WITH_REMOTE_ARTIFACT_STORE_CREATED|"
        "PIPELINE_RUN_WITH_REMOTE_ORCHESTRATOR|PIPELINE_RUN_WITH_REMOTE_ARTIFACT_STORE|"
        "PIPELINE_DEPLOYED|OSS_ONBOARDING_COMPLETED|PRO_ONBOARDING_COMPLETED"
    ),
    "OperatingSystemType": "LINUX=Linux|WINDOWS=Windows|MACOS=Darwin",
    "PipelineEvent": "RUN_COMPLETED|RUN_FAILED",
    "PipelineRunEvent": "COMPLETED|FAILED",
    "PipelineRunTriggeredByType": "STEP_RUN|DEPLOYMENT",
    "PipelineSnapshotEvent": "RUN_COMPLETED|RUN_FAILED",
    "ResourcePoolScope": "GLOBAL|ORGANIZATION|WORKSPACE",
    "ResourceRequestReclaimTolerance": "NONE|COORDINATED|ANY",
    "ResourceRequestRuntimeState": "UNKNOWN|PENDING|SUBMITTED|RUNNING|IDLE",
    "ResourceRequestStatus": (
        "PENDING|ALLOCATED|PREEMPTING|PREEMPTED|CANCELLED|REJECTED|RELEASED|EXPIRED|"
        "NO_MATCHING_POOL"
    ),
    "ResponseUpdateStrategy": "ALLOW|IGNORE|DENY",
    "RunWaitConditionLeaseMode": "REFRESH|FINALIZE|ABANDON",
    "RunWaitConditionResolution": "CONTINUE|ABORT",
    "RunWaitConditionStatus": "PENDING|RESOLVED",
    "RunWaitConditionType": "EXTERNAL_INPUT",
    "SQLDatabaseAuthMode": "PASSWORD|AWS_RDS_IAM",
    "SecretResourceTypes": "STACK|STACK_COMPONENT",
    "SecretValidationLevel": (
        "SECRET_AND_KEY_EXISTS=SECRET_AND_KEY_EXISTS|SECRET_EXISTS=SECRET_EXISTS|NONE=NONE"
    ),
    "SecretsStoreType": "NONE|SQL|AWS|GCP|AZURE|HASHICORP|CUSTOM",
    "ServerProviderType": "DAEMON|DOCKER",
    "ServiceState": "INACTIVE|ACTIVE|PENDING_STARTUP|PENDING_SHUTDOWN|ERROR|SCALED_TO_ZERO",
    "SorterOps": "ASCENDING=asc|DESCENDING=desc",
    "SourceContextTypes": (
        "CLI|PYTHON|DASHBOARD|DASHBOARD_V2=dashboard-v2|API|KITARU_PYTHON=kitaru-python|"
        "KITARU_CLI=kitaru-cli|KITARU_MCP=kitaru-mcp|KITARU_API=kitaru-api|"
        "KITARU_UI=kitaru-ui|UNKNOWN"
    ),
    "SourceType": "PIPELINE|PIPELINE_RUN|PIPELINE_SNAPSHOT",
    "StackComponentType": (
        "ALERTER|ANNOTATOR|ARTIFACT_STORE|CONTAINER_REGISTRY|DATA_VALIDATOR|"
        "EXPERIMENT_TRACKER|FEATURE_STORE|IMAGE_BUILDER|LOG_STORE|MODEL_DEPLOYER|"
        "ORCHESTRATOR|STEP_OPERATOR|MODEL_REGISTRY|DEPLOYER|SANDBOX"
    ),
    "StackDeploymentProvider": "AWS|GCP|AZURE",
    "StepRunInputArtifactType": "STEP_OUTPUT|MANUAL|EXTERNAL|LAZY_LOADED=lazy|OVERRIDE",
    "StepRuntime": "INLINE|ISOLATED",
    "StepType": "TOOL_CALL|LLM_CALL|MEMORY_CALL",
    "StoreType": "SQL|REST",
    "TaggableResourceTypes": (
        "ARTIFACT|ARTIFACT_VERSION|MODEL|MODEL_VERSION|PIPELINE|PIPELINE_RUN|"
        "RUN_TEMPLATE|PIPELINE_SNAPSHOT|DEPLOYMENT"
    ),
    "TriggerFlavor": "NATIVE_SCHEDULE=native schedule|PLATFORM_EVENT=platform event|WEBHOOK",
    "TriggerRunConcurrency": "SKIP|SUBMIT",
    "TriggerType": "SCHEDULE|PLATFORM_EVENT|WEBHOOK",
    "VisualizationResourceTypes": (
        "DEPLOYMENT|MODEL|PIPELINE|PIPELINE_RUN|PIPELINE_SNAPSHOT|PROJECT"
    ),
    "VisualizationType": "CSV|HTML|IMAGE|MARKDOWN|JSON",
    "ZenMLServiceType": "ZEN_SERVER|MODEL_SERVING=model-serving",
}

NAMES = (*_TABLE, "ArtifactType", "ExecutionMode", "ExecutionStatus", "LoggingLevels")


class StrEnum(str, enum.Enum):
    """An enumeration of texts, which prints as these."""

    def __str__(self) -> str:
        return str(self.value)

    @classmethod
    def names(cls) -> List[str]:
        """The members' names."""
        return [one.name for one in cls]

    @classmethod
    def values(cls) -> List[str]:
        """The members' values."""
        return [str(one.value) for one in cls]


class _Words(StrEnum):
    """Members that are texts, and print as these."""

    @property
    def plural(self) -> str:
        """Of a type of component: its plural."""
        text = str(self.value)
        return text[:-1] + "ies" if text.endswith("y") else text + "s"


class LoggingLevels(enum.Enum):
    """Levels of logging."""

    NOTSET = 0
    ERROR = 40
    WARN = 30
    INFO = 20
    DEBUG = 10
    CRITICAL = 50


def __getattr__(name: str) -> Any:
    if name not in _TABLE:
        raise AttributeError(f"zenml.enums has no '{name}'")
    pairs = [member.partition("=") for member in _TABLE[name].split("|")]
    members = {key: value if equals else key.lower() for key, equals, value in pairs}
    made: Any = _Words(name, members, module=__name__)  # type: ignore[call-overload]
    globals()[name] = made
    return made
