"""Train with checkpoints: kill it as you like, it goes on where it was and gives the very same network.

    python examples/checkpoints/train.py        (needs PyTorch and scikit-learn)
    kill -TERM <pid of the step>                 the step saves and runs again; no retry is charged
    kill <pid of the engine>; stoker resume      the run goes on in the epoch that it had reached
"""

import os
import time
from typing import Any

from stoker import checkpoint, pipeline, step

EPOCHS = int(os.environ.get("EPOCHS", "30"))
PAUSE_S = float(os.environ.get("PAUSE_S", "0"))  # between epochs, to have time to kill it


@step(retry={"max_retries": 2, "delay": 0}, timeout="1h", timeout_notice="1m")
def train() -> Any:
    """The weights of a network that reads handwritten digits, and in which epochs its processes began."""
    import torch
    from sklearn.datasets import load_digits

    images, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    images = (images / 16).float()
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(48, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    done, began = 0, []

    def save() -> None:
        """All that the rest depends on, the random numbers to come too."""
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        checkpoint.save({**state, "random": torch.get_rng_state(), "began": began}, step=done)

    last = checkpoint.latest()
    if last is not None:
        state = last.load()
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        done, began = last.step, state["began"]
    began.append(done)
    print(f"process {os.getpid()} begins with epoch {done}", flush=True)
    while done < EPOCHS:
        for batch in torch.randperm(len(images)).split(128):
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        done += 1
        if done % 5 == 0 or checkpoint.preempted():
            save()
        if checkpoint.preempted():
            checkpoint.stop(f"preempted after epoch {done}")
        time.sleep(PAUSE_S)
    return {"weights": model.state_dict(), "loss": loss.item(), "began": began}


@pipeline
def digits() -> None:
    train()


if __name__ == "__main__":
    result = digits().steps["train"].output.load()
    print(f"loss {result['loss']:.6f}, its processes began with epochs {result['began']}")
