"""Materializers: custom ones, what their base does, and values that nothing else fits."""

import os
from typing import Annotated, Any, Callable, Type

from facts import fact
from zenml import load_artifact, pipeline, save_artifact, step
from zenml.client import Client
from zenml.enums import ArtifactType
from zenml.materializers.base_materializer import BaseMaterializer


class Box:
    def __init__(self, text):
        self.text = text


class BoxMaterializer(BaseMaterializer):
    ASSOCIATED_TYPES = (Box,)
    ASSOCIATED_ARTIFACT_TYPE = ArtifactType.DATA

    def load(self, data_type: Type[Any]) -> Any:
        super().load(data_type)
        with self.artifact_store.open(os.path.join(self.uri, "box.txt"), "r") as stream:
            return Box(stream.read())

    def save(self, data: Any) -> None:
        super().save(data)
        with self.artifact_store.open(os.path.join(self.uri, "box.txt"), "w") as stream:
            stream.write(data.text)

    def extract_metadata(self, data: Any):
        return {"letters": len(data.text)}


@step(output_materializers=BoxMaterializer)
def make() -> Annotated[Box, "mt_box"]:
    return Box("in a box")


@step
def read(box: Box) -> str:
    return box.text


@step
def function() -> Annotated[Callable[[int], int], "mt_function"]:
    return lambda x: x + 1


@step
def call(f: Callable[[int], int]) -> int:
    return f(2)


@step
def wrong() -> int:
    return "text"


@step
def close() -> float:
    return 3


@pipeline(enable_cache=False)
def mt_box():
    read(make())


@pipeline(enable_cache=False)
def mt_function():
    call(function())


@pipeline(enable_cache=False)
def mt_wrong():
    wrong()


@pipeline(enable_cache=False)
def mt_close():
    close()


if __name__ == "__main__":
    run = mt_box()
    fact("read", lambda: run.steps["read"].output.load())
    fact("loaded", lambda: run.steps["make"].output.load().text)
    fact("client", lambda: Client().get_artifact_version("mt_box").load().text)
    fact("metadata", lambda: run.steps["make"].output.run_metadata.get("letters"))
    fact("type", lambda: run.steps["make"].output.type.value)
    fact("data type", lambda: run.steps["make"].output.data_type.attribute)
    fact("materializer", lambda: run.steps["make"].output.materializer.attribute)
    saved = save_artifact(Box("by hand"), "mt_saved", materializer=BoxMaterializer)
    fact("saved", lambda: load_artifact("mt_saved").text)
    fact("function", lambda: mt_function().steps["call"].output.load())
    fact("function loaded", lambda: Client().get_artifact_version("mt_function").load()(5))
    fact("wrong", lambda: mt_wrong())
    fact(
        "wrong status",
        lambda: Client().list_pipeline_runs(pipeline_name="mt_wrong")[0].status.value,
    )
    fact("close", lambda: repr(mt_close().steps["close"].output.load()))
