"""Devices between runs: which run waits for which, and which one continues when another ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest
from cli_tools import PYTHON, WAIT_S, Cli, wait_for

HOLD = "echo up > up; while ! test -e go; do sleep 0.02; done"
FRONT = """
import os
from pathlib import Path
from stoker import pipeline, step

@step(enable_cache=False, settings={"resources": {"gpu_count": 1}})
def train() -> str:
    Path(os.environ["TRAINED"]).write_text(os.environ["CUDA_VISIBLE_DEVICES"] + "\\n")
    return os.environ["CUDA_VISIBLE_DEVICES"]

@pipeline
def front():
    train()

if __name__ == "__main__":
    front()
"""


def hold(cli: Cli) -> subprocess.Popen[str]:
    """A run of a document that holds the only device until the file `go` exists."""
    cli.devices("GPU-a")
    steps = {"hold": {"run": HOLD, "resources": {"gpu_count": 1}}}
    child = cli.start("run", cli.document(steps, "hold.json"))
    cli.until("up")
    return child


def want(cli: Cli) -> subprocess.Popen[str]:
    """A run from a Python program that wants the same device; returns once it waits."""
    cli.write("front.py", FRONT)
    env = {**cli.env, "STOKER_BIN": str(cli.binary), "TRAINED": str(cli.folder / "trained")}
    child = subprocess.Popen(
        [PYTHON, "front.py"],
        cwd=cli.folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    cli.children.append(child)
    wait_for(lambda: "waits for devices" in cli("why", "latest/train").out, 60, "it to wait")
    return child


def test_two_fronts_share_a_host(cli: Cli) -> None:
    """Neither knows the other, but each is shown the other's name."""
    holder = hold(cli)
    run = cli.json("show", "latest")["run"]
    waiter = want(cli)
    why = cli("why", "latest/train").out
    assert "step 'train' has all its inputs and waits for devices: GPU 0: " in why
    assert f"run {run} step hold (user " in why and ", pid " in why
    assert not (cli.folder / "trained").exists()
    cli.write("go", "")
    assert holder.wait(WAIT_S) == 0 and waiter.wait(WAIT_S) == 0
    assert cli.until("trained") == "GPU-a"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_who_waits_goes_on_when_the_holder_is_killed(cli: Cli, how: signal.Signals) -> None:
    holder = hold(cli)
    waiter = want(cli)
    os.kill(holder.pid, how)
    assert holder.wait(WAIT_S) != 0
    assert waiter.wait(WAIT_S) == 0
    assert cli.until("trained") == "GPU-a"


def test_the_holder_has_what_it_wants_while_others_wait(cli: Cli) -> None:
    """A waiting run can be ended without harm to others."""
    holder = hold(cli)
    waiter = want(cli)
    os.killpg(waiter.pid, signal.SIGINT)  # as the terminal does
    assert waiter.wait(WAIT_S) != 0
    cli.write("go", "")
    assert holder.wait(WAIT_S) == 0
    assert cli("show", "latest").code == 0
    assert not (cli.folder / "trained").exists()


def test_programs_outside_stoker_are_passed_over(cli: Cli) -> None:
    """A device that another program uses is passed over; if no other is left, the program is
    named."""
    program = subprocess.Popen(["sleep", "100"])
    cli.children.append(program)
    use = {str(program.pid): 1 << 20}
    gpu = {"gpu_count": 1}

    def devices(a: dict[str, int], b: dict[str, int]) -> None:
        listed = [{"uuid": "GPU-a", "processes": a}, {"uuid": "GPU-b", "processes": b}]
        cli.write("devices.new", json.dumps(listed)).replace(cli.folder / "devices.json")

    cli.devices("GPU-a", "GPU-b")
    devices(use, {})
    done = cli.run({"a": {"run": "echo $CUDA_VISIBLE_DEVICES > seen", "resources": gpu}})
    assert done.code == 0, done.err
    assert cli.until("seen") == "GPU-b"
    devices(use, use)
    steps = {"b": {"run": "echo $CUDA_VISIBLE_DEVICES > seen2", "resources": gpu}}
    waiter = cli.start("run", cli.document(steps, "b.json"))
    named = f"pid {program.pid} (sleep, user "
    wait_for(lambda: named in cli("why", "latest/b").out, 60, "the program to be named")
    assert waiter.poll() is None
    devices({}, use)
    assert waiter.wait(WAIT_S) == 0
    assert cli.until("seen2") == "GPU-a"


def test_shares_run_together_and_a_whole_device_waits(cli: Cli) -> None:
    """Shares of two runs are on one device; a run that wants all of it is shown both."""
    cli.devices("GPU-a")
    step = {
        "run": "echo up >> $STEP; while ! test -e go; do sleep 0.02; done",
        "resources": {"gpu_count": 1, "gpu_memory": "4GB"},
    }
    runs = []
    for name in ("one", "two"):
        run = {**step, "run": step["run"].replace("$STEP", name)}
        runs.append(cli.start("run", cli.document({name: run}, f"{name}.json")))
    cli.until("one")
    cli.until("two")
    whole = {"all": {"run": "echo $CUDA_VISIBLE_DEVICES > seen", "resources": {"gpu_count": 1}}}
    waiter = cli.start("run", cli.document(whole, "all.json"))

    def names_both() -> bool:
        why = cli("why", "latest/all").out
        return "step one (user " in why and "step two (user " in why

    wait_for(names_both, 60, "both to be named")
    assert waiter.poll() is None
    cli.write("go", "")
    assert [run.wait(WAIT_S) for run in (*runs, waiter)] == [0, 0, 0]
    assert cli.until("seen") == "GPU-a"


SHARE = {"gpu_count": 1, "gpu_memory": "3GB"}


def stream(cli: Cli, name: str, n: int) -> subprocess.Popen[str]:
    """A run of n steps that each hold a share of the only device for a moment, two at once."""
    step = {
        "run": f"echo $STOKER_STEP >> {name}; sleep 0.3",  # sleeps: so that two overlap
        "resources": {**SHARE, "cpu_count": 0.1},
    }
    steps = {f"s{i}": step for i in range(n)}
    return cli.start("run", "--max-workers", "2", cli.document(steps, f"{name}.json"))


def test_a_stream_of_shares_lets_a_whole_device_request_through(cli: Cli) -> None:
    """Shares of two runs always overlap on the device: without its claim the third run would wait
    for their end."""
    cli.devices("GPU-a")
    cli.env["STOKER_CLAIM_AFTER_MS"] = "1000"
    n = 200  # 0.3 s each, 2 at once: they last for at least 30 s
    streams = [stream(cli, "one", n), stream(cli, "two", n)]
    cli.until("one")
    cli.until("two")
    run = {"run": "echo $CUDA_VISIBLE_DEVICES > whole; while ! test -e go; do sleep 0.02; done"}
    waiter = cli.start(
        "run", cli.document({"all": {**run, "resources": {"gpu_count": 1}}}, "all.json")
    )
    assert cli.until("whole") == "GPU-a"
    assert [child.poll() for child in streams] == [None, None]
    done = len((cli.folder / "one").read_text().split())
    assert done < n
    cli.write("go", "")
    assert waiter.wait(WAIT_S) == 0
    # and the others go on
    wait_for(lambda: len((cli.folder / "one").read_text().split()) > done, 60, "shares again")


def test_why_names_the_claim(cli: Cli) -> None:
    """A run that a claim holds off shows whose it is and since when; a claim ends with its
    engine."""
    cli.devices("GPU-a")
    cli.env["STOKER_CLAIM_AFTER_MS"] = "300"
    held = {"run": HOLD, "resources": SHARE}
    cli.start("run", cli.document({"hold": held}, "hold.json"))
    cli.until("up")
    whole = {"all": {"run": "true", "resources": {"gpu_count": 1}}}
    claimer = cli.start("run", cli.document(whole, "all.json"))
    gpus = lambda: cli.json("gpus")["devices"][0]  # noqa: E731
    claim = wait_for(lambda: gpus()["claim"], 60, "the claim")
    claimer_run = cli.json("show", "latest")["run"]
    assert f"claimed by run {claimer_run} step all (user " in claim
    assert gpus()["status"] == "leased"
    steps = {"late": {"run": "echo up > late", "resources": SHARE}}
    late = cli.start("run", cli.document(steps, "late.json"))  # there would be room for it
    wait_for(lambda: "waits for devices" in cli("why", "latest/late").out, 60, "it to wait")
    why = cli("why", "latest/late").out
    assert "GPU 0: run " in why and "step hold (user " in why
    assert f"claimed by run {claimer_run} step all (user " in why
    assert "which has waited for it for " in why
    assert "step hold (user " in cli("why", f"{claimer_run}/all").out
    os.kill(claimer.pid, signal.SIGKILL)
    assert claimer.wait(WAIT_S) != 0
    assert cli.until("late") == "up" and late.wait(WAIT_S) == 0
    assert gpus()["claim"] is None
    cli.write("go", "")
