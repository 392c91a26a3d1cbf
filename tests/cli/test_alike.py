"""The card of a sweep: 20 calls of one step are one row, one box and one band, with their distribution."""

from __future__ import annotations

import re
import statistics
import xml.etree.ElementTree as ET
from pathlib import Path

from cli_tools import Cli

SWEEP = """
from stoker import pipeline, step

@step
def load() -> int:
    return 3

@step
def fit(data: int, lr: float) -> float:
    block = bytearray(int(lr * 4e6))
    print("rate", lr)
    if lr == 0.7:
        raise ValueError("diverged")
    return data * lr

@step
def best(models: list) -> float:
    return max(models)

@pipeline
def sweep():
    data = load()
    fits = [fit(data, lr=i / 10) for i in range(1, 21)]
    best([one for i, one in enumerate(fits) if i != 6])

if __name__ == "__main__":
    sweep()
"""

UNITS = {"ms": 1.0, "s": 1000.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "B": 1.0}


def texts(node: ET.Element) -> str:
    return " ".join("".join(node.itertext()).split())


def three(cell: ET.Element) -> list[float]:
    """The numbers of "79 ms / 117 ms / 194 ms", in milliseconds or bytes."""
    words = next(texts(s) for s in cell.iter() if s.get("class") == "three")
    return [float(n) * UNITS[u] for n, u in re.findall(r"([0-9.]+) (\w+)", words)]


def is_near(shown: list[float], values: list[float]) -> bool:
    """What is shown has about three digits."""
    expected = [min(values), statistics.median(values), max(values)]
    return all(abs(a - b) <= 0.011 * b + 1 for a, b in zip(shown, expected))


def test_card_of_a_sweep(cli: Cli) -> None:
    cli.write("sweep.py", SWEEP)
    assert cli("run", "sweep.py").code == 1
    assert cli("logs", "fit[lr=0.1]").out == "rate 0.1\n"
    steps = cli.json("show", "latest")["steps"]
    fits = [s for name, s in steps.items() if name.startswith("fit")]
    page = Path(cli("card").out.strip()).read_text()
    page = ET.fromstring(page.replace("<!DOCTYPE html>", "", 1).strip())

    rows = [tr for tr in page.iter() if tr.get("class") == "alike" and tr.tag.endswith("tr")]
    assert len(rows) == 1
    cells = list(rows[0])
    assert texts(cells[0]).startswith("fit × 20")
    assert "19 succeeded, 1 failed" in texts(cells[1])
    assert "diverged" in texts(cells[6])
    assert is_near(three(cells[2]), [s["ended_ms"] - s["started_ms"] for s in fits])
    assert is_near(three(cells[5]), [s["used"]["peak_memory_bytes"] for s in fits])
    for cell in (cells[2], cells[5]):  # every call is in one bar of the histogram, the failed too
        titles = [texts(t) for t in cell.iter() if t.tag.endswith("title")]
        assert sum(int(t.partition(":")[0]) for t in titles) == 20
        assert len([r for r in cell.iter() if r.get("class") == "bad"]) == 1

    (details,) = [d for d in page.iter() if d.get("class") == "alike" and d.tag.endswith("details")]
    names = [texts(b) for b in details.iter() if b.tag.endswith("}b") or b.tag == "b"][1:]
    assert sorted(names) == sorted(f"fit[lr={i / 10}]" for i in range(1, 21))
    assert names[0] == "fit[lr=0.7]"  # the failed one first

    boxes = [texts(g) for g in page.iter() if (g.get("class") or "").startswith("node ")]
    assert len(boxes) == 3 and any("fit × 20" in box for box in boxes)
    bands = [texts(t) for t in page.iter() if t.get("class") == "row sub"]
    assert len(bands) == 1 and bands[0].startswith("×20, ")
    marks = [texts(c) for c in page.iter() if c.tag.endswith("circle")]
    assert marks == ["fit[lr=0.7] failed"]
