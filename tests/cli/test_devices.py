"""Devices from the request to the use: each test runs on fake devices, and with `make test-gpu` on
real ones."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_tools import WAIT_S, Cli
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
STOKER = find_binary()

SEES = """
stoker: 1
name: sees
steps:
  one: {run: 'printf %s "$CUDA_VISIBLE_DEVICES" > $STOKER_OUTPUT/seen', outputs: [seen], resources: {gpu_count: 1}}
  none: {run: 'printf "%s" "${CUDA_VISIBLE_DEVICES-unset}" > $STOKER_OUTPUT/seen', outputs: [seen]}
"""
ALONE = """
stoker: 1
name: alone
steps:
  # sleeps: for others to come meanwhile
  hold: {run: 'mkdir MARK && sleep 0.4 && rmdir MARK', resources: {gpu_count: ALL}}
"""


class Host:
    """A store, a lease folder and a provider; `n` devices."""

    def __init__(self, folder: Path, provider: str) -> None:
        self.folder = folder
        (folder / "leases").mkdir()
        self.env = {
            k: v for k, v in os.environ.items() if k not in ("STOKER_STORE", "STOKER_ACCEL")
        }
        self.env |= {"STOKER_LEASE_DIR": str(folder / "leases"), "STOKER_ACCEL": provider}
        found = json.loads(self.run("doctor", "--json").stdout)["findings"]
        self.devices = [
            f["text"] for f in found if f["topic"] == "devices" and f["text"].endswith("free")
        ]

    def start(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [str(STOKER), *words]
        return subprocess.Popen(
            command, cwd=self.folder, env=self.env, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(STOKER), *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=120
        )

    def steps(self) -> dict[str, Any]:
        return json.loads(self.run("show", "latest", "--json").stdout)["steps"]


@pytest.fixture(params=["fake", pytest.param("nvml", marks=pytest.mark.gpu)])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    if request.param == "nvml":
        return Host(tmp_path, "nvml")
    fake = tmp_path / "devices.json"
    fake.write_text('[{"uuid": "GPU-a", "memory_bytes": 1000000}, {"uuid": "GPU-b"}]')
    return Host(tmp_path, f"fake:{fake}")


def test_a_step_sees_what_it_was_given_and_no_more(host: Host) -> None:
    (host.folder / "p.yaml").write_text(SEES)
    done = host.run("run", "p.yaml")
    assert done.returncode == 0, done.stderr
    steps = host.steps()
    seen = Path(steps["one"]["outputs"]["seen"]["path"]).read_text()
    assert seen.startswith("GPU-") and "," not in seen
    assert seen in json.dumps(steps["one"]["granted"])
    assert any(seen in text for text in host.devices)
    assert Path(steps["none"]["outputs"]["seen"]["path"]).read_text() == ""


def test_two_runs_never_hold_the_same_device(host: Host) -> None:
    text = ALONE.replace("MARK", str(host.folder / "mark")).replace("ALL", str(len(host.devices)))
    (host.folder / "p.yaml").write_text(text)
    runs = [host.start("run", "--no-cache", "p.yaml") for _ in range(3)]
    for run in runs:
        _, said = run.communicate(timeout=120)
        assert run.returncode == 0, said  # mkdir of a second holder would have failed


def test_more_than_there_are_is_refused_before_the_start(host: Host) -> None:
    n = len(host.devices) + 1
    (host.folder / "p.yaml").write_text(SEES.replace("gpu_count: 1", f"gpu_count: {n}"))
    done = host.run("run", "p.yaml")
    assert done.returncode == 2
    assert "'one'" in done.stderr and str(n) in done.stderr


@pytest.mark.parametrize("policy", ["fit", "strict"])
def test_a_mask_is_named_where_devices_are_missing(cli: Cli, policy: str) -> None:
    cli.devices("GPU-a", "GPU-b")
    step = {"a": {"run": "true", "resources": {"gpu_count": 1}}}
    run = cli.run(step, "--policy", policy, env={"CUDA_VISIBLE_DEVICES": ""})
    assert "(CUDA_VISIBLE_DEVICES='' limits them to 0 of 2)" in run.err.replace("\n", " ")
    assert run.code == (0 if policy == "fit" else 2)
    two = {"a": {"run": "true", "resources": {"gpu_count": 2}}}
    run = cli.run(two, "--policy", policy, env={"CUDA_VISIBLE_DEVICES": "1"})
    assert "limits them to 1 of 2" in run.err.replace("\n", " ")


def test_a_run_taken_up_where_devices_are_missing_says_so_once(cli: Cli) -> None:
    cli.devices("GPU-a")
    step = {"run": "echo $$ > pid; [ -e again ] || sleep 600", "resources": {"gpu_count": 1}}
    engine = cli.start("run", cli.document({"a": step}))
    cli.until("pid")
    cli.env["STOKER_ACCEL"] = "none"
    for i in range(2):
        engine.kill()
        engine.wait()
        if i > 0:
            cli.write("again", "")
        (cli.folder / "pid").unlink()
        engine = cli.start("resume", "latest")
        cli.until("pid")
    assert engine.wait(WAIT_S) == 0
    notes = cli.json("show", "latest")["notes"]
    assert sum("asked for 1 GPU: this machine has none" in note for note in notes) == 1, notes


@pytest.mark.parametrize("by", ["mask", "health"])
def test_why_looks_at_the_devices_of_the_run(cli: Cli, by: str) -> None:
    """A free device that the run may not use doesn't start its step."""
    listed = [{"uuid": uuid, "memory_bytes": 1 << 33} for uuid in ("GPU-a", "GPU-b")]
    if by == "health":
        listed[0]["remap_failed"] = 1
    cli.write("devices.json", json.dumps(listed))
    cli.env["STOKER_ACCEL"] = f"fake:{cli.folder / 'devices.json'}"
    steps = {
        "a": {"run": "echo x > started; sleep 600", "resources": {"gpu_count": 1}},
        "b": {"run": "true", "resources": {"gpu_count": 1}},
    }
    cli.start("run", cli.document(steps), env={"CUDA_VISIBLE_DEVICES": "1"} if by == "mask" else {})
    cli.until("started")
    assert "waits for devices: GPU 1: step 'a' of this run" in cli("why", "latest/b").out


def test_what_is_finished_needs_no_place_on_a_smaller_host(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b")
    steps = {
        "both": {
            "run": "echo both >> log; echo 1 > $STOKER_OUTPUT/x",
            "outputs": ["x"],
            "resources": {"gpu_count": 2},
        },
        "one": {
            "run": "test -e go && cat $STOKER_INPUT/x >> log",
            "inputs": {"x": {"from": "both.x"}},
            "resources": {"gpu_count": 1},
        },
    }
    assert cli.run(steps).code == 1
    cli.devices("GPU-a")
    cli.write("go", "")
    refused = cli("run", "--no-cache", "p.json")
    assert refused.code != 0 and "step 'both'" in refused.err  # a new run needs both
    for path in (cli.store / "artifacts").rglob("*"):
        path.rename(path.with_name(path.name + ".gone")) if path.is_file() else None
    lost = cli("resume", "latest")
    assert lost.code != 0 and "step 'both'" in lost.err
    assert "it had finished, but its result is missing from the store" in lost.err.replace(
        "\n", " "
    )
    for path in (cli.store / "artifacts").rglob("*.gone"):
        path.rename(path.with_suffix(""))
    done = cli("resume", "latest")
    assert done.code == 0, done.err
    assert (cli.folder / "log").read_text() == "both\n1\n"


def test_plan_notes_are_about_what_would_run(cli: Cli) -> None:
    gpu = {"gpu_count": 1}
    steps = {name: {"run": f"echo {name}", "resources": gpu} for name in ("a", "b")}
    note = "asked for 1 GPU each: this machine has none"
    assert note in cli("plan", cli.document(steps)).out
    assert cli.run(steps).code == 0
    cached = "step '{}' asks for devices: its cached result was made on the CPU"
    both = cli.json("plan", "p.json")["notes"]
    assert len(both) == 2
    assert all(told.startswith(cached.format(name)) for told, name in zip(both, "ab"))
    steps["b"]["run"] = "echo more"
    runs, comes = cli.json("plan", cli.document(steps))["notes"]
    assert runs.startswith("step 'b' asked for 1 GPU: this machine has none")
    assert comes.startswith(cached.format("a"))
