"""Stoker: machine-learning pipelines on accelerators."""

# Names are loaded on first use (PEP 562), so that `import stoker` costs next to nothing. The table
# below is the one list of what the package offers; TYPE_CHECKING tells type checkers the same.

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself would cost more than all of this

# torch.cuda.is_available() at module level must not open the device in the process that will be forked.
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")

__version__ = "0.1.0"

_HOME = {
    "step": "_decorators.step",
    "Step": "_decorators.step",
    "StepArtifact": "_decorators.step",
    "pipeline": "_decorators.pipeline",
    "Pipeline": "_decorators.pipeline",
    "get_pipeline_context": "_decorators.pipeline",
    "ResourceSettings": "_definition.settings",
    "DockerSettings": "_definition.docker",
    "DockerBuildConfig": "_definition.docker",
    "DockerBuildOptions": "_definition.docker",
    "StepRetryConfig": "_definition.settings",
    "OnOOM": "_definition.settings",
    "CachePolicy": "_definition.settings",
    "gpu_profile": "_decorators.profile",
    "run_with_accelerate": "_decorators.ranks",
    "torchrun": "_decorators.ranks",
    "cleanup_memory": "_worker.memory",
    "cleanup_gpu_memory": "_worker.memory",
    "ArtifactConfig": "_definition.types",
    "ExternalArtifact": "_definition.types",
    "Model": "_definition.types",
    "Schedule": "_definition.types",
    "ExecutionMode": "_definition.types",
    "ExecutionStatus": "_definition.types",
    "Client": "_engine.client",
    "PipelineRun": "_engine.client",
    "save_artifact": "_engine.artifacts",
    "load_artifact": "_engine.artifacts",
    "get_step_context": "_worker.context",
    "log_metadata": "_engine.metadata",
    "log_metrics": "_worker.metrics",
    "autolog": "callbacks",
    "Materializer": "materializers",
    "register_materializer": "materializers",
    "StokerError": "_base.errors",
    "SettingsError": "_base.errors",
    "StepInterfaceError": "_base.errors",
    "PipelineInterfaceError": "_base.errors",
    "PipelineFailed": "_engine.failures",
    "PipelineCancelled": "_engine.failures",
    "StokerWarning": "_base.errors",
}

_MODULES = ("callbacks", "checkpoint")

__all__ = [*_HOME, *_MODULES, "__version__"]

if TYPE_CHECKING:
    from typing import Any

    from . import callbacks as callbacks
    from . import checkpoint as checkpoint
    from ._base.errors import PipelineInterfaceError as PipelineInterfaceError
    from ._base.errors import SettingsError as SettingsError
    from ._base.errors import StepInterfaceError as StepInterfaceError
    from ._base.errors import StokerError as StokerError
    from ._base.errors import StokerWarning as StokerWarning
    from ._decorators.pipeline import Pipeline as Pipeline
    from ._decorators.pipeline import get_pipeline_context as get_pipeline_context
    from ._decorators.pipeline import pipeline as pipeline
    from ._decorators.profile import gpu_profile as gpu_profile
    from ._decorators.ranks import run_with_accelerate as run_with_accelerate
    from ._decorators.ranks import torchrun as torchrun
    from ._decorators.step import Step as Step
    from ._decorators.step import StepArtifact as StepArtifact
    from ._decorators.step import step as step
    from ._definition.docker import DockerBuildConfig as DockerBuildConfig
    from ._definition.docker import DockerBuildOptions as DockerBuildOptions
    from ._definition.docker import DockerSettings as DockerSettings
    from ._definition.settings import CachePolicy as CachePolicy
    from ._definition.settings import OnOOM as OnOOM
    from ._definition.settings import ResourceSettings as ResourceSettings
    from ._definition.settings import StepRetryConfig as StepRetryConfig
    from ._definition.types import ArtifactConfig as ArtifactConfig
    from ._definition.types import ExecutionMode as ExecutionMode
    from ._definition.types import ExecutionStatus as ExecutionStatus
    from ._definition.types import ExternalArtifact as ExternalArtifact
    from ._definition.types import Model as Model
    from ._definition.types import Schedule as Schedule
    from ._engine.artifacts import load_artifact as load_artifact
    from ._engine.artifacts import save_artifact as save_artifact
    from ._engine.client import Client as Client
    from ._engine.client import PipelineRun as PipelineRun
    from ._engine.failures import PipelineCancelled as PipelineCancelled
    from ._engine.failures import PipelineFailed as PipelineFailed
    from ._engine.metadata import log_metadata as log_metadata
    from ._worker.context import get_step_context as get_step_context
    from ._worker.memory import cleanup_gpu_memory as cleanup_gpu_memory
    from ._worker.memory import cleanup_memory as cleanup_memory
    from ._worker.metrics import log_metrics as log_metrics
    from .callbacks import autolog as autolog
    from .materializers import Materializer as Materializer
    from .materializers import register_materializer as register_materializer


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if name in _MODULES:
        __import__(f"{__name__}.{name}")
        return sys.modules[f"{__name__}.{name}"]
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
        __import__(f"{__name__}._worker.seeds")
        return sys.modules[f"{__name__}._worker.seeds"].notice().find_spec(name, path, target)


if os.environ.get("STOKER_RUN_OPTIONS"):
    __import__(f"{__name__}._base.ending")
if "random" in sys.modules:
    __import__(f"{__name__}._worker.seeds")
    sys.modules[f"{__name__}._worker.seeds"].notice()
else:
    sys.meta_path.insert(0, _Watch)


def __dir__() -> list[str]:
    return sorted(__all__)
