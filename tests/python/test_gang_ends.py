"""How the ranks of a step end: which rank waits for which, what counts as success, which rank
failed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from front_tools import needed, needs_engine, run_python

pytestmark = needs_engine

STEP = """
import os, signal, sys, threading, time, types
from pathlib import Path
from typing import Any
from stoker import PipelineFailed, checkpoint, pipeline, step, torchrun
sys.path.insert(0, os.getcwd())
rank = lambda: int(os.environ["RANK"])

{before}
@torchrun({options})
@step(enable_cache=False, settings={{"gang": {{"hang": {hang!r}}}}} if {hang!r} else None)
def train(){returns}:
{body}

@pipeline
def one():
    train()

if __name__ == "__main__":
    try:
        run = one()
        print("result", {shown})
    except PipelineFailed as exc:
        print(exc)
"""


def run(
    folder: Path,
    body: str,
    options: str = "nproc_per_node=2",
    returns: str = " -> Any",
    before: str = "",
    hang: str = "",
) -> str:
    """Runs it; returns its output."""
    shown = 'run.steps["train"].output.load()' if returns else 'run.steps["train"].status'
    body = "\n".join("    " + line for line in body.strip().split("\n"))
    given: dict[str, Any] = {"options": options, "returns": returns, "before": before}
    return run_python(folder, STEP.format(body=body, shown=shown, hang=hang, **given)).stdout


# ---------------------------------------------------------------------------- what success is

EARLY = ["os._exit(0)", "sys.exit(0)"]
ALL = ["", ", all_ranks=True"]


@pytest.mark.parametrize("way", EARLY)
@pytest.mark.parametrize("more", ALL)
@pytest.mark.parametrize("number", [0, 1])
def test_a_rank_that_ends_before_it_returns_fails(
    tmp_path: Path, way: str, more: str, number: int
) -> None:
    """The same rule holds for each rank, whether its value is needed or not, and no rank waits for
    it."""
    body = f"if rank() == {number}: {way}\nif {bool(more)} or rank(): return 1\nsignal.pause()"
    if number == 0:
        body = f"if rank() == {number}: {way}\nreturn 1"
    said = run(tmp_path, body, "nproc_per_node=2" + more)
    assert re.search(f"step 'train' failed: .*rank {number} ", said)
    ways = {"os._exit(0)": "exit status 0 before its function had returned (os._exit?)"}
    assert ways.get(way, "called sys.exit(0) before it returned its outputs") in said


@pytest.mark.parametrize("more", ALL)
def test_sys_exit_0_of_a_step_without_outputs_is_a_return(tmp_path: Path, more: str) -> None:
    body = "if rank() == 1: sys.exit(0)"
    assert "result completed" in run(tmp_path, body, "nproc_per_node=2" + more, returns="")


def test_a_script_that_leaves_by_os_exit_fails(tmp_path: Path) -> None:
    """Its step's function can't be called any more; the others don't wait for it for ever."""
    (tmp_path / "script.py").write_text("import os\nif os.environ['RANK'] == '1': os._exit(0)\n")
    said = run(tmp_path, "return 1", 'nproc_per_node=2, entrypoint="script.py"')
    assert "rank 1 failed: exit status 0 before its function had returned" in said


# ---------------------------------------------------------------------------- who waits for whom

# A stand-in for PyTorch: this rank is in a process group, and a peer that comes late still finds it.
GROUP = """
class Server(threading.Thread):
    def __init__(self, name):
        import socket
        super().__init__(daemon=True)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(name)
        self.listener.listen()
    def run(self):
        while True: self.listener.accept()[0].sendall(b"here")
def ask(name):
    import socket
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(name)
        return one.recv(4)
def join():
    group = types.SimpleNamespace(is_initialized=lambda: True)
    sys.modules["torch.distributed"] = group
    Server(f"rank-{rank()}").start()
def wait_for(path):
    while not os.path.exists(path): time.sleep(0.01)
"""


def test_a_rank_in_a_group_waits_for_the_others(tmp_path: Path) -> None:
    body = """
join()
if rank() != 2: return rank()
wait_for("rank-1"); time.sleep(1)  # sleeps: it would have gone by now
return ask("rank-1").decode()
"""
    said = run(tmp_path, body, "nproc_per_node=3, all_ranks=True", before=GROUP)
    assert "result [0, 1, 'here']" in said


def test_a_rank_in_no_group_leaves(tmp_path: Path) -> None:
    """Its memory is freed while the others work."""
    body = """
if rank() == 1:
    Path("pid").write_text(str(os.getpid())); os.rename("pid", "pid-1"); return 1
wait_for("pid-1")
pid = Path("pid-1").read_text()
try:
    while Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z": time.sleep(0.01)
except (FileNotFoundError, ProcessLookupError):
    pass
return "alone"
"""
    assert "result alone" in run(tmp_path, body, before=GROUP)


def test_a_failure_ends_who_waits_at_the_end(tmp_path: Path) -> None:
    body = """
join()
if rank(): return 1
wait_for("rank-1"); raise ValueError("late")
"""
    said = run(tmp_path, body, before=GROUP)
    assert "rank 0 of 2: late; 1 other rank was ended because of it" in said


def test_a_hang_ends_who_waits_at_the_end(tmp_path: Path) -> None:
    body = "join()\nif rank(): return 1\ntime.sleep(1000)"
    said = run(tmp_path, body, before=GROUP, hang="1s")
    assert "hang: nothing moved on 2 ranks for 1" in said
    assert re.search(r"rank 0 \(prog.py:\d+ in train\) is not in the collective", said)


@pytest.mark.torch
def test_a_real_group_outlives_the_first_to_return(tmp_path: Path) -> None:
    needed("torch")
    body = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(8)
if rank() == 1:
    x.work = dist.all_reduce(x, async_op=True)
    return sys.modules.setdefault("kept", x) is None
time.sleep(1)  # sleeps: rank 1 would have gone by now
dist.all_reduce(x)
return int(x[0])
"""
    assert "result 2" in run(tmp_path, body)


@pytest.mark.torch
def test_ranks_that_only_build_an_accelerator(tmp_path: Path) -> None:
    """A rank that is ready first doesn't leave while others still connect to it."""
    needed("accelerate")
    program = """
    import torch, accelerate
    from stoker import pipeline, run_with_accelerate, step
    @run_with_accelerate(num_processes=3, cpu=True)
    @step(enable_cache=False)
    def train() -> int:
        return accelerate.Accelerator().num_processes
    @pipeline
    def one():
        train()
    if __name__ == "__main__":
        for _ in range(5):
            print(one().steps["train"].output.load())
    """
    assert run_python(tmp_path, program).stdout.split().count("3") >= 5


# ---------------------------------------------------------------------------- who failed

# Nobody's process is over before all who fail have said so: what they log waits for that.
AT_ONCE = """
class Log:
    def write(self, text):
        Path(f"fell-{rank()}").touch()
        for k in who: wait_for(f"fell-{k}")
        return len(text)
    def flush(self): pass
def fail(exc):
    sys.stderr = Log()
    raise exc
"""


def test_each_rank_that_failed_is_told_by_the_clock(tmp_path: Path) -> None:
    body = """
if rank() == 2: fail(ValueError("the first"))
wait_for("fell-2")
if rank() == 0: fail(KeyError("second"))
signal.pause()
"""
    before = GROUP + "who = [0, 2]\n" + AT_ONCE
    said = run(tmp_path, body, "nproc_per_node=3", before=before)
    assert (
        "rank 2 of 3: the first; rank 0 failed too: KeyError: key 'second' not found; "
        "1 other rank was ended because of it" in said
    )
    assert 'fail(ValueError("the first"))' in said
    assert re.search(r'\nrank 0:\nTraceback.*fail\(KeyError\("second"\)\)', said, re.S)


def test_ranks_that_fail_alike_are_told_once(tmp_path: Path) -> None:
    body = 'fail(ValueError("no data"))'
    before = GROUP + "who = [0, 1, 2]\n" + AT_ONCE
    said = run(tmp_path, body, "nproc_per_node=3", before=before)
    assert re.search(r"rank (\d) of 3: no data; ranks \d, \d failed alike ", said)
    assert said.count('fail(ValueError("no data"))') == 1


def test_a_dead_peer_is_no_preemption(tmp_path: Path) -> None:
    """The other ranks run no hook for it, and don't report a preemption."""
    body = """
if rank() == 1:
    wait_for("armed"); os.kill(os.getpid(), signal.SIGKILL)
checkpoint.on_preemption(lambda: Path("hook").touch())
Path("armed").touch()
try:
    while not checkpoint.preempted(): time.sleep(0.01)
finally:
    Path("told").touch()
"""
    said = run(tmp_path, body, before=GROUP)
    assert "rank 1 failed: killed by signal 9 (SIGKILL); 1 other rank was ended because" in said
    assert "preempted" not in said
    assert not (tmp_path / "hook").exists() and not (tmp_path / "told").exists()
