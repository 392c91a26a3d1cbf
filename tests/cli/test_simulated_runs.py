"""Runs on simulated machines (`--simulate`), and commands about them from another terminal."""

from __future__ import annotations

import re
import signal

import pytest
from cli_tools import WAIT_S, Cli, wait_for


@pytest.mark.parametrize(
    ("machine", "asked", "granted"),
    [
        ("v5e-8", "4 TPU chips", "4 simulated TPU chips"),
        ("16xTrainium", "4 Neuron devices", "4 simulated Neuron devices"),
        ("4xMI300X", "4 GPU", "4 simulated GPUs"),
    ],
)
def test_devices_are_called_what_they_are(cli: Cli, machine: str, asked: str, granted: str) -> None:
    run = cli.run({"a": {"run": "true", "resources": {"gpu_count": 4}}}, "--simulate", machine)
    assert run.code == 0
    row = next(line for line in run.err.splitlines() if line.startswith("✓ a"))
    assert re.search(rf"  {asked}  {granted}  ", row), row


def test_why_and_resume_know_the_machine_of_the_run(cli: Cli) -> None:
    steps = {
        "a": {"run": "echo $$ > pid; sleep ${SECONDS_A:-30}", "resources": {"gpu_count": 4}},
        "b": {"run": "echo $CUDA_VISIBLE_DEVICES", "resources": {"gpu_count": 2}},
    }
    engine = cli.start("run", "--simulate", "4xH100", cli.document(steps))
    cli.until("pid")
    wait_for(lambda: cli.json("show", "latest")["steps"]["a"]["status"] == "running")
    why = cli("why", "latest/b").out
    assert "waits for devices: GPU 0: step 'a' of this run; GPU 1:" in why.replace("\n", " ")
    engine.send_signal(signal.SIGINT)
    engine.wait(WAIT_S)
    run = cli("resume", "latest", SECONDS_A="0")
    assert run.code == 0 and len(run.text("b").split(",")) == 2


def test_what_simulated_devices_made_is_not_reused(cli: Cli) -> None:
    steps = {
        "a": {"run": "echo $CUDA_VISIBLE_DEVICES", "resources": {"gpu_count": 1}},
        "b": {"run": "true"},
    }
    assert "give is not cached" in cli.run(steps, "--simulate", "1xH100").err
    cli.devices("GPU-a")
    run = cli.run(steps)
    assert run.statuses == {"a": "succeeded", "b": "cached"} and run.text("a") == "GPU-a\n"


@pytest.mark.parametrize("on_oom", [False, True])
def test_nobody_is_told_to_set_what_is_set(cli: Cli, on_oom: bool) -> None:
    """A TPU chip is granted whole, so on_oom can't ask for more and isn't suggested."""
    step = {
        "run": "echo 'RESOURCE_EXHAUSTED: Out of memory allocating' >&2; exit 1",
        "resources": {"gpu_memory": "10GB"},
        **({"on_oom": {"gpu_memory": 2}} if on_oom else {}),
    }
    run = cli.run({"a": step}, "--simulate", "v5e-8")
    assert run.code == 1
    error = run.steps["a"]["error"]
    assert error["class"] == "device_oom"
    assert "make the batch smaller" in error["text"]
    assert ("or set on_oom" in error["text"]) is not on_oom
