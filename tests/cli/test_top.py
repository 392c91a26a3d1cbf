"""`stoker top`: all that runs on this host."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest
from cli_tools import Cli, alive, wait_for

BUSY = "echo $$ > busy.pid; while :; do :; done"


def start_two(cli: Cli) -> None:
    """A busy step on a device in one run, a sleeping one in another run and store."""
    cli.devices("GPU-a", "GPU-b", model="Toy GPU")
    busy = cli.document({"spin": {"run": BUSY, "resources": {"gpu_count": 1}}}, "busy.json")
    idle = cli.document({"doze": {"run": "sleep 60"}}, "idle.json")
    cli.start("run", busy)
    cli.start("run", idle, env={"STOKER_STORE": str(cli.folder / "other")})


def both(cli: Cli) -> list[dict[str, Any]]:
    """Both steps, after two samples of each: before that, a step has no share of the CPU."""
    mine = [s for s in cli.json("top")["steps"] if s["dir"].startswith(str(cli.folder))]
    return mine if len(mine) == 2 and all(s["cpus"] is not None for s in mine) else []


def test_steps_of_every_store_are_seen(cli: Cli) -> None:
    start_two(cli)
    steps = {step["step"]: step for step in wait_for(lambda: both(cli))}
    assert steps["spin"]["devices"] in (["GPU-a"], ["GPU-b"]) and steps["doze"]["devices"] == []
    assert (
        steps["spin"]["pipeline"] == "p"
        and steps["spin"]["attempt"] == 1
        and steps["spin"]["pid"] > 1
    )
    assert steps["spin"]["dir"].startswith(str(cli.store))
    assert steps["doze"]["dir"].startswith(str(cli.folder / "other"))
    assert abs(steps["spin"]["started_ms"] / 1000 - time.time()) < 60
    assert steps["spin"]["cpus"] > 0.1 > steps["doze"]["cpus"] >= 0
    assert steps["doze"]["memory_bytes"] > 0
    assert steps["doze"]["device_memory_bytes"] is None  # nobody tells


def test_devices_and_who_holds_them(cli: Cli) -> None:
    start_two(cli)
    wait_for(lambda: both(cli))
    devices = cli.json("top")["devices"]
    assert [d["uuid"] for d in devices] == ["GPU-a", "GPU-b"]
    holders = [d["holder"] for d in devices if d["holder"] is not None]
    assert len(holders) == 1 and "step spin" in holders[0]
    text = cli("top", "--once").out
    assert "Toy GPU" in text and "spin" in text and "free" in text
    assert "0%" not in text.split("HELD BY")[1].splitlines()[1], "unknown is no zero"


def test_who_reads_a_steps_files_is_no_step(cli: Cli) -> None:
    """Nor does it end with the run: a program in a separate session with task.json and the log
    open."""
    engine = cli.start(
        "run", cli.document({"doze": {"run": "test -e go || { echo $$ > pid; sleep 600; }"}})
    )
    pid = int(cli.until("pid"))
    mine = lambda: [s for s in cli.json("top")["steps"] if s["dir"].startswith(str(cli.folder))]  # noqa: E731
    (step,) = mine()
    with (
        open(f"{step['dir']}/task.json", "rb") as task,
        open(f"{step['dir']}/stderr.log", "rb") as log,
    ):
        reader = subprocess.Popen(
            ["sleep", "600"], stdin=task, stdout=log, start_new_session=True, cwd="/"
        )
    try:
        assert [s["pid"] for s in mine()] == [step["pid"]]
        engine.kill()
        engine.wait()
        wait_for(lambda: not alive(pid), why="the step to end with its engine")
        assert mine() == []
        (cli.folder / "go").touch()
        assert cli("resume").code == 0
        assert reader.poll() is None
    finally:
        reader.kill()
        reader.wait()


def test_nothing_runs(cli: Cli) -> None:
    done = cli("top", "--once")
    assert done.code == 0 and "running" in done.out.splitlines()[0] and "DEVICE" not in done.out


def test_pictures_follow_each_other_in_a_pipe(cli: Cli) -> None:
    done = cli("top", "--count", "3", "--interval", "100ms")
    assert done.code == 0 and done.out.count("running") == 3 and "\x1b" not in done.out


@pytest.mark.parametrize(
    "words, says",
    [
        (("--interval", "soon"), "soon"),
        (("--interval", "1ms"), "shorter than 100ms"),
        (("--count", "0"), "--count: '0'"),
        (("extra",), "extra"),
    ],
)
def test_wrong_words(cli: Cli, words: tuple[str, ...], says: str) -> None:
    done = cli("top", *words)
    assert done.code == 2 and says in done.err


def test_json_is_one_picture(cli: Cli) -> None:
    out = cli("top", "--json").out
    assert out.count("\n") == 1 and {"time_ms", "cpus", "devices", "steps"} <= set(json.loads(out))
