"""Command steps and their checkpoints: kept between attempts and removed afterwards; a preemption
costs no retry."""

from __future__ import annotations

import json
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from cli_tools import WAIT_S, Cli, alive, wait_for

# Counts to 6 with one file for each number; prints where it started; waits at 3 for the test.
COUNT = """
mkdir -p "$STOKER_CHECKPOINT_DIR"; n=$(ls "$STOKER_CHECKPOINT_DIR" | sort -n | tail -1); echo "from ${n:-0}" >> log
n=${n:-0}
while [ $n -lt 6 ]; do
  n=$((n + 1)); echo $n > "$STOKER_CHECKPOINT_DIR/.new"; mv "$STOKER_CHECKPOINT_DIR/.new" "$STOKER_CHECKPOINT_DIR/$n"
  if [ $n = 3 ]; then %s fi
done
"""
WAIT = "echo $$ > pid; while true; do sleep 0.02; done;"


def folder(cli: Cli, step: str = "a") -> Path:
    return next(cli.store.glob("runs/*")) / step / "0" / "checkpoints"


def failures(cli: Cli) -> list[dict[str, Any]]:
    with sqlite3.connect(cli.store / "store.db") as db:
        rows = db.execute("SELECT data FROM events WHERE kind = 'task_failed' ORDER BY id")
        return [json.loads(data) for (data,) in rows]


def log(cli: Cli) -> list[str]:
    return (cli.folder / "log").read_text().splitlines()


def test_an_attempt_goes_on_where_the_one_before_was(cli: Cli) -> None:
    retry = {"max_retries": 1, "delay": 0}
    run = cli.run({"a": {"run": COUNT % "exit 1;", "retry": retry}})
    assert run.code == 0 and log(cli) == ["from 0", "from 3"]
    assert not folder(cli).exists()  # it has succeeded


def test_they_are_kept_if_the_step_says_so(cli: Cli) -> None:
    run = cli.run({"a": {"run": COUNT % "true;", "keep_checkpoints": True}})
    assert run.code == 0 and len(list(folder(cli).iterdir())) == 6
    checked = cli("store", "verify")
    assert checked.code == 0, checked.err
    cli("store", "gc", "--keep-runs", "0", "--keep", "0")
    assert not list(cli.store.glob("runs/*/a"))


def test_never_shared_between_steps_or_runs(cli: Cli) -> None:
    see = 'mkdir -p "$STOKER_CHECKPOINT_DIR"; ls -A "$STOKER_CHECKPOINT_DIR" | wc -l >> seen; touch "$STOKER_CHECKPOINT_DIR/mine"; exit 1'
    steps = {"a": {"run": see}, "b": {"run": see}}
    assert cli.run(steps).code == 1 and cli.run(steps).code == 1
    assert (cli.folder / "seen").read_text().split() == ["0"] * 4


def test_what_was_not_completed_is_gone(cli: Cli) -> None:
    see = 'mkdir -p "$STOKER_CHECKPOINT_DIR"; ls -A "$STOKER_CHECKPOINT_DIR" >> seen; cd "$STOKER_CHECKPOINT_DIR"; mkdir -p .half/x done; kill -9 $$'
    run = cli.run({"a": {"run": see, "retry": {"max_retries": 2, "delay": 0}}})
    assert run.code == 1 and (cli.folder / "seen").read_text().split() == ["done", "done"]


@pytest.mark.parametrize(
    ("end", "reason"), [("exit 75;", "exit status 75"), ("kill -TERM $$;", "SIGTERM")]
)
def test_a_preempted_command_runs_again_without_retries(cli: Cli, end: str, reason: str) -> None:
    run = cli.run({"a": {"run": COUNT % end}})
    assert run.code == 0 and log(cli) == ["from 0", "from 3"]
    (failed,) = failures(cli)
    assert failed["class"] == "preempted" and failed["saved"] is True and reason in failed["text"]


@pytest.mark.parametrize(("end", "word"), [("exit 75", "exit"), ("kill -TERM $$", "signal")])
def test_without_a_checkpoint_it_is_a_failure(cli: Cli, end: str, word: str) -> None:
    run = cli.run({"a": {"run": f"echo x >> log; {end}"}})
    assert run.code == 1 and log(cli) == ["x"]
    assert run.steps["a"]["error"]["class"] == word


def test_preempted_without_getting_further_has_an_end(cli: Cli) -> None:
    once = 'mkdir -p "$STOKER_CHECKPOINT_DIR"; cd "$STOKER_CHECKPOINT_DIR"; test -e one || echo > one; exit 75'
    run = cli.run({"a": {"run": f"echo x >> log; {once}"}})
    # one that got further, ten without progress, one more
    assert run.code == 1 and len(log(cli)) == 12
    assert run.steps["a"]["error"]["class"] == "preempted"


def test_a_time_limit_is_charged_unless_it_got_further(cli: Cli) -> None:
    far = cli.run({"a": {"run": COUNT % WAIT, "timeout": 0.5, "grace": 0.2}})
    assert far.code == 0 and log(cli) == ["from 0", "from 3"]
    run = cli.run({"b": {"run": f"echo b >> log; {WAIT}", "timeout": 0.3, "grace": 0.2}})
    assert run.code == 1 and log(cli)[2:] == ["b"]
    assert run.steps["b"]["error"]["class"] == "timeout"


def test_a_killed_run_is_resumed_from_them(cli: Cli) -> None:
    document = cli.document({"a": {"run": COUNT % ("test -e go && continue; " + WAIT)}})
    engine = cli.start("run", document)
    pid = int(cli.until("pid"))
    engine.send_signal(signal.SIGKILL)
    engine.wait(WAIT_S)
    wait_for(lambda: not alive(pid))
    (cli.folder / "go").touch()
    run = cli("resume")
    assert run.code == 0, run.err
    assert log(cli) == ["from 0", "from 3"]
    assert any("goes on with 3 checkpoints" in note for note in run.shown["notes"])


def test_other_inputs_start_fresh(cli: Cli) -> None:
    steps = {
        "first": {"run": "cat data > $STOKER_OUTPUT/x", "outputs": ["x"], "cache": False},
        "a": {
            "run": f"cat $STOKER_INPUT/x >> log; {COUNT % 'exit 1;'}",
            "inputs": {"x": {"file": "data"}},
        },
    }
    (cli.folder / "data").write_text("one\n")
    assert cli.run(steps).code == 1
    (cli.folder / "data").write_text("two\n")
    run = cli("resume")
    assert log(cli) == ["one", "from 0", "two", "from 0"]
    assert any("so 3 checkpoints" in note for note in run.shown["notes"])


POLITE = (
    'trap \'mkdir -p "$STOKER_CHECKPOINT_DIR"; touch "$STOKER_CHECKPOINT_DIR/told"; exit 75\' TERM; '
    "echo x >> log; test -e go && exit 0; echo $$ > pid; while true; do sleep 0.02; done"
)


def test_the_engine_is_told_and_the_run_goes_on(cli: Cli) -> None:
    engine = cli.start("run", cli.document({"a": {"run": POLITE, "grace": 30}}))
    cli.until("pid")
    engine.terminate()
    assert engine.wait(WAIT_S) == 143
    shown = cli.json("show")
    assert shown["status"] == "interrupted" and [p.name for p in folder(cli).iterdir()] == ["told"]
    assert shown["steps"]["a"]["checkpoints"] == {"n": 1, "size": 0, "path": str(folder(cli))}
    assert "1 checkpoint (0 B)" in cli("show", "latest").out
    (cli.folder / "go").touch()
    run = cli("resume")
    assert run.code == 0 and log(cli) == ["x", "x"]
    assert run.shown["status"] == "succeeded" and "checkpoints" not in run.steps["a"]


def test_cancelled_is_not_interrupted(cli: Cli) -> None:
    engine = cli.start("run", cli.document({"a": {"run": POLITE, "grace": 30}}))
    cli.until("pid")
    assert cli("cancel").code == 0 and engine.wait(WAIT_S) == 130
    assert cli.json("show")["status"] == "cancelled"


def test_a_notice_before_the_time_limit(cli: Cli) -> None:
    again = POLITE.replace("test -e go", 'test -e "$STOKER_CHECKPOINT_DIR/told"')
    step = {"run": again, "timeout": 60, "timeout_notice": 59.5}
    run = cli.run({"a": step})
    assert run.code == 0 and log(cli) == ["x", "x"]
    (failed,) = failures(cli)
    assert failed["class"] == "timeout" and failed["saved"] is True
    assert "warned 59.5 s before its 1 m were over, it ended (exit status 75)" in failed["text"]


def test_who_was_told_is_killed_at_the_limit(cli: Cli) -> None:
    deaf = "trap '' TERM; while true; do sleep 0.02; done"
    step = {"run": deaf, "timeout": 0.6, "timeout_notice": 0.3, "grace": 600}
    run = cli.run({"a": step})
    assert run.code == 1 and run.steps["a"]["error"]["class"] == "timeout"
    refused = cli.run({"a": {"run": "true", "timeout": 1, "timeout_notice": 2}})
    assert refused.code == 2 and "make 'timeout_notice' shorter" in refused.err


def test_ranks_have_the_notice_as_their_grace(cli: Cli) -> None:
    slow = "trap 'sleep 0.7; touch \"$STOKER_CHECKPOINT_DIR/$RANK\"; exit 75' TERM; sleep 60 & wait"
    step = {
        **{
            "run": f'mkdir -p "$STOKER_CHECKPOINT_DIR"; ls "$STOKER_CHECKPOINT_DIR" >> seen; test -s seen || {{ {slow}; }}',
            "grace": 0.1,
        },
        **{"gang": {"ranks": 2}, "timeout": 60, "timeout_notice": 59.5},
    }
    run = cli.run({"a": step})
    assert run.code == 0, run.out + run.err
    assert sorted(set((cli.folder / "seen").read_text().split())) == ["0", "1"]
