"""`stoker gpus` and `stoker top` with --stack: all hosts of a lab at once, and what is said of one that is away."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator

import pytest
from ssh_hosts import Lab
from ssh_project import Project
from stoker_binary import find_binary
from terminal import Terminal
from waiting import wait_for

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
    hosts = re.findall(r"^(gpu\d)(?:: no answer yet)?$", twice, re.M)  # a busy host may be late
    assert hosts == [*lab.hosts] * 2, twice


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


def test_what_devices_cost(project: Project, lab: Lab) -> None:
    """Unknown until the hosts report them, then those of both nodes; a cancelled task's stay unknown."""
    project.say(prices={"gpu_hour": 3600})
    shared = lab.shared
    step = {
        "run": f"touch {shared}/begun; until [ -e {shared}/go ]; do sleep 0.1; done",
        "gang": {"nodes": 2, "ranks": 1},
        "resources": {"gpu_count": 2},
    }
    run = project.begin("run", project.document({"a": step}), "--with", "lab")
    wait_for((shared / "begun").exists)
    assert "cost" not in json.loads(project("runs", "--json").stdout)[0]
    (shared / "go").touch()
    assert run.communicate(timeout=120) and run.returncode == 0
    seconds = project.show()["steps"]["a"]["used"]["wall_s"]
    cost = json.loads(project("runs", "--json").stdout)[0]["cost"]
    assert seconds > 0 and cost == pytest.approx(2 * 2 * seconds)
    total = json.loads(project("devices", ".", "--json").stdout)["total"]
    assert total["held_s"] == pytest.approx(2 * 2 * seconds) and total["cost"] == pytest.approx(
        cost
    )
    for name in ("begun", "go"):
        (shared / name).unlink()
    run = project.begin("run", project.document({"a": step}), "--with", "lab", "--no-cache")
    wait_for((shared / "begun").exists)
    assert project("cancel", "latest").returncode == 0
    run.communicate(timeout=120)
    assert "cost" not in json.loads(project("runs", "--json").stdout)[0]


def test_misuse(project: Project) -> None:
    for words in (["--prometheus"], ["--simulate", "8xH100"], ["--clear", "GPU-1"]):
        done = project("gpus", "--stack", "lab", *words)
        assert done.returncode == 2 and f"{words[0]} is of one machine" in done.stderr
    assert "docker; --stack takes one of backend ssh" in project("top", "--stack", "docker", "--once").stderr  # fmt: skip
    assert project("gpus", "--stack", "lba").returncode != 0


RIGHT = "\x1b[C"


@pytest.fixture
def screens(project: Project) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(*words: str, rows: int = 60) -> Terminal:
        env = {**project.env, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        argv = [*project.prefix, str(find_binary()), *words, "--stack", "lab"]
        made.append(Terminal(argv, 100, rows, cwd=project.folder, env=env))
        return made[-1]

    yield start
    for one in made:
        one.close()


def part_of(text: str, host: str) -> str:
    """What the screen has below the host's name."""
    return re.split(r"^[> ] gpu\d$", text, flags=re.M)[int(host[-1])]


def test_keys_on_all_hosts(
    project: Project, screens: Callable[..., Terminal], request: pytest.FixtureRequest
) -> None:
    """The chosen host sorts, filters, shows a step's log and cancels its run; the others stay as they are."""
    steps = {"a": {"run": "echo said by the step; sleep 600", "resources": {"gpu_count": 2}}}
    engine = project.begin("run", project.document(steps), "--with", "lab")
    request.addfinalizer(engine.kill)
    top = screens("top", "-i", "300ms")
    text = top.until(lambda t: re.search(r"^> gpu1$", t, re.M) and re.search(r" a   ", t))
    host = next(name for name in ("gpu1", "gpu2", "gpu3") if " a   " in part_of(text, name))
    for _ in range(int(host[-1]) - 1):
        top.press(RIGHT)
    top.until(lambda t: re.search(rf"^> {host}$", t, re.M))
    top.press("/nothing")
    top.until(lambda t: "/nothing_" in part_of(t, host) and t.count("/nothing_") == 1)
    top.press("\x1bs")
    text = top.until(lambda t: " a   " in part_of(t, host))
    top.press("z")
    top.until(lambda t: f"[{host}]" in t and "> gpu" not in t)
    top.press("/a")
    top.press("\rl")
    top.until("said by the step")
    top.press("q")
    top.until(lambda t: " a   " in t)
    top.press("ky")
    top.until(lambda _: engine.poll() is not None, "the end of the run")  # and reads the screen
    engine.communicate(timeout=PATIENCE_S)
    assert project.show()["status"] == "cancelled"
    top.press("q")
    assert top.end() == 0


def test_keys_wait_for_a_host_that_stalls(project: Project, lab: Lab, screens: Callable[..., Terminal]) -> None:  # fmt: skip
    """None is lost, the screen says for whom they wait, and the other hosts go on. A `z` is text."""
    top = screens("top", "-i", "300ms")
    top.until(lambda t: t.count("use ") == 6)
    far = [pid for pid, line in lab["gpu1"].processes().items() if "stoker far" in line]
    assert far
    for pid in far:
        os.kill(pid, signal.SIGSTOP)
    top.press("/yaz")
    top.until("waiting for gpu1, 4 keys")
    top.until(lambda t: "no answer for" in part_of(t, "gpu1") and "use " in part_of(t, "gpu2"))
    for pid in far:
        os.kill(pid, signal.SIGCONT)
    text = top.until(lambda t: "/yaz_" in part_of(t, "gpu1"))
    assert text.count("/yaz_") == 1
    top.until(lambda t: "waiting for" not in t)
    top.press("\x1b")
    top.until(lambda t: "/yaz_" not in t)
    top.press("q")
    assert top.end() == 0


def test_bars_and_curves_of_all_hosts(project: Project, lab: Lab, screens: Callable[..., Terminal]) -> None:  # fmt: skip
    """Each device has its bars; a host that is away says so, and the others go on."""
    lab["gpu3"].equip("none")
    gpus = screens("gpus", "--watch", "0.3")
    text = gpus.until(lambda t: t.count("use ") == 4)
    assert text.count("A100") == 4 and "programs" not in part_of(text, "gpu1").split("q end")[0]
    gpus.until(lambda t: len(re.findall("[\u2801-\u28ff]", part_of(t, "gpu3"))) > 20, "a curve")
    lab["gpu2"].halt()
    gpus.until(lambda t: "use " not in part_of(t, "gpu2") and t.count("use ") == 2)
    gpus.press(RIGHT)
    gpus.until(lambda t: re.search(r"^> gpu2$", t, re.M))
    gpus.press("q")
    assert gpus.end() == 0


def test_many_hosts_on_few_lines(screens: Callable[..., Terminal]) -> None:
    """Where they don't fit, the chosen host has the screen."""
    top = screens("top", "-i", "300ms", rows=16)
    top.until(lambda t: "[gpu1]" in t and "gpu3" in t and "use " in t)
    top.press(RIGHT)
    top.until("[gpu2]")
    top.press("q")
    assert top.end() == 0
