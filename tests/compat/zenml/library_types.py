"""Values of libraries: what a program loads back equals what its step returned."""

import dataclasses
import datetime
import enum
import pathlib
import uuid
from typing import Annotated, Any, Dict, List, Optional, Set, Tuple

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import scipy.sparse as sparse
from facts import fact
from PIL import Image
from sklearn.linear_model import LinearRegression
from zenml import pipeline, step
from zenml.client import Client


@dataclasses.dataclass
class Point:
    x: int
    y: List[float]


class Color(enum.Enum):
    RED = 1


def pixels():
    image = Image.new("RGB", (4, 3), (1, 2, 3))
    image.putpixel((1, 1), (200, 0, 7))
    return image


FRAME = pd.DataFrame(
    {
        "i": [1, 2, 3],
        "f": [0.5, None, 2.0],
        "s": ["a", None, "c"],
        "t": pd.to_datetime(["2024-01-01", "2024-01-02", None]),
        "c": pd.Categorical(["x", "y", "x"]),
    },
    index=["r1", "r2", "r3"],
)
VALUES = {
    "image": pixels,
    "gray": lambda: pixels().convert("L"),
    "csr": lambda: sparse.csr_matrix(np.eye(3)),
    "coo": lambda: sparse.coo_matrix(([1.0, 2.0], ([0, 1], [2, 0])), shape=(2, 3)),
    "frame": lambda: FRAME,
    "empty frame": lambda: FRAME.head(0),
    "multi": lambda: FRAME.set_index(["i", "s"]),
    "series": lambda: pd.Series([1.5, 2.5], name="v", index=[3, 4]),
    "array": lambda: np.arange(6).reshape(2, 3),
    "texts": lambda: np.array(["a", "bc"]),
    "booleans": lambda: np.array([True, False]),
    "scalar": lambda: np.float32(1.5),
    "model": lambda: LinearRegression().fit([[0], [1]], [1, 3]),
    "figure": lambda: go.Figure(go.Scatter(x=[1, 2], y=[3, 4])),
    "dataclass": lambda: Point(1, [2.0]),
    "enum": lambda: Color.RED,
    "date": lambda: datetime.date(2024, 1, 2),
    "moment": lambda: datetime.datetime(2024, 1, 2, 3, 4, 5, 6),
    "uuid": lambda: uuid.UUID(int=5),
    "bytes": lambda: b"\x00\xff",
    "set": lambda: {1, 2},
    "tuple": lambda: (1, "a", (2, 3)),
    "nested": lambda: {"a": [np.ones(2), {"b": FRAME.head(1)}]},
    "keys": lambda: {1: "a", (2, 3): "b"},
    "none": lambda: None,
    "infinite": lambda: float("inf"),
    "complex": lambda: 1 + 2j,
    "big": lambda: 2**70,
    "unicode": lambda: "é\u0000\n",
    "range": lambda: range(3),
}


def shown(value: Any) -> Any:
    """A value so that two equal ones are told alike."""
    if isinstance(value, Image.Image):
        return value.mode, value.size, list(value.tobytes())
    if sparse.issparse(value):
        return type(value).__name__, value.toarray().tolist()
    if isinstance(value, pd.DataFrame):
        return value.to_csv(), [str(t) for t in value.dtypes], str(value.index.names)
    if isinstance(value, pd.Series):
        return value.to_csv(), str(value.dtype), value.name
    if isinstance(value, np.ndarray):
        return value.tolist(), str(value.dtype)
    if isinstance(value, LinearRegression):
        return value.predict([[2]]).round(6).tolist()
    if isinstance(value, go.Figure):
        return value.to_plotly_json()["data"][0]["type"], list(value.data[0].y)
    if isinstance(value, dict):
        return {repr(k): shown(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [shown(one) for one in value]
    return type(value).__name__, repr(value)


@step(enable_cache=False)
def give(name: str) -> Annotated[Any, "lt_value"]:
    return VALUES[name]()


@step(enable_cache=False)
def take(value: Any) -> Annotated[bool, "lt_same"]:
    return True


@pipeline
def lt_pipeline(name: str):
    take(give(name))


@step(enable_cache=False)
def folder() -> Annotated[pathlib.Path, "lt_folder"]:
    place = pathlib.Path("made")
    place.mkdir(exist_ok=True)
    (place / "a.txt").write_text("inside")
    return place


@step(enable_cache=False)
def look(place: pathlib.Path) -> str:
    return f"{place.is_dir()} {(place / 'a.txt').read_text()}"


@pipeline
def lt_folder():
    look(folder())


@step(enable_cache=False)
def optional() -> Optional[int]:
    return None


@step(enable_cache=False)
def several() -> Tuple[Annotated[Dict[str, int], "lt_a"], Annotated[Set[int], "lt_b"]]:
    return {"k": 1}, {3}


@pipeline
def lt_hints():
    optional()
    several()


def back(name: str) -> Any:
    run = lt_pipeline(name)
    return shown(run.steps["give"].output.load()), run.steps["take"].output.load()


if __name__ == "__main__":
    client = Client()
    for name in VALUES:
        fact(name, lambda name=name: back(name))
        fact(
            f"{name} is as it was",
            lambda name=name: (
                shown(client.get_artifact_version("lt_value").load()) == shown(VALUES[name]())
            ),
        )
    fact("folder", lambda: lt_folder().steps["look"].output.load())
    run = lt_hints()
    fact("optional", lambda: run.steps["optional"].output.load())
    fact(
        "several",
        lambda: {k: v[0].load() == {3} for k, v in sorted(run.steps["several"].outputs.items())},
    )
