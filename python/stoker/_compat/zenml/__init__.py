"""The compatibility shim: what ``import zenml`` resolves to under ``stoker compat``.

It has no code of its own: one table says which names live in which module and where Stoker keeps them. The
modules are made when they are imported. A module or name that isn't in the table is an error in one sentence.
Importing the shim makes unknown settings warnings, because ZenML ignores them silently.
"""

from __future__ import annotations

import dis
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any, Dict, Optional, Sequence

from stoker._errors import did_you_mean, unknown_settings

__version__ = "0.98.0"  # the version whose interface this is

_CORE = {
    "step": "stoker:step",
    "pipeline": "stoker:pipeline",
    "get_step_context": "stoker:get_step_context",
    "get_pipeline_context": "stoker:get_pipeline_context",
    "log_metadata": "stoker:log_metadata",
    "log_step_metadata": "stoker._context:log_step_metadata",
    "log_artifact_metadata": "stoker._context:log_artifact_metadata",
    "save_artifact": "stoker:save_artifact",
    "load_artifact": "stoker:load_artifact",
    "ArtifactConfig": "stoker:ArtifactConfig",
    "ExternalArtifact": "stoker:ExternalArtifact",
    "Model": "stoker:Model",
    "Schedule": "stoker:Schedule",
    "ExecutionMode": "stoker:ExecutionMode",
    "StepContext": "stoker._context:StepContext",
    "Tag": "stoker._dialect:Tag",
    "add_tags": "stoker._dialect:add_tags",
    "log_model_metadata": "stoker._dialect:log_model_metadata",
}
_SETTINGS = {
    "ResourceSettings": "stoker:ResourceSettings",
    "DockerSettings": "stoker:DockerSettings",
    "DockerBuildConfig": "stoker:DockerBuildConfig",
    "DockerBuildOptions": "stoker:DockerBuildOptions",
    "PythonPackageInstaller": "stoker._types:PythonPackageInstaller",
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
        "ArtifactVersionResponse": "stoker._client:ArtifactVersion",
        "PipelineRunResponse": "stoker._client:PipelineRun",
        "StepRunResponse": "stoker._client:StepRun",
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
    "zenml.logger": {"get_logger": "stoker._types:get_logger"},
    "zenml.enums": {
        "ArtifactType": "stoker._types:ArtifactType",
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
    """Integrations' names (``PYTORCH``), and settings classes of stack components that aren't here."""
    if module == "zenml.integrations.constants" and name.isupper():
        return name.lower()
    if module.startswith("zenml.integrations.") and name.endswith("Settings"):
        return importlib.import_module("stoker._dialect").ComponentSettings
    return None


def _find(module: str, name: str, caller: types.FrameType) -> Any:
    """A name of a shim module.

    Raises:
        ImportError: ``from module import name`` asked for what the shim hasn't got, in one sentence.
        AttributeError: the same, asked for in another way.
    """
    later = _LATER.get((module, name))
    if later is not None:
        raise ImportError(later)
    target = _MODULES.get(module, {}).get(name)
    made = _of_integration(module, name) if target is None else None
    if made is not None:
        return made
    if target is None:
        hint = did_you_mean(name, _MODULES.get(module, {}))
        text = f"Stoker's stand-in for {module} has no '{name}'{hint}"
        # Python replaces the text of an AttributeError by its own when it imports from a module.
        importing = caller.f_code.co_code[caller.f_lasti] == dis.opmap["IMPORT_FROM"]
        raise ImportError(text, name=module) if importing else AttributeError(text)
    home, _, attribute = target.partition(":")
    return getattr(importlib.import_module(home), attribute)


class _Module(types.ModuleType):
    """A module of the table."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = _find(self.__name__, name, sys._getframe(1))
        setattr(self, name, value)
        return value

    def __dir__(self) -> Sequence[str]:
        return [*super().__dir__(), *_MODULES.get(self.__name__, {})]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the modules of the table; any other ``zenml.…`` module is missing, with a sentence."""

    def find_spec(
        self, fullname: str, path: Any = None, target: Any = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if not fullname.startswith("zenml."):
            return None
        flavors = fullname.startswith("zenml.integrations.") and fullname.split(".")[3:4] in (
            [],
            ["flavors"],
        )
        if fullname not in _MODULES and not flavors:
            if fullname.rpartition(".")[2].startswith("__"):
                return None
            raise ModuleNotFoundError(
                f"Stoker's stand-in for zenml has no module '{fullname}'{did_you_mean(fullname, _MODULES)}",
                name=fullname,
            )
        package = flavors or any(other.startswith(f"{fullname}.") for other in _MODULES)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        module = _Module(spec.name, f"Stoker's stand-in for {spec.name}.")
        module.__all__ = list(_MODULES.get(spec.name, ()))  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run: names are found when they are asked for."""


def __getattr__(name: str) -> Any:
    if name.startswith("__") or f"zenml.{name}" in _MODULES:
        raise AttributeError(name)
    value = _find("zenml", name, sys._getframe(1))
    globals()[name] = value
    return value


def __dir__() -> Sequence[str]:
    return [*globals(), *_MODULES["zenml"]]


__all__ = list(_MODULES["zenml"])

sys.meta_path.insert(0, _Finder())
unknown_settings("warn")
