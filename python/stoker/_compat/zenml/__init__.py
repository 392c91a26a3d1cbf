"""The compatibility shim: what ``import zenml`` resolves to under ``stoker compat``.

It has no code of its own: one table says which names live in which module and where Stoker keeps
them (``stoker._standin`` makes the modules). A module or name that isn't in the table is an error
in one sentence. Importing the shim makes unknown settings warnings, because ZenML ignores them
silently.
"""

from __future__ import annotations

import importlib
from typing import Any, Dict

from stoker._base.errors import unknown_settings
from stoker._standin import stand_in

__version__ = "0.98.0"  # the version whose interface this is

_CORE = {
    "step": "stoker:step",
    "pipeline": "stoker:pipeline",
    "get_step_context": "stoker:get_step_context",
    "get_pipeline_context": "stoker:get_pipeline_context",
    "log_metadata": "stoker:log_metadata",
    "log_step_metadata": "stoker._engine.metadata:log_step_metadata",
    "log_artifact_metadata": "stoker._engine.metadata:log_artifact_metadata",
    "save_artifact": "stoker:save_artifact",
    "load_artifact": "stoker:load_artifact",
    "ArtifactConfig": "stoker:ArtifactConfig",
    "ExternalArtifact": "stoker:ExternalArtifact",
    "Model": "stoker:Model",
    "Schedule": "stoker:Schedule",
    "ExecutionMode": "stoker:ExecutionMode",
    "StepContext": "stoker._worker.context:StepContext",
    "Tag": "stoker._dialect:Tag",
    "add_tags": "stoker._dialect:add_tags",
    "log_model_metadata": "stoker._dialect:log_model_metadata",
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
    "ArtifactConfig": "stoker:ArtifactConfig",
    "ExternalArtifact": "stoker:ExternalArtifact",
    "save_artifact": "stoker:save_artifact",
    "load_artifact": "stoker:load_artifact",
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
_ERRORS = {
    "StepInterfaceError": "stoker:StepInterfaceError",
    "PipelineInterfaceError": "stoker:PipelineInterfaceError",
    "StepContextError": "builtins:RuntimeError",
    "ZenMLBaseException": "stoker:StokerError",
}

# Module → {name → "module:name" in Stoker}. A module with names below it is a package.
_MODULES: Dict[str, Dict[str, str]] = {
    "zenml": {**_CORE, **_SETTINGS, "Client": "stoker:Client"},
    "zenml.config": _SETTINGS,
    "zenml.config.resource_settings": {
        "ResourceSettings": _SETTINGS["ResourceSettings"],
        "ByteUnit": "stoker._dialect:ByteUnit",
    },
    "zenml.config.docker_settings": _SETTINGS,
    "zenml.config.retry_config": {"StepRetryConfig": _SETTINGS["StepRetryConfig"]},
    "zenml.config.cache_policy": {"CachePolicy": _SETTINGS["CachePolicy"]},
    "zenml.config.schedule": {"Schedule": _SETTINGS["Schedule"]},
    "zenml.client": {"Client": "stoker:Client"},
    "zenml.steps": {
        "step": _CORE["step"],
        "get_step_context": _CORE["get_step_context"],
        "BaseStep": "stoker:Step",
        "StepContext": _CORE["StepContext"],
        "ResourceSettings": _SETTINGS["ResourceSettings"],
    },
    "zenml.steps.base_step": {"BaseStep": "stoker:Step"},
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
    "zenml.models": {
        "ArtifactVersionResponse": "stoker._engine.client:ArtifactVersion",
        "PipelineRunResponse": "stoker._engine.client:PipelineRun",
        "StepRunResponse": "stoker._engine.client:StepRun",
    },
    "zenml.pipelines": {
        "pipeline": _CORE["pipeline"],
        "get_pipeline_context": _CORE["get_pipeline_context"],
        "Pipeline": "stoker:Pipeline",
        "Schedule": _SETTINGS["Schedule"],
    },
    "zenml.artifacts": _ARTIFACTS,
    "zenml.artifacts.artifact_config": {"ArtifactConfig": _ARTIFACTS["ArtifactConfig"]},
    "zenml.artifacts.external_artifact": {"ExternalArtifact": _ARTIFACTS["ExternalArtifact"]},
    "zenml.artifacts.utils": {
        "save_artifact": _ARTIFACTS["save_artifact"],
        "load_artifact": _ARTIFACTS["load_artifact"],
        "log_artifact_metadata": _CORE["log_artifact_metadata"],
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
    "zenml.enums": {
        "ArtifactType": "stoker._definition.types:ArtifactType",
        "ExecutionMode": "stoker:ExecutionMode",
        "ExecutionStatus": "stoker:ExecutionStatus",
        "ModelStages": "stoker._dialect:ModelStages",
        "VisualizationType": "stoker._dialect:VisualizationType",
    },
    "zenml.exceptions": _ERRORS,
    "zenml.utils": {},
    "zenml.utils.cuda_utils": {"cleanup_gpu_memory": "stoker:cleanup_gpu_memory"},
    "zenml.integrations": {},
    "zenml.integrations.constants": {},
    "zenml.integrations.huggingface": {},
    "zenml.integrations.huggingface.steps": {"run_with_accelerate": "stoker:run_with_accelerate"},
    "zenml.integrations.huggingface.steps.accelerate_runner": {
        "run_with_accelerate": "stoker:run_with_accelerate"
    },
}

_LATER = {
    **dict.fromkeys(
        (("zenml", "unmapped"), ("zenml", "wait")),
        "unmapped and wait belong to dynamic pipelines, which come with a later version of Stoker",
    ),
    **dict.fromkeys(
        (("zenml.steps", "BaseParameters"), ("zenml.steps", "Output")),
        "it went out of ZenML years ago: annotate the step's parameters and outputs instead",
    ),
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
