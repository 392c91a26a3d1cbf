"""A program in a container behaves as if it ran here: its end, its signals, its files; and nothing
is left."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from contain import STOKER, Contained, wait_for

SECRET = "sesame-4711"
pytestmark = pytest.mark.tsan


@pytest.fixture
def start(engine, tmp_path):
    """start(image, *argv, **container) gives a running container; after the test none may be
    left."""
    all_of_them = []

    def start(image, *argv, **more):
        folder = tmp_path / f"step{len(all_of_them)}"
        all_of_them.append(Contained(engine, folder, image, *argv, **more))
        return all_of_them[-1]

    yield start
    for one in all_of_them:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()
    if engine.socket.exists():
        for one in all_of_them:
            wait_for(one.is_gone)


def lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False


@pytest.mark.parametrize("status", [0, 3, 125, 255])
def test_exit_status(start, scratch, status):
    task = start(scratch, "/probe", "say", "hello", "--", "err", "there", "--", "exit", str(status))
    assert task.end() == status
    assert (task.out, task.err) == ("hello\n", "there\n")
    assert task.state["exit"] == status and task.state["oom"] is False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL])
def test_ends_by_the_same_signal(start, scratch, number):
    task = start(scratch, "/probe", "kill", str(int(number)))
    assert task.end() == -number
    assert task.state["signal"] == number and task.err == ""


def test_signals_are_passed_on(start, scratch):
    task = start(scratch, "/probe", "term", "7")
    task.says("waiting")
    task.kill(signal.SIGTERM)
    assert task.end() == 7


def test_a_signal_before_the_program_runs(start, scratch):
    task = start(scratch, "/probe", "sleep", "60")
    wait_for(lambda: "SigBlk" in Path(f"/proc/{task.process.pid}/status").read_text())
    time.sleep(0.02)  # sleeps: early, or a little later
    task.kill(signal.SIGTERM)
    assert task.end() == -signal.SIGTERM


def test_killed_from_behind(start, scratch):
    """After SIGKILL of `stoker contain` its container is gone within a second, also from the
    engine's list."""
    task = start(scratch, "/probe", "orphan", "--", "say", "up", "--", "sleep", "600")
    task.says("up")
    pid = task.started()
    assert lives(pid)
    task.kill(signal.SIGKILL)
    wait_for(lambda: not lives(pid), 1.0)
    task.end()
    wait_for(task.is_gone, 5.0)


def test_what_it_leaves_running_ends_with_it(start, scratch):
    task = start(scratch, "/probe", "orphan", "--", "say", "done")
    assert task.end() == 0 and task.out == "done\n"
    wait_for(task.is_gone)


def test_out_of_memory(start, scratch, engine):
    task = start(scratch, "/probe", "eat", "300", memory_bytes=64 << 20)
    assert task.end() == -signal.SIGKILL
    assert task.state["oom"] is True
    assert 48 << 20 < task.state["peak_bytes"] <= 65 << 20


def test_a_kill_that_was_none_for_memory(start, scratch):
    task = start(scratch, "/probe", "kill", "9", memory_bytes=64 << 20)
    assert task.end() == -signal.SIGKILL
    assert task.state["oom"] is False


def test_secrets_are_nowhere_to_be_seen(start, scratch, engine):
    task = start(
        scratch, "/probe", "env", "TOKEN", "--", "env", "PLAIN", "--", "env", "OTHER", "--", "sleep", "600",
        environ={"TOKEN": SECRET, "OTHER": SECRET}, env={"PLAIN": SECRET + "-plain"}, **{"pass": ["TOKEN"]},
    )  # fmt: skip
    task.says("(unset)")
    pid = task.started()
    shown = engine("inspect", task.name).stdout
    command = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    task.kill()
    assert task.end() == -signal.SIGTERM
    assert task.out == f"{SECRET}\n{SECRET}-plain\n(unset)\n"
    assert SECRET not in shown and SECRET.encode() not in command


def test_environment_of_the_program(start, debian):
    code = "import os; print(os.environ['PLAIN'], os.environ['IMAGE_SAYS'], os.environ['PATH'], os.getcwd())"
    task = start(debian, "python3", "-c", code, env={"PLAIN": "a b", "IMAGE_SAYS": "over"})
    assert task.end() == 0, task.err
    assert task.out == "a b over /usr/local/bin:/usr/bin:/bin /srv\n"


def test_entrypoint_bypassed_or_kept(start, scratch, debian):
    assert start(debian, "cat", "/etc/passwd").end() == 0
    kept = start(debian, "id", "-u", entrypoint="keep")
    assert kept.end() == 0, kept.err
    assert kept.out == f"entrypoint\n{os.geteuid()}\n"


def test_mounts_at_their_own_paths(start, scratch, tmp_path):
    data = tmp_path / "in put:1"
    data.mkdir()
    (data / "x").write_text("from outside\n")
    result = tmp_path / "out"
    result.mkdir()
    task = start(
        scratch, "/probe", "cat", f"{data}/x", "--", "write", f"{result}/y", "made", "--", "write", f"{data}/z", "no",
        mounts=[{"from": str(data), "to": str(data)}, {"from": str(result), "to": str(result), "write": True}],
        cwd=str(result),
    )  # fmt: skip
    assert task.end() == 1
    assert task.out == "from outside\n" and "Read-only" in task.err
    assert (result / "y").read_text() == "made"
    assert (result / "y").stat().st_uid == os.geteuid() and not (data / "z").exists()


def test_any_user_and_a_read_only_root(start, scratch):
    task = start(
        scratch, "/probe", "id", "--", "write", "/x", "no", user="1234:4321", read_only=True
    )
    assert task.end() == 1
    assert task.out == "1234:4321\n" and "Read-only" in task.err


def test_much_output(start, scratch):
    task = start(scratch, "/probe", "much", str(20_000_000))
    assert task.end() == 0
    out = task.out
    assert len(out) == 20_000_000 and out.startswith("line 0\nline 1\n")
    lines = out.split("\n")
    assert lines[-3].split()[1] == str(len(lines) - 3)


def test_limits_that_the_engine_enforces(start, debian, engine):
    code = (
        "import os, resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)); "
        "f = os.statvfs('/dev/shm'); print(f.f_blocks * f.f_frsize); print(os.sched_getaffinity(0)); "
        "import time; time.sleep(600)"
    )
    task = start(
        debian, "python3", "-u", "-c", code,
        ulimits={"nofile": 1000, "nproc": 5000}, shm_bytes=33 << 20, cpus="0", cpu_milli=500, pids=50, memory_bytes=1 << 28,
    )  # fmt: skip
    wait_for(lambda: "{0}" in task.out or task.process.poll() is not None)
    assert task.err == ""
    assert task.out == f"(1000, 1000)\n{33 << 20}\n{{0}}\n"
    host = json.loads(engine("inspect", task.name).stdout)[0]["HostConfig"]
    assert (host["Memory"], host["PidsLimit"], host["CpusetCpus"]) == (1 << 28, 50, "0")
    assert host["NanoCpus"] == 500_000_000 or host["CpuQuota"] * 2 == host["CpuPeriod"]


def test_network(start, debian):
    code = (
        "import os; print(sorted(os.listdir('/sys/class/net')), os.readlink('/proc/self/ns/net'))"
    )
    none = start(debian, "python3", "-c", code, network="none")
    host = start(debian, "python3", "-c", code)
    assert none.end() == 0 and none.out.startswith("['lo'] ")
    assert host.end() == 0 and host.out.split()[-1] == os.readlink("/proc/self/ns/net")


def test_engine_gone_in_the_middle(start, scratch, engine):
    task = start(scratch, "/probe", "say", "up", "--", "sleep", "1.5", "--", "exit", "5")
    task.says("up")
    task.started()
    engine.stop()
    try:
        assert task.end() == 5
        assert task.out == "up\n" and task.err == ""
    finally:
        engine.serve()
    wait_for(task.is_gone)


def test_ended_from_outside(start, scratch, engine):
    task = start(scratch, "/probe", "sleep", "600")
    task.started()
    engine("kill", task.name)
    assert task.end() == -signal.SIGKILL
    how = "kill" if engine.is_podman else "signal 9"
    said = f"container {task.name} was stopped by another client of {task.state['engine']} ({how})"
    assert task.state["ended_by"] == said
    assert task.err == f"stoker contain: {said}, with all its processes\n"
    assert task.state["failed"] == f"{said}, with all its processes"


def test_stopped_by_the_engine(start, scratch, engine):
    task = start(scratch, "/probe", "term", "9")
    task.says("waiting")
    engine("stop", "-t", "5", task.name)
    assert task.end() == 9
    said = [f"was stopped by another client of {task.state['engine']} (signal 15)"]
    if engine.is_podman:  # whose `stop` sometimes finds no container, and then writes no event
        said = [said[0].replace("signal 15", "stop"), "was sent signal 15 from outside"]
    assert task.state["ended_by"] in [f"container {task.name} {text}" for text in said]
    assert task.state["failed"] is None


def test_killed_by_no_client(start, scratch, engine):
    """`kill -9` on the host: Docker's events show that no client asked for it; Podman's are the
    same as for `rm -f`."""
    task = start(scratch, "/probe", "sleep", "600")
    os.kill(task.started(), signal.SIGKILL)
    assert task.end() == -signal.SIGKILL
    said = "was stopped from outside" if engine.is_podman else "not by a client of Docker"
    assert said in task.state["ended_by"] and task.state["oom"] is False


def test_its_end_is_nobodys_but_its_own(start, scratch):
    task = start(scratch, "/probe", "term", "9")
    task.says("waiting")
    task.kill(signal.SIGTERM)
    assert task.end() == 9
    assert task.state["ended_by"] is None


def test_measured_by_the_engine_where_we_see_nothing(start, debian, scratch, engine):
    """If we are in a container, too, other containers' processes have no pid here: the engine's
    statistics and events are used."""
    before = ("unshare", "--pid", "--fork", "--kill-child")
    code = "import time; until = time.process_time() + 0.5\nwhile time.process_time() < until: pass"
    task = start(debian, "python3", "-c", code, before=before)
    assert task.end() == 0
    assert task.state["pid"] is None and task.state["cgroup"] is None
    assert 500_000 <= task.state["cpu_us"] < 60_000_000
    eater = start(scratch, "/probe", "eat", "300", memory_bytes=64 << 20, before=before)
    assert eater.end() == 128 + signal.SIGKILL  # as unshare puts it
    assert eater.state["oom"] is (not engine.is_podman)


def test_the_same_attempt_again(start, scratch, engine):
    first = start(scratch, "/probe", "sleep", "600")
    first.started()
    again = Contained(engine, first.folder, scratch, "/probe", "exit", "4")
    assert again.end() == 4
    assert first.end() == -signal.SIGKILL


def test_leases_and_locks_last_as_long_as_the_container(start, scratch, tmp_path):
    held = open(tmp_path / "lease", "w")
    fcntl.flock(held, fcntl.LOCK_EX)
    task = start(scratch, "/probe", "sleep", "600", pass_fds=(held.fileno(),))
    held.close()
    pid = task.started()
    until = time.monotonic() + 10  # it is known before its descriptors have come
    while str(tmp_path / "lease") not in map(os.readlink, Path(f"/proc/{pid}/fd").iterdir()):
        assert time.monotonic() < until
        time.sleep(0.01)
    with open(tmp_path / "lease") as mine:
        with pytest.raises(BlockingIOError):
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        task.kill()
        task.end()
        fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_removed_by_labels(start, scratch, engine):
    mine = start(scratch, "/probe", "sleep", "600", labels={"stoker.run": "r1", "stoker.step": "a"})
    other = start(scratch, "/probe", "sleep", "600", labels={"stoker.run": "r2"})
    mine.started(), other.started()
    words = [str(STOKER), "contain", "--remove", "stoker.run=r1", "--remove", "stoker.step=a"]
    done = subprocess.run(words, env=engine.env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1 removed\n"), done.stderr
    assert mine.end() == -signal.SIGKILL and mine.is_gone()
    assert other.process.poll() is None and not other.is_gone()


@pytest.mark.skipif(shutil.which("docker") is None, reason="no docker command here")
def test_dockers_own_client_agrees(start, scratch, engine):
    task = start(scratch, "/probe", "term", "6", labels={"stoker.run": "r9"})
    task.says("waiting")

    def docker(*words):
        return subprocess.run(
            ["docker", *words], env=engine.env, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert docker("ps", "-q", "--no-trunc", "--filter", "label=stoker.run=r9") == task.state["id"]
    assert (
        docker("inspect", "-f", "{{.Name}} {{.State.Pid}}", task.name)
        == f"/{task.name} {task.started()}"
    )
    docker("stop", "-t", "5", task.name)
    assert task.end() == 6
