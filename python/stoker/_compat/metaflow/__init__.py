"""The compatibility shim: what ``import metaflow`` resolves to under ``stoker compat``.

It has no code of its own: one table says which names live in which module and where Stoker keeps
them (``stoker._standin`` makes the modules). It has every name of ``stoker.flow``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Dict, Optional, Union

import stoker.flow
from stoker._standin import stand_in, told
from stoker.flow._extensions import module_for
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
        *("metadata", "namespace"),
    )
}
_CLIENT["inspect_spin"] = "stoker.flow:inspect_spin"
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
_USER = {
    name: f"stoker.flow._user:{name}"
    for name in (
        *("FlowMutator", "StepMutator", "USER_SKIP_STEP", "UserStepDecorator"),
        "user_step_decorator",
    )
}
_PEER = "stoker.flow._decorators._peer"
_DEPLOYERS = {
    name: f"stoker.flow.deployer:{name}"
    for name in ("DeployedFlow", "Deployer", "NBDeployer", "TriggeredRun")
}
_EVENTS = {name: f"stoker.flow.events:{name}" for name in ("ArgoEvent", "ArgoEventException")}

# Module → errors that programs see under its name, in what the client says of a failure.
_ERRORS = {
    "metaflow.decorators": (
        *("BadFlowDecoratorException", "BadStepDecoratorException"),
        *("DuplicateFlowDecoratorException", "DuplicateStepDecoratorException"),
        "UnknownStepDecoratorException",
    ),
    "metaflow.flowspec": ("InvalidNextException",),
    "metaflow.lint": ("LintWarn",),
    "metaflow.plugins.catch_decorator": ("FailureHandledByCatch",),
    "metaflow.plugins.timeout_decorator": ("TimeoutException",),
}

# Packages that Metaflow has copies of, at metaflow._vendor: the installed ones stand for them.
_VENDORED = {
    "click": "click",
    "importlib_metadata": "importlib-metadata",
    "packaging": "packaging",
    "typeguard": "typeguard",
    "typing_extensions": "typing-extensions",
    "yaml": "pyyaml",
    "zipp": "zipp",
}

# Module → {name → "module:name" in Stoker}, or Stoker's module of the same names.
_MODULES: Dict[str, Union[str, Dict[str, str]]] = {
    "metaflow._vendor": {},
    **{f"metaflow._vendor.{name}": {} for name in _VENDORED},
    "metaflow": {
        "JSONTypeClass": _PARAMETERS["JSONTypeClass"],
        **_TOP,
    },
    "metaflow.cards": _CARDS,
    "metaflow.client": _CLIENT,
    "metaflow.client.core": _CLIENT,
    "metaflow.decorators": {
        "Decorator": "stoker.flow._decorators._base:Decorator",
        "FlowDecorator": "stoker.flow._decorators._peer:PeerFlowDecorator",
        "StepDecorator": "stoker.flow._decorators._peer:PeerStepDecorator",
        "extract_step_decorator_from_decospec": "stoker.flow._decorators:extract",
        **{name: f"stoker.flow.exception:{name}" for name in _ERRORS["metaflow.decorators"]},
        "step": "stoker.flow:step",
    },
    "metaflow.datatools": "stoker.flow.datatools",
    "metaflow.events": {
        name: f"stoker.flow.events:{name}" for name in ("MetaflowEvent", "Trigger")
    },
    "metaflow.exception": "stoker.flow.exception",
    "metaflow.flowspec": {
        "FlowSpec": "stoker.flow:FlowSpec",
        "INTERNAL_ARTIFACTS_SET": "stoker.flow._scope:INTERNAL_ARTIFACTS_SET",
        "InvalidNextException": "stoker.flow.exception:InvalidNextException",
    },
    "metaflow.graph": {"FlowGraph": "stoker.flow._graph:FlowGraph"},
    "metaflow.integrations": {"ArgoEvent": _EVENTS["ArgoEvent"]},
    "metaflow.includefile": {
        "IncludeFile": "stoker.flow:IncludeFile",
        "IncludedFile": "stoker.flow._parameters:IncludedFile",
    },
    "metaflow.lint": {"LintWarn": "stoker.flow.exception:LintWarn"},
    "metaflow.metaflow_config": "stoker.flow._config",
    "metaflow.metaflow_config_funcs": {
        "from_conf": "stoker.flow._config:from_conf",
        "init_config": "stoker.flow._config:init_config",
    },
    "metaflow.metaflow_current": _CURRENT,
    "metaflow.metaflow_version": {"get_version": "stoker.flow._tags:metaflow_version"},
    "metaflow.metaflow_profile": {"profile": "stoker.flow._util:profile"},
    "metaflow.multicore_utils": "stoker.flow._many",
    "metaflow.parameters": _PARAMETERS,
    "metaflow.plugins": {},
    "metaflow.plugins.argo": {},
    "metaflow.plugins.argo.argo_events": _EVENTS,
    "metaflow.plugins.aws": {},
    "metaflow.plugins.aws.aws_utils": {
        "compute_resource_attributes": "stoker.flow._decorators._resources:compute_resource_attributes"
    },
    "metaflow.plugins.aws.batch": {},
    "metaflow.plugins.aws.batch.batch_decorator": {
        "BatchDecorator": "stoker.flow._decorators._resources:Batch"
    },
    "metaflow.plugins.cards": {},
    "metaflow.plugins.cards.card_client": _CARDS,
    "metaflow.plugins.cards.card_decorator": {
        "CardDecorator": "stoker.flow._decorators._card:Card"
    },
    "metaflow.plugins.cards.card_modules": _CARDS,
    "metaflow.plugins.cards.card_modules.basic": _CARDS,
    "metaflow.plugins.cards.card_modules.card": _CARDS,
    "metaflow.plugins.cards.card_modules.components": _CARDS,
    "metaflow.plugins.cards.card_modules.test_cards": "stoker.flow.cards._samples",
    "metaflow.plugins.cards.exception": "stoker.flow.cards._exception",
    "metaflow.plugins.catch_decorator": {
        "CatchDecorator": "stoker.flow._decorators._control:Catch",
        "FailureHandledByCatch": "stoker.flow.exception:FailureHandledByCatch",
    },
    "metaflow.plugins.datatools": "stoker.flow.datatools",
    "metaflow.plugins.datatools.s3": "stoker.flow.datatools",
    "metaflow.plugins.datatools.s3.s3": "stoker.flow.datatools",
    "metaflow.plugins.environment_decorator": {
        "EnvironmentDecorator": "stoker.flow._decorators._environment:Environment"
    },
    "metaflow.plugins.frameworks": {},
    "metaflow.plugins.frameworks.pytorch": {
        "PytorchParallelDecorator": "stoker.flow._decorators._parallel:PytorchParallel",
        "setup_torch_distributed": "stoker.flow._torch:setup_torch_distributed",
    },
    "metaflow.plugins.kubernetes": {},
    "metaflow.plugins.kubernetes.kubernetes_decorator": {
        "KubernetesDecorator": "stoker.flow._decorators._resources:Kubernetes"
    },
    "metaflow.plugins.parallel_decorator": {
        "ParallelDecorator": f"{_PEER}:PeerParallelDecorator",
        "UBF_CONTROL": f"{_PEER}:UBF_CONTROL",
        "_local_multinode_control_task_step_func": f"{_PEER}:local_multinode_step",
    },
    "metaflow.plugins.parsers": {"yaml_parser": "stoker.flow._parsers:yaml_parser"},
    "metaflow.plugins.pypi": {},
    "metaflow.plugins.pypi.parsers": "stoker.flow._parsers",
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
    "metaflow.profilers": {"gpu_profile": "stoker.flow:gpu_profile"},
    "metaflow.runner": {},
    "metaflow.runner.deployer": {k: _DEPLOYERS[k] for k in _DEPLOYERS if k != "NBDeployer"},
    "metaflow.runner.nbdeploy": {"NBDeployer": _DEPLOYERS["NBDeployer"]},
    "metaflow.runner.metaflow_runner": _RUNNER,
    "metaflow.runner.nbrun": _NOTEBOOK,
    "metaflow.unbounded_foreach": {name: f"{_PEER}:{name}" for name in ("UBF_CONTROL", "UBF_TASK")},
    "metaflow.user_configs": {},
    "metaflow.user_configs.config_parameters": _CONFIGS,
    "metaflow.user_decorators": {},
    "metaflow.user_decorators.mutable_flow": {"MutableFlow": "stoker.flow._mutable:MutableFlow"},
    "metaflow.user_decorators.mutable_step": {"MutableStep": "stoker.flow._mutable:MutableStep"},
    "metaflow.user_decorators.user_flow_decorator": {"FlowMutator": _USER["FlowMutator"]},
    "metaflow.user_decorators.user_step_decorator": _USER,
    "metaflow.util": "stoker.flow._util",
}

_LATER = {
    ("metaflow", "metaflow_ray"): (
        "@metaflow_ray isn't there: `pip install --no-deps metaflow-ray` brings it, and Ray is `pip install ray`"
    ),
}

# What runs otherwise than in Metaflow: a name or an option → why.
DIFFERS = {
    "Deployer": "flows are deployed on this machine: systemd or cron, and events of its store",
    "NBDeployer": "flows are deployed on this machine: systemd or cron, and events of its store",
    "ArgoEvent": "it starts the deployed flows of this machine's store",
    "schedule": "it needs `deploy create`, which makes a timer of systemd and a line for crontab",
    "trigger": "it needs `deploy create`; events are those of this machine's store",
    "trigger_on_finish": "it needs `deploy create`; runs of deployed flows start it",
    "kubernetes": "the step goes to the project's stack of that kind, else it runs here",
    "batch": "the step goes to the project's stack of that kind, else it runs here",
    "@conda": "packages come from micromamba, mamba, conda or py-rattler where one is there",
}


def _of_extensions(module: str, name: str) -> Any:
    from stoker.flow._decorators import name_in

    return name_in(module, name)


def _module_for(module: str) -> Optional[str]:
    """The module that one of the shim is: an extension's, or an installed package's."""
    parts = module.split(".")
    if parts[1] != "_vendor" or len(parts) < 3 or parts[2] not in _VENDORED:
        return module_for(module)
    if find_spec(parts[2]) is None:
        raise told(
            ModuleNotFoundError(
                f"metaflow._vendor has a copy of {_VENDORED[parts[2]]}, and Stoker's stand-in takes the installed one: "
                f"pip install {_VENDORED[parts[2]]}",
                name=module,
            )
        )
    return ".".join(parts[2:])


stand_in(globals(), _MODULES, _LATER, _of_extensions, alias=_module_for)


def _name_errors() -> None:
    """Give the errors their names of this package. The one that ``@catch`` stores keeps its own:
    its artifacts are read without the shim, too."""
    from stoker.flow import exception

    homes = {name: module for module, names in _ERRORS.items() for name in names}
    for name, one in vars(exception).items():
        if isinstance(one, type) and issubclass(one, exception.MetaflowException):
            one.__module__ = homes.get(name, "metaflow.exception")
            one._stoker_renamed = True  # type: ignore[attr-defined]


_name_errors()
