"""Flows: classes whose methods are steps, each of which says what comes next.

Names are loaded at their first use (PEP 562), so ``from stoker.flow import FlowSpec, step`` is
fast; the table lists all of them. They are the names that programs for Metaflow import.

A flow becomes a pipeline's document: ``_graph.py`` reads the class's source, ``_compile.py`` writes
the document, ``_run.py`` starts the engine as for a pipeline. A task is a fork that runs one method
(``_task.py``): ``_scope.py`` loads the artifacts that it reads and finds the changed ones,
``_next.py`` checks its ``self.next`` against the graph. How the engine keeps scopes or counts
branches doesn't matter here. ``_cli.py`` is the flow's command line (``_commands/``), ``client/``
shows past runs (``_records.py`` asks the engine), ``runner.py`` starts flows from programs.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False

_DECORATORS = (
    "resources retry timeout catch environment secrets kubernetes batch parallel card pypi conda "
    "pytorch_parallel torchrun deepspeed run_with_accelerate checkpoint model huggingface_hub gpu_profile "
    "cache project schedule trigger trigger_on_finish pypi_base conda_base exit_hook"
)
_CLIENT = (
    "Metaflow Flow Run Step Task DataArtifact namespace get_namespace default_namespace metadata "
    "get_metadata default_metadata"
)
_DEPLOYED = "Deployer DeployedFlow NBDeployer"
_USER = "FlowMutator StepMutator UserStepDecorator user_step_decorator USER_SKIP_STEP"
_PARSERS = "yaml_parser requirements_txt_parser pyproject_toml_parser conda_environment_yml_parser"
_HOME = {
    "FlowSpec": "_flow",
    "step": "_flow",
    "Parameter": "_parameters",
    "JSONType": "_parameters",
    "IncludeFile": "_parameters",
    "Config": "_parameters",
    "ConfigValue": "_parameters",
    "config_expr": "_parameters",
    "current": "_current",
    **dict.fromkeys(_USER.split(), "_user"),
    **dict.fromkeys(_PARSERS.split(), "_parsers"),
    "parallel_map": "_many",
    "parallel_imap_unordered": "_many",
    "profile": "_util",
    "TorchrunSingleNodeMultiGPU": "_torch",
    "load_model": "_models",
    "Checkpoint": "_checkpoints",
    "S3": "datatools",
    **dict.fromkeys(_DECORATORS.split(), "_decorators"),
    **dict.fromkeys(_CLIENT.split(), "client"),
    "inspect_spin": "_spun",
    "Runner": "runner",
    "NBRunner": "runner",
    **dict.fromkeys(_DEPLOYED.split(), "deployer"),
    "namespaced_event_name": "events",
}

__all__ = [*_HOME]

if TYPE_CHECKING:
    from typing import Any, List

    from ._checkpoints import Checkpoint as Checkpoint
    from ._current import current as current
    from ._decorators import batch as batch
    from ._decorators import cache as cache
    from ._decorators import card as card
    from ._decorators import catch as catch
    from ._decorators import checkpoint as checkpoint
    from ._decorators import conda as conda
    from ._decorators import conda_base as conda_base
    from ._decorators import deepspeed as deepspeed
    from ._decorators import environment as environment
    from ._decorators import exit_hook as exit_hook
    from ._decorators import gpu_profile as gpu_profile
    from ._decorators import huggingface_hub as huggingface_hub
    from ._decorators import kubernetes as kubernetes
    from ._decorators import model as model
    from ._decorators import parallel as parallel
    from ._decorators import project as project
    from ._decorators import pypi as pypi
    from ._decorators import pypi_base as pypi_base
    from ._decorators import pytorch_parallel as pytorch_parallel
    from ._decorators import resources as resources
    from ._decorators import retry as retry
    from ._decorators import run_with_accelerate as run_with_accelerate
    from ._decorators import schedule as schedule
    from ._decorators import secrets as secrets
    from ._decorators import timeout as timeout
    from ._decorators import torchrun as torchrun
    from ._decorators import trigger as trigger
    from ._decorators import trigger_on_finish as trigger_on_finish
    from ._flow import FlowSpec as FlowSpec
    from ._flow import step as step
    from ._many import parallel_imap_unordered as parallel_imap_unordered
    from ._many import parallel_map as parallel_map
    from ._models import load_model as load_model
    from ._parameters import Config as Config
    from ._parameters import ConfigValue as ConfigValue
    from ._parameters import IncludeFile as IncludeFile
    from ._parameters import JSONType as JSONType
    from ._parameters import Parameter as Parameter
    from ._parameters import config_expr as config_expr
    from ._parsers import conda_environment_yml_parser as conda_environment_yml_parser
    from ._parsers import pyproject_toml_parser as pyproject_toml_parser
    from ._parsers import requirements_txt_parser as requirements_txt_parser
    from ._parsers import yaml_parser as yaml_parser
    from ._torch import TorchrunSingleNodeMultiGPU as TorchrunSingleNodeMultiGPU
    from ._user import USER_SKIP_STEP as USER_SKIP_STEP
    from ._user import FlowMutator as FlowMutator
    from ._user import StepMutator as StepMutator
    from ._user import UserStepDecorator as UserStepDecorator
    from ._user import user_step_decorator as user_step_decorator
    from ._util import profile as profile
    from .datatools import S3 as S3
    from .deployer import DeployedFlow as DeployedFlow
    from .deployer import Deployer as Deployer
    from .deployer import NBDeployer as NBDeployer
    from .events import namespaced_event_name as namespaced_event_name


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'stoker.flow' has no attribute {name!r}")
    full = f"{__name__}.{home}"
    __import__(full)
    value = getattr(sys.modules[full], name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted(__all__)
