"""Inputs that aren't loaded, models as parameters, and what own materializers say of their values."""

import os

from facts import fact
from typing_extensions import Annotated
from zenml import Model, pipeline, step
from zenml.artifacts.unmaterialized_artifact import UnmaterializedArtifact
from zenml.client import Client
from zenml.enums import ArtifactType
from zenml.materializers.base_materializer import BaseMaterializer
from zenml.materializers.materializer_registry import materializer_registry


class Weights:
    """A value with a materializer that says what kind of artifact it is."""

    def __init__(self, numbers):
        self.numbers = numbers


class Plan(Weights):
    """A value whose materializer says nothing."""


class Late(Weights):
    """A value whose materializer is registered by hand."""


class Writer(BaseMaterializer):
    ASSOCIATED_TYPES = (Weights,)
    ASSOCIATED_ARTIFACT_TYPE = ArtifactType.MODEL

    def save(self, data):
        with self.artifact_store.open(os.path.join(self.uri, "numbers.txt"), "w") as stream:
            stream.write(" ".join(map(str, data.numbers)))

    def load(self, data_type):
        with self.artifact_store.open(os.path.join(self.uri, "numbers.txt"), "r") as stream:
            return data_type([int(word) for word in stream.read().split()])


class PlanWriter(Writer):
    ASSOCIATED_TYPES = (Plan,)
    ASSOCIATED_ARTIFACT_TYPE = BaseMaterializer.ASSOCIATED_ARTIFACT_TYPE


class LateWriter(Writer):
    SKIP_REGISTRATION = True


materializer_registry.register_and_overwrite_type(key=Late, type_=LateWriter)


@step
def weights() -> Annotated[Weights, "weights"]:
    return Weights([1, 2, 3])


@step
def plan() -> Annotated[Plan, "plan"]:
    return Plan([4])


@step
def late() -> Annotated[Late, "late"]:
    return Late([5, 6])


@step
def text() -> Annotated[str, "text"]:
    return "hello"


@step
def unread(first: UnmaterializedArtifact, second: UnmaterializedArtifact) -> str:
    files = sorted(os.listdir(first.uri))
    return f"{type(first).__name__} {first.name} {files} {first.type.value} {second.load()}"


@step
def of_model(model: Model, rows: int = 2) -> str:
    return f"{type(model).__name__} {model.name} {model.version} {model.tags} {rows}"


@pipeline
def inputs():
    found = weights()
    unread(found, text())
    plan()
    late()
    of_model(Model(name="net", version="7", tags=["a", "b"]))


if __name__ == "__main__":
    steps = inputs().steps
    fact("unread", lambda: steps["unread"].output.load())
    fact(
        "unread's inputs",
        lambda: {k: [v.name for v in some] for k, some in steps["unread"].inputs.items()},
    )
    fact("model as a parameter", lambda: steps["of_model"].output.load())
    for name in ("weights", "plan", "late"):
        version = Client().get_artifact_version(name)
        fact(f"type of {name}", lambda version=version: version.type.value)
        fact(f"value of {name}", lambda version=version: version.load().numbers)
        fact(f"materializer of {name}", lambda version=version: version.materializer.attribute)
    fact("registered", lambda: materializer_registry[Late].__name__)
    fact("by base class", lambda: materializer_registry[type("More", (Weights,), {})].__name__)
