"""What a pipeline's body does with its model and context, what steps log for their own run, and what
annotations make of pandas values."""

from typing import Annotated

import pandas as pd
from facts import fact
from zenml import (
    ArtifactConfig,
    Model,
    Tag,
    get_pipeline_context,
    get_step_context,
    log_metadata,
    pipeline,
    save_artifact,
    step,
)
from zenml.client import Client
from zenml.config import DockerSettings
from zenml.config.docker_settings import PythonEnvironmentExportMethod
from zenml.enums import ArtifactType, ModelStages
from zenml.models import LazyArtifactVersionResponse


@step(enable_cache=False)
def train(
    n: int,
) -> Annotated[float, ArtifactConfig(name="bo_weights", artifact_type="ModelArtifact")]:
    run = get_step_context().pipeline_run
    log_metadata({"of_run": n}, run_id_name_or_prefix=run.id)
    log_metadata({"of_step": n}, run_id_name_or_prefix=run.name, step_name="train")
    save_artifact(n, "bo_saved")
    fact("read while it runs", lambda: Client().get_pipeline_run(run.id).run_metadata)
    fact("no output", lambda: log_metadata({"a": 1}, artifact_name="none", infer_artifact=True))
    return n / 2


@pipeline(
    model=Model(name="bo_model"),
    tags=[Tag(name="bo_cascades", cascade=True, color="purple")],
    settings={"docker": DockerSettings(requirements=["a"])},
)
def training(n: int, promote: bool = False):
    context = get_pipeline_context()
    fact("requirements", lambda: context.settings["docker"].requirements)
    train(n)
    if promote:
        context.model.set_stage(ModelStages.PRODUCTION, force=True)
        fact("same model", lambda: get_pipeline_context().model.number)


@step(enable_cache=False)
def predict(weights: float) -> float:
    return weights


@pipeline(model=Model(name="bo_model", version=ModelStages.PRODUCTION))
def inference():
    weights = get_pipeline_context().model.get_artifact("bo_weights")
    fact("late", lambda: isinstance(weights, LazyArtifactVersionResponse))
    predict(weights)


@step
def column() -> pd.DataFrame:
    return pd.DataFrame({"a": [1, 2]})


@step
def series() -> pd.Series:
    return pd.Series([3, 4], name="b")


@step
def two_columns() -> pd.DataFrame:
    return pd.DataFrame({"a": [1], "b": [2]})


@step
def take_series(x: pd.Series) -> str:
    return f"{type(x).__name__} {x.name} {list(x)}"


@step
def take_frame(x: pd.DataFrame) -> str:
    return f"{type(x).__name__} {list(x.columns)} {x.shape}"


@pipeline(enable_cache=False)
def pandas_values():
    take_series(column())
    take_frame(series())


@pipeline(enable_cache=False)
def no_series():
    take_series(two_columns())


if __name__ == "__main__":
    client = Client()
    training(1)
    run = training(2, promote=True)
    fact(
        "versions",
        lambda: [
            (v.number, v.stage) for v in client.list_model_versions("bo_model", sort_by="number")
        ],
    )
    fact("of run", lambda: client.get_pipeline_run(run.id).run_metadata)
    fact("of step", lambda: client.get_pipeline_run(run.id).steps["train"].run_metadata)
    fact("predicted", lambda: inference().steps["predict"].output.load())
    fact("made by id", lambda: Model(name="bo_model", version="new").id is not None)
    fact("made", lambda: client.get_model_version("bo_model", "new").number)
    fact("no stage", lambda: Model(name="bo_model", version="staging").id)
    fact("color", lambda: str(client.get_tag("bo_cascades").color))
    fact("cascaded", lambda: [t.name for t in client.get_artifact_version("bo_weights").tags])
    fact("not cascaded", lambda: client.get_artifact_version("bo_saved").tags)
    fact("type", lambda: str(client.get_artifact_version("bo_weights").type))
    fact("kinds", lambda: (str(ArtifactType.DATA), f"{ArtifactType.MODEL}"))
    fact("exported", lambda: PythonEnvironmentExportMethod.PIP_FREEZE.value)
    fact(
        "pandas",
        lambda: sorted(s.output.load() for k, s in pandas_values().steps.items() if "take" in k),
    )
    fact("no series", no_series)
    fact("by run", lambda: [p.name for p in client.list_pipelines(sort_by="desc:latest_run")])
    fact("several", lambda: client.get_pipeline_run("training"))
    fact("metadata as a dict", lambda: client.list_pipeline_runs(run_metadata={"of_run": 2}))
    fact("not text", lambda: client.create_secret("bo_secret", {"a": 1}))
