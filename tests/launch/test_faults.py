"""All ways in which a rank or its launcher can fail: the sentence, no process left, and how soon it
was noticed.

A node's cut network and a taken port are in test_nodes.py and test_launch.py."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_tools import Cli, wait_for
from launch_tools import PYTHON, launch, processes_with, python, shell

NOTICED_MS = 100


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    terminal = Cli(tmp_path)
    yield terminal
    terminal.close()


def nobody(mark: str) -> None:
    wait_for(lambda: not processes_with(mark), why=mark)


def soon(died_s: float, attempt: dict[str, Any], record: Any) -> None:
    """What the launcher says it took, and what it took on the clock of the rank that died."""
    member = attempt["members"][attempt["first"]]
    took_ms = member["ended_ms"] - died_s * 1000
    record("noticed_ms", took_ms)
    record("noticed_us", attempt["noticed_us"])
    print(f"noticed {took_ms:.1f} ms after the rank's last line, {attempt['noticed_us']} us after")
    assert attempt["noticed_us"] is not None and 0 <= attempt["noticed_us"] < NOTICED_MS * 1000
    assert -2 <= took_ms < NOTICED_MS * 10


@pytest.mark.parametrize(
    "end, code, words",
    [
        ("os._exit(3)", 3, "exit status 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 128 + 9, "killed by signal 9 (SIGKILL)"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 128 + 11, "killed by signal 11 (SIGSEGV)"),
        ("raise SystemExit('before init')", 1, "exit status 1"),
    ],
    ids=["exits", "killed", "segfault", "before init"],
)
def test_a_rank_ends(tmp_path: Path, end: str, code: int, words: str, record_property: Any) -> None:
    mark = uuid.uuid4().hex
    text = f"""
if RANK == 1:
    time.sleep(0.5)  # sleeps: the launcher waits for its ranks by now
    open({str(tmp_path / "died")!r}, 'w').write(str(time.time()))
    {end}
import subprocess
subprocess.run(['sleep', '300'])
"""
    done = launch("-n", "3", "--json", *python(text), MARK=mark)
    assert done.code == code
    assert done.sentence.startswith(f"rank 1 failed: {words}")
    assert done.sentence.endswith("; 2 other ranks were ended because of it")
    nobody(mark)
    soon(float((tmp_path / "died").read_text()), done.gang["attempts"][0], record_property)


def test_a_hang_says_for_how_long() -> None:
    mark = uuid.uuid4().hex
    done = launch("-n", "2", "--hang", "1s", "--json", *shell("exec sleep 300"), MARK=mark)
    assert done.sentence.startswith("hang: nothing moved on 2 ranks for 1")
    assert done.gang["attempts"][0]["noticed_us"] >= 1_000_000
    nobody(mark)


def test_a_launcher_that_is_killed(cli: Cli) -> None:
    """Its ranks end with it, and the step names the cause."""
    engine = cli.start(
        "run",
        cli.document({"a": {"run": "echo $PPID > ppid; exec sleep 300", "gang": {"ranks": 2}}}),
    )
    killed = int(cli.until("ppid"))
    os.kill(killed, signal.SIGKILL)
    began = time.monotonic()
    assert engine.wait(timeout=300) == 1
    assert time.monotonic() - began < 100
    error = cli.json("show", "latest")["steps"]["a"]["error"]
    assert error["class"] == "signal" and "killed by signal 9 (SIGKILL)" in error["cause"]


# Only rank 1 is too large; the others ignore SIGTERM.
HOG = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.environ["RANK"] == "1":
    b = bytearray(400_000_000)
    for i in range(0, len(b), 4096):
        b[i] = 1
time.sleep(3000)
"""


@pytest.mark.parametrize("kind", ["cgroup", "watchdog"])
@pytest.mark.parametrize("front", ["command", "python"])
def test_a_rank_over_the_memory_limit(cli: Cli, kind: str, front: str) -> None:
    env = {"STOKER_CGROUP": "none"} if kind == "watchdog" else {}
    mark = uuid.uuid4().hex
    env["MARK"] = mark
    indented = HOG.replace("\n", "\n    ")
    cli.write("hog.py", f"def f():\n    {indented}\n")
    body: dict[str, Any] = (
        {"run": [PYTHON, "-c", HOG]} if front == "command" else {"python": "hog:f"}
    )
    gang = {"gang": {"ranks": 3, "restarts": 1 if kind == "watchdog" else 0}, "grace": 1}
    steps = {"a": {**body, **gang, "resources": {"memory": "200MB"}}}
    run = cli.run(steps, "--python", PYTHON, env=env)
    error = run.steps["a"]["error"]
    assert run.code == 1 and error["class"] == "host_oom", error
    assert error["cause"].startswith("rank 1: host OOM: used ") and error["rank"] == 1, error
    rest = "; 2 other ranks were ended because of it; ask for more memory, or set on_oom"
    assert f" of its 200 MB{rest}" in error["cause"]
    gang_json = json.loads(Path(run.steps["a"]["dir"], "gang.json").read_text())
    assert gang_json["attempts"][0]["first"] == 1 and gang_json["restarts"] == 0
    print(error["cause"], error.get("noticed_us"))
    assert error["noticed_us"] < NOTICED_MS * 1000
    nobody(mark)


def test_the_reports_say_how_soon(cli: Cli) -> None:
    run = cli.run({"a": {"run": "[ $RANK = 1 ] && exit 3; exec sleep 3000", "gang": {"ranks": 2}}})
    error = run.steps["a"]["error"]
    assert error["rank"] == 1 and 0 <= error["noticed_us"] < NOTICED_MS * 1000
