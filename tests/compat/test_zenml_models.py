"""Models of PyTorch, Lightning and Keras as artifacts of ZenML's programs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from front_tools import WAIT_S, engine, environment, needs_engine

# Stands for Keras, which takes 60 MB with what it needs: what a program sees of a model, and that a
# model pickles itself.
STAND_IN = """
class Weight:
    def __init__(self, *shape):
        self.shape = shape

class Model:
    def __init__(self):
        self.layers = ["one", "two"]
        self.trainable_weights = [Weight(2, 3), Weight(3)]
        self.weights = [*self.trainable_weights, Weight()]
"""
KERAS = """
import keras

class Net(keras.Model):
    pass

def make():
    return Net()
"""
REAL_KERAS = """
import keras

def make():
    return keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(3), keras.layers.Dense(1)])
"""
TORCH = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2, 3)
        self.first.bias.requires_grad = False

def make():
    return Net()
"""
LIGHTNING = """
import pytorch_lightning, torch

class Net(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(2, 3)

    def training_step(self, batch, number):
        return self.first(batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

def make():
    net = Net()
    rows = torch.utils.data.TensorDataset(torch.ones(4, 2))
    trainer = pytorch_lightning.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        accelerator="cpu",
    )
    trainer.fit(net, torch.utils.data.DataLoader(rows, batch_size=2))
    return net
"""
PROGRAM = """
from typing import Annotated, Any
from zenml import load_artifact, pipeline, save_artifact, step

@step
def train() -> Annotated[Any, "net"]:
    return make()

@step
def use(net: Any) -> str:
    return type(net).__name__

@pipeline(enable_cache=False)
def training():
    use(train())

if __name__ == "__main__":
    steps = training().steps
    saved = save_artifact(steps["train"].output.load(), "saved")
    for made in (steps["train"].output, saved):
        known = {k: v for k, v in made.run_metadata.items() if k.startswith("num_")}
        print("TOLD", made.type.value, made.materializer.attribute, known)
    print("TOLD", steps["use"].output.load(), type(load_artifact("saved")).__name__)
"""
KERAS_TOLD = "{'num_layers': 2, 'num_params': 10, 'num_trainable_params': 9}"


@needs_engine
@pytest.mark.parametrize(
    ("source", "needs", "kind", "told", "name"),
    [
        (KERAS, "", "Keras", KERAS_TOLD, "Net"),
        (
            REAL_KERAS,
            "keras",
            "Keras",
            "{'num_layers': 2, 'num_params': 13, 'num_trainable_params': 13}",
            "Sequential",
        ),
        (TORCH, "torch", "PyTorchModule", "{'num_params': 9, 'num_trainable_params': 6}", "Net"),
        (
            LIGHTNING,
            "pytorch_lightning",
            "PyTorchModule",
            "{'num_params': 9, 'num_trainable_params': 9}",
            "Net",
        ),
    ],
    ids=["stand-in", "keras", "torch", "lightning"],
)
def test_a_model(tmp_path: Path, source: str, needs: str, kind: str, told: str, name: str) -> None:
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"{needs} isn't installed")
    if not needs:
        (tmp_path / "keras.py").write_text(STAND_IN)
    (tmp_path / "prog.py").write_text(textwrap.dedent(source) + PROGRAM)
    done = subprocess.run(
        [str(engine()), "compat", "--", sys.executable, "prog.py"],
        cwd=tmp_path,
        env=environment(tmp_path / ".stoker", KERAS_BACKEND="torch"),
        capture_output=True,
        text=True,
        timeout=5 * WAIT_S,  # such libraries are slow to import
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("TOLD")]
    assert lines == [f"TOLD ModelArtifact {kind}Materializer {told}"] * 2 + [f"TOLD {name} {name}"]
