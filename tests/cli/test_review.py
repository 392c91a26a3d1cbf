"""Hostile and unlucky tasks, and what they do to their folder, to files and to the engine."""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import time
from pathlib import Path

from cli_tools import PYTHON, WAIT_S, Cli, alive, tell, wait_for


def test_pipe_in_place_of_a_file_does_not_stop_the_engine(cli: Cli) -> None:
    """Opening a named pipe waits for its other end, so the engine opens what a task may have made
    without waiting."""
    run = cli.run(
        {
            "samples": {
                "run": "mkfifo $STOKER_TASK_DIR/samples.bin; sleep 0.3"
            },  # sleeps: to be sampled
            "log": {
                "run": "cd $STOKER_TASK_DIR; rm stderr.log stdout.log; mkfifo stderr.log stdout.log; false",
                "hooks": {"on_failure": {"run": "echo no"}},
                "secrets": ["token"],
            },
        },
        env={"STOKER_SECRET_token": "abcdef"},
    )
    assert run.statuses == {"samples": "succeeded", "log": "failed"}
    assert any("a hook of step 'log' could not be started" in note for note in run.shown["notes"])


def test_secret_in_a_log_with_a_hole_is_masked(cli: Cli) -> None:
    """A log may claim to have terabytes, or be truncated while it is read."""
    run = cli.run(
        {
            "a": {
                "run": "truncate -s 900G $STOKER_TASK_DIR/stdout.log; echo $token; "
                "head -c 1048570 /dev/zero | tr '\\0' x >&2; echo $token >&2",
                "secrets": ["token"],
            }
        },
        env={"STOKER_SECRET_token": "tell-nobody"},
    )
    assert run.statuses == {"a": "succeeded"}
    assert run.text("a", "stderr").endswith("xx***********\n")
    with open(run.steps["a"]["logs"]["stdout"], "rb") as log:
        log.seek(900 << 30)
        assert log.read() == b"***********\n"


def test_devices_of_the_class_that_was_asked_for(cli: Cli) -> None:
    """Leases are for fitting devices, and a step that waits for one kind doesn't hold up
    another."""
    models = {"GPU-a": "NVIDIA A100-SXM4-80GB", "GPU-b": "Tesla T4", "GPU-c": "Tesla T4"}
    cli.devices(*models)
    cli.write("devices.json", json.dumps([{"uuid": u, "model": m} for u, m in models.items()]))
    say = 'echo "$CUDA_VISIBLE_DEVICES"; touch in-$STOKER_STEP; '
    say += "until [ -e in-t -a -e in-u ]; do sleep 0.02; done"

    def step(name: str) -> dict[str, object]:
        return {"run": say, "resources": {"cpu_count": 0.25, "gpu_count": 1, "gpu_class": name}}

    run = cli.run({"t": step("T4"), "a": step("A100"), "b": step("A100"), "u": step("T4")})
    assert run.code == 0
    assert {run.text(s).strip() for s in ("a", "b")} == {"GPU-a"}
    assert {run.text(s).strip() for s in ("t", "u")} == {"GPU-b", "GPU-c"}
    begun = {name: s["started_ms"] for name, s in run.steps.items()}
    assert max(begun, key=lambda name: begun[name]) == "b"  # alone waited for the one A100


def test_outputs_behind_a_link_stay_where_they_are(cli: Cli) -> None:
    """Outputs are moved into the store, so only files of the task may be outputs."""
    precious = cli.write("home/precious", "mine\n")
    behind = f"rmdir $STOKER_OUTPUT && ln -s {precious.parent} $STOKER_TASK_DIR/out"
    run = cli.run({"a": {"run": behind, "outputs": ["precious"]}})
    assert run.statuses == {"a": "failed"} and "behind a symbolic link" in run.cause("a")
    assert precious.read_text() == "mine\n"


def test_one_value_for_each_name_in_the_environment(cli: Cli) -> None:
    """With two variables of one name, programs differ in which one they see."""
    cli.devices("GPU-a")
    run = cli.run(
        {
            "a": {
                "run": "tr '\\0' '\\n' < /proc/$$/environ | grep -E '^(OMP_NUM_THREADS|CUDA_VISIBLE_DEVICES|TOKEN)='",
                "environment": {"OMP_NUM_THREADS": 7, "CUDA_VISIBLE_DEVICES": "", "TOKEN": "x"},
                "secrets": ["TOKEN"],
                "resources": {"cpu_count": 1},
            }
        },
        env={"STOKER_SECRET_TOKEN": "abc"},
    )
    assert sorted(run.text("a").split()) == [
        "CUDA_VISIBLE_DEVICES=",
        "OMP_NUM_THREADS=7",
        "TOKEN=abc",
    ]
    refused = cli.run({"a": {"run": "true", "environment": {"STOKER_RUN": "x"}}})
    assert refused.code == 2 and "'STOKER_RUN' is set by Stoker" in refused.err


def test_ignored_signals_stay_ignored(cli: Cli) -> None:
    """nohup, and Ctrl-C, which doesn't reach the background jobs of a script."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    step = {"a": {"run": "echo up > up; while ! test -e go; do sleep 0.02; done"}}
    engine = cli.start("run", cli.document(step), preexec_fn=ignore)
    cli.until("up")
    engine.send_signal(signal.SIGHUP)
    engine.send_signal(signal.SIGINT)
    cli.write("go", "")
    assert engine.wait(WAIT_S) == 0


def test_started_without_standard_descriptors(cli: Cli) -> None:
    """The store's files must not get the number of stderr."""
    document = cli.document(
        {"a": {"run": "echo up > up; until test -e go; do sleep 0.02; done; false"}}
    )
    engine = cli.start(
        "run", document, stdout=None, stderr=None, preexec_fn=lambda: os.closerange(0, 3)
    )
    cli.until("up")
    targets = {os.readlink(f"/proc/{engine.pid}/fd/{fd}") for fd in range(3)}
    cli.write("go", "")
    assert engine.wait(WAIT_S) == 1 and targets == {"/dev/null"}
    assert cli("show", "latest").statuses == {"a": "failed"}


def test_failed_attempt_names_no_artifact(cli: Cli) -> None:
    """The second of two outputs is missing: the attempt leaves no output of the step."""
    step = {
        "run": "echo $STOKER_ATTEMPT > $STOKER_OUTPUT/first; "
        "test $STOKER_ATTEMPT = 1 || echo x > $STOKER_OUTPUT/second",
        "outputs": ["first", "second"],
        "retry": {"max_retries": 1},
    }
    run = cli.run({"a": step})
    assert run.statuses == {"a": "succeeded"} and run.output("a", "first") == "2\n"
    with sqlite3.connect(cli.store / "store.db") as db:
        (n,) = db.execute("SELECT count(*) FROM refs").fetchone()
    assert n == 2


def test_more_tasks_than_the_soft_limit_of_descriptors(cli: Cli) -> None:
    """The engine raises its limit to the hard limit; tasks keep the user's limit."""

    def few() -> None:
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
        )

    sleep = {
        "run": "ulimit -n; while ! test -e go; do sleep 0.1; done",
        "resources": {"cpu_count": 0.01},
    }
    steps = {f"s{i}": sleep for i in range(70)} | {
        "last": {"run": "echo > go", "resources": {"cpu_count": 0.01}}
    }
    engine = cli.start("run", "-q", "-j", "100", cli.document(steps), preexec_fn=few)
    assert engine.wait(WAIT_S) == 0
    assert cli("show", "latest").text("s69").strip() == "64"


HANGS = """
import os, time
from stoker import pipeline, step

depth = 0  # 1: becomes the engine, 2: the fork server

def forked():
    global depth
    depth += 1

def forks():
    if depth == 2:
        open("server", "w").write(f"{os.getpid()} {os.getppid()}\\n")
        time.sleep(1000)

os.register_at_fork(before=forks, after_in_child=forked)

@step
def a() -> int:
    return 1

@pipeline
def p():
    a()

p()
"""


def test_ctrl_c_ends_a_run_whose_fork_server_hangs(cli: Cli) -> None:
    """It gets the task, and never reports that it runs."""
    cli.write("hangs.py", HANGS)
    front = cli.start(
        "run", "hangs.py", env={"STOKER_BIN": str(cli.binary)}, start_new_session=True
    )
    server, engine = map(int, cli.until("server").split())
    tell(engine, signal.SIGINT)
    os.kill(engine, signal.SIGINT)
    wait_for(lambda: not alive(engine), why="the engine to end")
    wait_for(lambda: not alive(server), why="the server to end")
    assert front.wait(WAIT_S) != 0
    assert cli("show", "latest").statuses == {"a": "cancelled"}


def test_server_that_is_stopped_does_not_outlive_the_run(cli: Cli) -> None:
    """It doesn't notice the engine's end."""
    cli.write(
        "quick.py",
        HANGS.replace("time.sleep(1000)", "pass").replace(
            "return 1", "open('up', 'w').write('up\\n'); time.sleep(60)"
        ),
    )
    front = cli.start(
        "run", "quick.py", env={"STOKER_BIN": str(cli.binary)}, start_new_session=True
    )
    server, engine = map(int, cli.until("server").split())
    cli.until("up")
    os.kill(server, signal.SIGSTOP)
    tell(engine, signal.SIGINT)
    os.kill(engine, signal.SIGINT)
    wait_for(lambda: not alive(engine), why="the engine to end")
    assert not alive(server)
    assert front.wait(WAIT_S) != 0


def test_who_waits_for_devices_says_whom_for(cli: Cli) -> None:
    cli.devices("GPU-a")
    gpu = {"gpu_count": 1}
    holder = cli.start(
        "run",
        cli.document(
            {
                "h": {
                    "run": "echo up > up; while ! test -e go; do sleep 0.02; done",
                    "resources": gpu,
                }
            },
            "hold.json",
        ),
    )
    cli.until("up")
    waiter = cli.start(
        "run", cli.document({"w": {"run": "echo got", "resources": gpu}}, "want.json")
    )
    wait_for(lambda: "step 'w' waits for devices" in waiter.stderr.readline())
    ticks = sum(
        map(int, Path(f"/proc/{waiter.pid}/stat").read_text().rpartition(")")[2].split()[11:13])
    )
    time.sleep(1)  # sleeps: what it uses of a second
    more = sum(
        map(int, Path(f"/proc/{waiter.pid}/stat").read_text().rpartition(")")[2].split()[11:13])
    )
    assert more - ticks < 0.1 * os.sysconf("SC_CLK_TCK")  # it looks now and then
    cli.write("go", "")
    assert holder.wait(WAIT_S) == 0 and waiter.wait(WAIT_S) == 0
    (note,) = cli("show", "latest").shown["notes"]
    assert "GPU 0: run " in note and "step h (user " in note


def test_very_long_failure_is_told_in_part(cli: Cli) -> None:
    """Megabytes of error text of a step are cut, and don't end the run."""
    cli.write(
        "long.py",
        "import json, os\n"
        "error = {'class': 'exception', 'type': 'E', 'message': 'é' * 20_000_000, 'traceback': 't' * 9_000_000}\n"
        "json.dump({'stoker': 1, 'status': 'failed', 'error': error},\n"
        "          open(os.environ['STOKER_TASK_DIR'] + '/result.json', 'w'), ensure_ascii=False)\n",
    )
    hook = {"on_failure": {"run": "test ${#STOKER_ERROR} -gt 1000 && echo told > told"}}
    run = cli.run(
        {"a": {"run": [PYTHON, "long.py"], "hooks": hook}, "b": {"run": "true"}}, timeout=60
    )
    assert run.statuses == {"a": "failed", "b": "succeeded"} and cli.until("told") == "told"
    assert run.cause("a").startswith("E: éé") and run.cause("a").endswith(
        "é … (40000003 bytes in all)"
    )
