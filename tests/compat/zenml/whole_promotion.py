"""A whole program: training, evaluation, promotion of the better model, and batch inference by the
promoted one."""

import logging
from typing import Tuple

import numpy as np
import pandas as pd
from facts import fact
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from typing_extensions import Annotated
from zenml import ArtifactConfig, Model, get_step_context, log_metadata, pipeline, step
from zenml.client import Client
from zenml.config import DockerSettings
from zenml.enums import ModelStages
from zenml.integrations.constants import SKLEARN
from zenml.logger import get_logger

logger = get_logger(__name__)
docker_settings = DockerSettings(required_integrations=[SKLEARN])


@step
def load_data(random_state: int = 42) -> Annotated[pd.DataFrame, "iris_data"]:
    """Loads the dataset."""
    iris = load_iris(as_frame=True)
    frame = iris.frame.sample(frac=1, random_state=random_state).reset_index(drop=True)
    logger.info("Loaded %d rows", len(frame))
    return frame


@step
def split_data(
    data: pd.DataFrame, test_size: float = 0.3, target: str = "target"
) -> Tuple[
    Annotated[pd.DataFrame, "X_train"],
    Annotated[pd.DataFrame, "X_test"],
    Annotated[pd.Series, "y_train"],
    Annotated[pd.Series, "y_test"],
]:
    """Splits the data."""
    X_train, X_test, y_train, y_test = train_test_split(
        data.drop(columns=[target]), data[target], test_size=test_size, random_state=0
    )
    return X_train, X_test, y_train, y_test


@step
def scale(
    X_train: pd.DataFrame, X_test: pd.DataFrame
) -> Tuple[
    Annotated[np.ndarray, "X_train_scaled"],
    Annotated[np.ndarray, "X_test_scaled"],
    Annotated[StandardScaler, "scaler"],
]:
    """Scales the features."""
    scaler = StandardScaler()
    X_train_scaled = scaler.fit_transform(X_train)
    X_test_scaled = scaler.transform(X_test)
    return X_train_scaled, X_test_scaled, scaler


@step
def train(
    X_train: np.ndarray, y_train: pd.Series, model_type: str = "forest", depth: int = 3
) -> Annotated[
    ClassifierMixin, ArtifactConfig(name="sklearn_classifier", artifact_type="ModelArtifact")
]:
    """Trains a model."""
    if model_type == "forest":
        model = RandomForestClassifier(max_depth=depth, n_estimators=10, random_state=0)
    elif model_type == "logistic":
        model = LogisticRegression(max_iter=200)
    else:
        raise ValueError(f"Unknown model type {model_type}")
    model.fit(X_train, y_train)
    log_metadata(
        metadata={"model_type": model_type, "depth": depth},
        artifact_name="sklearn_classifier",
        infer_artifact=True,
    )
    return model


@step
def evaluate(
    model: ClassifierMixin, X_test: np.ndarray, y_test: pd.Series, min_accuracy: float = 0.5
) -> Annotated[float, "accuracy"]:
    """Evaluates the model."""
    accuracy = float(accuracy_score(y_test, model.predict(X_test)))
    log_metadata(metadata={"accuracy": accuracy}, infer_model=True)
    if accuracy < min_accuracy:
        raise RuntimeError("too bad")
    return accuracy


@step(enable_cache=False)
def promote(accuracy: float) -> Annotated[bool, "promoted"]:
    """Promotes the model if it is better than that in production."""
    context = get_step_context()
    current = context.model
    try:
        production = Client().get_model_version(current.name, ModelStages.PRODUCTION)
    except KeyError:
        production = None
    if production is not None and production.run_metadata["accuracy"] > accuracy:
        return False
    current.set_stage(ModelStages.PRODUCTION, force=True)
    return True


@pipeline(
    settings={"docker": docker_settings},
    model=Model(name="iris_classifier", description="Iris", tags=["iris", "tutorial"]),
)
def training(model_type: str = "forest", depth: int = 3):
    """Trains and promotes."""
    data = load_data()
    X_train, X_test, y_train, y_test = split_data(data)
    X_train, X_test, _ = scale(X_train, X_test)
    model = train(X_train, y_train, model_type=model_type, depth=depth)
    accuracy = evaluate(model, X_test, y_test)
    promote(accuracy)


@step(enable_cache=False)
def batch() -> Annotated[pd.DataFrame, "batch"]:
    """The data to predict."""
    return load_iris(as_frame=True).data.head(20)


@step(enable_cache=False)
def predict(data: pd.DataFrame) -> Annotated[pd.Series, "predictions"]:
    """Predicts with the promoted model."""
    version = get_step_context().model
    model = version.load_artifact("sklearn_classifier")
    scaler = version.load_artifact("scaler")
    log_metadata({"rows": len(data)})
    return pd.Series(model.predict(scaler.transform(data)), name="predicted")


@pipeline(model=Model(name="iris_classifier", version=ModelStages.PRODUCTION))
def inference():
    """Predicts a batch."""
    predict(batch())


if __name__ == "__main__":
    logging.getLogger(__name__).setLevel(logging.WARNING)
    client = Client()
    first = training()
    second = training(model_type="logistic")
    third = training.with_options(enable_cache=True)(depth=1)
    runs = (first, second, third)
    fact("statuses", lambda: [r.status.value for r in runs])
    fact(
        "cached",
        lambda: [sorted(n for n, s in r.steps.items() if s.status == "cached") for r in runs],
    )
    fact("accuracies", lambda: [round(r.steps["evaluate"].output.load(), 4) for r in runs])
    fact("promoted", lambda: [r.steps["promote"].output.load() for r in runs])
    versions = client.list_model_versions("iris_classifier")
    fact("stages", lambda: [(v.number, str(v.stage)) for v in versions])
    fact("metadata", lambda: [round(v.run_metadata["accuracy"], 4) for v in versions])
    fact("artifacts", lambda: sorted(versions[0].data_artifacts))
    fact("models", lambda: {k: list(v) for k, v in versions[0].model_artifacts.items()})
    fact(
        "classifier",
        lambda: type(versions[1].get_model_artifact("sklearn_classifier").load()).__name__,
    )
    about = versions[0].get_artifact("sklearn_classifier").run_metadata
    fact("about it", lambda: (about["model_type"], about["depth"]))
    run = inference()
    fact("predictions", lambda: run.steps["predict"].output.load().tolist())
    fact("series", lambda: run.steps["predict"].output.load().name)
    fact("model of inference", lambda: run.model_version.number)
    fact("rows", lambda: run.steps["predict"].run_metadata["rows"])
    fact("input", lambda: run.steps["predict"].inputs["data"][0].name)
    fact("frame", lambda: client.get_artifact_version("iris_data").load().shape)
    fact("columns", lambda: list(client.get_artifact_version("X_train").load().columns))
    fact("index", lambda: client.get_artifact_version("y_test").load().index[:5].tolist())
    fact("array", lambda: str(client.get_artifact_version("X_train_scaled").load().dtype))
    fact(
        "types",
        lambda: [
            str(client.get_artifact_version(n).data_type.import_path)
            for n in ("iris_data", "y_train", "X_test_scaled", "accuracy")
        ],
    )
    fact(
        "by metadata",
        lambda: (
            client.list_model_versions(
                model="iris_classifier", run_metadata="accuracy:gt:0.9"
            ).total
        ),
    )
    fact("failing", lambda: training(model_type="none"))
    fact(
        "failed",
        lambda: {
            n: s.status.value for n, s in client.get_pipeline("training").last_run.steps.items()
        },
    )
    fact("last good", lambda: client.get_pipeline("training").last_successful_run.id == third.id)
