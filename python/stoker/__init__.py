"""Stoker: machine-learning pipelines on accelerators.

Names are loaded on first use (PEP 562), so that ``import stoker`` costs next to nothing. The table
below is the one list of what the package offers; ``TYPE_CHECKING`` tells type checkers the same.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself would cost more than all of this

# torch.cuda.is_available() at module level must not open the device in the process that will be forked.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

__version__ = "0.1.0"

_HOME = {
    "step": "_step",
    "Step": "_step",
    "StepArtifact": "_step",
    "pipeline": "_pipeline",
    "Pipeline": "_pipeline",
    "get_pipeline_context": "_pipeline",
    "ResourceSettings": "_settings",
    "DockerSettings": "_settings",
    "DockerBuildConfig": "_settings",
    "DockerBuildOptions": "_settings",
    "StepRetryConfig": "_settings",
    "OnOOM": "_settings",
    "CachePolicy": "_settings",
    "gpu_profile": "_profile",
    "run_with_accelerate": "_gang",
    "torchrun": "_gang",
    "cleanup_memory": "_memory",
    "cleanup_gpu_memory": "_memory",
    "ArtifactConfig": "_types",
    "ExternalArtifact": "_types",
    "Model": "_types",
    "Schedule": "_types",
    "ExecutionMode": "_types",
    "ExecutionStatus": "_types",
    "Client": "_client",
    "PipelineRun": "_client",
    "save_artifact": "_artifacts",
    "load_artifact": "_artifacts",
    "get_step_context": "_context",
    "log_metadata": "_context",
    "Materializer": "materializers",
    "register_materializer": "materializers",
    "StokerError": "_errors",
    "SettingsError": "_errors",
    "StepInterfaceError": "_errors",
    "PipelineInterfaceError": "_errors",
    "PipelineFailed": "_errors",
    "PipelineCancelled": "_errors",
    "StokerWarning": "_errors",
}

__all__ = [*_HOME, "__version__"]

if TYPE_CHECKING:
    from typing import Any

    from ._artifacts import load_artifact as load_artifact
    from ._artifacts import save_artifact as save_artifact
    from ._client import Client as Client
    from ._client import PipelineRun as PipelineRun
    from ._context import get_step_context as get_step_context
    from ._context import log_metadata as log_metadata
    from ._errors import PipelineCancelled as PipelineCancelled
    from ._errors import PipelineFailed as PipelineFailed
    from ._errors import PipelineInterfaceError as PipelineInterfaceError
    from ._errors import SettingsError as SettingsError
    from ._errors import StepInterfaceError as StepInterfaceError
    from ._errors import StokerError as StokerError
    from ._errors import StokerWarning as StokerWarning
    from ._gang import run_with_accelerate as run_with_accelerate
    from ._gang import torchrun as torchrun
    from ._memory import cleanup_gpu_memory as cleanup_gpu_memory
    from ._memory import cleanup_memory as cleanup_memory
    from ._pipeline import Pipeline as Pipeline
    from ._pipeline import get_pipeline_context as get_pipeline_context
    from ._pipeline import pipeline as pipeline
    from ._profile import gpu_profile as gpu_profile
    from ._settings import CachePolicy as CachePolicy
    from ._settings import DockerBuildConfig as DockerBuildConfig
    from ._settings import DockerBuildOptions as DockerBuildOptions
    from ._settings import DockerSettings as DockerSettings
    from ._settings import OnOOM as OnOOM
    from ._settings import ResourceSettings as ResourceSettings
    from ._settings import StepRetryConfig as StepRetryConfig
    from ._step import Step as Step
    from ._step import StepArtifact as StepArtifact
    from ._step import step as step
    from ._types import ArtifactConfig as ArtifactConfig
    from ._types import ExecutionMode as ExecutionMode
    from ._types import ExecutionStatus as ExecutionStatus
    from ._types import ExternalArtifact as ExternalArtifact
    from ._types import Model as Model
    from ._types import Schedule as Schedule
    from .materializers import Materializer as Materializer
    from .materializers import register_materializer as register_materializer


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'stoker' has no attribute {name!r}")
    full = f"{__name__}.{home}"
    __import__(full)
    value = getattr(sys.modules[full], name)
    globals()[name] = value
    return value


class _Watch:
    """A finder that finds nothing: whether a program seeds its random numbers knows who looks from the beginning."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        """For the first of the generators; from then on ``_seeds`` looks by itself."""
        if name not in ("random", "torch"):
            return None
        sys.meta_path.remove(_Watch)
        __import__(f"{__name__}._seeds")
        return sys.modules[f"{__name__}._seeds"].notice().find_spec(name, path, target)


if "random" in sys.modules:
    __import__(f"{__name__}._seeds")
    sys.modules[f"{__name__}._seeds"].notice()
else:
    sys.meta_path.insert(0, _Watch)


def __dir__() -> list[str]:
    return sorted(__all__)
