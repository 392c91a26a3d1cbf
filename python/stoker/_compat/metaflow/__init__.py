"""The compatibility shim: what ``import metaflow`` resolves to under ``stoker compat``.

It has no code of its own: one table says which names live in which module and where Stoker keeps
them (``stoker._standin`` makes the modules). It has every name of ``stoker.flow``.
"""

from __future__ import annotations

from typing import Dict, Union

import stoker.flow
from stoker._standin import stand_in
from stoker.flow._tags import METAFLOW_VERSION

__version__ = METAFLOW_VERSION

_OWN = frozenset(["cache"])  # Stoker's, not Metaflow's
_TOP = {name: f"stoker.flow:{name}" for name in stoker.flow.__all__ if name not in _OWN}
_PARAMETERS = {
    name: f"stoker.flow._parameters:{name}"
    for name in ("JSONType", "JSONTypeClass", "Parameter", "ParameterContext")
}
_CONFIGS = {
    name: f"stoker.flow._parameters:{name}" for name in ("Config", "ConfigValue", "config_expr")
}
_CLIENT = {
    name: f"stoker.flow.client:{name}"
    for name in (
        *("DataArtifact", "Flow", "Metaflow", "MetaflowData", "MetaflowObject", "Run", "Step"),
        *("Task", "default_metadata", "default_namespace", "get_metadata", "get_namespace"),
        *("inspect_spin", "metadata", "namespace"),
    )
}
_CARDS = "stoker.flow.cards"
_CURRENT = {
    "current": "stoker.flow:current",
    "Current": "stoker.flow._current:Current",
    "Parallel": "stoker.flow._current:Parallel",
}
_RUNNER = {
    name: f"stoker.flow.runner:{name}"
    for name in ("ExecutingProcess", "ExecutingRun", "ExecutingTask", "Runner")
}
_NOTEBOOK = {"NBRunner": "stoker.flow.runner:NBRunner"}
_DEPLOYERS = {"Deployer": "stoker.flow.runner:Deployer"}

# Module → {name → "module:name" in Stoker}, or Stoker's module of the same names.
_MODULES: Dict[str, Union[str, Dict[str, str]]] = {
    "metaflow": {
        "JSONTypeClass": _PARAMETERS["JSONTypeClass"],
        "NBDeployer": "stoker.flow.runner:NBDeployer",
        **_DEPLOYERS,
        **_TOP,
    },
    "metaflow.cards": _CARDS,
    "metaflow.client": _CLIENT,
    "metaflow.client.core": _CLIENT,
    "metaflow.decorators": {
        "Decorator": "stoker.flow._decorators._base:Decorator",
        "FlowDecorator": "stoker.flow._decorators._base:FlowDecorator",
        "StepDecorator": "stoker.flow._decorators._base:StepDecorator",
        "step": "stoker.flow:step",
    },
    "metaflow.exception": "stoker.flow.exception",
    "metaflow.flowspec": {
        "FlowSpec": "stoker.flow:FlowSpec",
        "InvalidNextException": "stoker.flow.exception:InvalidNextException",
    },
    "metaflow.graph": {"FlowGraph": "stoker.flow._graph:FlowGraph"},
    "metaflow.includefile": {"IncludeFile": "stoker.flow:IncludeFile"},
    "metaflow.lint": {"LintWarn": "stoker.flow.exception:LintWarn"},
    "metaflow.metaflow_current": _CURRENT,
    "metaflow.metaflow_version": {"get_version": "stoker.flow._tags:metaflow_version"},
    "metaflow.parameters": _PARAMETERS,
    "metaflow.plugins": {},
    "metaflow.plugins.cards": {},
    "metaflow.plugins.cards.card_client": _CARDS,
    "metaflow.plugins.cards.card_decorator": {
        "CardDecorator": "stoker.flow._decorators._card:Card"
    },
    "metaflow.plugins.cards.card_modules": _CARDS,
    "metaflow.plugins.cards.card_modules.basic": _CARDS,
    "metaflow.plugins.cards.card_modules.card": _CARDS,
    "metaflow.plugins.cards.card_modules.components": _CARDS,
    "metaflow.plugins.catch_decorator": {
        "CatchDecorator": "stoker.flow._decorators._control:Catch",
        "FailureHandledByCatch": "stoker.flow.exception:FailureHandledByCatch",
    },
    "metaflow.plugins.environment_decorator": {
        "EnvironmentDecorator": "stoker.flow._decorators._environment:Environment"
    },
    "metaflow.plugins.parallel_decorator": {
        "ParallelDecorator": "stoker.flow._decorators._parallel:ParallelDecorator"
    },
    "metaflow.plugins.resources_decorator": {
        "ResourcesDecorator": "stoker.flow._decorators._resources:Resources"
    },
    "metaflow.plugins.retry_decorator": {
        "RetryDecorator": "stoker.flow._decorators._control:Retry"
    },
    "metaflow.plugins.timeout_decorator": {
        "TimeoutDecorator": "stoker.flow._decorators._control:Timeout",
        "TimeoutException": "stoker.flow.exception:TimeoutException",
    },
    "metaflow.runner": {},
    "metaflow.runner.deployer": _DEPLOYERS,
    "metaflow.runner.metaflow_runner": _RUNNER,
    "metaflow.runner.nbrun": _NOTEBOOK,
    "metaflow.user_configs": {},
    "metaflow.user_configs.config_parameters": _CONFIGS,
    "metaflow.util": {"get_username": "stoker.flow._current:username"},
}

_LATER = {
    **dict.fromkeys(
        [("metaflow", name) for name in ("parallel_map", "parallel_imap_unordered", "profile")],
        "it comes with a later version of Stoker; concurrent.futures and time.perf_counter do the same",
    ),
    **dict.fromkeys(
        [
            ("metaflow", name)
            for name in ("FlowMutator", "StepMutator", "UserStepDecorator", "user_step_decorator")
        ],
        "decorators of one's own come with a later version of Stoker; a function that the steps call does the same",
    ),
    (
        "metaflow",
        "USER_SKIP_STEP",
    ): "it comes with decorators of one's own, in a later version of Stoker",
    (
        "metaflow",
        "exit_hook",
    ): "@exit_hook comes with a later version of Stoker; Runner's result says how a run ended",
    **dict.fromkeys(
        [
            ("metaflow", name)
            for name in (
                *("conda_environment_yml_parser", "pyproject_toml_parser"),
                *("requirements_txt_parser", "yaml_parser"),
            )
        ],
        "it comes with a later version of Stoker; Config(parser=…) takes any function of the file's text",
    ),
    **dict.fromkeys(
        [("metaflow", name) for name in ("DeployedFlow", "namespaced_event_name")],
        "schedulers and their events aren't there yet: Runner and `python flow.py run` start flows",
    ),
    ("metaflow", "S3"): "S3 comes with a later version of Stoker, with its store on S3",
}


stand_in(globals(), _MODULES, _LATER)
