"""Growing graphs of commands in which several paths lead to a step: loops, cases that meet."""

from __future__ import annotations

import json

import pytest
from cli_tools import Cli

COUNT = {
    "start": {
        "run": "echo 0 > $STOKER_OUTPUT/n; echo 5 > $STOKER_OUTPUT/until",
        "outputs": ["n", "until"],
        "next": "more",
    },
    "more": {
        "run": "n=$(($(cat $STOKER_INPUT_n) + 1)); echo $n > $STOKER_OUTPUT/n\n"
        "test $n -lt $(cat $STOKER_INPUT_until) && v=again || v=done\n"
        'echo "\\"$v\\"" > $STOKER_OUTPUT/v',
        "inputs": {"n": {"from": "start.n"}, "until": {"from": "start.until"}},
        "outputs": ["n", "v"],
        "switch": "v",
        "cases": {"again": "more", "done": "end"},
    },
    "end": {"run": "cat $STOKER_INPUT_n", "inputs": {"n": {"from": "more.n"}}},
}


def test_a_loop_hands_on_its_state(cli: Cli) -> None:
    """A step gets the newest `n` on its path: that of start in the first round, then that of the
    loop; `until` always comes from start."""
    done = cli.run(COUNT)
    assert done.code == 0, done.err
    run = max((cli.store / "runs").iterdir())
    assert sorted(p.name for p in (run / "more").iterdir()) == ["2", "3", "4", "5", "6"]
    assert (run / "end/7/1/stdout.log").read_text() == "5\n"


@pytest.mark.parametrize(
    ("verdict", "code", "said"),
    [
        ("long", 0, ""),
        ("short", 1, "step 'long' has no output 'o' for it"),
        ("other", 1, "its switch on 'v' got 'other', but its cases are long, short"),
    ],
)
def test_cases_that_meet(cli: Cli, verdict: str, code: int, said: str) -> None:
    steps = {
        "start": {
            "run": f"echo '{json.dumps(verdict)}' > $STOKER_OUTPUT/v",
            "outputs": ["v"],
            "switch": "v",
            "cases": {"long": "long", "short": "end"},
        },
        "long": {"run": "echo 7 > $STOKER_OUTPUT/o", "outputs": ["o"], "next": "end"},
        "end": {"run": "cat $STOKER_INPUT_o", "inputs": {"o": {"from": "long.o"}}},
    }
    done = cli.run(steps)
    assert done.code == code, done.err
    assert said in done.err


def test_no_items_is_told(cli: Cli) -> None:
    steps = {
        "start": {
            "run": "echo [] > $STOKER_OUTPUT/xs",
            "outputs": ["xs"],
            "next": "a",
            "foreach": "xs",
        },
        "a": {"run": "true", "next": "j"},
        "j": {"run": "true", "join": True},
    }
    done = cli.run(steps)
    assert done.code == 1
    assert (
        "start/1 failed: its foreach over 'xs' has no items; give it at least one item" in done.err
    )
