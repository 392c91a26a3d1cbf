"""Train a small network on real handwritten digits: load → split → train → evaluate → report.

    python examples/digits/train.py        (again: everything comes from the cache)
    stoker run --policy strict --param epochs=80 examples/digits/train.py

The data are the 1,797 images of scikit-learn's digits (E. Alpaydin, C. Kaynak, 1998), which come inside its wheel. The
training step asks for a GPU: it gets one where there is one, and the summary says so where there is none. The network is
built with PyTorch where that is installed, else the same layers with scikit-learn.
"""

import importlib.util
from typing import Annotated, Any, Tuple

import numpy as np

from stoker import ResourceSettings, log_metadata, pipeline, step

FRAMEWORK = "torch" if importlib.util.find_spec("torch") else "scikit-learn"
LAYERS = (64, 96, 48, 10)  # 8 × 8 pixels in, ten digits out


@step
def load() -> Tuple[Annotated[np.ndarray, "images"], Annotated[np.ndarray, "labels"]]:
    """Images (1797, 64) in 0…1, labels (1797,) in 0…9."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return (images / 16).astype(np.float32), labels.astype(np.int64)


@step
def split(
    images: np.ndarray, labels: np.ndarray, test_share: float = 0.2, seed: int = 7
) -> Tuple[
    Annotated[np.ndarray, "train_images"],
    Annotated[np.ndarray, "train_labels"],
    Annotated[np.ndarray, "test_images"],
    Annotated[np.ndarray, "test_labels"],
]:
    order = np.random.default_rng(seed).permutation(len(labels))
    test, rest = np.split(order, [round(test_share * len(labels))])
    return images[rest], labels[rest], images[test], labels[test]


@step(settings={"resources": ResourceSettings(cpu_count=2, gpu_count=1, memory="4GB")})
def train(
    images: np.ndarray,
    labels: np.ndarray,
    framework: str,
    epochs: int,
    lr: float = 0.003,
    seed: int = 7,
) -> Annotated[Any, "model"]:
    if framework == "scikit-learn":
        from sklearn.neural_network import MLPClassifier

        model = MLPClassifier(LAYERS[1:-1], learning_rate_init=lr, random_state=seed)
        for _ in range(epochs):
            model.partial_fit(images, labels, classes=range(LAYERS[-1]))
        return model

    import torch

    torch.manual_seed(seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"training with PyTorch {torch.__version__} on {device}")
    layers = [
        m for i, o in zip(LAYERS, LAYERS[1:]) for m in (torch.nn.Linear(i, o), torch.nn.ReLU())
    ]
    model = torch.nn.Sequential(*layers[:-1]).to(device)
    x, y = torch.tensor(images, device=device), torch.tensor(labels, device=device)
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
def evaluate(
    model: Any, images: np.ndarray, labels: np.ndarray
) -> Annotated[np.ndarray, "confusion"]:
    """Counts (10, 10): row = the digit, column = what the network said."""
    if hasattr(model, "predict"):
        said = model.predict(images)
    else:
        import torch

        with torch.no_grad():
            said = model.cpu()(torch.tensor(images)).argmax(1).numpy()
    confusion = np.zeros((10, 10), dtype=np.int64)
    np.add.at(confusion, (labels, said), 1)
    log_metadata({"accuracy": float(confusion.trace() / confusion.sum())})
    return confusion


@step
def report(confusion: np.ndarray, framework: str) -> Annotated[str, "summary"]:
    n, recall = confusion.sum(), confusion.diagonal() / confusion.sum(axis=1)
    accuracy, hardest = confusion.trace() / n, recall.argmin()
    return f"test accuracy {accuracy:.3f} on {n} images ({framework}); hardest is {hardest}, {recall[hardest]:.0%} right"


@pipeline
def digits(framework: str = FRAMEWORK, epochs: int = 60) -> None:
    images, labels = load()
    train_images, train_labels, test_images, test_labels = split(images, labels)
    model = train(train_images, train_labels, framework, epochs)
    confusion = evaluate(model, test_images, test_labels)
    report(confusion, framework)


if __name__ == "__main__":
    if FRAMEWORK != "torch":
        print("PyTorch is not installed: the same network is trained with scikit-learn, on the CPU")
    run = digits()
    print(run.steps["report"].output.load())
