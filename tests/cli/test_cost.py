"""What runs cost, by the prices of `stoker.yaml`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_tools import PYTHON, Cli, wait_for
from pages import browser

MODEL = "NVIDIA H100 80GB HBM3"
PRICES = "prices: {currency: USD, cpu_hour: 36, devices: {H100: 3600}}\n"
STEPS = {
    "train": {"run": "sleep 0.3", "resources": {"gpu_count": 2, "cpu_count": 1}},
    "count": {"run": "sleep 0.3", "resources": {"cpu_count": 0.5}},
}


@pytest.fixture
def priced(cli: Cli) -> Cli:
    """Three runs: with two devices, from the cache, and one that failed at first."""
    cli.devices("GPU-a", "GPU-b", model=MODEL, busy_percent=25)
    cli.write("stoker.yaml", PRICES)
    assert cli.run(STEPS).code == 0
    assert cli.run(STEPS).code == 0
    again = "test -e tried || { touch tried; sleep 0.2; exit 1; }"
    step = {"run": f"cd {cli.folder}; {again}", "retry": {"max_retries": 1}}
    assert cli.run({"flaky": {**step, "resources": {"gpu_count": 1}}}).code == 0
    return cli


def wall(cli: Cli, run: str, step: str) -> float:
    return cli.json("show", run)["steps"][step]["used"]["wall_s"]


def test_runs(priced: Cli) -> None:
    """Exactly what was granted, for the time that each task ran."""
    retried, cached, first = priced.json("runs")
    seconds = wall(priced, first["run"], "train"), wall(priced, first["run"], "count")
    devices, cpus = 3600 / 3600 * 2 * seconds[0], 36 / 3600 * (seconds[0] + 0.5 * seconds[1])
    assert first["cost"] == pytest.approx(devices + cpus) and first["currency"] == "USD"
    assert cached["cost"] == 0
    assert retried["cost"] > wall(priced, retried["run"], "flaky") + 0.2, "the failed attempt too"
    text = priced("runs").out
    assert re.search(r"time +cost", text) and f"{first['cost']:.2f} USD" in text
    costly = [r["run"] for r in (retried, cached, first) if r["cost"] > 0.5]
    assert [r["run"] for r in priced.json("runs", "--where", "cost>0.5")] == costly
    assert first["run"] in costly and cached["run"] not in costly
    by_cost = [r["cost"] for r in priced.json("runs", "--sort", "-cost")]
    assert by_cost == sorted(by_cost, reverse=True)
    assert f"cost {first['cost']:.2f} USD" in priced("show", first["run"]).out


def test_no_prices(priced: Cli) -> None:
    """Nothing is guessed: no column, no member, and a device without a price makes no 0."""
    priced.write("stoker.yaml", "stacks: {}\n")
    assert "cost" not in priced("runs").out and "cost" not in priced.json("runs")[0]
    assert "cost" not in priced("show", "latest").out and "cost" not in priced("devices", ".").out
    wrong = priced("runs", "--where", "cost>1")
    assert wrong.code != 0 and "`prices` of stoker.yaml" in wrong.err
    priced.write("stoker.yaml", "prices: {devices: {A100: 1}}\n")
    assert [run.get("cost") for run in priced.json("runs")] == [None, 0, None]
    assert re.search(r"succeeded .* [-–—]$", priced("runs").out, re.M)
    priced.write("stoker.yaml", "prices: {gpu_hour: cheap}\n")
    runs = priced("runs")
    assert runs.code == 0 and "no cost is shown" in runs.err and "gpu_hour" in runs.err


def test_live(cli: Cli) -> None:
    """What runs costs more and more."""
    cli.write("stoker.yaml", "prices: {cpu_hour: 3600}\n")
    document = cli.document({"a": {"run": "sleep 60", "resources": {"cpu_count": 1}}})
    run = cli.start("run", document)
    wait_for(lambda: cli.store.exists() and cli("runs").code == 0 and cli.json("runs"))
    first = wait_for(lambda: cli.json("runs")[0].get("cost"))
    wait_for(lambda: cli.json("runs")[0]["cost"] > first + 0.1)
    assert cli("cancel", "latest").code == 0
    run.wait()


PROGRAM = """
import time
from stoker import pipeline, step

@step
def a() -> int:
    time.sleep(0.3)  # sleeps: it is what the step costs
    return 1

@pipeline
def p():
    a()

if __name__ == "__main__":
    p()
"""


@pytest.mark.parametrize("point", ["exec.settle.before", "exec.launch.before"])
def test_the_engine_dies(cli: Cli, point: str) -> None:
    """A result that resume takes costs the time that it took; an end that nobody saw isn't known."""
    cli.write("stoker.yaml", "prices: {cpu_hour: 3600}\n")
    cli.write(
        "prog.py", PROGRAM.replace("@step", "@step(settings={'resources': {'cpu_count': 1}})")
    )
    killed = cli("run", "-q", "--python", PYTHON, "prog.py", STOKER_FAILPOINTS=f"{point}:1:kill")
    assert killed.code != 0
    (run,) = cli.json("runs")
    assert run["status"] == "interrupted" and run.get("cost") is None
    assert cli("resume", "latest").code == 0
    (run,) = cli.json("runs")
    if point == "exec.settle.before":
        assert run["cost"] == pytest.approx(wall(cli, run["run"], "a")) and run["cost"] > 0.3
    else:
        assert run["status"] == "succeeded" and run.get("cost") is None


def test_across(priced: Cli) -> None:
    """`stoker diff` and `stoker devices`, as JSON, text and pages."""
    retried, _, first = priced.json("runs")
    rows = json.loads(priced("diff", first["run"], retried["run"], "--json").out)
    assert str(first["cost"])[:5] in json.dumps(rows)
    assert f"{first['cost']:.2f} USD" in priced("diff", first["run"], retried["run"]).out
    hours = priced.json("devices", ".")
    total, (model,) = hours["total"], hours["devices"]
    assert hours["currency"] == "USD" and model["cost"] == pytest.approx(total["cost"])
    assert total["cost"] == pytest.approx(total["held_s"] * 1, abs=1e-6)
    assert total["wasted_cost"] == pytest.approx(total["wasted_s"] * 1, abs=1e-6)
    assert f"{total['cost']:.2f} USD" in priced("devices", ".").out
    page = Path(priced("devices", ".", "--html", "devices.html").out.strip())
    card = Path(priced("card", first["run"]).out.strip().splitlines()[-1])
    assert f"{total['cost']:.2f} USD" in page.read_text()
    assert f"{first['cost']:.2f} USD" in card.read_text()
    with browser() as chromium:
        assert chromium.faults(page) == {}
