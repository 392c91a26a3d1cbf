"""How graphs are run: order, parallel steps, execution modes, retries, timeouts, hooks, size."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from cli_tools import PYTHON, Cli, Run

# --- order ---


def test_steps_in_any_order_run_in_the_order_of_their_needs(cli: Cli) -> None:
    cli.write(
        "p.yaml",
        """
stoker: 1
name: backwards
steps:
  last:   {run: echo last >> order, after: [middle]}
  middle: {run: 'echo middle >> order; cat "$STOKER_INPUT_x"', inputs: {x: {from: first.x}}}
  first:  {run: 'echo first >> order; echo 7 > "$STOKER_OUTPUT/x"', outputs: [x]}
""",
    )
    run = cli("run", "p.yaml")
    assert run.code == 0
    assert (cli.folder / "order").read_text().split() == ["first", "middle", "last"]
    assert run.text("middle") == "7\n"


@pytest.mark.parametrize(
    "steps, names",
    [
        ({"a": {"run": "true", "after": ["a"]}}, ["a"]),
        ({"a": {"run": "true", "after": ["b"]}, "b": {"run": "true", "after": ["a"]}}, ["a", "b"]),
        (
            {
                "a": {"run": "true", "inputs": {"x": {"from": "c.x"}}},
                "b": {"run": "true", "after": ["a"]},
                "c": {"run": "true", "after": ["b"], "outputs": ["x"]},
                "fine": {"run": "true"},
            },
            ["a", "b", "c"],
        ),
    ],
)
def test_a_circle_is_named(cli: Cli, steps: dict, names: list[str]) -> None:
    run = cli.run(steps)
    assert run.code == 2
    assert all(f"'{n}'" in run.err or f"{n} " in run.err for n in names)
    assert "fine" not in run.err
    assert not cli.store.exists()  # nothing was begun


def overlap(run: Run, a: str, b: str) -> bool:
    x, y = run.steps[a], run.steps[b]
    return x["started_ms"] < y["ended_ms"] and y["started_ms"] < x["ended_ms"]


def test_parallel_steps_run_in_parallel(cli: Cli) -> None:
    # each waits for the other, so in sequence they would never end
    meet = "touch here.{0}; while ! test -e here.{1}; do sleep 0.01; done"
    steps = {"a": {"run": meet.format("a", "b")}, "b": {"run": meet.format("b", "a")}}
    run = cli.run(steps)
    assert run.code == 0 and overlap(run, "a", "b")


def test_max_workers_is_kept(cli: Cli) -> None:
    steps = {f"s{i}": {"run": "sleep 0.1"} for i in range(3)}
    run = cli.run(steps, "--max-workers", "1")
    assert run.code == 0
    assert not any(overlap(run, a, b) for a in steps for b in steps if a < b)


def test_diamonds_within_diamonds(cli: Cli) -> None:
    """Each inner graph is a diamond; the diamonds form a diamond: 4 × 4 steps."""
    steps: dict = {}
    needs = {"top": [], "left": ["top"], "right": ["top"], "end": ["left", "right"]}
    for outer, outer_needs in needs.items():
        for inner, inner_needs in needs.items():
            after = [f"{outer}_{n}" for n in inner_needs]
            after += [f"{n}_end" for n in outer_needs] if inner == "top" else []
            steps[f"{outer}_{inner}"] = {"run": f"echo {outer}_{inner} >> order", "after": after}
    run = cli.run(steps)
    order = (cli.folder / "order").read_text().split()
    assert run.code == 0 and sorted(order) == sorted(steps)
    for name, step in steps.items():
        assert all(order.index(n) < order.index(name) for n in step["after"])


# --- modes ---

FAILING = {
    "bad": {
        "run": "while ! test -e slow.began; do sleep 0.01; done; exit 3",
        "hooks": {"on_failure": {"run": "touch bad.failed"}},
    },
    "slow": {
        "run": "touch slow.began; until test -e bad.failed; do sleep 0.01; done; touch slow.ended"
    },
    "later": {"run": "touch later.ran", "after": ["slow"]},
    "after_bad": {"run": "touch never", "after": ["bad"]},
    "far": {"run": "touch never", "after": ["after_bad"]},
}


@pytest.mark.parametrize(
    "mode, slow, later",
    [
        ("continue_on_failure", "succeeded", "succeeded"),
        ("stop_on_failure", "succeeded", "cancelled"),
        ("fail_fast", "cancelled", "cancelled"),
    ],
)
@pytest.mark.parametrize("how", ["document", "option"])
def test_execution_modes(cli: Cli, mode: str, slow: str, later: str, how: str) -> None:
    steps = dict(FAILING)
    if mode == "fail_fast":
        steps["slow"] = {"run": "touch slow.began; sleep 600; touch slow.ended"}
    run = cli.run(steps, mode=mode) if how == "document" else cli.run(steps, "--mode", mode)
    assert run.code == 1
    assert run.statuses == {
        "bad": "failed",
        "slow": slow,
        "later": later,
        "after_bad": "skipped",
        "far": "skipped",
    }
    assert (cli.folder / "slow.ended").exists() == (slow == "succeeded")
    assert (cli.folder / "later.ran").exists() == (later == "succeeded")
    assert not (cli.folder / "never").exists()
    assert run.shown["mode"] == mode and run.shown["status"] == "failed"
    assert run.shown["error"] == "step 'bad' failed: exit status 3"


def test_a_failed_run_is_taken_up_where_it_stopped(cli: Cli) -> None:
    steps = {
        "a": {"run": "echo a >> ran"},
        "b": {"run": "echo b >> ran; test -e repaired", "after": ["a"]},
        "c": {"run": "echo c >> ran", "after": ["b"]},
    }
    assert cli.run(steps).code == 1
    (cli.folder / "repaired").touch()
    run = cli("resume")
    assert run.code == 0 and set(run.statuses.values()) == {"succeeded"}
    assert (cli.folder / "ran").read_text().split() == ["a", "b", "b", "c"]
    assert run.steps["b"]["attempts"] == 2
    assert cli("resume").code == 2  # nothing left


# --- retries ---


def times(cli: Cli) -> list[float]:
    return [float(t) for t in (cli.folder / "times").read_text().split()]


def test_retries_wait_longer_each_time(cli: Cli) -> None:
    run = cli.run(
        {"a": {"run": "date +%s.%N >> times; exit 1"}},
        retry={"max_retries": 3, "delay": 0.1, "backoff": 2},
    )
    began = times(cli)
    gaps = [b - a for a, b in zip(began, began[1:])]
    assert run.code == 1 and len(gaps) == 3
    assert all(gap >= asked for gap, asked in zip(gaps, [0.1, 0.2, 0.4]))
    assert run.steps["a"]["attempts"] == 4
    assert run.steps["a"]["error"]["text"] == "step 'a' failed after 4 attempts: exit status 1"
    attempts = Path(run.steps["a"]["dir"]).parent
    assert sorted(p.name for p in attempts.iterdir() if p.name.isdigit()) == list("1234")
    last = [json.loads((attempts / n / "task.json").read_text())["last_attempt"] for n in "1234"]
    assert last == [False, False, False, True]


def test_a_retry_that_succeeds(cli: Cli) -> None:
    flaky = (
        'echo $STOKER_ATTEMPT >> tries; test "$STOKER_ATTEMPT" = 3 && echo ok > "$STOKER_OUTPUT/x"'
    )
    steps = {
        "a": {"run": flaky, "outputs": ["x"], "retry": {"max_retries": 5}},
        "b": {"run": 'cat "$STOKER_INPUT_x"', "inputs": {"x": {"from": "a.x"}}},
    }
    run = cli.run(steps)
    assert run.code == 0 and run.steps["a"]["attempts"] == 3
    assert (cli.folder / "tries").read_text().split() == ["1", "2", "3"]
    assert run.text("b") == "ok\n"


def test_no_retry_unless_asked(cli: Cli) -> None:
    run = cli.run({"a": {"run": "echo x >> times; exit 1"}})
    assert run.steps["a"]["attempts"] == 1 and len((cli.folder / "times").read_text().split()) == 1


def test_jitter_stays_in_its_bounds(cli: Cli) -> None:
    retry = {"max_retries": 1, "delay": 0.4, "jitter": 0.5}
    steps = {f"s{i}": {"run": "exit 1", "retry": retry} for i in range(8)}
    assert cli.run(steps).code == 1
    waits = []
    for row in events(cli):
        if row["kind"] == "task_retrying":
            waits.append(row["data"]["delay_ms"])
    assert len(waits) == 8 and len(set(waits)) > 1
    assert all(200 <= w <= 600 for w in waits)


def events(cli: Cli) -> list[dict]:
    """The events of the store's only run, from its table."""
    with sqlite3.connect(f"file:{cli.store}/store.db?mode=ro", uri=True) as db:
        rows = db.execute("SELECT kind, data FROM events ORDER BY id").fetchall()
    return [{"kind": kind, "data": json.loads(data or "{}")} for kind, data in rows]


# --- timeouts ---


def test_a_timeout_ends_the_step(cli: Cli) -> None:
    run = cli.run({"a": {"run": "sleep 60", "timeout": 0.2}})
    assert run.code == 1
    assert run.steps["a"]["error"]["class"] == "timeout"
    assert run.cause("a") == "timeout: still running after 200 ms"


def test_a_timeout_is_graceful_then_firm(cli: Cli) -> None:
    deaf = "trap 'date +%s.%N > told' TERM; echo $$ > pid; while true; do sleep 0.02; done"
    run = cli.run({"a": {"run": deaf, "timeout": "2s", "grace": 0.4}})
    ended = run.steps["a"]["ended_ms"] / 1000
    assert run.steps["a"]["error"]["class"] == "timeout"
    assert ended - float(cli.until("told")) >= 0.35  # it had its grace
    assert not Path(f"/proc/{cli.until('pid')}").exists()


def test_a_step_that_ends_in_its_grace_time_is_still_late(cli: Cli) -> None:
    polite = "trap 'echo bye; exit 0' TERM; while true; do sleep 0.02; done"
    run = cli.run({"a": {"run": polite, "timeout": 2, "grace": 600}})
    assert run.steps["a"]["error"]["class"] == "timeout" and run.text("a") == "bye\n"


def test_a_timeout_is_retried(cli: Cli) -> None:
    steps = {
        "a": {
            "run": 'test "$STOKER_ATTEMPT" = 2 || sleep 60',
            "timeout": 2,
            "retry": {"max_retries": 1},
        }
    }
    run = cli.run(steps)
    assert run.code == 0 and run.steps["a"]["attempts"] == 2


# --- hooks ---

NOTE_EACH = {
    f"on_{when}": {"run": f'echo "{when} $STOKER_STEP $STOKER_HOOK $STOKER_ERROR" >> hooks'}
    for when in ("start", "success", "failure", "end")
}


@pytest.mark.parametrize(
    "command, told",
    [
        ("echo step >> hooks", ["start", "step", "success", "end"]),
        ("echo step >> hooks; exit 4", ["start", "step", "failure", "end"]),
        ("echo step >> hooks; kill -9 $$", ["start", "step", "failure", "end"]),
    ],
)
def test_hooks_of_a_command(cli: Cli, command: str, told: list[str]) -> None:
    run = cli.run({"a": {"run": command, "hooks": NOTE_EACH}})
    lines = (cli.folder / "hooks").read_text().splitlines()
    assert [line.split()[0] for line in lines] == told
    for line in lines:
        word, *rest = line.split()
        if word in ("failure", "end") and run.code == 1:
            assert rest[:2] == ["a", f"on_{word}"] and run.cause("a") in line


def test_hooks_for_all_steps_and_one_own(cli: Cli) -> None:
    steps = {
        "a": {"run": "true"},
        "b": {"run": "true", "hooks": {"on_end": {"run": "echo own >> hooks"}}, "after": ["a"]},
    }
    assert cli.run(steps, hooks={"on_end": {"run": "echo common $STOKER_STEP >> hooks"}}).code == 0
    assert sorted((cli.folder / "hooks").read_text().splitlines()) == ["common a", "own"]


def test_hooks_come_after_the_last_attempt_only(cli: Cli) -> None:
    hooks = {"on_failure": {"run": "echo failure >> hooks"}}
    assert cli.run({"a": {"run": "exit 1", "hooks": hooks, "retry": {"max_retries": 2}}}).code == 1
    assert (cli.folder / "hooks").read_text().split() == ["failure"]


@pytest.mark.parametrize("when", ["start", "success", "end"])
def test_a_hook_that_fails_is_a_note(cli: Cli, when: str) -> None:
    run = cli.run({"a": {"run": "true", "hooks": {f"on_{when}": {"run": "echo oh >&2; exit 9"}}}})
    assert run.code == 0 and run.statuses == {"a": "succeeded"}
    assert any("hook" in n and "'a'" in n and "9" in n for n in run.shown["notes"]), run.shown[
        "notes"
    ]


def test_a_hook_after_a_missing_output(cli: Cli) -> None:
    run = cli.run({"a": {"run": "true", "outputs": ["x"], "hooks": NOTE_EACH}})
    assert run.code == 1
    assert [line.split()[0] for line in (cli.folder / "hooks").read_text().splitlines()] == [
        "start",
        "failure",
        "end",
    ]


def test_python_hooks_of_python_steps(cli: Cli) -> None:
    cli.write(
        "mod.py",
        """
import os, signal
def note(word):
    with open("hooks", "a") as f: f.write(word + "\\n")
def start(): note("start")
def success(): note("success")
def failure(error): note(f"failure {error}")
def end(): note("end")
def good(): note("step")
def bad(): raise ValueError("no good")
def dead(): os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    hooks = {f"on_{w}": {"python": f"mod:{w}"} for w in ("start", "success", "failure", "end")}
    for entry, told in {
        "good": ["start", "step", "success", "end"],
        "bad": ["start", "failure", "end"],
        "dead": ["start", "failure", "end"],
    }.items():
        (cli.folder / "hooks").unlink(missing_ok=True)
        cli.run({"a": {"python": f"mod:{entry}", "hooks": hooks}}, "--python", PYTHON)
        lines = (cli.folder / "hooks").read_text().splitlines()
        assert [line.split()[0] for line in lines] == told, entry
        if entry == "bad":
            assert "no good" in lines[1]
        if entry == "dead":
            assert "signal 9" in lines[1]


# --- size ---


def chain(cli: Cli, n: int) -> str:
    steps = {f"s{i}": {"run": "true", **({"after": [f"s{i - 1}"]} if i else {})} for i in range(n)}
    return cli.document(steps)


def test_a_chain_of_1000_steps_runs(cli: Cli) -> None:
    document = chain(cli, 1000)
    assert cli("run", "-q", document, timeout=120).code == 0
    run = cli("run", "-q", document)
    assert run.code == 0 and set(run.statuses.values()) == {"cached"}


def test_a_chain_of_100000_steps_is_planned(cli: Cli) -> None:
    run = cli("plan", chain(cli, 100_000))
    assert run.code == 0 and run.out.count("\n") > 100_000


@pytest.mark.slow
def test_a_chain_of_30000_steps_runs(cli: Cli) -> None:
    document = chain(cli, 30_000)
    assert cli("run", "-q", document, timeout=800).code == 0
    run = cli("run", "-q", document, timeout=60)
    assert run.code == 0
    assert cli.json("runs")[0]["status"] == "succeeded"


def test_a_step_with_10000_inputs(cli: Cli) -> None:
    names = [f"o{i}" for i in range(10_000)]
    steps = {
        "make": {
            "run": 'cd "$STOKER_OUTPUT"; for i in $(seq 0 9999); do echo $i > o$i; done',
            "outputs": names,
        },
        "take": {
            "run": 'cd "$STOKER_INPUT"; ls | xargs cat | wc -l; cat "$STOKER_INPUT/o77"',
            "inputs": {n: {"from": f"make.{n}"} for n in names},
        },
    }
    run = cli.run(steps, timeout=120)
    assert run.code == 0 and run.text("take").split() == ["10000", "77"]
    assert "and 9940 more" in run.err and len(run.err) < 5000
