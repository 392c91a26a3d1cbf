"""``autolog`` and the callbacks, with the real libraries in real steps."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest
from front_tools import WAIT_S, engine, environment, needs_engine, run_python

pytestmark = needs_engine

PROGRAM = """
import os
os.environ["KERAS_BACKEND"] = "torch"
{top}
import stoker
from stoker import pipeline, step
{before}
@step
def fit() -> None:
{body}

@pipeline
def fits():
    fit()

if __name__ == "__main__":
    fits()
"""
AUTOLOG = "stoker.autolog()\n"

PERCEPTRON = """
import numpy
from sklearn.neural_network import MLPRegressor
x = numpy.random.rand(64, 3)
model = MLPRegressor(max_iter=5).fit(x, x.sum(1))
"""
TREES = """
import numpy
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor
x = numpy.random.rand(64, 3)
GradientBoostingRegressor(n_estimators=4).fit(x, x.sum(1))
HistGradientBoostingRegressor(max_iter=4, early_stopping=True).fit(x, x.sum(1))
"""
KERAS = """
import keras, numpy
model = keras.Sequential([keras.layers.Dense(1)])
model.compile("sgd", "mse", metrics=["mae"])
x = numpy.random.rand(64, 3).astype("float32")
model.fit(x, x.sum(1), epochs=3, verbose=0{callbacks})
"""
LIGHTNING = """
import torch, lightning.pytorch as pl
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def training_step(self, batch, i):
        loss = ((self.layer(batch[0]) - batch[1]) ** 2).mean()
        self.log("train_loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
x = torch.rand(64, 3)
data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))
trainer = pl.Trainer(max_epochs=2, logger={logger}, enable_checkpointing=False, log_every_n_steps=4,
                     enable_progress_bar=False, enable_model_summary=False, accelerator="cpu")
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=8))
"""
TRAINER = """
import torch
from transformers import Trainer, TrainingArguments
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)
    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": ((out - labels) ** 2).mean(), "logits": out}
data = [{"x": torch.rand(3), "labels": torch.rand(1)} for _ in range(32)]
args = TrainingArguments(output_dir="out", num_train_epochs=2, logging_steps=2, report_to=[],
                         save_strategy="no", disable_tqdm=True, use_cpu=True)
Trainer(model=Model(), args=args, train_dataset=data).train()
"""
BOOST = """
import numpy, xgboost
x = numpy.random.rand(64, 3)
data = xgboost.DMatrix(x, label=x.sum(1))
xgboost.train({"max_depth": 2}, data, 4, evals=[(data, "train")], verbose_eval=False)
"""
WRITER = """
from torch.utils.tensorboard import SummaryWriter
with SummaryWriter(os.environ["STOKER_TASK_DIR"] + "/tensorboard/here") as writer:
    for i in range(5):
        writer.add_scalar("loss", 1 / (i + 1), i, new_style=i % 2 == 0)
"""
OWN_KERAS = KERAS.replace(
    "{callbacks}",
    ", callbacks=[stoker.callbacks.KerasCallback(), stoker.callbacks.KerasCallback()]",
)
OWN_LIGHTNING = LIGHTNING.replace("{logger}", "stoker.callbacks.LightningLogger()")
torch = pytest.mark.torch

# (needed, its program, autolog, metrics: name -> number of values)
CASES = [
    pytest.param("sklearn", PERCEPTRON, True, {"loss": 5}, id="perceptron"),
    pytest.param(
        "sklearn", TREES, True, {"train_score": 9, "validation_score": 5}, id="boosted trees"
    ),
    pytest.param(
        "sklearn",
        PERCEPTRON + "stoker.callbacks.log_estimator(model, 'mlp/')\n",
        False,
        {"mlp/loss": 5},
        id="log_estimator",
    ),
    pytest.param(
        "keras",
        KERAS.replace("{callbacks}", ""),
        True,
        {"loss": 3, "mae": 3},
        id="keras",
        marks=torch,
    ),
    pytest.param("keras", OWN_KERAS, False, {"loss": 6}, id="keras: its callback", marks=torch),
    pytest.param("keras", OWN_KERAS, True, {"loss": 6}, id="keras: both", marks=torch),
    pytest.param(
        "lightning",
        LIGHTNING.replace("{logger}", "False"),
        True,
        {"train_loss": 4},
        id="lightning",
        marks=torch,
    ),
    pytest.param(
        "lightning", OWN_LIGHTNING, True, {"train_loss": 4}, id="lightning: both", marks=torch
    ),
    pytest.param(
        "transformers", TRAINER, True, {"loss": 4, "learning_rate": 4}, id="trainer", marks=torch
    ),
    pytest.param(
        "tensorboard", WRITER, True, {"loss": 5, "here/loss": 5}, id="summary writer", marks=torch
    ),
    pytest.param("tensorboard", WRITER, False, {"here/loss": 5}, id="its files", marks=torch),
    pytest.param("xgboost", BOOST, True, {"train-rmse": 4}, id="xgboost"),
]


def play(folder: Path, source: str) -> dict[str, int]:
    run_python(folder, source, STOKER_ACCEL="none")
    done = subprocess.run(
        [str(engine()), "metrics", "--json"],
        cwd=folder,
        env=environment(folder / ".stoker"),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    return {m["metric"]: m["n"] for m in json.loads(done.stdout)}


def program(body: str, with_autolog: bool, top: str = "") -> str:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    before = AUTOLOG if with_autolog else ""
    return PROGRAM.format(top=top, before=before, body=lines)


@pytest.mark.parametrize("needed, body, with_autolog, metrics", CASES)
def test_library(
    needed: str, body: str, with_autolog: bool, metrics: dict[str, int], tmp_path: Path
) -> None:
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f"{needed} isn't installed")
    found = play(tmp_path, program(body, with_autolog))
    assert {name: found.get(name) for name in metrics} == metrics


def test_library_that_is_there_before(tmp_path: Path) -> None:
    source = program(PERCEPTRON, True, top="from sklearn.neural_network import MLPRegressor")
    assert play(tmp_path, source) == {"loss": 5}


def test_nothing_unless_asked(tmp_path: Path) -> None:
    assert play(tmp_path, program(PERCEPTRON, False)) == {}


def test_outside_of_a_step(tmp_path: Path) -> None:
    lines = "import stoker\nstoker.autolog()\nstoker.autolog()\n" + PERCEPTRON + "print('fine')\n"
    assert run_python(tmp_path, lines).stdout.endswith("fine\n")


def test_estimator_without_a_curve(tmp_path: Path) -> None:
    from sklearn.linear_model import LinearRegression

    from stoker import callbacks

    with pytest.raises(TypeError, match="LinearRegression kept no curve"):
        callbacks.log_estimator(LinearRegression().fit([[1], [2]], [1, 2]))
