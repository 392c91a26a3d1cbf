"""Train on one process and on two, and get the same network: real handwritten digits, Hugging Face Accelerate, gloo or NCCL.

    python examples/ranks/train.py        (needs PyTorch, accelerate and scikit-learn)

Every rank sees its share of each batch, and gradients are averaged over ranks, so the sum is that of one process: the
accuracy is the same. `stoker logs latest/train_on_two` shows both ranks' lines.
"""

import os
from typing import Annotated, Any, Tuple

import numpy as np

from stoker import log_metadata, pipeline, run_with_accelerate, step

LAYERS = (64, 96, 48, 10)  # 8 × 8 pixels in, ten digits out
BATCH = 128
EPOCHS = 40


@step
def load() -> Tuple[Annotated[Any, "train"], Annotated[Any, "test"]]:
    """Images (n, 64) in 0…1 and labels (n,) in 0…9; whole batches for training, 389 images for the test."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype(np.float32), labels.astype(np.int64)
    order = np.random.default_rng(7).permutation(len(labels))
    parts = order[: 11 * BATCH], order[11 * BATCH :]
    return tuple({"images": images[part], "labels": labels[part]} for part in parts)


def fit(data: Any) -> Any:
    """The trained network's weights; what a rank does is what accelerate says of it."""
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator()
    rank, ranks = accelerator.process_index, accelerator.num_processes
    torch.manual_seed(7)
    layers = [
        m for i, o in zip(LAYERS, LAYERS[1:]) for m in (torch.nn.Linear(i, o), torch.nn.ReLU())
    ]
    plain = torch.nn.Sequential(*layers[:-1])
    model, optimizer = accelerator.prepare(plain, torch.optim.Adam(plain.parameters(), lr=0.003))
    x, y = (torch.tensor(data[k], device=accelerator.device) for k in ("images", "labels"))
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            mine = batch[rank::ranks]
            loss = torch.nn.functional.cross_entropy(model(x[mine]), y[mine])
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
    print(f"process {os.getpid()} is rank {rank} of {ranks}, its last loss is {loss.item():.4f}")
    log_metadata({"ranks": ranks, "device": str(accelerator.device)})
    weights = {k: v.cpu() for k, v in accelerator.unwrap_model(model).state_dict().items()}
    accelerator.end_training()
    return weights


@step
def train_on_one(data: Any) -> Annotated[Any, "weights"]:
    return fit(data)


@run_with_accelerate(num_processes=2, cpu=True)
@step
def train_on_two(data: Any) -> Annotated[Any, "weights"]:
    return fit(data)


@step
def compare(one: Any, two: Any, test: Any) -> Annotated[list, "accuracies"]:
    """Test accuracy of each, in order."""
    import torch

    def accuracy(weights: Any) -> float:
        x = torch.tensor(test["images"])
        for i in range(0, 2 * len(LAYERS) - 2, 2):
            x = torch.nn.functional.linear(
                x.relu() if i else x, weights[f"{i}.weight"], weights[f"{i}.bias"]
            )
        return float((x.argmax(1).numpy() == test["labels"]).mean())

    return [accuracy(one), accuracy(two)]


@pipeline
def ranks() -> None:
    training, test = load()
    compare(train_on_one(training), train_on_two(training), test)


if __name__ == "__main__":
    one, two = ranks().steps["compare"].output.load()
    print(f"test accuracy: {one:.3f} trained by one process, {two:.3f} by two")
