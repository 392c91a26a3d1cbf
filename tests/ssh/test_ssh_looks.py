"""`stoker gpus` and `stoker top` with --stack: all hosts of a lab at once, and what is said of one that is away."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest
from ssh_hosts import Lab
from ssh_project import Project

PATIENCE_S = 60  # far above the 20 s after which a host counts as away


def test_devices_of_all_hosts(project: Project, lab: Lab) -> None:
    done = project("gpus", "--stack", "lab")
    assert done.returncode == 0, done.stderr
    names = [line for line in done.stdout.splitlines() if line in lab.hosts]
    assert names == list(lab.hosts)
    assert done.stdout.count("A100") >= 2 * len(lab.hosts) and done.stdout.count("free") == 6
    told = json.loads(project("gpus", "--stack", "lab", "--json").stdout)
    assert told["stack"] == "lab" and [h["host"] for h in told["hosts"]] == list(lab.hosts)
    for host in told["hosts"]:
        assert (
            host["away"] is None and [d["status"] for d in host["gpus"]["devices"]] == ["free"] * 2
        )
    assert project("gpus", "--stack", "lab", "--topology").stdout.count("PHB: one PCIe") == 3


def test_what_runs_on_all_hosts(project: Project, lab: Lab) -> None:
    told = json.loads(project("top", "--stack", "lab", "--json").stdout)
    assert [h["host"] for h in told["hosts"]] == list(lab.hosts)
    assert all(len(h["top"]["devices"]) == 2 and h["top"]["steps"] == [] for h in told["hosts"])
    text = project("top", "--stack", "lab").stdout  # no terminal: one picture
    assert text.count("0 steps running") == len(lab.hosts)
    for name in lab.hosts:
        assert f"{name}\n{name}  " in text, text  # the stack's name for it, then its own
    twice = project("top", "--stack", "lab", "-n", "2", "-i", "100ms").stdout
    assert twice.count("0 steps running") == 2 * len(lab.hosts)


@pytest.mark.parametrize("how", ["off", "cut"])
def test_a_host_that_is_away(project: Project, lab: Lab, how: str) -> None:
    """It has its own line, and the others are shown, in time."""
    if how == "off":
        lab["gpu2"].halt()
    else:
        lab["gpu2"].cut()
    before = time.monotonic()
    done = project("gpus", "--stack", "lab")
    assert time.monotonic() - before < PATIENCE_S
    assert done.returncode == 0 and done.stdout.count("free") == 4
    line = next(line for line in done.stdout.splitlines() if line.startswith("gpu2: "))
    assert ("refused" if how == "off" else "timed out") in line, line
    hosts = json.loads(project("top", "--stack", "lab", "--json").stdout)["hosts"]
    assert [h["away"] is None for h in hosts] == [True, False, True]
    assert hosts[1]["top"] is None


def test_none_answers(project: Project, lab: Lab) -> None:
    for host in lab.hosts.values():
        host.halt()
    done = project("gpus", "--stack", "lab")
    assert done.returncode == 3 and done.stdout.count("refused") == 3


def test_a_changed_key_is_no_answer(project: Project, lab: Lab) -> None:
    lab["gpu1"].change_key()
    done = project("gpus", "--stack", "lab")
    assert done.returncode == 0
    assert "key" in next(line for line in done.stdout.splitlines() if line.startswith("gpu1: "))


def test_watched_through_a_cut(project: Project, lab: Lab) -> None:
    """The pictures go on; a host that comes back is in them again."""
    process = project.begin("gpus", "--stack", "lab", "--watch", "0.2", start_new_session=True)
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    try:
        next(line for line in lines if line.startswith("gpu2  ") and "free" in line)
        lab["gpu2"].halt()
        next(line for line in lines if line.startswith("gpu2  ") and "free" not in line)
        next(line for line in lines if line.startswith("gpu1  ") and "free" in line)
        lab["gpu2"].boot()
        next(line for line in lines if line.startswith("gpu2  ") and "free" in line)
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_who_has_a_device(project: Project, lab: Lab) -> None:
    with lab["gpu3"].leased("GPU-sim-1"):
        text = project("gpus", "--stack", "lab").stdout
    assert text.count("free") == 5
    assert "run theirs step train (user ben" in text[text.index("gpu3") :]


def test_misuse(project: Project) -> None:
    for words in (["--prometheus"], ["--simulate", "8xH100"], ["--clear", "GPU-1"]):
        done = project("gpus", "--stack", "lab", *words)
        assert done.returncode == 2 and f"{words[0]} is of one machine" in done.stderr
    assert "docker; --stack takes one of backend ssh" in project("top", "--stack", "docker", "--once").stderr  # fmt: skip
    assert project("gpus", "--stack", "lba").returncode != 0
