"""Visualizations of artifacts, and what materializers tell of a value."""

import csv
import dataclasses
import io
import json
import os
import uuid
from typing import Annotated, Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import scipy.sparse as sparse
from facts import fact
from PIL import Image
from pydantic import BaseModel
from sklearn.linear_model import LinearRegression
from zenml import log_metadata, pipeline, save_artifact, step
from zenml.artifacts.utils import load_artifact_visualization
from zenml.client import Client
from zenml.enums import VisualizationType
from zenml.materializers.base_materializer import BaseMaterializer
from zenml.models import ArtifactVisualizationResponse
from zenml.types import CSVString, HTMLString, JSONString, MarkdownString
from zenml.utils.visualization_utils import format_csv_visualization_as_html


class Report:
    def __init__(self, text):
        self.text = text


class ReportMaterializer(BaseMaterializer):
    ASSOCIATED_TYPES = (Report,)

    def _write(self, name, text):
        path = os.path.join(self.uri, name)
        with self.artifact_store.open(path, "w") as stream:
            stream.write(text)
        return path

    def load(self, data_type):
        with self.artifact_store.open(os.path.join(self.uri, "report.txt"), "r") as stream:
            return Report(stream.read())

    def save(self, data):
        self._write("report.txt", data.text)

    def save_visualizations(self, data):
        if data.text == "wrong":
            raise ValueError("no picture")
        page = self._write("page.html", f"<h1>{data.text}</h1>")
        words = self._write("words.csv", "word,n\na,1\nb,2\n")
        return {page: VisualizationType.HTML, words: VisualizationType.CSV}

    def extract_metadata(self, data):
        if data.text == "wrong":
            raise ValueError("no words")
        return {"letters": len(data.text), "words": data.text.split(), "deep": {"a": 1.5}}


class Settings(BaseModel):
    name: str = "n"
    size: int = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float


FRAME = pd.DataFrame(
    {
        "i": range(12),
        "f": [0.5, None, 2.0] * 4,
        "s": ["a", None, "c"] * 4,
        "c": pd.Categorical(["x", "y", "x"] * 4),
        "t": pd.to_datetime(["2024-01-01", "2024-01-02", None] * 4),
        "n": pd.array([1, None, 3] * 4, dtype="Int64"),
    }
)
VALUES = {
    "html": lambda: HTMLString("<b>bold</b>"),
    "markdown": lambda: MarkdownString("# Title"),
    "csv": lambda: CSVString("a,b\n1,2\n"),
    "json": lambda: JSONString('{"a": [1, 2]}'),
    "int": lambda: 3,
    "float": lambda: 0.25,
    "bool": lambda: True,
    "text": lambda: 'a "word"',
    "none": lambda: None,
    "list": lambda: [1, [2, "x"], {"k": None}],
    "dict": lambda: {"a": 1, "b": [True, 0.5]},
    "tuple": lambda: (1, 2),
    "set": lambda: {1},
    "list of arrays": lambda: [np.ones(2), np.zeros(3)],
    "keys": lambda: {1: "a"},
    "bytes": lambda: b"some *bytes*",
    "uuid": lambda: uuid.UUID(int=5),
    "floats": lambda: np.array([1.0, 2.5, 4.0]),
    "pixels": lambda: np.arange(24, dtype=np.uint8).reshape(2, 4, 3),
    "matrix": lambda: np.arange(6).reshape(2, 3),
    "texts": lambda: np.array(["b a", "b"]),
    "booleans": lambda: np.array([True, False]),
    "no numbers": lambda: np.array([]),
    "scalar": lambda: np.float32(1.5),
    "frame": lambda: FRAME,
    "series": lambda: pd.Series([1.5, 2.5], name="v", index=[3, 4]),
    "words": lambda: pd.Series(["a", "b"]),
    "image": lambda: Image.new("RGB", (4, 3), (1, 2, 3)),
    "sparse": lambda: sparse.csr_matrix(np.eye(3)),
    "model": lambda: LinearRegression().fit([[0], [1]], [1, 3]),
    "figure": lambda: go.Figure(go.Scatter(x=[1, 2], y=[3, 4])),
    "pydantic": lambda: Settings(),
    "dataclass": lambda: Point(1, 2.5),
    "report": lambda: Report("two words"),
    "wrong": lambda: Report("wrong"),
}


def shown(version, index):
    """A visualization so that two equal ones are told alike."""
    one = load_artifact_visualization(version, index)
    if one.type == VisualizationType.IMAGE:
        image = Image.open(io.BytesIO(one.value))
        return image.format, image.size if image.width < 100 else "large"
    if one.type == VisualizationType.JSON:
        return json.loads(one.value)
    if one.type == VisualizationType.CSV:
        return list(csv.reader(io.StringIO(one.value)))
    return one.value


def seen(version):
    found = version.visualizations or []
    return [(one.type.value, shown(version, i)) for i, one in enumerate(found)]


def told(version):
    known = dict(version.run_metadata)
    known["storage_size"] = known.get("storage_size", 0) > 0
    return sorted(known.items())


@step(enable_cache=False)
def give(name: str) -> Annotated[Any, "vi_value"]:
    return VALUES[name]()


@pipeline
def vi_pipeline():
    for name in VALUES:
        give(name, id=name.replace(" ", "_"))


@step(
    enable_cache=False, enable_artifact_visualization=False, output_materializers=ReportMaterializer
)
def hidden() -> Annotated[Report, "vi_hidden"]:
    return Report("hidden")


@step(enable_cache=False, enable_artifact_metadata=False)
def untold() -> Annotated[Report, "vi_untold"]:
    return Report("untold")


@step(enable_cache=False)
def plain() -> Annotated[int, "vi_plain"]:
    log_metadata({"string_representation": "mine"}, infer_artifact=True)
    return 3


@pipeline(enable_artifact_metadata=False)
def vi_switched():
    plain()


@pipeline
def vi_switches():
    hidden()
    untold()
    plain()


if __name__ == "__main__":
    client = Client()
    given = vi_pipeline().steps
    for name in VALUES:
        version = given[name.replace(" ", "_")].output
        fact(f"{name} seen", lambda version=version: seen(version))
        fact(f"{name} told", lambda version=version: told(version))
        fact(f"{name} materializer", lambda version=version: version.materializer.attribute)
    report = save_artifact(Report("by hand"), "vi_saved")
    fact("saved seen", lambda: seen(report))
    fact("saved told", lambda: told(report))
    bare = save_artifact(
        Report("by hand"), "vi_bare", extract_metadata=False, include_visualizations=False
    )
    fact("bare seen", lambda: seen(bare))
    fact("bare told", lambda: told(bare))
    number = save_artifact(7, "vi_number", user_metadata={"string_representation": "mine", "k": 1})
    fact("number seen", lambda: seen(number))
    fact("number told", lambda: told(number))
    off = save_artifact(7, "vi_off", include_visualizations=False)
    fact("off seen", lambda: seen(off))
    steps = vi_switches().steps
    for name in ("hidden", "untold", "plain"):
        fact(f"{name} seen", lambda name=name: seen(steps[name].output))
        fact(f"{name} told", lambda name=name: told(steps[name].output))
    switched = vi_switched().steps["plain"].output
    fact("switched seen", lambda: seen(switched))
    fact("switched told", lambda: told(switched))
    first = client.get_artifact_version("vi_saved").visualizations[0]
    fact("response", lambda: isinstance(first, ArtifactVisualizationResponse))
    fact("of", lambda: first.artifact_version_id == report.id)
    fact("file", lambda: os.path.basename(first.uri))
    fact("opened", lambda: len(open(report.visualizations[0].uri).read()) > 0)
    path = report.visualizations[0].uri
    fact("stays", lambda: os.path.exists(path))
    odd = save_artifact(np.array([1.0, np.nan, np.inf]), "vi_odd", include_visualizations=False)
    fact("not a number", lambda: [np.isnan(odd.run_metadata[name]) for name in ("mean", "std")])
    fact("infinite", lambda: save_artifact(np.array([np.inf]), "vi_inf").run_metadata["max"])
    log_metadata({"loss": float("nan")}, artifact_version_id=odd.id)
    again = client.get_artifact_version("vi_odd")
    fact("logged", lambda: np.isnan(again.run_metadata["loss"]))
    fact("id", lambda: isinstance(first.id, uuid.UUID))
    fact("no such", lambda: load_artifact_visualization(report, 2))
    fact("none at all", lambda: load_artifact_visualization(bare))
    image = save_artifact(Image.new("L", (1, 1)), "vi_image")
    fact("encoded", lambda: load_artifact_visualization(image, encode_image=True).value[:8])
    fact("visualize", lambda: report.visualize())
    table = "a,b\n" + "\n".join(f"{i},{i}" for i in range(12))
    fact("table", lambda: format_csv_visualization_as_html(table))
    fact("short table", lambda: format_csv_visualization_as_html("a,b\n1,2", max_cols=1))
