"""The watchdog: what is a hang and what isn't, and what it says."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from launch_tools import PYTHON, launch, python, shell

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cli"))
from cli_tools import Cli


def test_hang_before_init(tmp_path: Path) -> None:
    """Nobody knows of a collective; each rank's Python stack is kept, and no rank is accused."""
    code = "def load():\n    time.sleep(300)\nload()"
    started = time.monotonic()
    done = launch("-n", "2", "--hang", "1s", "--log-dir", tmp_path, "--grace", "1s", *python(code))
    assert done.code == 1 and 1 <= time.monotonic() - started < 30
    assert done.sentence.startswith("hang: nothing moved on 2 ranks for 1")
    assert "rank 0 waits (<string>:" in done.sentence and "in load)" in done.sentence
    for k in range(2):
        stack = (tmp_path / f"rank-{k}/stack.txt").read_text()
        assert "thread" in stack and 'File "<string>"' in stack and "in load" in stack


def test_not_only_python(tmp_path: Path) -> None:
    done = launch("-n", "2", "--hang", "1", "--log-dir", tmp_path, *shell("exec sleep 300"))
    assert done.code == 1 and done.sentence.startswith("hang: nothing moved on 2 ranks")
    assert "(sleep)" in (tmp_path / "rank-1/stack.txt").read_text()


@pytest.mark.parametrize(
    "code",
    [
        "end = time.time() + 3\nwhile time.time() < end: pass",
        "for i in range(15): print(i, flush=True); time.sleep(0.2)",
        "for i in range(15): open('/dev/null', 'w').write('x'); time.sleep(0.2)",
    ],
    ids=["cpu", "output", "io"],
)
def test_one_rank_that_moves_is_enough(code: str) -> None:
    text = "if RANK == 1:\n    time.sleep(3); sys.exit(0)\n" + code
    assert launch("-n", "2", "--hang", "1.5", *python(text)).code == 0


def test_restart_after_a_hang() -> None:
    code = "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0': time.sleep(300)"
    done = launch("-n", "2", "--hang", "1", "--restarts", "1", "--json", *python(code))
    assert done.code == 0
    assert [m["text"] for m in done.gang["attempts"][0]["members"]] == ["hung", "hung"]


def test_class_of_a_step(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    step = {"run": [PYTHON, "-c", "import time; time.sleep(300)"]}
    done = cli.run({"a": {**step, "gang": {"ranks": 2, "hang": "1s"}}}, timeout=60)
    error = done.steps["a"]["error"]
    assert "Current thread" in error["traceback"]
    assert error["class"] == "hang" and error["cause"].startswith("hang: nothing moved on 2 ranks")
    cli.close()


def test_a_python_step_says_where_each_rank_is(tmp_path: Path) -> None:
    """Its worker answers SIGUSR1: the stack is kept, the process isn't ended by that."""
    cli = Cli(tmp_path)
    cli.write("work.py", "import time\ndef load():\n    time.sleep(300)\ndef fn():\n    load()\n")
    step = {"python": "work:fn", "gang": {"ranks": 2, "hang": "1s"}}
    done = cli.run({"a": step}, "--python", PYTHON, timeout=60)
    error = done.steps["a"]["error"]
    assert error["class"] == "hang" and "rank 0 waits (work.py:3 in load)" in error["cause"]
    for k in range(2):
        stack = Path(done.steps["a"]["dir"], f"rank-{k}/stack.txt").read_text()
        assert 'work.py", line 3 in load' in stack
    cli.close()


@pytest.mark.torch
def test_hang_in_a_collective(tmp_path: Path) -> None:
    code = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
def load():
    time.sleep(300)
if RANK == 1: load()
dist.barrier()
"""
    options = ("--hang", "3s", "--grace", "1s", "--log-dir", tmp_path, "--json")
    done = launch("-n", "3", *options, *python(code), timeout=120)
    assert done.code == 1
    assert "; rank 1 (<string>:" in done.sentence
    assert "in load) is not in the collective that the others wait in" in done.sentence
    assert done.gang["class"] == "hang" and done.gang["attempts"][0]["first"] == 1
    assert "barrier" in (tmp_path / "rank-2/stack.txt").read_text()
