"""``zenml.integrations.mlflow.steps``: the step that registers a trained model."""

from __future__ import annotations

from typing import Any, Optional

from . import stacks
from .context import get_step_context
from .mlflow_registry import MLFlowModelRegistry, ModelRegistryModelMetadata
from .mlflow_tracker import MLFlowExperimentTracker, build_runs_uri
from .pipelines import step


@step(enable_cache=True)  # type: ignore[untyped-decorator]
def mlflow_register_model_step(
    model: Any,
    name: str,
    version: Optional[str] = None,
    trained_model_name: Optional[str] = "model",
    model_source_uri: Optional[str] = None,
    experiment_name: Optional[str] = None,
    run_name: Optional[str] = None,
    run_id: Optional[str] = None,
    description: Optional[str] = None,
    metadata: Optional[ModelRegistryModelMetadata] = None,
) -> None:
    """Register the model that a step logged to this pipeline run's MLflow run.

    Raises:
        ValueError: the stack has no MLflow.
        RuntimeError: there is no such MLflow run, or it has no such model.
    """
    stack = stacks.active()
    tracker, registry = stack.experiment_tracker, stack.model_registry
    if not isinstance(tracker, MLFlowExperimentTracker):
        raise ValueError("mlflow_register_model_step needs an MLflow experiment tracker")
    if not isinstance(registry, MLFlowModelRegistry):
        raise ValueError("mlflow_register_model_step needs an MLflow model registry")
    here = get_step_context()
    experiment = experiment_name or here.pipeline.name
    run = run_name or here.pipeline_run.name
    number = run_id or tracker.get_run_id(experiment, run)
    if not number:
        raise RuntimeError(f"MLflow has no run '{run}' in experiment '{experiment}'")
    source = model_source_uri
    client, path = registry.mlflow_client, trained_model_name
    if not source and path and client.list_artifacts(number, path):
        source = build_runs_uri(number, path)
    if not source:
        raise RuntimeError(f"MLflow run '{number}' has no model '{trained_model_name}'")
    told = {
        "zenml_pipeline_name": here.pipeline.name,
        "zenml_run_name": run,
        "zenml_pipeline_run_uuid": str(here.pipeline_run.id),
        "mlflow_run_id": number,
        **(metadata.model_dump() if metadata else {}),
    }
    registry.register_model_version(
        name,
        version,
        source,
        description=description,
        metadata=ModelRegistryModelMetadata(**told),
    )
