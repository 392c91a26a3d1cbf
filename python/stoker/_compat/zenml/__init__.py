"""The compatibility shim: what ``import zenml`` resolves to under ``stoker compat``.

It has no code of its own: one table says which names live in which module and where Stoker keeps
them (``stoker._standin`` makes the modules). A module or name that isn't in the table is an error
in one sentence. Importing the shim makes unknown fields of settings warnings, because ZenML ignores
them silently.
"""

from __future__ import annotations

import importlib
import re
from typing import Any, Dict, Union

from stoker._base.errors import unknown_settings
from stoker._standin import stand_in

__version__ = "0.98.0"  # the version whose interface this is

_CORE = {
    "step": "stoker._zen.pipelines:step",
    "pipeline": "stoker._zen.pipelines:pipeline",
    "CommandStep": "stoker._zen.command_step:CommandStep",
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
    "run_hook": "stoker._zen.hooks:run_hook",
}
_SETTINGS = {
    "ResourceSettings": "stoker:ResourceSettings",
    "DockerSettings": "stoker:DockerSettings",
    "DockerBuildConfig": "stoker:DockerBuildConfig",
    "DockerBuildOptions": "stoker:DockerBuildOptions",
    **{
        name: f"stoker._definition.types:{name}"
        for name in ("PythonEnvironmentExportMethod", "PythonPackageInstaller")
    },
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
    f"{name}Materializer": f"stoker._zen.materials:{name}Materializer"
    for name in (
        *("Base", "BuiltIn", "BuiltInContainer", "Bytes", "Cloudpickle", "Dataclass", "InMemory"),
        *("Numpy", "Pandas", "Path", "Pydantic", "Service", "StructuredString", "UUID"),
    )
}
_UTILITIES = {
    "utils.io_utils": (
        *("copy_dir", "create_dir_if_not_exists", "create_dir_recursive_if_not_exists"),
        *("create_file_if_not_exists", "find_files", "get_global_config_directory"),
        *("get_grandparent", "get_parent", "is_path_within_directory", "is_remote", "is_root"),
        *("move", "read_file_contents_as_string", "resolve_relative_path"),
        "write_file_contents_as_string",
    ),
    "utils.yaml_utils": (
        *("UUIDEncoder", "append_yaml", "is_yaml", "read_json", "read_yaml", "write_json"),
        "write_yaml",
    ),
    "utils.string_utils": (
        *("b64_decode", "b64_encode", "get_human_readable_filesize", "get_human_readable_time"),
        "random_str",
    ),
    "utils.dict_utils": ("recursive_update", "remove_none_values"),
    "utils.pagination_utils": ("depaginate", "depaginate_stream"),
    "utils.uuid_utils": (
        *("generate_uuid_from_string", "is_valid_uuid", "parse_name_or_uuid", "to_uuid"),
    ),
    "utils.enum_utils": ("StrEnum",),
    "utils.time_utils": (
        *("expires_in", "seconds_to_human_readable", "to_local_tz", "to_utc_timezone"),
        *("utc_now", "utc_now_tz_aware"),
    ),
    "utils.source_utils": (
        *("get_implicit_source_root", "get_source_root", "load", "load_and_validate_class"),
        *("resolve", "validate_source_class"),
    ),
    "constants": (
        *("handle_bool_env_var", "handle_float_env_var", "handle_int_env_var"),
        *("is_false_string_value", "is_true_string_value", "DEFAULT_SERVICE_START_STOP_TIMEOUT"),
        *("ENV_ZENML_ACTIVE_PROJECT_ID", "ENV_ZENML_ACTIVE_STACK_ID", "ENV_ZENML_ANALYTICS_OPT_IN"),
        *("ENV_ZENML_LOCAL_STORES_PATH", "ENV_ZENML_REPOSITORY_PATH", "ENV_ZENML_SERVER"),
        *("ENV_ZENML_CONFIG_PATH", "ENV_ZENML_DEBUG", "ENV_ZENML_LOGGING_VERBOSITY"),
        *("METADATA_EXPERIMENT_TRACKER_URL", "PAGE_SIZE_DEFAULT", "PAGE_SIZE_MAXIMUM"),
    ),
    "environment": ("Environment", "get_environment", "get_run_environment_dict"),
    "config.global_config": ("GlobalConfiguration",),
}
_HELPERS = {
    "utils.string_utils": (
        *("BANNED_NAME_CHARACTERS", "format_name_template", "substitute_string", "validate_name"),
    ),
    "utils.yaml_utils": ("is_json_serializable",),
    "utils.dict_utils": ("dict_to_bytes",),
    "utils.json_utils": ("pydantic_encoder",),
    "utils.pydantic_utils": ("update_model",),
    "utils.secret_utils": (
        *("ClearTextField", "SecretField"),
        "SecretReference",
        "is_secret_reference",
        "parse_secret_reference",
    ),
    "utils.settings_utils": (
        *("DOCKER_SETTINGS_KEY", "RESOURCE_SETTINGS_KEY", "get_flavor_setting_key"),
        *(
            "get_stack_component_setting_key",
            "get_general_settings",
            "is_general_setting_key",
            "is_stack_component_setting_key",
        ),
        *("is_valid_setting_key", "validate_setting_keys"),
    ),
    "utils.typing_utils": (
        *("get_args", "get_origin", "is_literal_type", "is_none_type", "is_optional", "is_union"),
        "literal_values",
    ),
    "utils.singleton": ("SingletonMetaClass",),
    "utils.env_utils": ("substitute_env_variable_placeholders", "temporary_environment"),
    "utils.networking_utils": (
        *("find_available_port", "port_available", "port_is_open", "scan_for_available_port"),
    ),
    "utils.package_utils": ("requirement_installed",),
    "utils.source_code_utils": ("get_hashed_source_code", "get_source_code"),
    "utils.source_utils": (
        *("get_source_type", "is_distribution_package_file", "is_internal_module"),
        *("is_standard_lib_file", "is_user_file"),
    ),
    "metadata.metadata_types": (
        *("DType", "MetadataTypeEnum", "Path", "StorageSize", "Uri", "cast_to_metadata_type"),
        *("get_metadata_type", "validate_metadata"),
    ),
    "io.fileio": (
        *("copy", "exists", "glob", "isdir", "listdir", "makedirs", "mkdir", "open", "remove"),
        *("rename", "rmtree", "size", "stat", "walk"),
    ),
}
# Modules of ZenML's models; each has the names of all.
_MODELS = (
    *("base.base", "base.filter", "base.page", "base.scoped", "core.artifact"),
    *("core.artifact_version", "core.artifact_visualization", "core.code_reference"),
    *("core.code_repository", "core.component", "core.flavor", "core.logs", "core.model"),
    *("core.model_version", "core.model_version_artifact", "core.model_version_pipeline_run"),
    *("core.pipeline", "core.pipeline_build", "core.pipeline_run", "core.pipeline_snapshot"),
    *("core.project", "core.run_metadata", "core.run_template", "core.schedule", "core.secret"),
    *("core.service", "core.service_account", "core.stack", "core.step_run", "core.tag"),
    *("core.tag_resource", "core.user", "misc.run_metadata", "misc.tag"),
)
_SNAKE = re.compile("(?=[A-Z])")
# Names of the stack's parts → the classes that Stoker's stack has for them.
_STACK = {
    "Stack": "stoker._zen.stacks:Stack",
    "StackComponent": "stoker._zen.stacks:Component",
    **{
        name: f"stoker._zen.flavors:{name}"
        for name in ("Flavor", "StackComponentConfig", "StackValidator")
    },
}
# Module of a kind of component → what its base classes are called.
_BASES = {
    "alerter": "Alerter",
    "annotators": "Annotator",
    "artifact_stores": "ArtifactStore",
    "container_registries": "ContainerRegistry",
    "data_validators": "DataValidator",
    "experiment_trackers": "ExperimentTracker",
    "feature_stores": "FeatureStore",
    "image_builders": "ImageBuilder",
    "model_deployers": "ModelDeployer",
    "model_registries": "ModelRegistry",
    "orchestrators": "Orchestrator",
    "step_operators": "StepOperator",
}
_BASE_NAMES = {
    module: {
        f"Base{word}{part}": f"stoker._zen.flavors:Base{word}{part}"
        for part in ("", "Config", "Flavor")
    }
    for module, word in _BASES.items()
}
_BASE_NAMES["alerter"]["BaseAlerterStepParameters"] = (
    "stoker._zen.flavors:BaseAlerterStepParameters"
)
_BASE_NAMES["orchestrators"].update(
    dict.fromkeys(
        ("ContainerizedOrchestrator", "LocalOrchestrator"), "stoker._zen.flavors:BaseOrchestrator"
    )
)
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
_SERVICES = "stoker._zen.mlflow_services"
_MLFLOW_SERVICES = {
    name: f"{_SERVICES}:{name}" for name in ("MLFlowDeploymentConfig", "MLFlowDeploymentService")
}
_MLFLOW_DEPLOYER = {"MLFlowModelDeployer": f"{_SERVICES}:MLFlowModelDeployer"}
_DEPLOYER_STEPS = {
    name: f"stoker._zen.mlflow_deploy_steps:{name}"
    for name in ("mlflow_model_deployer_step", "mlflow_model_registry_deployer_step")
}

_BASE_NAMES["model_deployers"]["BaseModelDeployer"] = f"{_SERVICES}:BaseModelDeployer"
_BASE_NAMES["model_registries"].update(_REGISTRIES)
_BASE_NAMES["artifact_stores"].update(
    dict.fromkeys(("BaseArtifactStore", "LocalArtifactStore"), "stoker._zen.stacks:ArtifactStore")
)

# Module → {name → "module:name" in Stoker}. A module with names below it is a package.
_MODULES: Dict[str, Union[str, Dict[str, str]]] = {
    "zenml": {**_CORE, **_SETTINGS, "Client": "stoker._zen.client:Client"},
    "zenml.config": {
        **_SETTINGS,
        "ByteUnit": "stoker._dialect:ByteUnit",
        "DeploymentSettings": "stoker._dialect:ComponentSettings",
    },
    "zenml.config.resource_settings": {
        "ResourceSettings": _SETTINGS["ResourceSettings"],
        "ByteUnit": "stoker._dialect:ByteUnit",
    },
    "zenml.config.docker_settings": _SETTINGS,
    "zenml.config.retry_config": {"StepRetryConfig": _SETTINGS["StepRetryConfig"]},
    "zenml.config.cache_policy": {"CachePolicy": _SETTINGS["CachePolicy"]},
    "zenml.config.pipeline_run_configuration": {
        "PipelineRunConfiguration": "stoker._zen.schemas:PipelineRunConfiguration"
    },
    "zenml.config.schedule": {"Schedule": _SETTINGS["Schedule"]},
    "zenml.client": {"Client": "stoker._zen.client:Client"},
    "zenml.steps": {
        "step": _CORE["step"],
        "get_step_context": _CORE["get_step_context"],
        "BaseStep": "stoker._zen.pipelines:ZenStep",
        "CommandStep": _CORE["CommandStep"],
        "StepContext": _CORE["StepContext"],
        "ResourceSettings": _SETTINGS["ResourceSettings"],
    },
    "zenml.steps.utils": {
        **{
            name: f"stoker._zen.signatures:{name}"
            for name in (
                *("OutputSignature", "SINGLE_RETURN_OUT_NAME", "parse_return_type_annotations"),
                "resolve_type_annotation",
            )
        },
        "log_step_metadata": _CORE["log_step_metadata"],
    },
    "zenml.steps.command_step": {"CommandStep": _CORE["CommandStep"]},
    "zenml.steps.base_step": {"BaseStep": "stoker._zen.pipelines:ZenStep"},
    "zenml.steps.step_context": {
        "StepContext": _CORE["StepContext"],
        "get_step_context": _CORE["get_step_context"],
    },
    "zenml.hooks": {
        "run_hook": _CORE["run_hook"],
        "alerter_failure_hook": "stoker._zen.around:alerter_failure_hook",
        "alerter_success_hook": "stoker._zen.around:alerter_success_hook",
    },
    "zenml.io": {},
    **dict.fromkeys(
        (
            *("zenml.models", "zenml.models.v2", "zenml.models.v2.base", "zenml.models.v2.core"),
            *("zenml.models.v2.misc", *(f"zenml.models.v2.{name}" for name in _MODELS)),
        ),
        "stoker._zen.schemas",
    ),
    "zenml.pipelines": {
        "pipeline": _CORE["pipeline"],
        "get_pipeline_context": _CORE["get_pipeline_context"],
        "Pipeline": "stoker._zen.pipelines:ZenPipeline",
        "PipelineContext": "stoker._zen.context:PipelineContext",
        "Schedule": _SETTINGS["Schedule"],
    },
    "zenml.artifacts": _ARTIFACTS,
    "zenml.artifacts.artifact_config": {"ArtifactConfig": _ARTIFACTS["ArtifactConfig"]},
    "zenml.artifacts.external_artifact": {"ExternalArtifact": _ARTIFACTS["ExternalArtifact"]},
    "zenml.artifacts.unmaterialized_artifact": {
        "UnmaterializedArtifact": "stoker._zen.context:UnmaterializedArtifact"
    },
    "zenml.artifacts.utils": {
        "save_artifact": _ARTIFACTS["save_artifact"],
        "load_artifact": _ARTIFACTS["load_artifact"],
        "log_artifact_metadata": _CORE["log_artifact_metadata"],
        "register_artifact": _ARTIFACTS["register_artifact"],
        **{
            name: f"stoker._zen.saved:{name}"
            for name in (
                *("download_artifact_files_from_response", "get_producer_step_of_artifact"),
                *("get_artifacts_versions_of_pipeline_run", "load_artifact_from_response"),
            )
        },
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
    "zenml.metadata.metadata_types": {"MetadataType": "typing:Any"},
    "zenml.materializers": _MATERIALIZERS,
    "zenml.materializers.base_materializer": {
        "BaseMaterializer": _MATERIALIZERS["BaseMaterializer"]
    },
    **{
        f"zenml.materializers.{module}_materializer": _MATERIALIZERS
        for module in (
            *("built_in", "cloudpickle", "dataclass", "in_memory", "numpy", "pandas", "path"),
            *("pydantic", "service", "structured_string", "uuid"),
        )
    },
    "zenml.materializers.materializer_registry": {
        name: f"stoker._zen.materials:{name}"
        for name in ("MaterializerRegistry", "materializer_registry")
    },
    "zenml.types": _STRINGS,
    "zenml.logger": {"get_logger": "stoker._definition.types:get_logger"},
    "zenml.enums": "stoker._zen.enums",
    "zenml.exceptions": "stoker._zen.errors",
    "zenml.utils": {},
    **{
        f"zenml.{module}": {name: f"stoker._zen.utilities:{name}" for name in names}
        for module, names in _UTILITIES.items()
    },
    "zenml.utils.dashboard_utils": {
        f"get_{what}_url": "stoker._zen.utilities:no_page"
        for what in ("component", "deployment", "model_version", "run", "stack")
    },
    "zenml.stack": _STACK,
    "zenml.stack.stack": {"Stack": _STACK["Stack"]},
    "zenml.stack.stack_component": {
        name: _STACK[name] for name in ("StackComponent", "StackComponentConfig")
    },
    "zenml.stack.flavor": {"Flavor": _STACK["Flavor"]},
    "zenml.stack.stack_validator": {"StackValidator": _STACK["StackValidator"]},
    "zenml.config.base_settings": {"BaseSettings": "stoker._zen.flavors:BaseSettings"},
    "zenml.config.step_run_info": {"StepRunInfo": "stoker._zen.around:StepRunInfo"},
    **{
        f"zenml.{module}{part}": names
        for module, names in _BASE_NAMES.items()
        for part in ("", f".base{_SNAKE.sub('_', _BASES[module]).lower()}")
    },
    "zenml.artifact_stores.local_artifact_store": _BASE_NAMES["artifact_stores"],
    "zenml.config.source": {
        name: f"stoker._zen.responses:{name}" for name in ("Source", "SourceType")
    },
    "zenml.config.pipeline_configurations": {
        "PipelineConfiguration": "stoker._zen.configuration:PipelineConfiguration"
    },
    "zenml.config.step_configurations": {
        name: f"stoker._zen.configuration:{name}" for name in ("StepConfiguration", "StepSpec")
    },
    "zenml.pipelines.pipeline_context": {
        "PipelineContext": "stoker._zen.context:PipelineContext",
        "get_pipeline_context": _CORE["get_pipeline_context"],
    },
    "zenml.pipelines.pipeline_decorator": {"pipeline": _CORE["pipeline"]},
    "zenml.pipelines.pipeline_definition": {"Pipeline": "stoker._zen.pipelines:ZenPipeline"},
    "zenml.steps.step_decorator": {"step": _CORE["step"]},
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
    f"{_MLFLOW}.model_deployers": _MLFLOW_DEPLOYER,
    f"{_MLFLOW}.model_deployers.mlflow_model_deployer": _MLFLOW_DEPLOYER,
    f"{_MLFLOW}.services": _MLFLOW_SERVICES,
    f"{_MLFLOW}.services.mlflow_deployment": _MLFLOW_SERVICES,
    f"{_MLFLOW}.steps": {**_MLFLOW_STEPS, **_DEPLOYER_STEPS},
    f"{_MLFLOW}.steps.mlflow_registry": _MLFLOW_STEPS,
    f"{_MLFLOW}.steps.mlflow_deployer": _DEPLOYER_STEPS,
    "zenml.services": {
        "BaseService": f"{_SERVICES}:MLFlowDeploymentService",
        "ServiceConfig": f"{_SERVICES}:ServiceConfig",
        "ServiceType": "stoker._zen.services:ServiceType",
        "ServiceState": "stoker._zen.enums:ServiceState",
    },
    "zenml.integrations.huggingface": {},
    "zenml.integrations.huggingface.steps": {"run_with_accelerate": "stoker:run_with_accelerate"},
    "zenml.integrations.huggingface.steps.accelerate_runner": {
        "run_with_accelerate": "stoker:run_with_accelerate"
    },
}

_LATER = {
    **dict.fromkeys(
        (("zenml.steps", "BaseParameters"), ("zenml.steps", "Output")),
        "it went out of ZenML years ago: annotate the step's parameters and outputs instead",
    ),
}

for _module, _names in _HELPERS.items():
    _home = "files" if _module == "io.fileio" else "helpers"
    _known = _MODULES.setdefault(f"zenml.{_module}", {})
    assert isinstance(_known, dict)
    _known.update({name: f"stoker._zen.{_home}:{name}" for name in _names})

# What runs otherwise than in ZenML: a name, ``Client.NAME`` or an option → why.
DIFFERS = {
    "register_artifact": "it copies the file or folder into the store",
    "show": "it names the latest run's page: there is no dashboard",
    "wait": "it asks at the terminal",
    **dict.fromkeys(
        ("alerter_failure_hook", "alerter_success_hook"),
        "without an alerter of the program's own in the stack it prints",
    ),
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
    "Schedule": "systemd or cron of this machine keeps it; ZenML's local orchestrator refuses it",
    **dict.fromkeys(
        (
            *("Client.trigger_pipeline", "Client.create_run_template", "Client.get_run_template"),
            *("Client.list_run_templates", "Client.update_run_template"),
        ),
        "this machine starts runs of kept code; ZenML does only with a server",
    ),
    "Client.get_settings": "there is no server: the settings are the store's",
    "@pipeline(dynamic=…)": "each call of a step is a run of the engine of its own",
    "Client.create_stack_component": (
        "MLflow's components are in every stack; of other components it takes those that Stoker has a "
        "backend for"
    ),
    **dict.fromkeys(
        ("Client.create_stack", "Client.update_stack"), "it changes a line of stoker.yaml"
    ),
    "Client.delete_stack": "it removes a line of stoker.yaml; that of a step operator stays",
    "Client.update_stack_component": "it changes the lines of stoker.yaml that have the component",
    "mlflow_model_deployer_step": (
        "a model that was trained again takes the earlier one's place; ZenML 0.98 returns the earlier "
        "server, and stops it"
    ),
    "Client.delete_pipeline": "it removes the pipeline's schedules and snapshots, too",
    "Client.zen_store": "it has the client's functions, with filters and requests as arguments",
    "Client.list_service_connector_types": "there is none: credentials are the machine's",
    "Client.delete_stack_component": "it removes what was registered, not what is in stoker.yaml",
    "@step(experiment_tracker=…)": (
        "a name that isn't registered means the tracker that was registered last, else the MLflow "
        "that is installed"
    ),
    "@step(step_operator=…)": (
        "it names a stack of stoker.yaml, or a component of the program's own; without one the step "
        "runs here"
    ),
}


def _of_integration(module: str, name: str) -> Any:
    """A name of ``zenml.integrations`` that no table lists, or None."""
    return importlib.import_module("stoker._zen.integrations").named(module, name)


def _is_integration(module: str) -> bool:
    """Whether it is a module of ``zenml.integrations`` that exists for any integration."""
    if not module.startswith("zenml.integrations."):
        return False
    known: bool = importlib.import_module("stoker._zen.integrations").has_module(module)
    return known


stand_in(globals(), _MODULES, _LATER, _of_integration, _is_integration)
unknown_settings("warn")
