"""Values of large libraries: what a program loads back equals what its step returned. CI hasn't
these packages; tools/record_zenml.py --large records both sides."""

from typing import Annotated, Any

import datasets
import lightgbm
import numpy as np
import polars
import xgboost
from facts import fact
from zenml import pipeline, step

ROWS = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]] * 10)
TARGET = ROWS[:, 0] * 2
FRAME = polars.DataFrame({"i": [1, 2, None], "s": ["a", None, "c"], "l": [[1], [], [2, 3]]})
QUIET = {"verbose": -1, "min_data_in_leaf": 1, "num_threads": 1}


def booster():
    return xgboost.train({"nthread": 1}, xgboost.DMatrix(ROWS, label=TARGET), num_boost_round=3)


def gbm():
    return lightgbm.train(QUIET, lightgbm.Dataset(ROWS, label=TARGET), num_boost_round=3)


VALUES = {
    "polars frame": lambda: FRAME,
    "polars series": lambda: polars.Series("v", [1.5, None]),
    "xgboost booster": booster,
    "xgboost matrix": lambda: xgboost.DMatrix(ROWS, label=TARGET),
    "xgboost model": lambda: xgboost.XGBRegressor(n_estimators=3, n_jobs=1).fit(ROWS, TARGET),
    "lightgbm booster": gbm,
    "lightgbm model": lambda: lightgbm.LGBMRegressor(n_estimators=3, **QUIET).fit(ROWS, TARGET),
    "dataset": lambda: datasets.Dataset.from_dict({"x": [1, 2], "y": ["a", "b"]}),
    "datasets": lambda: datasets.DatasetDict({"train": datasets.Dataset.from_dict({"x": [1, 2]})}),
}


def shown(value: Any) -> Any:
    """A value so that two equal ones are told alike."""
    if isinstance(value, (polars.DataFrame, polars.Series)):
        kinds = value.schema if isinstance(value, polars.DataFrame) else value.dtype
        name = getattr(value, "name", "")
        return str(kinds), name, value.to_list() if name else value.rows()
    if isinstance(value, xgboost.DMatrix):
        return value.num_row(), value.num_col(), value.get_label().tolist()[:4]
    if isinstance(value, xgboost.Booster):
        return np.round(value.predict(xgboost.DMatrix(ROWS)), 4)[:4].tolist()
    if hasattr(value, "predict"):
        return np.round(value.predict(ROWS), 4)[:4].tolist()
    if isinstance(value, datasets.Dataset):
        return value.to_dict(), str(value.features)
    return {k: shown(v) for k, v in value.items()}


@step(enable_cache=False)
def give(name: str) -> Annotated[Any, "ll_value"]:
    return VALUES[name]()


@step(enable_cache=False)
def take(value: Any) -> str:
    return repr(shown(value))


@pipeline
def ll_pipeline(name: str):
    take(give(name))


def compare(name: str) -> Any:
    """What the other step saw, and whether both equal what was returned."""
    run = ll_pipeline(name)
    want, seen = repr(shown(VALUES[name]())), run.steps["take"].output.load()
    return seen == want, repr(shown(run.steps["give"].output.load())) == want, seen


if __name__ == "__main__":
    for name in VALUES:
        fact(name, lambda name=name: compare(name))
