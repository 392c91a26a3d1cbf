"""Five tasks of a first hour, each as its user would do it: train, break and resume; sweep; a flow with cards; steps in
shell, R and C; a notebook."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cli_tools import Cli

TRAIN = """
import os
import torch
from stoker import checkpoint, pipeline, step

@step
def data() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(256, 3)

@step
def train(x: torch.Tensor, epochs: int = 6) -> float:
    torch.manual_seed(1)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    last = checkpoint.latest()
    first = 0
    if last is not None:
        state = last.load()
        model.load_state_dict(state["model"])
        first = state["epoch"] + 1
    target = x.sum(1, keepdim=True)
    for epoch in range(first, epochs):
        if epoch == 3 and not os.path.exists("mended"):
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        loss = torch.nn.functional.mse_loss(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}")
        checkpoint.save({"model": model.state_dict(), "epoch": epoch}, step=epoch)
    return float(loss)

@pipeline
def training():
    train(data())

if __name__ == "__main__":
    training()
"""


def test_train_break_resume(cli: Cli) -> None:
    pytest.importorskip("torch")
    cli.write("train.py", TRAIN)
    broken = cli("run", "train.py", timeout=120)
    assert broken.code == 1
    assert broken.out.splitlines()[-1].startswith("epoch 2 loss")
    [next_line] = [line for line in broken.err.splitlines() if line.startswith("  next ")]
    assert "stoker resume" in next_line and "train.py:25" in broken.err
    cli.write("mended", "")
    resumed = cli("resume", timeout=120)
    assert resumed.code == 0, resumed.err
    epochs = [line.split()[1] for line in resumed.out.splitlines() if line.startswith("epoch")]
    assert epochs == ["3", "4", "5"]  # no epoch twice
    shown = cli.json("show", "latest")
    assert shown["steps"]["train"]["attempts"] == 2 and shown["steps"]["data"]["attempts"] == 1


SWEEP = """
from stoker import log_metadata, pipeline, step

@step
def load() -> list:
    return [(x / 10, 3 * x / 10 + 1) for x in range(20)]

@step
def fit(points: list, lr: float) -> dict:
    a = b = 0.0
    for _ in range(200):
        da = sum(2 * (a * x + b - y) * x for x, y in points) / len(points)
        db = sum(2 * (a * x + b - y) for x, y in points) / len(points)
        a, b = a - lr * da, b - lr * db
    loss = sum((a * x + b - y) ** 2 for x, y in points) / len(points)
    log_metadata({"loss": loss})
    return {"lr": lr, "loss": loss}

@step
def report(results: list) -> str:
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    results = sorted(results, key=lambda r: r["loss"])
    plt.plot([r["lr"] for r in results], [r["loss"] for r in results], "o")
    plt.savefig("sweep.png")
    for r in results[:3]:
        print(f"{r['lr']:<8g}{r['loss']:.6f}")
    return f"best lr {results[0]['lr']:g}"

@pipeline
def sweep():
    points = load()
    report([fit(points, lr=i / 100) for i in range(1, 21)])

if __name__ == "__main__":
    sweep()
"""


def test_a_sweep(cli: Cli) -> None:
    """Twenty configurations, a table and a plot; a second run with one more has twenty hits."""
    pytest.importorskip("matplotlib")
    cli.write("sweep.py", SWEEP)
    run = cli("run", "-j2", "sweep.py", timeout=120)
    assert run.code == 0, run.err
    assert (cli.folder / "sweep.png").read_bytes().startswith(b"\x89PNG")
    table = [line for line in run.out.splitlines() if line and not line.startswith("fit")]
    assert [float(line.split()[0]) for line in table[-3:]] == [0.2, 0.19, 0.18]
    losses = [s["metadata"]["loss"] for n, s in run.steps.items() if n.startswith("fit")]
    assert len(losses) == 20 and min(losses) < 0.01
    cli.write("sweep.py", SWEEP.replace("range(1, 21)", "range(1, 22)"))
    again = cli("run", "sweep.py", timeout=120)
    fits = [s for n, s in again.steps.items() if n.startswith("fit")]
    assert sorted(s["status"] for s in fits) == ["cached"] * 20 + ["succeeded"]


FLOW = """
from stoker.flow import FlowSpec, Parameter, card, current, step
from stoker.flow.cards import Image, Markdown, Table

class Digits(FlowSpec):
    depth = Parameter("depth", default=3)

    @step
    def start(self):
        self.rates = [0.1, 0.2, 0.3]
        self.next(self.fit, foreach="rates")

    @step
    def fit(self):
        self.loss = (self.input - 0.2) ** 2 * self.depth
        self.next(self.join)

    @card(type="blank")
    @step
    def join(self, inputs):
        import matplotlib
        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
        losses = {i.input: i.loss for i in inputs}
        figure, axes = plt.subplots()
        axes.plot(list(losses), list(losses.values()))
        current.card.append(Markdown("# Losses by rate"))
        current.card.append(Table([[k, v] for k, v in losses.items()], headers=["rate", "loss"]))
        current.card.append(Image.from_matplotlib(figure))
        self.best = min(losses, key=losses.get)
        self.next(self.end)

    @step
    def end(self):
        print("best rate", self.best)

if __name__ == "__main__":
    Digits()
"""


def test_a_flow_with_figures_on_cards(cli: Cli) -> None:
    pytest.importorskip("matplotlib")
    cli.write("digits.py", FLOW)
    run = cli("run", "digits.py", "run", "--depth", "5", timeout=120)
    assert run.code == 0, run.err
    assert "best rate 0.2" in run.out
    page = Path(cli("card", "join").out.strip()).read_text()
    assert "Losses by rate" in page and "data:image/png;base64," in page and "<th" in page


YAML = """
stoker: 1
name: threes
parameters: {n: 200}
steps:
  points:
    run: awk -v n=$STOKER_PARAM_n 'BEGIN { for (i = 0; i < n; i++) print i / n "," 2 * i / n + 1 }' > $STOKER_OUTPUT/table
    inputs: {n: {param: n}}
    outputs: [table]
  compile:
    run: cc -O2 -o $STOKER_OUTPUT/count $STOKER_INPUT_source
    inputs: {source: {file: count.c}}
    outputs: [count]
  count:
    run: $STOKER_INPUT_program < $STOKER_INPUT_table > $STOKER_OUTPUT/lines
    inputs: {program: {from: compile.count}, table: {from: points.table}}
    outputs: [lines]
  fit:
    run: [Rscript, fit.R]
    inputs: {table: {from: points.table}, lines: {from: count.lines}}
    outputs: {line: {type: json}}
    cache: {files: [fit.R]}
"""

COUNT = """
#include <stdio.h>
int main(void) { int c, n = 0; while ((c = getchar()) != EOF) n += c == '\\n'; printf("%d\\n", n); return 0; }
"""

FIT = """
table <- read.csv(Sys.getenv("STOKER_INPUT_table"), header = FALSE)
lines <- as.integer(readLines(Sys.getenv("STOKER_INPUT_lines")))
stopifnot(nrow(table) == lines)
line <- coef(lm(V2 ~ V1, table))
cat(sprintf('{"a": %.3f, "b": %.3f}', line[1], line[2]), file = file.path(Sys.getenv("STOKER_OUTPUT"), "line"))
cat("fitted", lines, "points\\n")
"""


def test_shell_r_and_c(cli: Cli) -> None:
    assert shutil.which("Rscript"), "tools/debian-test-all.txt installs r-base-core"
    cli.write("p.yaml", YAML)
    cli.write("count.c", COUNT)
    cli.write("fit.R", FIT)
    run = cli("run", "p.yaml", "-p", "n=300", timeout=120)
    assert run.code == 0, run.err
    assert "fitted 300 points" in run.out
    assert run.steps["fit"]["outputs"]["line"]["value"] == {"a": 1.0, "b": 2.0}
    cli.write("fit.R", FIT.replace("fitted", "fitted anew"))
    again = cli("run", "p.yaml", "-p", "n=300", timeout=120)
    assert again.statuses == {
        "points": "cached", "compile": "cached", "count": "cached", "fit": "succeeded",
    }  # fmt: skip


def cell(source: str) -> dict[str, object]:
    return {
        "cell_type": "code",
        "id": f"c{abs(hash(source))}",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": source,
    }


def test_a_notebook(cli: Cli) -> None:
    """nbclient runs it as `jupyter execute` does: prints are in the cell, and the run shows its
    card."""
    pytest.importorskip("nbclient")
    cells = [
        "from stoker import pipeline, step\n@step\ndef load() -> list:\n    print('loading')\n    return [1, 2, 3]",
        "@step\ndef total(xs: list) -> int:\n    return sum(xs)\n@pipeline\ndef p():\n    total(load())",
        "run = p()\nrun",
        "run.steps['total'].output.load()",
    ]
    book = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "", "language": "python"}},
        "cells": [cell(source) for source in cells],
    }
    cli.write("book.ipynb", json.dumps(book))
    code = (
        "import nbclient, nbformat, os\nos.environ.pop('PYTEST_CURRENT_TEST', None)\n"
        "book = nbformat.read('book.ipynb', 4)\nnbclient.NotebookClient(book, timeout=120).execute()\n"
        "nbformat.write(book, 'done.ipynb')"
    )
    env = {**cli.env, "JUPYTER_RUNTIME_DIR": str(cli.folder)}
    subprocess.run([sys.executable, "-c", code], cwd=cli.folder, env=env, check=True, timeout=180)
    done = json.loads((cli.folder / "done.ipynb").read_text())["cells"]
    printed = "".join("".join(o.get("text", "")) for o in done[2]["outputs"])
    assert "loading" in printed and "done" in printed
    [card] = [o["data"] for o in done[2]["outputs"] if o["output_type"] == "execute_result"]
    assert "<iframe srcdoc=" in "".join(card["text/html"])
    [value] = [o["data"] for o in done[3]["outputs"]]
    assert "".join(value["text/plain"]) == "6"
