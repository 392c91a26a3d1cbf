"""Failures: one correct sentence for each cause."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from cli_tools import PYTHON, WAIT_S, Cli, wait_for

HOG = "b = bytearray(300_000_000); b[::4096] = b'x' * len(b[::4096]); import time; time.sleep(600)"
SMALL = {"resources": {"memory": "100MB"}}


@pytest.mark.parametrize(
    "step, word, cause",
    [
        ({"run": "exit 3"}, "exit", "exit status 3"),
        ({"run": ["/bin/sh", "-c", "exit 255"]}, "exit", "exit status 255"),
        ({"run": "kill -SEGV $$"}, "signal", "killed by signal 11 (SIGSEGV)"),
        ({"run": "kill -KILL $$"}, "signal", "killed by signal 9 (SIGKILL), not by Stoker"),
        ({"run": "sleep 600", "timeout": 0.2}, "timeout", "timeout: still running after 200 ms"),
        ({"run": ["no-such-program", "x"]}, "start", "no-such-program"),
        ({"run": ["/etc/passwd"]}, "start", "/etc/passwd"),
        ({"run": "true", "cwd": "not/there"}, "start", "not/there"),
        ({"run": "no-such-command"}, "exit", "exit status 127"),
        ({"run": "true", "outputs": ["x"]}, "output", "output 'x' was not written"),
        (
            {"run": "ln -s /etc/passwd $STOKER_OUTPUT/x", "outputs": ["x"]},
            "output",
            "out/x' is a symbolic link",
        ),
        ({"run": "mkfifo $STOKER_OUTPUT/x", "outputs": ["x"]}, "output", "out/x' is a named pipe"),
        ({"run": "echo '{' > $STOKER_TASK_DIR/result.json"}, "output", "result.json"),
        ({"run": """echo '{"stoker": 1}' > $STOKER_TASK_DIR/result.json"""}, "output", "status"),
        (
            {
                "run": """echo '{"stoker": 1, "status": "ok", "outputs": {"x": {"path": "../../task.json"}}}' """
                "> $STOKER_TASK_DIR/result.json",
                "outputs": ["x"],
            },
            "output",
            "..",
        ),
        (
            {
                "run": """echo '{"stoker": 1, "status": "failed", "error": {"class": "exception", """
                """"type": "E", "message": "my own words"}}' > $STOKER_TASK_DIR/result.json; exit 1"""
            },
            "exception",
            "E: my own words",
        ),
    ],
)
def test_commands(cli: Cli, step: dict, word: str, cause: str) -> None:
    run = cli.run({"a": step, "fine": {"run": "true"}})
    assert run.code == 1
    error = run.steps["a"]["error"]
    assert error["class"] == word and cause in error["cause"]
    assert error["text"] == f"step 'a' failed: {error['cause']}"
    assert run.shown["error"] == error["text"] and run.err.count(error["cause"]) >= 1
    assert run.statuses["fine"] == "succeeded"
    assert cli("why", "latest/a").out.strip() == f"step 'a' failed: {error['cause']} [{word}]"


PYTHON_STEPS = """
import os, signal, sys, threading
def raises(): raise ValueError("no good")
def imports(): import no_such_module_here
def unpicklable() -> object: return threading.Lock()
def exits(): os._exit(7)
def vanishes(): os._exit(0)
def leaves(): sys.exit(4)
def dies(): os.kill(os.getpid(), signal.SIGSEGV)
def memory(): raise MemoryError("all of it")
"""


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
@pytest.mark.parametrize(
    "entry, outputs, word, parts",
    [
        ("steps:raises", [], "exception", ["ValueError: no good", "steps.py:3"]),
        ("steps:imports", [], "import", ["'no_such_module_here'", "pip install"]),
        ("steps:unpicklable", ["output"], "serialize", ["output", "lock"]),
        ("steps:exits", [], "exit", ["exit status 7"]),
        (
            "steps:vanishes",
            [],
            "exit",
            ["it ended with exit status 0, but without a result: os._exit"],
        ),
        ("steps:dies", [], "signal", ["signal 11 (SIGSEGV)"]),
        ("steps:nothing", [], "", ["nothing", "steps"]),
        ("no_such_file:f", [], "import", ["no_such_file"]),
    ],
)
def test_python(
    cli: Cli, entry: str, outputs: list[str], word: str, parts: list[str], isolation: str
) -> None:
    cli.write("steps.py", PYTHON_STEPS)
    run = cli.run(
        {"a": {"python": entry, "outputs": outputs, "isolation": isolation}}, "--python", PYTHON
    )
    error = run.steps["a"]["error"]
    assert run.code == 1 and (not word or error["class"] == word), error
    assert all(part in error["text"] for part in parts), error["text"]
    if word == "exception":
        assert "raise ValueError" in error["traceback"]


@pytest.mark.parametrize("kind", ["cgroup", "watchdog"])
@pytest.mark.parametrize("front", ["command", "python"])
def test_host_oom(cli: Cli, kind: str, front: str) -> None:
    env = {"STOKER_CGROUP": "none"} if kind == "watchdog" else {}
    cli.write("hog.py", f"def f():\n    {HOG}\n")
    body = {"run": [PYTHON, "-c", HOG]} if front == "command" else {"python": "hog:f"}
    run = cli.run(
        {"a": {**body, **SMALL}, "b": {"run": "sleep 0.1"}}, "--python", PYTHON, env=env, timeout=60
    )
    assert run.code == 1 and run.statuses == {"a": "failed", "b": "succeeded"}
    error = run.steps["a"]["error"]
    assert error["class"] == "host_oom"
    assert error["cause"].startswith("host OOM: used ") and " of its 100 MB;" in error["cause"]


def test_memory_within_its_limit_is_fine(cli: Cli) -> None:
    run = cli.run({"a": {"run": [PYTHON, "-c", "b = bytearray(40_000_000)"], **SMALL}})
    assert run.code == 0
    assert 40e6 < run.steps["a"]["used"].get("peak_memory_bytes", 50e6) < 100e6


def test_a_task_whose_folder_vanishes(cli: Cli) -> None:
    step = {
        "run": 'echo up > up; while ! test -e go; do sleep 0.01; done; echo 1 > "$STOKER_OUTPUT/x"',
        "outputs": ["x"],
    }
    engine = cli.start("run", cli.document({"a": step}))
    cli.until("up")
    import shutil

    shutil.rmtree(next((cli.store / "runs").iterdir()) / "a")
    (cli.folder / "go").touch()
    assert engine.wait(WAIT_S) == 1
    error = cli.json("show")["steps"]["a"]["error"]
    assert error["class"] in ("lost", "output", "exit") and error["cause"]


def test_a_python_task_killed_from_outside(cli: Cli) -> None:
    cli.write(
        "steps.py",
        "import os, time\ndef f():\n    open('pid', 'w').write(f'{os.getpid()}\\n'); time.sleep(60)\n",
    )
    engine = cli.start("run", "--python", PYTHON, cli.document({"a": {"python": "steps:f"}}))
    os.kill(int(cli.until("pid")), signal.SIGKILL)
    assert engine.wait(WAIT_S) == 1
    error = cli.json("show")["steps"]["a"]["error"]
    assert error["class"] == "signal" and "signal 9 (SIGKILL), not by Stoker" in error["cause"]


def test_the_fork_server_killed(cli: Cli) -> None:
    """Its task is lost without its fault: it is retried, and the run continues."""
    cli.write(
        "steps.py",
        "import os, time\ndef f():\n"
        "    open('pids', 'a').write(f'{os.getppid()}\\n')\n"
        "    if not os.path.exists('go'): time.sleep(600)\n",
    )
    engine = cli.start("run", "--python", PYTHON, cli.document({"a": {"python": "steps:f"}}))
    server = int(cli.until("pids"))
    (cli.folder / "go").touch()
    os.kill(server, signal.SIGKILL)
    assert engine.wait(WAIT_S) == 0, engine.stderr.read()
    shown = cli.json("show")
    step = shown["steps"]["a"]
    assert step["status"] == "succeeded" and step["attempts"] == 2
    said = f"the fork server (process {server}) was killed by signal 9, not by Stoker"
    assert any(said in note for note in shown["notes"]), shown["notes"]


def test_what_depends_on_a_failure_names_it(cli: Cli) -> None:
    run = cli.run(
        {
            "a": {"run": "exit 1"},
            "b": {"run": "true", "after": ["a"]},
            "c": {"run": "true", "after": ["b"]},
        }
    )
    assert run.statuses == {"a": "failed", "b": "skipped", "c": "skipped"}
    assert "'a'" in cli("why", "latest/c").out
    assert run.code == 1


def test_a_file_input_that_is_missing_fails_its_step_only(cli: Cli) -> None:
    steps = {
        "a": {"run": "true", "inputs": {"x": {"file": "nowhere.csv"}}},
        "b": {"run": "echo b > b"},
        "c": {"run": "true", "after": ["a"]},
    }
    run = cli.run(steps)
    assert run.code == 1
    assert run.statuses == {"a": "failed", "b": "succeeded", "c": "skipped"}
    error = run.steps["a"]["error"]
    assert error["class"] == "load" and error["cause"].startswith("input 'x': there is no file '")
    assert "nowhere.csv" in error["cause"]
    assert "nowhere.csv" in cli("plan", "p.json").out
    (cli.folder / "nowhere.csv").touch()
    assert cli("resume").code == 0


def test_a_daemon_that_keeps_the_logs_open_does_not_hold_the_step(cli: Cli) -> None:
    run = cli.run({"a": {"run": "sleep 3000 & echo $! > pid"}})
    assert run.code == 0
    wait_for(lambda: not Path(f"/proc/{cli.until('pid')}").exists(), 60)
