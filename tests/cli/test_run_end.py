"""How runs end: cancelled, killed, detached; what they leave, and how they are resumed."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from cli_tools import PYTHON, WAIT_S, Cli, alive, wait_for

LONG = "echo $$ > pid; sleep 60 & wait"
# a step with a grandchild in a separate session, like a daemon
ESCAPING = "setsid sh -c 'echo $$ > far; exec sleep 600' & echo $$ > pid; while ! test -s far; do sleep 0.01; done; echo ok > up; wait"


def locked(path: Path) -> bool:
    """Whether a process holds a lease on the device of this file."""
    with open(path, "r+b") as file:
        # struct flock: type, whence, start, len, pid
        probe = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(file, 36, probe)  # F_OFD_GETLK
        return struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK


# --- cancelling ---


def test_ctrl_c_once_is_graceful(cli: Cli) -> None:
    polite = (
        "trap 'echo saved > saved; exit 0' TERM; echo $$ > pid; while true; do sleep 0.02; done"
    )
    engine = cli.start(
        "run",
        cli.document({"a": {"run": polite, "grace": 30}, "b": {"run": "true", "after": ["a"]}}),
    )
    cli.until("pid")
    engine.send_signal(signal.SIGINT)
    assert engine.wait(WAIT_S) == 130
    assert cli.until("saved") == "saved"
    run = cli("show", "latest")
    assert (
        run.statuses == {"a": "cancelled", "b": "cancelled"} and run.shown["status"] == "cancelled"
    )
    assert "resume" in engine.stderr.read()


def test_ctrl_c_twice_is_at_once(cli: Cli) -> None:
    deaf = "trap 'echo told > told' TERM; echo $$ > pid; while true; do sleep 0.02; done"
    engine = cli.start("run", cli.document({"a": {"run": deaf, "grace": 600}}))
    pid = int(cli.until("pid"))
    engine.send_signal(signal.SIGINT)
    cli.until("told")
    assert alive(pid)  # in its grace time
    engine.send_signal(signal.SIGINT)
    assert engine.wait(WAIT_S) == 130 and not alive(pid)


def test_grace_then_firm(cli: Cli) -> None:
    deaf = "trap '' TERM; echo $$ > pid; while true; do sleep 0.02; done"
    engine = cli.start("run", cli.document({"a": {"run": deaf, "grace": 0.5}}))
    pid = int(cli.until("pid"))
    began = time.monotonic()
    engine.send_signal(signal.SIGTERM)
    assert engine.wait(WAIT_S) == 143 and not alive(pid)
    assert time.monotonic() - began >= 0.45


def test_a_project_that_was_moved(cli: Cli) -> None:
    """A step that starts in a folder which is gone says what to do."""
    project = cli.folder / "project"
    cli.write("project/p.yaml", "stoker: 1\nname: p\nsteps: {a: {run: exit 3}}\n")
    start = [cli.binary, "run", "-q", "p.yaml"]
    assert subprocess.run(start, cwd=project, env=cli.env, timeout=WAIT_S).returncode == 1
    project.rename(cli.folder / "moved")
    resumed = cli("resume")
    assert resumed.code == 1 and "if the folder was moved, put it back" in resumed.err


@pytest.mark.parametrize("now", [[], ["--now"]])
def test_cancel_from_elsewhere(cli: Cli, now: list[str]) -> None:
    deaf = "trap '' TERM; echo $$ > pid; while true; do sleep 0.02; done"
    grace = 600 if now else 0.1
    engine = cli.start("run", cli.document({"a": {"run": deaf, "grace": grace}}))
    cli.until("pid")
    answer = cli.json("cancel", *now)
    assert answer["cancelling"] is True and answer["pid"] == engine.pid
    assert engine.wait(WAIT_S) == 130
    assert cli.json("show")["status"] == "cancelled"
    again = cli("cancel")
    assert again.code == 2 and "nothing to cancel" in again.err


def test_a_cancelled_run_can_be_resumed(cli: Cli) -> None:
    steps = {
        "a": {"run": "echo a >> ran"},
        "b": {"run": f"echo b >> ran; test -e go || ({LONG})", "after": ["a"]},
        "c": {"run": "echo c >> ran", "after": ["b"]},
    }
    engine = cli.start("run", cli.document(steps))
    cli.until("pid")
    assert cli("cancel").code == 0 and engine.wait(WAIT_S) == 130
    (cli.folder / "go").touch()
    run = cli("resume")
    assert run.code == 0 and set(run.statuses.values()) == {"succeeded"}
    assert (cli.folder / "ran").read_text().split() == ["a", "b", "b", "c"]


def test_cancelling_while_waiting_for_a_retry(cli: Cli) -> None:
    steps = {"a": {"run": "echo $$ > pid; exit 1", "retry": {"max_retries": 3, "delay": 600}}}
    engine = cli.start("run", cli.document(steps))
    cli.until("pid")
    wait_for(lambda: cli("show", "latest").statuses == {"a": "retrying"})
    engine.send_signal(signal.SIGINT)
    assert engine.wait(WAIT_S) == 130


def test_cancelling_during_a_start_hook(cli: Cli) -> None:
    steps = {"a": {"run": "touch ran", "hooks": {"on_start": {"run": LONG}}}}
    engine = cli.start("run", cli.document(steps))
    pid = int(cli.until("pid"))
    engine.send_signal(signal.SIGINT)
    assert engine.wait(WAIT_S) == 130 and not alive(pid)
    assert not (cli.folder / "ran").exists()
    assert cli("show", "latest").statuses == {"a": "cancelled"}


def test_the_front_going_away_cancels(cli: Cli) -> None:
    mine, theirs = os.pipe()
    engine = cli.start(
        "run", "--front-fd", str(theirs), cli.document({"a": {"run": LONG}}), pass_fds=[theirs]
    )
    os.close(theirs)
    pid = int(cli.until("pid"))
    with open(mine) as front:
        first = json.loads(front.readline())
    assert first["event"] == "run" and first["store"] == str(cli.store)
    assert engine.wait(WAIT_S) == 130 and not alive(pid)


def test_the_front_is_told_how_it_ended(cli: Cli) -> None:
    for command, status, error in (
        ("true", "succeeded", None),
        ("exit 3", "failed", "step 'a' failed: exit status 3"),
    ):
        mine, theirs = os.pipe()
        engine = cli.start(
            "run",
            "--front-fd",
            str(theirs),
            cli.document({"a": {"run": command}}),
            pass_fds=[theirs],
        )
        os.close(theirs)
        with open(mine) as front:
            lines = [json.loads(line) for line in front]
        engine.wait(WAIT_S)
        assert [line["event"] for line in lines] == ["run", "end"]
        assert (lines[1]["status"], lines[1]["error"]) == (status, error)


# --- the engine dies ---


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT])
def test_tasks_die_with_the_engine(cli: Cli, number: signal.Signals) -> None:
    cli.devices("GPU-a")
    step = {"run": ESCAPING, "resources": {"gpu_count": 1}, "grace": 0.2}
    engine = cli.start("run", cli.document({"a": step}))
    cli.until("up")
    pids = [int(cli.until("pid")), int(cli.until("far"))]
    (lease,) = (cli.folder / "leases").iterdir()
    assert locked(lease)
    engine.send_signal(number)
    engine.wait(WAIT_S)
    wait_for(lambda: not any(map(alive, pids)), 60, f"{pids} to end")
    wait_for(lambda: not locked(lease), 60, "the lease to be free")


def test_a_lease_is_held_until_its_task_is_gone(cli: Cli) -> None:
    """The lease is released only after the stopped task is gone."""
    cli.devices("GPU-a")
    engine = cli.start("run", cli.document({"a": {"run": LONG, "resources": {"gpu_count": 1}}}))
    pid = int(cli.until("pid"))
    (lease,) = (cli.folder / "leases").iterdir()
    engine.kill()
    while locked(lease):
        time.sleep(0.001)
    assert not alive(pid)


def test_resume_never_starts_a_second_copy(cli: Cli) -> None:
    """Each copy records its start and holds a lock, so that a second one would be seen."""
    body = (
        "import fcntl, os, sys, time\n"
        "lock = open('the.lock', 'w')\n"
        "try: fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: open('twice', 'w').close(); sys.exit(1)\n"
        "open('began', 'a').write('x\\n')\n"
        "if not os.path.exists('go'): time.sleep(600)\n"
    )
    cli.write("body.py", body)
    # without a guardian: as if it, too, had been killed
    engine = cli.start("run", cli.document({"a": {"run": [PYTHON, "body.py"]}}))
    cli.until("began")
    guards = guards_of(engine.pid)
    assert guards
    for guard in guards:
        os.kill(guard, signal.SIGKILL)
    engine.kill()
    engine.wait()
    (cli.folder / "go").touch()
    run = cli("resume")
    assert run.code == 0 and run.statuses == {"a": "succeeded"}
    assert not (cli.folder / "twice").exists()
    assert (cli.folder / "began").read_text().split() == ["x", "x"]


def test_a_killed_guardian_is_replaced(cli: Cli) -> None:
    """Without it, processes that a step left would keep its devices after a kill of the engine."""
    cli.devices("GPU-a")
    step = {"run": "sleep 300 & echo $! > pid; wait", "resources": {"gpu_count": 1}}
    engine = cli.start("run", cli.document({"a": step}))
    pid = int(cli.until("pid"))
    first = guards_of(engine.pid)
    assert len(first) == 2
    for guard in first:
        os.kill(guard, signal.SIGKILL)
    wait_for(
        lambda: len(now := guards_of(engine.pid)) == 2 and not {*now} & {*first},
        why="other guardians",
    )
    engine.kill()
    engine.wait()
    wait_for(lambda: not alive(pid), why="the task's child to be ended")


# What a killed shell leaves: its child, and a daemon with its own session and environment.
LEAVING = (
    "sleep 300 & echo $! > child; "
    "env -i setsid sh -c 'echo $$ > new; mv new daemon; sleep 300; true' & wait"
)


@pytest.mark.parametrize("user", [None, 65534], ids=["me", "another-user"])
@pytest.mark.parametrize("groups", [None, "none"], ids=["groups", "no-groups"])
@pytest.mark.parametrize("guard", [0, 1])
def test_tasks_end_when_the_engine_and_a_guardian_are_killed(
    cli: Cli, request: pytest.FixtureRequest, guard: int, groups: str | None, user: int | None
) -> None:
    if user is not None:
        if os.getuid() != 0:
            pytest.skip("takes root")
        folder = Path(tempfile.mkdtemp(prefix="st-user-"))  # pytest's are its own user's alone
        request.addfinalizer(lambda: shutil.rmtree(folder))
        os.chown(folder, user, user)
        cli = Cli(folder)
    engine = subprocess.Popen(
        [cli.binary, "run", cli.document({"a": {"run": LEAVING}})],
        cwd=cli.folder,
        env=cli.env | ({"STOKER_CGROUP": groups} if groups else {}),
        user=user,
        group=user,
        extra_groups=None if user is None else [],
    )
    pids = [int(cli.until("child")), int(cli.until("daemon"))]
    guards = guards_of(engine.pid)
    assert len(guards) == 2
    os.kill(guards[guard], signal.SIGKILL)
    engine.kill()
    engine.wait()
    wait_for(lambda: not any(map(alive, pids)), why=f"{pids} to end")
    wait_for(lambda: not any(map(alive, guards)), why="the other guardian to end")


def test_a_daemon_that_closed_everything_ends_with_the_engine(cli: Cli) -> None:
    """It has left its session, environment and descriptors, but it can't leave its control
    group."""
    if not any(os.access(f"/sys/fs/cgroup/{tree}", os.W_OK) for tree in ("freezer", "pids")):
        pytest.skip("takes a control group that is ours to write")
    code = "import os, subprocess; os.closerange(3, 99); os.chdir('/'); subprocess.run(['sleep', '300'])"
    cli.write("daemon.py", code)
    text = f"env -i setsid {PYTHON} $PWD/daemon.py >/dev/null 2>&1 & echo $! > daemon; wait"
    engine = cli.start("run", cli.document({"a": {"run": text}}))
    pid = int(cli.until("daemon"))
    run = cli.json("show")["run"]
    gathered = Path(f"/proc/{pid}/cgroup")
    wait_for(lambda: f"/stoker-{run}" in gathered.read_text(), why="it to be gathered")
    engine.kill()
    engine.wait()
    wait_for(lambda: not alive(pid), why="the daemon to be ended")
    left = lambda: [*Path("/sys/fs/cgroup").glob(f"*/stoker-{run}")]  # noqa: E731
    wait_for(lambda: not left(), why="the control group to be removed")


@pytest.mark.parametrize("text", ["rm -rf .stoker", "rm -rf .stoker; exit 3"])
def test_a_step_that_removes_the_store_is_no_success(cli: Cli, text: str) -> None:
    run = cli("run", cli.document({"a": {"run": text}, "b": {"run": "true", "after": ["a"]}}))
    assert run.code not in (0, 130)
    assert f"the store {cli.store} was removed while it was in use" in run.err


def test_a_limit_on_files_is_told(cli: Cli) -> None:
    """It is an error of that write; the engine doesn't die silently of SIGXFSZ."""
    steps = {f"s{i}": {"run": "true"} for i in range(300)}
    done = subprocess.run(
        ["/bin/sh", "-c", f"ulimit -f 128; '{cli.binary}' run {cli.document(steps)}"],
        cwd=cli.folder,
        env=cli.env,
        capture_output=True,
        text=True,
    )
    assert done.returncode not in (0, 128 + signal.SIGXFSZ, -signal.SIGXFSZ)
    assert "stoker: " in done.stderr and str(cli.store) in done.stderr


def guards_of(engine: int) -> list[int]:
    """Living ones."""
    return [
        int(p.name)
        for p in Path("/proc").iterdir()
        if p.name.isdigit()
        and f"PPid:\t{engine}\n" in (text := status(p))
        and ("Name:\tstoker-guard\n" in text or "Name:\tstk-guard\n" in text)
        and "State:\tZ" not in text
    ]


def status(proc: Path) -> str:
    try:
        return (proc / "status").read_text()
    except OSError:
        return ""


def test_an_interrupted_run_says_so_and_is_resumed(cli: Cli) -> None:
    steps = {
        "a": {"run": "echo a >> ran; echo 5 > $STOKER_OUTPUT/x", "outputs": ["x"]},
        "b": {"run": f"echo b >> ran; test -e go || ({LONG})", "after": ["a"]},
        "c": {
            "run": "cat $STOKER_INPUT_x >> ran",
            "inputs": {"x": {"from": "a.x"}},
            "after": ["b"],
        },
    }
    engine = cli.start("run", cli.document(steps))
    cli.until("pid")
    assert cli("resume").code == 3  # it is alive
    engine.kill()
    engine.wait()
    assert cli.json("show")["status"] == "interrupted"
    assert cli.json("runs")[0]["status"] == "interrupted"
    (cli.folder / "go").touch()
    run = cli("resume", "latest")
    assert run.code == 0
    assert (cli.folder / "ran").read_text().split() == ["a", "b", "b", "5"]
    assert run.steps["b"]["attempts"] == 2 and cli("store", "verify").code == 0


def test_resume_of_changed_code(cli: Cli) -> None:
    steps = {"a": {"run": "true"}, "b": {"run": "exit 1", "after": ["a"]}}
    assert cli.run(steps).code == 1
    steps["b"]["run"] = "echo repaired"
    document = cli.document(steps)
    run_id = cli.json("show")["run"]
    text = json.loads((cli.folder / document).read_text())
    assert text["steps"]["b"]["run"] == "echo repaired"
    run = cli("resume")
    assert run.code == 2 and "'b'" in run.err and "--use-new-code" in run.err
    run = cli("resume", "--use-new-code")
    assert run.code == 0 and run.shown["run"] == run_id and run.text("b") == "repaired\n"
    assert run.steps["a"]["attempts"] == 1


# --- detaching ---


def test_detach_survives_the_terminal(cli: Cli) -> None:
    master, slave = pty.openpty()
    document = cli.document(
        {"a": {"run": "echo $$ > pid; while ! test -e go; do sleep 0.02; done; echo done > done"}}
    )
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f"'{cli.binary}' run --detach {document} > id; sleep 60"],
        cwd=cli.folder,
        env=cli.env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, 0x540E, 0),  # TIOCSCTTY
    )
    os.close(slave)
    run_id = cli.until("id")
    pid = int(cli.until("pid"))
    os.close(master)  # the window is closed: SIGHUP to all of its session
    assert shell.wait(WAIT_S) != 0
    assert alive(pid)
    assert cli.json("show", run_id)["status"] == "running"
    (cli.folder / "go").touch()
    cli.until("done")
    wait_for(lambda: cli.json("show", run_id)["status"] == "succeeded")


def test_a_closed_terminal_cancels_without_detach(cli: Cli) -> None:
    engine = cli.start("run", cli.document({"a": {"run": LONG}}), start_new_session=True)
    pid = int(cli.until("pid"))
    engine.send_signal(signal.SIGHUP)
    assert engine.wait(WAIT_S) == 130 and not alive(pid)


def test_detach_says_when_it_can_not_start(cli: Cli) -> None:
    cli.write("p.yaml", "stoker: 1\nname: p\nsteps: {a: {rum: 'true'}}\n")
    run = cli("run", "--detach", "p.yaml")
    assert run.code == 2 and run.out == ""
    assert "'rum'" in run.err


def test_nothing_is_left_behind(cli: Cli) -> None:
    """A step that ends leaves no process."""
    run = cli.run(
        {
            "a": {
                "run": "setsid sh -c 'echo $$ > far; exec sleep 600' & while ! test -s far; do sleep 0.01; done"
            }
        }
    )
    assert run.code == 0
    wait_for(lambda: not alive(int(cli.until("far"))), 60)


def test_resume_runs_the_hooks_that_had_not_ended(cli: Cli) -> None:
    """Resume runs the hooks of a step that succeeded, each once."""
    slow = "echo $$ > pid; until test -e go; do sleep 0.02; done; echo b-success >> hooks"
    steps = {
        "a": {"run": "true", "hooks": {"on_success": {"run": "echo a-success >> hooks"}}},
        "b": {
            "run": "echo b >> ran",
            "after": ["a"],
            "hooks": {"on_success": {"run": slow}, "on_end": {"run": "echo b-end >> hooks"}},
        },
        "c": {"run": f"test -e go || ({LONG})", "after": ["b"]},
    }
    engine = cli.start("run", cli.document(steps))
    hook = int(cli.until("pid"))
    wait_for(lambda: cli("show", "latest").statuses["c"] == "running")
    wait_for(lambda: (cli.folder / "hooks").exists())
    engine.kill()
    engine.wait(WAIT_S)
    wait_for(lambda: not alive(hook))
    (cli.folder / "go").touch()
    run = cli("resume")
    assert run.code == 0 and set(run.statuses.values()) == {"succeeded"}, run.err
    told = ["a-success", "b-success", "b-end"]
    assert (cli.folder / "hooks").read_text().split() == told
    assert (cli.folder / "ran").read_text().split() == ["b"]


def test_outputs_of_a_dead_attempt_are_removed(cli: Cli) -> None:
    """The next attempt removes them, in a retry or after a resume; files of the last attempt
    stay."""
    write = 'head -c 100000 /dev/zero > "$STOKER_OUTPUT/x"'
    steps = {
        "a": {
            "run": f"{write}; echo >> tries; test $(wc -l < tries) -ge 3 && exit 0; "
            f"test $(wc -l < tries) = 1 && exit 1; {LONG}",
            "outputs": ["x"],
            "retry": {"max_retries": 1, "delay": 0},
        }
    }
    engine = cli.start("run", cli.document(steps))
    cli.until("pid")
    first, second = (next(cli.folder.glob(f".stoker/runs/*/a/0/{n}")) for n in (1, 2))
    assert not (first / "out").exists() and (second / "out" / "x").exists()
    engine.kill()
    engine.wait(WAIT_S)
    assert (second / "out" / "x").exists()
    run = cli("resume")
    assert run.code == 0 and not (second / "out").exists(), run.err
