"""The watchdog: what counts as a hang, and its message."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Cli
from launch_tools import PYTHON, launch, python, shell


def test_hang_before_init(tmp_path: Path) -> None:
    """No collective is known; each rank's Python stack is kept, and no rank is blamed."""
    code = "def load():\n    time.sleep(300)\nload()"
    done = launch("-n", "2", "--hang", "1s", "--log-dir", tmp_path, "--grace", "1s", *python(code))
    assert done.code == 1
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
        "end = time.monotonic() + 3\nwhile time.monotonic() < end: pass",
        "for i in range(15): print(i, flush=True); time.sleep(0.2)",  # sleeps: as below
        "for i in range(15): open('/dev/null', 'w').write('x'); time.sleep(0.2)",  # sleeps: it moves for 3 s
    ],
    ids=["cpu", "output", "io"],
)
def test_one_rank_that_moves_is_enough(code: str) -> None:
    # sleeps: longer than the watchdog's time
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
    done = cli.run({"a": {**step, "gang": {"ranks": 2, "hang": "1s"}}})
    error = done.steps["a"]["error"]
    assert error["traceback"].startswith('ranks 0, 1:\n  File "<string>", line 1 in <module>')
    assert error["class"] == "hang" and error["cause"].startswith("hang: nothing moved on 2 ranks")
    cli.close()


def test_a_python_step_says_where_each_rank_is(tmp_path: Path) -> None:
    """Its worker answers SIGUSR1 with its stack, and continues."""
    cli = Cli(tmp_path)
    cli.write("work.py", "import time\ndef load():\n    time.sleep(300)\ndef fn():\n    load()\n")
    step = {"python": "work:fn", "gang": {"ranks": 2, "hang": "1s"}}
    done = cli.run({"a": step}, "--python", PYTHON)
    error = done.steps["a"]["error"]
    assert error["class"] == "hang" and "rank 0 waits (work.py:3 in load)" in error["cause"]
    for k in range(2):
        stack = Path(done.steps["a"]["dir"], f"rank-{k}/stack.txt").read_text()
        assert 'work.py", line 3 in load' in stack
    cli.close()


# Spins in C without the GIL, as NCCL does. The ranks are forks of who imported this.
# Rank 1 of a pair stands in one collective until the other one comes, after twice the watchdog's time.
SPIN = """
import hashlib, os, threading, time
HANG_S = 2
def rank(): return int(os.environ["RANK"])
def crunch(n=10000): hashlib.pbkdf2_hmac("sha256", b"a", b"b", n)
def all_reduce(n=10**9): hashlib.pbkdf2_hmac("sha256", b"a", b"b", n)
def barrier(fd): os.read(fd, 1)
def until(what, s=2 * HANG_S):
    end = time.monotonic() + s
    while time.monotonic() < end: what()
def spin():
    while True: crunch()
def met():
    threading.Thread(target=spin, daemon=True).start()
    barrier(os.open("met", os.O_RDWR))
def come(what, s=2 * HANG_S):
    until(what, s)
    with open("met", "wb", buffering=0) as pipe: pipe.write(b"!")
"""


def python_step(
    tmp_path: Path, code: str, hang: str, ranks: int = 2, gpus: int = 0, **env: str
) -> Any:
    """The result of a Python step, and its attempt directory."""
    cli = Cli(tmp_path)
    for name, value in env.items():
        cli.env[name] = value
    cli.write("work.py", SPIN + code)
    os.mkfifo(tmp_path / "met")
    step: dict[str, Any] = {"python": "work:fn", "gang": {"ranks": ranks, "hang": hang}, "grace": 1}
    step["resources"] = {"gpu_count": gpus}
    done = cli.run({"a": step}, "--python", PYTHON)
    cli.close()
    return done.steps["a"], Path(done.steps["a"]["dir"])


@pytest.mark.torch
def test_a_rank_that_never_comes_to_init(tmp_path: Path) -> None:
    """Rank 0 polls its own store for the others: traffic that isn't progress."""
    pytest.importorskip("torch")
    code = """
def load():
    time.sleep(300)
def fn():
    import torch.distributed
    load() if rank() == 1 else torch.distributed.init_process_group("gloo")
"""
    step, _ = python_step(tmp_path, code, "3s")
    assert step["error"]["class"] == "hang"
    assert "rank 1 (work.py:" in step["error"]["cause"] and "in load)" in step["error"]["cause"]


def test_ranks_that_spin_in_a_collective_hang(tmp_path: Path) -> None:
    code = "def fn():\n    all_reduce() if rank() else time.sleep(300)\n"
    step, folder = python_step(tmp_path, code, "1s", ranks=3)
    error = step["error"]
    assert error["class"] == "hang"
    line = SPIN.count("\n") + 2
    assert f"; rank 0 (work.py:{line} in fn) is not in the collective" in error["cause"]
    assert error["traceback"].startswith("rank 0 in no collective:")
    assert "\nranks 1, 2 in all_reduce:\n" in error["traceback"]
    members = json.loads((folder / "gang.json").read_text())["attempts"][0]["members"]
    words = ["not in the collective", "hung in all_reduce", "hung in all_reduce"]
    assert [m["text"] for m in members] == words


@pytest.mark.parametrize(
    "code",
    [
        "until(crunch)",
        "until(lambda: all_reduce(10000))",
        "met() if rank() else come(crunch)",
    ],
    ids=["other work", "one collective after another", "who is waited for works"],
)
def test_work_is_no_hang(tmp_path: Path, code: str) -> None:
    step, _ = python_step(tmp_path, f"def fn():\n    {code}\n", "2s")
    assert step["status"] == "succeeded", step.get("error")


def test_a_device_that_spins_is_no_progress(tmp_path: Path) -> None:
    """Each rank has a device; only the device of a rank that doesn't wait counts."""
    for busy, status, seconds in ((0, "failed", 300), (90, "succeeded", 4)):
        folder = tmp_path / str(busy)
        folder.mkdir()
        devices = folder / "devices.json"
        spins = {"uuid": "GPU-b", "vendor": "nvidia", "busy_percent": 100}
        other = {"uuid": "GPU-a", "vendor": "nvidia", "busy_percent": busy}
        devices.write_text(json.dumps([other, spins]))
        # sleeps: which uses no CPU
        come = f"come(lambda: time.sleep(0.1), {seconds})"
        code = f"def fn():\n    met() if rank() else {come}\n"
        step, _ = python_step(folder, code, "2s", gpus=2, STOKER_ACCEL=f"fake:{devices}")
        assert step["status"] == status, step.get("error")


FLIGHT = """
import torch, torch.distributed as dist
def load():
    time.sleep(300)
def fn():
    dist.init_process_group("gloo")
    x = torch.ones(4)
    for _ in range(3): dist.all_reduce(x)
    {then}
"""


@pytest.mark.torch
def test_flight_recorder_names_the_collective(tmp_path: Path) -> None:
    code = FLIGHT.format(then="load() if rank() == 1 else dist.all_reduce(x)")
    step, folder = python_step(tmp_path, code, "3s", ranks=3)
    error = step["error"]
    line = (SPIN + code).split("\n").index("def load():") + 2
    assert f"; rank 1 (work.py:{line} in load) is not in the collective" in error["cause"]
    assert (
        "gloo:all_reduce of 4 Float, number 4 of its group, and it has issued 3" in error["cause"]
    )
    assert "ranks 0, 2 in gloo:all_reduce of 4 Float (4 issued):" in error["traceback"]
    assert "rank 1 in no collective (3 issued):" in error["traceback"]
    for k in range(3):
        account = json.loads((folder / f"rank-{k}/flight.json").read_text())
        assert len(account["_dump_fr_trace_json"]["entries"]) == (3 if k == 1 else 4)


@pytest.mark.torch
def test_flight_recorder_names_who_is_in_another_collective(tmp_path: Path) -> None:
    then = "dist.all_reduce(x) if rank() == 1 else dist.broadcast(x, 1)"
    step, _ = python_step(tmp_path, FLIGHT.format(then=then), "3s", ranks=3)
    cause = step["error"]["cause"]
    assert "; rank 1 (distributed_c10d.py:" in cause
    assert "waits in gloo:all_reduce of 4 Float where the others wait in gloo:broadcast" in cause


@pytest.mark.torch
def test_a_rank_that_holds_the_gil_is_the_one(tmp_path: Path) -> None:
    """It can't tell any more where it is: what its process told before doesn't count, its stack does."""
    then = "ctypes.PyDLL(None).sleep(300) if rank() == 1 else dist.all_reduce(x)"
    step, folder = python_step(tmp_path, "import ctypes\n" + FLIGHT.format(then=then), "2s")
    cause = step["error"]["cause"]
    assert re.search(r"; rank 1 \(work.py:\d+ in fn\) is not in the collective", cause), cause
    assert "it doesn't answer, as one that holds Python's lock (GIL) in compiled code" in cause
    assert "rank 1 doesn't answer:" in step["error"]["traceback"]
    members = json.loads((folder / "gang.json").read_text())["attempts"][0]["members"]
    assert members[1]["text"] == "not in the collective"


def test_a_rank_that_computes_with_the_gil_is_no_hang(tmp_path: Path) -> None:
    """It was in a collective when its process could tell for the last time."""
    code = """
import sys
def let_go():
    while '"waits": true' not in open(os.environ["STOKER_RANK_DIR"] + "/pulse.json").read(): time.sleep(0.05)
    sys.setswitchinterval(1000)  # who has the GIL keeps it
    with open("own", "wb", buffering=0) as pipe: pipe.write(b"!")
def fn():
    if rank(): return met()
    os.mkfifo("own")
    until(crunch, 1)
    threading.Thread(target=let_go).start()
    barrier(os.open("own", os.O_RDWR))
    until(int, 3 * HANG_S)
    sys.setswitchinterval(0.005)
    come(crunch, 0)
"""
    step, _ = python_step(tmp_path, code, "2s")
    assert step["status"] == "succeeded", step.get("error")


CROSSED = """
import torch, torch.distributed as dist
def fn():
    dist.init_process_group("gloo")
    x = torch.ones(4)
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    for group in groups: dist.all_reduce(x, group=group)
    for group in groups if rank() else reversed(groups): dist.all_reduce(x, group=group)
"""


@pytest.mark.torch
def test_groups_that_are_crossed(tmp_path: Path) -> None:
    """No rank is missing: each waits for the other in a different group."""
    step, folder = python_step(tmp_path, CROSSED, "3s")
    words = (
        r"; rank 0 \(distributed_c10d.py:\d+ in all_reduce\) waits in gloo:all_reduce of 4 Float in process group "
        r"(\d) \(ranks 0, 1\) for rank 1, which waits in gloo:all_reduce of 4 Float in process group (\d) "
        r"\(ranks 0, 1\) for rank 0: they take their groups in different orders"
    )
    found = re.search(words, step["error"]["cause"])
    assert found and found[1] != found[2], step["error"]["cause"]
    members = json.loads((folder / "gang.json").read_text())["attempts"][0]["members"]
    assert all(m["text"].startswith("hung in gloo:all_reduce") for m in members)


LOADER = """
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): time.sleep(300)
def fn():
    for _ in torch.utils.data.DataLoader(Data(), num_workers=2): pass
"""


@pytest.mark.torch
def test_a_data_loaders_workers_say_where_they_are(tmp_path: Path) -> None:
    step, folder = python_step(tmp_path, LOADER, "3s")
    trace = step["error"]["traceback"]
    assert (
        len(re.findall(r"its process \d+ \(pt_data_worker\):\n  File .*in __getitem__", trace)) == 2
    )
    for k in range(2):
        assert (folder / f"rank-{k}/stack.txt").read_text().count("in __getitem__") == 2


def test_nccls_own_account_is_asked_for(tmp_path: Path) -> None:
    """A stand-in for NCCL's thread: it answers a byte in its pipe with a file. (tests/gpu has the real one.)"""
    code = """
stem = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + str(RANK)
os.mkfifo(stem + ".pipe")
with open(stem + ".pipe") as pipe: pipe.readline()
open(os.environ["TORCH_FR_DUMP_TEMP_FILE"] + str(RANK), "w").write("account")
time.sleep(300)
"""
    launch("-n", "2", "--hang", "1s", "--grace", "1s", "--log-dir", tmp_path, *python(code))
    for k in range(2):
        assert (tmp_path / f"rank-{k}/flight-{k}").read_text() == "account"
        assert not (tmp_path / f"rank-{k}/flight-{k}.pipe").exists()


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
    done = launch("-n", "3", *options, *python(code))
    assert done.code == 1
    assert "; rank 1 (<string>:" in done.sentence
    assert "in load) is not in the collective that the others wait in" in done.sentence
    assert done.gang["class"] == "hang" and done.gang["attempts"][0]["first"] == 1
    assert "barrier" in (tmp_path / "rank-2/stack.txt").read_text()
