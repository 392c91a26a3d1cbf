"""Train a small network on real handwritten digits: load → split → train → evaluate → report.

    python examples/digits/train.py        (again: everything comes from the cache)

The data are scikit-learn's digits (1,797 images, E. Alpaydin, C. Kaynak, 1998), which come inside its wheel. Training asks
for a GPU: it gets one where there is one, and the summary says so where there is none. The network is built with
PyTorch where that is installed, else the same layers with scikit-learn.
"""

import importlib.util
from typing import Annotated, Any, Tuple

import numpy as np

from stoker import ResourceSettings, log_metadata, pipeline, step

FRAMEWORK = "torch" if importlib.util.find_spec("torch") else "scikit-learn"
LAYERS = (64, 96, 48, 10)  # 8 × 8 pixels in, ten digits out
Array = np.ndarray


@step
def load() -> Tuple[Annotated[Array, "images"], Annotated[Array, "labels"]]:
    """Images (1797, 64) in 0…1, labels (1797,) in 0…9."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels.astype(np.int64)


@step
def split(
    images: Array, labels: Array, seed: int = 7
) -> Tuple[Annotated[Any, "train"], Annotated[Any, "test"]]:
    """A fifth of the images is kept for the test; each part is {"images": …, "labels": …}."""
    test, rest = np.split(np.random.default_rng(seed).permutation(len(labels)), [len(labels) // 5])
    return tuple({"images": images[part], "labels": labels[part]} for part in (rest, test))


@step(settings={"resources": ResourceSettings(cpu_count=2, gpu_count=1, memory="4GB")})
def train(
    data: Any, framework: str, epochs: int, lr: float = 0.003, seed: int = 7
) -> Annotated[Any, "model"]:
    if framework == "scikit-learn":
        from sklearn.neural_network import MLPClassifier

        model = MLPClassifier(LAYERS[1:-1], learning_rate_init=lr, random_state=seed)
        for _ in range(epochs):
            model.partial_fit(data["images"], data["labels"], classes=range(LAYERS[-1]))
        return model

    import torch
    from torch.nn import Linear, ReLU, Sequential

    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers = [module for i, o in zip(LAYERS, LAYERS[1:]) for module in (Linear(i, o), ReLU())]
    model = Sequential(*layers[:-1]).to(device)
    x, y = (torch.tensor(data[k], device=device) for k in ("images", "labels"))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(128):
            loss = torch.nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    log_metadata({"device": device, "loss": float(loss.detach())})
    return model


@step
def evaluate(model: Any, data: Any) -> Annotated[Array, "confusion"]:
    """Counts (10, 10): row = the digit, column = what the network said."""
    if hasattr(model, "predict"):
        said = model.predict(data["images"])
    else:
        import torch

        with torch.no_grad():
            said = model.cpu()(torch.tensor(data["images"])).argmax(1).numpy()
    confusion = np.zeros((10, 10), dtype=np.int64)
    np.add.at(confusion, (data["labels"], said), 1)
    log_metadata({"accuracy": float(confusion.trace() / confusion.sum())})
    return confusion


@step
def report(confusion: Array, framework: str) -> Annotated[str, "summary"]:
    n, recall = confusion.sum(), confusion.diagonal() / confusion.sum(axis=1)
    hardest = recall.argmin()
    return f"test accuracy {confusion.trace() / n:.3f} on {n} images ({framework}); hardest is {hardest}, {recall[hardest]:.0%} right"


@pipeline
def digits(framework: str = FRAMEWORK, epochs: int = 60) -> None:
    training, test = split(*load())
    report(evaluate(train(training, framework, epochs), test), framework)


if __name__ == "__main__":
    if FRAMEWORK != "torch":
        print("PyTorch is not installed: the same network is trained with scikit-learn, on the CPU")
    print(digits().steps["report"].output.load())
