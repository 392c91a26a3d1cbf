"""Train with checkpoints: kill it as you like, it goes on where it was and gives the very same model.

python examples/checkpoints/train.py         (needs scikit-learn)
kill -TERM <pid of the step>                 the step saves and runs again; no retry is charged
kill <pid of the engine>; stoker resume      the run goes on with the epoch that it had reached
"""

import os
import time
from typing import Any

import numpy as np

from stoker import checkpoint, pipeline, step

EPOCHS = 24


@step(retry={"max_retries": 1, "delay": 0}, timeout="1h", timeout_notice="1m")
def train() -> Any:
    """A network that reads handwritten digits: its loss, and with which epochs its processes began."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    last = checkpoint.latest()
    if last is None:
        model = MLPClassifier((48,), random_state=7)
        state = {"epoch": 0, "model": model, "order": np.random.default_rng(7), "began": []}
    else:
        state = last.load()
    state["began"].append(state["epoch"])
    print(f"process {os.getpid()} begins with epoch {state['epoch']}", flush=True)
    while state["epoch"] < EPOCHS:
        for batch in np.array_split(state["order"].permutation(len(images)), 14):
            state["model"].partial_fit(images[batch] / 16, labels[batch], classes=range(10))
        state["epoch"] += 1
        if state["epoch"] % 5 == 0 or checkpoint.preempted():
            loss = state["model"].loss_  # of the last batch
            checkpoint.save(state, step=state["epoch"], metadata={"loss": loss})
        if checkpoint.preempted():
            checkpoint.stop(f"preempted after epoch {state['epoch']}, which is saved")
        time.sleep(float(os.environ.get("PAUSE_S", "0")))  # to have time to kill it
    return {"loss": float(state["model"].loss_), "began": state["began"]}


@pipeline
def digits() -> None:
    train()


if __name__ == "__main__":
    result = digits().steps["train"].output.load()
    print(f"loss {result['loss']:.9f}, its processes began with epochs {result['began']}")
