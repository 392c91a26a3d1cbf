"""The compatibility shim: what ``import zenml`` resolves to under ``stoker compat``.

It has no code of its own: one table says which names live in which module and where Stoker keeps
them (``stoker._standin`` makes the modules). A module or name that isn't in the table is an error
in one sentence. Importing the shim makes unknown settings warnings, because ZenML ignores them
silently.
"""

from __future__ import annotations

import importlib
from typing import Any, Dict, Union

from stoker._base.errors import unknown_settings
from stoker._standin import stand_in

__version__ = "0.98.0"  # the version whose interface this is

_CORE = {
    "step": "stoker._zen.pipelines:step",
    "pipeline": "stoker._zen.pipelines:pipeline",
    "get_step_context": "stoker._zen.context:get_step_context",
    "get_pipeline_context": "stoker._zen.context:get_pipeline_context",
    "log_metadata": "stoker._zen.targets:log_metadata",
    "bulk_log_metadata": "stoker._zen.targets:bulk_log_metadata",
    "log_step_metadata": "stoker._zen.targets:log_step_metadata",
    "log_artifact_metadata": "stoker._zen.targets:log_artifact_metadata",
    "log_model_metadata": "stoker._zen.targets:log_model_metadata",
    "link_artifact_to_model": "stoker._zen.targets:link_artifact_to_model",
    "save_artifact": "stoker._zen.saved:save_artifact",
    "load_artifact": "stoker._zen.saved:load_artifact",
    "register_artifact": "stoker._zen.saved:register_artifact",
    "ArtifactConfig": "stoker:ArtifactConfig",
    "ExternalArtifact": "stoker:ExternalArtifact",
    "Model": "stoker._zen.model:Model",
    "Schedule": "stoker:Schedule",
    "ExecutionMode": "stoker:ExecutionMode",
    "StepContext": "stoker._zen.context:StepContext",
    "Tag": "stoker._dialect:Tag",
    "add_tags": "stoker._zen.pipelines:add_tags",
    "remove_tags": "stoker._zen.pipelines:remove_tags",
    "show": "stoker._zen.show:show",
    "unmapped": "stoker._zen.futures:unmapped",
    "wait": "stoker._zen.dynamic:wait",
    "run_hook": "stoker._zen.dynamic:run_hook",
}
_SETTINGS = {
    "ResourceSettings": "stoker:ResourceSettings",
    "DockerSettings": "stoker:DockerSettings",
    "DockerBuildConfig": "stoker:DockerBuildConfig",
    "DockerBuildOptions": "stoker:DockerBuildOptions",
    "PythonPackageInstaller": "stoker._definition.types:PythonPackageInstaller",
    "StepRetryConfig": "stoker:StepRetryConfig",
    "CachePolicy": "stoker:CachePolicy",
    "Schedule": "stoker:Schedule",
}
_STRINGS = {
    name: f"stoker.materializers:{name}"
    for name in ("CSVString", "HTMLString", "JSONString", "MarkdownString")
}
_ARTIFACTS = {
    name: _CORE[name]
    for name in (
        *("ArtifactConfig", "ExternalArtifact", "save_artifact", "load_artifact"),
        "register_artifact",
    )
}
_MATERIALIZERS = {
    "BaseMaterializer": "stoker.materializers:BaseMaterializer",
    **{
        f"{name}Materializer": "stoker._dialect:StandardMaterializer"
        for name in (
            *("BuiltIn", "BuiltInContainer", "Bytes", "Cloudpickle", "Numpy", "Pandas", "Path"),
            *("Pydantic", "Service", "StructuredString", "UUID"),
        )
    },
}
_RESPONSES = {
    "ArtifactResponse": "stoker._zen.artifacts:ArtifactResponse",
    "ArtifactVersionResponse": "stoker._zen.artifacts:ArtifactVersionResponse",
    "ArtifactVisualizationResponse": "stoker._zen.visuals:ArtifactVisualizationResponse",
    "ComponentResponse": "stoker._zen.stacks:ComponentResponse",
    "ModelResponse": "stoker._zen.models:ModelResponse",
    "ModelVersionResponse": "stoker._zen.models:ModelVersionResponse",
    "Page": "stoker._zen.page:Page",
    "PipelineResponse": "stoker._zen.runs:PipelineResponse",
    "PipelineRunResponse": "stoker._zen.runs:PipelineRunResponse",
    "ProjectResponse": "stoker._zen.responses:ProjectResponse",
    "SecretResponse": "stoker._zen.secrets:SecretResponse",
    "StackResponse": "stoker._zen.stacks:StackResponse",
    "StepRunResponse": "stoker._zen.runs:StepRunResponse",
    "TagResponse": "stoker._zen.tags:TagResponse",
    "UserResponse": "stoker._zen.responses:UserResponse",
    "ExceptionInfo": "stoker._zen.configuration:ExceptionInfo",
    "FlavorResponse": "stoker._zen.stacks:FlavorResponse",
    "LoadedVisualization": "stoker._zen.visuals:LoadedVisualization",
    "LogsResponse": "stoker._zen.configuration:LogsResponse",
    "ModelVersionArtifactResponse": "stoker._zen.models:ModelVersionArtifactResponse",
    "ModelVersionPipelineRunResponse": "stoker._zen.models:ModelVersionPipelineRunResponse",
    "PipelineSnapshotResponse": "stoker._zen.configuration:PipelineSnapshotResponse",
    "RunMetadataResource": "stoker._zen.identifiers:RunMetadataResource",
    "ServerSettingsResponse": "stoker._zen.answers:ServerSettingsResponse",
    "StepRunInputResponse": "stoker._zen.steps:StepRunInputResponse",
    "TagResource": "stoker._zen.identifiers:TagResource",
    **{
        f"{kind}Identifier": f"stoker._zen.identifiers:{kind}Identifier"
        for kind in ("ArtifactVersion", "ModelVersion", "PipelineRun", "StepRun")
    },
}

_TRACKER = "stoker._zen.mlflow_tracker"
_REGISTRY = "stoker._zen.mlflow_registry"
_MLFLOW_TRACKER = {
    name: f"{_TRACKER}:{name}"
    for name in (
        *("MLFlowExperimentTracker", "MLFlowExperimentTrackerConfig"),
        "MLFlowExperimentTrackerSettings",
    )
}
_MLFLOW_UTILS = {
    name: f"{_TRACKER}:{name}"
    for name in (
        *("ZENML_TAG_KEY", "build_runs_uri", "get_missing_mlflow_experiment_tracker_error"),
        *("get_model_uri_from_version", "get_tracking_uri", "is_mlflow_3x", "is_zenml_run"),
        "stop_zenml_mlflow_runs",
    )
}
_MLFLOW_REGISTRY = {"MLFlowModelRegistry": f"{_REGISTRY}:MLFlowModelRegistry"}
_MLFLOW_STEPS = {
    "mlflow_register_model_step": "stoker._zen.mlflow_steps:mlflow_register_model_step"
}
_REGISTRIES = {
    name: f"{_REGISTRY}:{name}"
    for name in (
        *("BaseModelRegistry", "ModelRegistryModelMetadata", "ModelVersionStage"),
        *("RegisteredModel", "RegistryModelVersion"),
    )
}
_MLFLOW = "zenml.integrations.mlflow"
# Names of MLflow's integration that serve a model.
_DEPLOYER = {
    "model_deployers": ("MLFlowModelDeployer",),
    "model_deployers.mlflow_model_deployer": ("MLFlowModelDeployer",),
    "services": ("MLFlowDeploymentConfig", "MLFlowDeploymentService"),
    "services.mlflow_deployment": ("MLFlowDeploymentConfig", "MLFlowDeploymentService"),
    "steps": ("mlflow_model_deployer_step", "mlflow_model_registry_deployer_step"),
    "steps.mlflow_deployer": (
        *("mlflow_model_deployer_step", "mlflow_model_registry_deployer_step"),
    ),
}

# Module → {name → "module:name" in Stoker}. A module with names below it is a package.
_MODULES: Dict[str, Union[str, Dict[str, str]]] = {
    "zenml": {**_CORE, **_SETTINGS, "Client": "stoker._zen.client:Client"},
    "zenml.config": _SETTINGS,
    "zenml.config.resource_settings": {
        "ResourceSettings": _SETTINGS["ResourceSettings"],
        "ByteUnit": "stoker._dialect:ByteUnit",
    },
    "zenml.config.docker_settings": _SETTINGS,
    "zenml.config.retry_config": {"StepRetryConfig": _SETTINGS["StepRetryConfig"]},
    "zenml.config.cache_policy": {"CachePolicy": _SETTINGS["CachePolicy"]},
    "zenml.config.schedule": {"Schedule": _SETTINGS["Schedule"]},
    "zenml.client": {"Client": "stoker._zen.client:Client"},
    "zenml.steps": {
        "step": _CORE["step"],
        "get_step_context": _CORE["get_step_context"],
        "BaseStep": "stoker._zen.pipelines:ZenStep",
        "StepContext": _CORE["StepContext"],
        "ResourceSettings": _SETTINGS["ResourceSettings"],
    },
    "zenml.steps.base_step": {"BaseStep": "stoker._zen.pipelines:ZenStep"},
    "zenml.steps.step_context": {
        "StepContext": _CORE["StepContext"],
        "get_step_context": _CORE["get_step_context"],
    },
    "zenml.hooks": {
        "alerter_failure_hook": "stoker._dialect:alerter_failure_hook",
        "alerter_success_hook": "stoker._dialect:alerter_success_hook",
    },
    "zenml.io": {},
    "zenml.io.fileio": {
        "copy": "stoker._dialect:copy",
        "exists": "os.path:exists",
        "glob": "glob:glob",
        "isdir": "os.path:isdir",
        "listdir": "os:listdir",
        "makedirs": "stoker._dialect:makedirs",
        "mkdir": "os:mkdir",
        "open": "builtins:open",
        "remove": "os:remove",
        "rename": "os:rename",
        "rmtree": "shutil:rmtree",
        "walk": "os:walk",
    },
    "zenml.models": _RESPONSES,
    "zenml.pipelines": {
        "pipeline": _CORE["pipeline"],
        "get_pipeline_context": _CORE["get_pipeline_context"],
        "Pipeline": "stoker._zen.pipelines:ZenPipeline",
        "Schedule": _SETTINGS["Schedule"],
    },
    "zenml.artifacts": _ARTIFACTS,
    "zenml.artifacts.artifact_config": {"ArtifactConfig": _ARTIFACTS["ArtifactConfig"]},
    "zenml.artifacts.external_artifact": {"ExternalArtifact": _ARTIFACTS["ExternalArtifact"]},
    "zenml.artifacts.utils": {
        "save_artifact": _ARTIFACTS["save_artifact"],
        "load_artifact": _ARTIFACTS["load_artifact"],
        "log_artifact_metadata": _CORE["log_artifact_metadata"],
        "load_artifact_from_response": "stoker._zen.saved:load_artifact_from_response",
        "load_artifact_visualization": "stoker._zen.visuals:load_artifact_visualization",
    },
    "zenml.utils.visualization_utils": {
        "format_csv_visualization_as_html": (
            "stoker._zen.visuals:format_csv_visualization_as_html"
        ),
        "visualize_artifact": "stoker._zen.visuals:visualize_artifact",
    },
    "zenml.model.utils": {
        "link_artifact_to_model": _CORE["link_artifact_to_model"],
        "log_model_metadata": _CORE["log_model_metadata"],
    },
    "zenml.utils.metadata_utils": {
        "log_metadata": _CORE["log_metadata"],
        "bulk_log_metadata": _CORE["bulk_log_metadata"],
    },
    "zenml.utils.tag_utils": {
        "add_tags": _CORE["add_tags"],
        "remove_tags": _CORE["remove_tags"],
        "Tag": _CORE["Tag"],
    },
    "zenml.model": {"Model": _CORE["Model"]},
    "zenml.model.model": {"Model": _CORE["Model"]},
    "zenml.metadata": {},
    "zenml.metadata.metadata_types": {
        "DType": "builtins:str",
        "Path": "builtins:str",
        "StorageSize": "builtins:int",
        "Uri": "builtins:str",
    },
    "zenml.materializers": _MATERIALIZERS,
    "zenml.materializers.base_materializer": {
        "BaseMaterializer": _MATERIALIZERS["BaseMaterializer"]
    },
    **{
        f"zenml.materializers.{module}_materializer": {
            f"{name}Materializer": "stoker._dialect:StandardMaterializer"
        }
        for module, name in (
            *(("built_in", "BuiltIn"), ("cloudpickle", "Cloudpickle"), ("numpy", "Numpy")),
            *(("pandas", "Pandas"), ("pydantic", "Pydantic")),
        )
    },
    "zenml.types": _STRINGS,
    "zenml.logger": {"get_logger": "stoker._definition.types:get_logger"},
    "zenml.enums": "stoker._zen.enums",
    "zenml.exceptions": "stoker._zen.errors",
    "zenml.utils": {},
    "zenml.utils.cuda_utils": {"cleanup_gpu_memory": "stoker:cleanup_gpu_memory"},
    "zenml.integrations": {},
    "zenml.integrations.constants": {},
    f"{_MLFLOW}": {},
    f"{_MLFLOW}.experiment_trackers": {
        "MLFlowExperimentTracker": _MLFLOW_TRACKER["MLFlowExperimentTracker"]
    },
    f"{_MLFLOW}.experiment_trackers.mlflow_experiment_tracker": _MLFLOW_TRACKER,
    f"{_MLFLOW}.flavors": _MLFLOW_TRACKER,
    f"{_MLFLOW}.flavors.mlflow_experiment_tracker_flavor": _MLFLOW_TRACKER,
    f"{_MLFLOW}.mlflow_utils": _MLFLOW_UTILS,
    f"{_MLFLOW}.model_registries": _MLFLOW_REGISTRY,
    f"{_MLFLOW}.model_registries.mlflow_model_registry": _MLFLOW_REGISTRY,
    **{f"{_MLFLOW}.{module}": {} for module in _DEPLOYER},
    f"{_MLFLOW}.steps.mlflow_registry": _MLFLOW_STEPS,
    "zenml.experiment_trackers": {"BaseExperimentTracker": f"{_TRACKER}:BaseExperimentTracker"},
    "zenml.model_registries": {"BaseModelRegistry": _REGISTRIES["BaseModelRegistry"]},
    "zenml.model_registries.base_model_registry": _REGISTRIES,
    "zenml.integrations.huggingface": {},
    "zenml.integrations.huggingface.steps": {"run_with_accelerate": "stoker:run_with_accelerate"},
    "zenml.integrations.huggingface.steps.accelerate_runner": {
        "run_with_accelerate": "stoker:run_with_accelerate"
    },
}

_LATER = {
    **{
        (f"{_MLFLOW}.{module}", name): (
            "Stoker has no model deployer: load the model in a step by mlflow.pyfunc.load_model, "
            "or serve it by `mlflow models serve`"
        )
        for module, names in _DEPLOYER.items()
        for name in names
    },
    **dict.fromkeys(
        (("zenml.steps", "BaseParameters"), ("zenml.steps", "Output")),
        "it went out of ZenML years ago: annotate the step's parameters and outputs instead",
    ),
}

# What runs otherwise than in ZenML: a name, ``Client.NAME`` or an option → why.
DIFFERS = {
    "register_artifact": "it copies the file or folder into the store",
    "show": "it names the latest run's page: there is no dashboard",
    "wait": "it asks at the terminal",
    "alerter_failure_hook": "it prints: no alerter is connected",
    "alerter_success_hook": "it prints: no alerter is connected",
    **dict.fromkeys(
        (
            "Client.active_stack",
            "Client.active_stack_model",
            "Client.get_stack",
            "Client.list_stacks",
        ),
        "stacks are this machine and those of stoker.yaml",
    ),
    "Client.activate_stack": "runs go to a stack of stoker.yaml, as with `stoker run --with NAME`",
    **dict.fromkeys(
        ("Client.get_flavor", "Client.get_flavors_by_type", "Client.list_flavors"),
        "flavors are those of which Stoker's stacks are made",
    ),
    "Client.list_snapshots": "a snapshot is what a run was started with, and none has a name",
    "Client.get_settings": "there is no server: the settings are the store's",
    "@pipeline(dynamic=…)": "each call of a step is a run of the engine of its own",
    "Client.create_stack_component": (
        "it takes MLflow's experiment tracker and model registry, and every stack then has them"
    ),
    "Client.delete_stack_component": "it removes what was registered, not what is in stoker.yaml",
    "@step(experiment_tracker=…)": (
        "a name that isn't registered means the tracker that was registered last, else the MLflow "
        "that is installed"
    ),
    "@step(step_operator=…)": "it names a stack of stoker.yaml; without one the step runs here",
}


def _of_integration(module: str, name: str) -> Any:
    """Integrations' names (``PYTORCH``), and settings classes of stack components that Stoker
    lacks."""
    if module == "zenml.integrations.constants" and name.isupper():
        return name.lower()
    if module.startswith("zenml.integrations.") and name.endswith("Settings"):
        return importlib.import_module("stoker._dialect").ComponentSettings
    return None


def _has_flavors(module: str) -> bool:
    """Whether it is ``zenml.integrations.NAME``, its ``flavors`` or ``pod_settings``: these exist
    for any NAME."""
    parts = module.split(".")
    return module.startswith("zenml.integrations.") and parts[3:4] in (
        [],
        ["flavors"],
        ["pod_settings"],
    )


stand_in(globals(), _MODULES, _LATER, _of_integration, _has_flavors)
unknown_settings("warn")
