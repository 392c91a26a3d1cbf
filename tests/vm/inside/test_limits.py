"""What Stoker promises about memory, CPU and what it leaves behind, in one situation of a real machine."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from cli_tools import PYTHON, ROOT, Cli, alive, wait_for

WANT = os.environ["STOKER_VM_WANT"]
GROUPS = Path("/sys/fs/cgroup")
HOG = "b = bytearray(400_000_000); b[::4096] = b'x' * len(b[::4096]); import time; time.sleep(600)"
# A second of all the CPU it can get, from two processes.
BURN = "end=$(($(date +%s%N)+1000000000)); burn() { while [ $(date +%s%N) -lt $end ]; do :; done; }; burn & burn; wait"


def groups_of(run: str) -> list[str]:
    """The folders of a run (a walk, in which folders may vanish)."""
    found = (f"{top}/{name}" for top, names, _ in os.walk(GROUPS) for name in names)
    return [path for path in found if os.path.basename(path).startswith(f"stoker-{run}")]


def own_group(pid: int | str = "self") -> str:
    return Path(f"/proc/{pid}/cgroup").read_text().strip().partition("::")[2]


def test_doctor_says_it(cli: Cli) -> None:
    told = " ".join(cli("doctor").out.split())
    assert WANT in told


@pytest.mark.parametrize("front", ["command", "python"])
def test_host_oom(cli: Cli, front: str) -> None:
    cli.write("hog.py", f"def f():\n    {HOG}\n")
    body = {"run": [PYTHON, "-c", HOG]} if front == "command" else {"python": "hog:f"}
    steps = {"a": {**body, "resources": {"memory": "100MB"}}, "b": {"run": "sleep 0.1"}}
    run = cli.run(steps, "--python", PYTHON, timeout=60)
    assert run.code == 1 and run.statuses == {"a": "failed", "b": "succeeded"}
    error = run.steps["a"]["error"]
    assert error["class"] == "host_oom"
    assert error["cause"].startswith("host OOM: used ") and " of its 100 MB;" in error["cause"]
    assert not run.shown["notes"] or "watched" not in str(run.shown["notes"])


def test_memory_is_limited_by_the_kernel(cli: Cli, limited: bool) -> None:
    """Children count too, and the step sees its own limit; the watchdog has none to show."""
    steps = {
        "a": {
            "run": "cat /sys/fs/cgroup$(cut -d: -f3 /proc/self/cgroup)/memory.max",
            "resources": {"memory": "100MB"},
        }
    }
    run = cli.run(steps)
    assert run.code == 0
    if limited:
        assert abs(int(run.text("a")) - 100_000_000) < 4096


def test_cpu_is_limited(cli: Cli, limited: bool) -> None:
    """Half a CPU is a quota: affinity alone can't give it."""
    run = cli.run({"a": {"run": BURN, "resources": {"cpu_count": 0.5}}})
    assert run.code == 0
    used = run.steps["a"]["used"]
    share = used["cpu_s"] / used["wall_s"]
    assert share < 0.75 if limited else share > 0.75, used


def test_nothing_is_left(cli: Cli) -> None:
    run = cli.run({"a": {"run": "true", "resources": {"memory": "100MB"}}})
    assert run.code == 0
    assert wait_for(lambda: not groups_of(run.shown["run"]), 10, "the run's groups to go")


@pytest.mark.parametrize("front", ["command", "python"])
def test_engine_killed(cli: Cli, front: str, limited: bool) -> None:
    """By the worst signal: no process and no group of the run outlives it."""
    code = "import os, subprocess, time; s = subprocess.Popen(['setsid', 'sleep', '301']); "
    code += "print(os.getpid(), s.pid, file=open('pids', 'w'), flush=True); time.sleep(300)"
    cli.write("long.py", f"def f():\n    {code}\n")
    body = {"run": [PYTHON, "-c", code]} if front == "command" else {"python": "long:f"}
    body["resources"] = {"memory": "200MB", "cpu_count": 0.5}
    engine = cli.start("run", "--python", PYTHON, cli.document({"a": body}))
    pids = [int(p) for p in cli.until("pids", 60).split()]
    run = cli.json("show", "latest")["run"]
    assert not limited or groups_of(run)
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    wait_for(lambda: not any(alive(p) for p in pids), 10, "its tasks to die")
    wait_for(lambda: not groups_of(run), 10, f"its groups to go: {groups_of(run)}")


def test_two_runs_at_once(cli: Cli) -> None:
    """The second one finds the group that the first has moved into."""
    steps = {"a": {"run": "sleep 1; echo done", "resources": {"memory": "100MB"}}}
    cli.write("second/p.json", (cli.folder / cli.document(steps)).read_text())
    first = cli.start("run", "p.json")
    second = cli.start("run", "second/p.json")
    assert (first.wait(30), second.wait(30)) == (0, 0), first.stderr.read() + second.stderr.read()


def test_a_run_inside_a_step(cli: Cli, limited: bool) -> None:
    """What a step starts stays within the step's own limits."""
    inner = {"b": {"run": [PYTHON, "-c", HOG], "resources": {"memory": "1GB"}}}
    cli.document(inner, "inner.json")
    cli.write("inner/here", "")
    outer = {
        "a": {
            "run": f"STOKER_STORE=$PWD/inner {cli.binary} run inner.json",
            "resources": {"memory": "150MB"},
        }
    }
    run = cli.run(outer, timeout=60)
    assert run.code == 1
    if limited:
        assert not groups_of(run.shown["run"])


def test_the_shell_stays_where_it_was(cli: Cli) -> None:
    """Only the engine's own processes move to a scope of its own."""
    before = own_group()
    run = cli.run({"a": {"run": "true", "resources": {"memory": "100MB"}}})
    assert run.code == 0
    after = own_group()
    assert after == before or after == f"{before.rstrip('/')}/stoker-leaf"


@pytest.mark.skipif(os.getuid() != 0, reason="closing devices takes root")
def test_devices_are_closed(cli: Cli) -> None:
    assert "its own accelerators" in " ".join(cli("doctor").out.split())
    cli.env["STOKER_ACCEL"] = f"fake:{cli.folder / 'devices.json'}"
    nodes = [{"uuid": "GPU-a", "node": "/dev/full"}, {"uuid": "GPU-b", "node": "/dev/zero"}]
    cli.write(
        "devices.json", __import__("json").dumps([{**n, "memory_bytes": 1 << 33} for n in nodes])
    )
    look = "for n in full zero; do (: < /dev/$n) 2>/dev/null && echo $n; done; true"
    run = cli.run({"a": {"run": look, "resources": {"gpu_count": 1}}, "b": {"run": look}})
    assert run.code == 0
    assert run.text("a").split() in (["full"], ["zero"]) and run.text("b") == ""


@pytest.mark.parametrize("name", ["proc_test", "file_test", "backend_local_test"])
def test_c_program(name: str) -> None:
    done = subprocess.run(
        [ROOT / "build" / name], cwd=ROOT / "build", capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
