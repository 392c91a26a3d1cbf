"""``zenml.integrations.mlflow.steps``: the steps that serve a trained model."""

from __future__ import annotations

from typing import Any, Optional

from . import stacks
from .context import get_step_context
from .mlflow_registry import MLFlowModelRegistry, ModelVersionStage
from .mlflow_services import (
    START_STOP_S,
    MLFlowDeploymentConfig,
    MLFlowDeploymentService,
    MLFlowModelDeployer,
)
from .mlflow_tracker import MLFlowExperimentTracker, build_runs_uri
from .pipelines import step


@step(enable_cache=False)  # type: ignore[untyped-decorator]
def mlflow_model_deployer_step(
    model: Any,
    deploy_decision: bool = True,
    experiment_name: Optional[str] = None,
    run_name: Optional[str] = None,
    model_name: str = "model",
    workers: int = 1,
    mlserver: bool = False,
    timeout: int = START_STOP_S,
) -> Optional[MLFlowDeploymentService]:
    """Serve the model that a step logged to this pipeline run's MLflow run, in place of an earlier
    one; without such a model, or if it isn't to be deployed, the earlier server goes on.

    Raises:
        ValueError: the stack has no MLflow.
        RuntimeError: the server doesn't start.
    """
    deployer = MLFlowModelDeployer.get_active_model_deployer()
    tracker = stacks.active().experiment_tracker
    if not isinstance(tracker, MLFlowExperimentTracker):
        raise ValueError("mlflow_model_deployer_step needs an MLflow experiment tracker")
    here = get_step_context()
    tracker.configure_mlflow()
    number = tracker.get_run_id(
        experiment_name or here.pipeline.name, run_name or here.pipeline_run.name
    )
    from mlflow import MlflowClient

    has_model = number is not None and bool(MlflowClient().list_artifacts(number, model_name))
    config = MLFlowDeploymentConfig(
        model_name=model_name,
        model_uri=build_runs_uri(str(number), model_name) if has_model else "",
        workers=workers,
        pipeline_name=here.pipeline.name,
        pipeline_step_name=here.step_run.name,
        timeout=timeout,
    )
    if has_model and deploy_decision:
        return deployer.deploy_model(config, replace=True, timeout=timeout)
    before = deployer.find_model_server(
        pipeline_name=config.pipeline_name, pipeline_step_name=config.pipeline_step_name
    )
    for service in before:
        if service.config.model_name == model_name:
            service.start(timeout)
            return service
    if deploy_decision:
        print(f"MLflow's run has no model '{model_name}', and none is served: nothing is deployed")
    return None


@step(enable_cache=False)  # type: ignore[untyped-decorator]
def mlflow_model_registry_deployer_step(
    registry_model_name: str,
    registry_model_version: Optional[str] = None,
    registry_model_stage: Optional[ModelVersionStage] = None,
    replace_existing: bool = True,
    model_name: str = "model",
    workers: int = 1,
    mlserver: bool = False,
    timeout: int = START_STOP_S,
) -> MLFlowDeploymentService:
    """Serve a version of a model of the registry, by its number or its stage.

    Raises:
        ValueError: neither is given, or the stack has no registry of MLflow.
        LookupError: there is no such version.
        RuntimeError: the server doesn't start.
    """
    if not registry_model_version and not registry_model_stage:
        raise ValueError("give registry_model_version or registry_model_stage")
    deployer = MLFlowModelDeployer.get_active_model_deployer()
    registry = stacks.active().model_registry
    if not isinstance(registry, MLFlowModelRegistry):
        raise ValueError("mlflow_model_registry_deployer_step needs an MLflow model registry")
    stage = registry_model_stage
    found = None
    if registry_model_version:
        try:
            found = registry.get_model_version(registry_model_name, registry_model_version)
        except KeyError:
            pass
    else:
        wanted = ModelVersionStage(getattr(stage, "value", stage))
        found = registry.get_latest_model_version(registry_model_name, wanted)
    if found is None:
        raise LookupError(
            f"model '{registry_model_name}' has no version {registry_model_version or stage}"
        )
    told = found.metadata
    config = MLFlowDeploymentConfig(
        name=model_name,
        model_name=registry_model_name,
        model_version=found.version,
        model_uri=found.model_source_uri,
        workers=workers,
        pipeline_name=told.zenml_pipeline_name or "",
        pipeline_step_name=told.zenml_step_name or "",
        timeout=timeout,
    )
    return deployer.deploy_model(config, replace=replace_existing, timeout=timeout)
