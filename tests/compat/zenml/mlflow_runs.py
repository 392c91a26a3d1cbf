"""MLflow's integration: the experiment tracker and the model registry, read back by MLflow's client."""

import mlflow
from facts import fact
from mlflow import MlflowClient
from zenml import get_step_context, pipeline, step
from zenml.client import Client
from zenml.enums import StackComponentType
from zenml.integrations.mlflow import mlflow_utils
from zenml.integrations.mlflow.experiment_trackers import MLFlowExperimentTracker
from zenml.integrations.mlflow.flavors.mlflow_experiment_tracker_flavor import (
    MLFlowExperimentTrackerSettings,
)
from zenml.integrations.mlflow.mlflow_utils import get_tracking_uri
from zenml.integrations.mlflow.model_registries import MLFlowModelRegistry
from zenml.integrations.mlflow.steps.mlflow_registry import mlflow_register_model_step
from zenml.model_registries.base_model_registry import (
    ModelRegistryModelMetadata,
    ModelVersionStage,
)


def connect() -> None:
    """A stack with MLflow; Stoker's has what is registered."""
    client = Client()
    kinds = (StackComponentType.EXPERIMENT_TRACKER, StackComponentType.MODEL_REGISTRY)
    for kind in kinds:
        client.create_stack_component(
            name="tracked", flavor="mlflow", component_type=kind, configuration={}
        )
    if hasattr(client, "create_stack"):
        parts = {
            StackComponentType.ORCHESTRATOR: "default",
            StackComponentType.ARTIFACT_STORE: "default",
            **dict.fromkeys(kinds, "tracked"),
        }
        client.create_stack("tracked", parts)
        client.activate_stack("tracked")


@step(experiment_tracker="tracked", enable_cache=False)
def ml_train(lr: float = 0.5) -> float:
    mlflow.log_param("lr", lr)
    for i in range(3):
        mlflow.log_metric("loss", 1.0 / (i + 1), step=i)
    mlflow.log_text("hello", "notes.txt")
    mlflow.log_text("{}", "model/MLmodel")
    mlflow.set_tag("mine", "yes")
    return lr


@step(experiment_tracker="tracked", enable_cache=False)
def ml_test(lr: float) -> str:
    mlflow.log_metric("accuracy", 0.75)
    run = mlflow.active_run()
    return f"{run.info.run_name == get_step_context().pipeline_run.name} {run.data.params}"


@step(enable_cache=False)
def ml_without() -> bool:
    return mlflow.active_run() is None


@pipeline(enable_cache=False)
def ml_plain():
    ml_test(ml_train())
    ml_without()


settings = MLFlowExperimentTrackerSettings(
    experiment_name="ml_own", nested=True, tags={"team": "a"}
)


@step(experiment_tracker="tracked", settings={"experiment_tracker": settings}, enable_cache=False)
def ml_nested() -> None:
    mlflow.log_metric("inner", 1.0)


@pipeline
def ml_named():
    ml_nested()


@step(experiment_tracker="tracked", enable_cache=False)
def ml_fit() -> float:
    from sklearn.linear_model import LogisticRegression

    mlflow.sklearn.autolog(log_models=False, log_datasets=False, silent=True)
    model = LogisticRegression(C=2.0).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    return float(model.score([[0.0], [3.0]], [0, 1]))


@pipeline
def ml_auto():
    ml_fit()


@step(experiment_tracker="tracked", enable_cache=False)
def ml_bad() -> None:
    mlflow.log_metric("before", 2.0)
    raise ValueError("no")


@pipeline
def ml_fails():
    ml_bad()


@pipeline(enable_cache=False)
def ml_register():
    mlflow_register_model_step(ml_train(), name="ml_net")


def runs_of(experiment):
    client = MlflowClient(get_tracking_uri())
    found = client.get_experiment_by_name(experiment)
    return sorted(client.search_runs([found.experiment_id]), key=lambda r: r.info.start_time)


def history(run, key):
    client = MlflowClient(get_tracking_uri())
    return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]


def files(run, folder=None):
    client = MlflowClient(get_tracking_uri())
    return sorted(f.path for f in client.list_artifacts(run.info.run_id, folder))


def own_tags(run):
    return sorted(k for k in run.data.tags if not k.startswith("mlflow."))


def registered():
    registry = Client().active_stack.model_registry
    fact("registry is MLflow's", lambda: isinstance(registry, MLFlowModelRegistry))
    one = registry.list_model_versions(name="ml_net")[0]
    fact("version", lambda: (one.version, one.registered_model.name, one.model_format))
    fact("stage", lambda: one.stage)
    fact("source is of the run", lambda: one.model_source_uri.startswith("runs:/"))
    fact("source's end", lambda: one.model_source_uri.rpartition("/")[2])
    fact("metadata", lambda: one.metadata.zenml_pipeline_name)
    fact("model", lambda: registry.get_model("ml_net").name)
    fact("no model", lambda: registry.get_model("none"))
    fact("no version", lambda: registry.get_model_version("ml_net", "9"))
    more = registry.update_model_version(
        "ml_net", "1", description="good", stage=ModelVersionStage.PRODUCTION
    )
    fact("updated", lambda: (more.description, more.metadata.mlflow_aliases))
    made = registry.register_model("ml_other", "other", {"a": "b"})
    fact("made", lambda: (made.name, made.description, made.metadata))
    fact("made again", lambda: registry.register_model("ml_other"))
    fact("models", lambda: sorted(m.name for m in registry.list_models()))
    fact("models by metadata", lambda: [m.name for m in registry.list_models(metadata={"a": "b"})])
    changed = registry.update_model("ml_other", "new", {"c": "d"}, ["a"])
    fact("changed", lambda: (changed.description, changed.metadata))
    second = registry.register_model_version(
        "ml_net", None, one.model_source_uri, "next", ModelRegistryModelMetadata(extra="x")
    )
    fact("second", lambda: (second.version, second.metadata.custom_attributes["extra"]))
    names = [v.version for v in registry.list_model_versions("ml_net", order_by_date="desc")]
    fact("versions", lambda: sorted(names))
    fact("count", lambda: len(registry.list_model_versions("ml_net", count=1)))
    registry.delete_model_version("ml_net", "2")
    fact("deleted", lambda: [v.version for v in registry.list_model_versions("ml_net")])
    registry.delete_model("ml_other")
    fact("without", lambda: sorted(m.name for m in registry.list_models()))
    fact("no source", lambda: registry.register_model_version("ml_net"))


def main() -> None:
    connect()
    tracker = Client().active_stack.experiment_tracker
    fact("tracker", lambda: (tracker.name, tracker.flavor, tracker.type.value))
    fact("tracker is MLflow's", lambda: isinstance(tracker, MLFlowExperimentTracker))
    fact("uri", lambda: tracker.get_tracking_uri().rpartition("/")[2])
    fact("same uri", lambda: get_tracking_uri() == tracker.get_tracking_uri())
    fact("settings class", lambda: tracker.settings_class.__name__)
    fact("defaults", lambda: MLFlowExperimentTrackerSettings().model_dump())
    ml_plain()
    runs = runs_of("ml_plain")
    last = Client().get_pipeline("ml_plain").last_run
    fact("runs", lambda: [(r.info.run_name == last.name, r.info.status) for r in runs])
    run = runs[0]
    fact("params", lambda: run.data.params)
    fact("loss", lambda: history(run, "loss"))
    fact("metrics", lambda: run.data.metrics)
    fact("tags", lambda: own_tags(run))
    fact("is_zenml_run", lambda: mlflow_utils.is_zenml_run(run))
    fact("artifacts", lambda: files(run))
    fact("in test", lambda: last.steps["ml_test"].output.load())
    fact("without a tracker", lambda: last.steps["ml_without"].output.load())
    told = last.steps["ml_train"].run_metadata
    fact("metadata of the step", lambda: sorted(told))
    fact("its run", lambda: told["mlflow_run_id"] == run.info.run_id)
    fact("its experiment", lambda: str(told["mlflow_experiment_id"]) == run.info.experiment_id)
    fact("get_run_id", lambda: tracker.get_run_id("ml_plain", last.name) == run.info.run_id)
    fact("get_run_id of none", lambda: tracker.get_run_id("ml_plain", "other"))
    ml_named()
    pair = runs_of("ml_own")
    named = Client().get_pipeline("ml_named").last_run.name
    fact("nested", lambda: sorted(r.info.run_name == named for r in pair))
    inner = next(r for r in pair if r.info.run_name == "ml_nested")
    outer = next(r for r in pair if r.info.run_name == named)
    fact("inner metrics", lambda: (inner.data.metrics, outer.data.metrics))
    fact("parent", lambda: inner.data.tags["mlflow.parentRunId"] == outer.info.run_id)
    fact("team", lambda: (inner.data.tags["team"], outer.data.tags["team"]))
    ml_auto()
    auto = runs_of("ml_auto")[0]
    fact("autolog", lambda: (auto.data.params["C"], "training_score" in auto.data.metrics))
    try:
        ml_fails()
    except Exception:
        pass
    failed = runs_of("ml_fails")[0]
    fact("failed", lambda: (failed.info.status, failed.data.metrics))
    ml_register()
    registered()
    fact("active run outside", lambda: mlflow.active_run())


if __name__ == "__main__":
    main()
