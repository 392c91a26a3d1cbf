"""`gang` in a pipeline document: a command step runs as ranks."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_tools import Cli
from launch_tools import PYTHON


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    terminal = Cli(tmp_path)
    yield terminal
    terminal.close()


def python(code: str) -> str:
    return shlex.join(
        [PYTHON, "-c", "import os, sys, time\nRANK = int(os.environ['RANK'])\n" + code]
    )


def test_ranks_of_a_step(cli: Cli) -> None:
    done = cli.run(
        {"a": {"run": "echo $RANK of $WORLD_SIZE in $STOKER_STEP", "gang": {"ranks": 3}}}
    )
    assert done.code == 0
    assert sorted(done.text("a").splitlines()) == [f"[{k}] {k} of 3 in a" for k in range(3)]
    folder = Path(done.steps["a"]["dir"])
    assert (folder / "rank-2/stdout.log").read_text() == "2 of 3 in a\n"
    gang = json.loads((folder / "gang.json").read_text())
    assert gang["status"] == "ok" and gang["ranks"] == 3
    task = json.loads((folder / "task.json").read_text())
    assert task["gang"] == {
        **{"ranks": 3, "min_ranks": 3, "restarts": 0, "nodes": 1, "port": None, "hang_ms": 0},
        **{"grace_ms": 5000, "notice_ms": 0, "devices_per_rank": 0},
    }


def test_min_to_max(cli: Cli) -> None:
    gang = {"ranks": "2:3", "restarts": 1}
    run = "[ $WORLD_SIZE = 2 ] || [ $RANK = 0 ] || exec sleep 60; [ $WORLD_SIZE = 2 ]"
    done = cli.run({"a": {"run": run, "gang": gang}})
    assert done.code == 0, done.err
    gang = json.loads((Path(done.steps["a"]["dir"]) / "gang.json").read_text())
    assert [attempt["ranks"] for attempt in gang["attempts"]] == [3, 2]


def test_outputs_are_the_steps(cli: Cli) -> None:
    """What rank 0 writes is the step's output, and the next step's input."""
    done = cli.run(
        {
            "a": {
                "run": "[ $RANK = 0 ] && echo hello > $STOKER_OUTPUT/x; true",
                "gang": {"ranks": 2},
                "outputs": ["x"],
            },
            "b": {"run": "cat $STOKER_INPUT_x", "inputs": {"x": {"from": "a.x"}}},
        }
    )
    assert done.code == 0 and done.text("b") == "hello\n"


def test_as_many_as_devices(cli: Cli) -> None:
    cli.devices("GPU-a", "GPU-b")
    echo = "echo $WORLD_SIZE $CUDA_VISIBLE_DEVICES"
    done = cli.run(
        {"a": {"run": echo, "resources": {"gpu_count": 2}}, "b": {"run": echo}},
        gang={"ranks": "gpus"},
    )
    assert done.code == 0
    seen = {line[4:] for line in done.text("a").splitlines()}
    assert len(seen) == 1 and seen.pop().split()[0] == "2"
    assert len(done.steps["a"]["granted"]["devices"]) == 2
    assert done.text("b").split()[1] == "1"


def test_threads_are_split(cli: Cli) -> None:
    done = cli.run(
        {
            "a": {
                "run": "echo $OMP_NUM_THREADS $MKL_NUM_THREADS",
                "gang": {"ranks": 2},
                "resources": {"cpu_count": 2},
            }
        }
    )
    assert {line[4:] for line in done.text("a").splitlines()} == {"1 1"}


def test_failure_is_the_ranks(cli: Cli) -> None:
    code = "if RANK == 1: raise ValueError('boom')\ntime.sleep(60)"
    done = cli.run({"a": {"run": python(code), "gang": {"ranks": 2}}}, timeout=300)
    error = done.steps["a"]["error"]
    assert done.code == 1 and error["class"] == "exit"
    assert (
        error["cause"]
        == "rank 1 failed: exit status 1 (ValueError: boom); 1 other rank was ended because of it"
    )
    assert error["traceback"].startswith("Traceback (most recent call last):")
    assert error["traceback"].endswith("ValueError: boom")


def test_signal_and_symptom(cli: Cli) -> None:
    done = cli.run(
        {
            "killed": {"run": "[ $RANK = 1 ] && kill -9 $$; exec sleep 60", "gang": {"ranks": 2}},
        }
    )
    error = done.steps["killed"]["error"]
    assert error["class"] == "signal"
    assert error["cause"].startswith("rank 1 failed: killed by signal 9 (SIGKILL); 1 other rank")
    cli.devices("GPU-a")
    words = "echo 'torch.OutOfMemoryError: CUDA out of memory.' >&2; exit 1"
    done = cli.run({"oom": {"run": words, "gang": {"ranks": 1}, "resources": {"gpu_count": 1}}})
    error = done.steps["oom"]["error"]
    assert error["class"] == "device_oom"
    assert error["cause"].startswith("rank 0 failed: exit status 1; make the batch smaller")


def test_restarts_are_the_gangs_own(cli: Cli) -> None:
    code = "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 5"
    done = cli.run({"a": {"run": code, "gang": {"ranks": 2, "restarts": 1}}})
    assert done.code == 0 and done.steps["a"]["attempts"] == 1


def test_timeout_ends_all_ranks(cli: Cli) -> None:
    done = cli.run(
        {"a": {"run": "sleep 300 & sleep 300", "gang": {"ranks": 2}, "timeout": 1, "grace": 1}}
    )
    assert done.steps["a"]["error"]["class"] == "timeout"
    marker = f"STOKER_TASK_DIR={done.steps['a']['dir']}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            assert marker not in (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            pass


def test_number_of_ranks_is_part_of_the_cache_key(cli: Cli) -> None:
    steps = {"a": {"run": "echo > $STOKER_OUTPUT/x", "outputs": ["x"], "gang": {"ranks": 2}}}
    assert cli.run(steps).statuses == {"a": "succeeded"}
    assert cli.run(steps).statuses == {"a": "cached"}
    steps["a"]["gang"] = {"ranks": 3}  # type: ignore[assignment]
    again = cli.run(steps)
    assert again.statuses == {"a": "succeeded"}
    assert again.steps["a"]["miss"] == "number of ranks changed from 2 to 3"


def test_a_program_that_is_not_there(cli: Cli) -> None:
    done = cli.run({"a": {"run": ["no-such-program"], "gang": {"ranks": 2}}})
    error = done.steps["a"]["error"]
    assert error["class"] == "start"
    assert (
        error["cause"]
        == "cannot start 'no-such-program': no such program in PATH: No such file or directory"
    )
