"""A run is recorded together with its start or not at all, whenever its engine is killed."""

from __future__ import annotations

import re
import sqlite3

import pytest
from cli_tools import Cli, Steps

PASS = re.compile(r"^failpoint (\S+) \d+$", re.M)
SAY = {"run": "echo $STOKER_PARAM_word >> journal", "inputs": {"word": {"param": "word"}}}
GRAPHS: dict[str, Steps] = {
    "still": {"one": SAY, "two": {"run": "true", "after": ["one"]}},
    "grows": {"one": {**SAY, "next": "two"}, "two": {"run": "true"}},
}
WORDS = {"parameters": {"word": {"type": "str", "default": "none"}}}


def rows(cli: Cli) -> dict[str, list[str]]:
    """Events by run, including runs without events."""
    if not (cli.store / "store.db").exists():
        return {}
    with sqlite3.connect(cli.store / "store.db") as db:
        if db.execute("PRAGMA user_version").fetchone() == (0,):
            return {}
        found: dict[str, list[str]] = {run: [] for (run,) in db.execute("SELECT run FROM runs")}
        text = (
            "SELECT run, kind FROM events JOIN runs ON events.id >> 32 = runs.id ORDER BY events.id"
        )
        for run, kind in db.execute(text):
            found[run].append(kind)
    return found


@pytest.mark.parametrize("graph", GRAPHS)
def test_killed_while_it_begins(cli: Cli, graph: str) -> None:
    """Kills at each failpoint that an engine passes before its run is recorded."""
    document = cli.document(GRAPHS[graph], **WORDS)
    whole = cli("run", document, STOKER_FAILPOINTS="*:1+:log")
    passes = PASS.findall(whole.err)
    assert whole.code == 0 and passes.index("store.commit.after") >= 3, whole.err
    for number in range(1, passes.index("store.commit.after") + 2):
        before = rows(cli)
        journal = cli.write("journal", "")
        done = cli("run", "-p", "word=given", document, STOKER_FAILPOINTS=f"*:{number}:kill")
        assert done.code == -9, (passes[number - 1], done.err)
        new = {run: kinds for run, kinds in rows(cli).items() if run not in before}
        if new:
            (kinds,) = new.values()
            assert {"run_created", "run_started"} <= set(kinds), (passes[number - 1], kinds)
            (run,) = new
            resumed = cli("resume", run)
            assert resumed.code == 0, (passes[number - 1], resumed.err)
            assert (
                journal.read_text() == "given\n" and cli.json("show", run)["status"] == "succeeded"
            )
    assert new, "the last of these instants is after the commit"
    folders = {path.name for path in (cli.store / "runs").iterdir()}
    assert folders > set(rows(cli)), "no kill left a folder without a row"
    assert cli("store", "gc").code == 0
    assert {path.name for path in (cli.store / "runs").iterdir()} == set(rows(cli))


def test_one_that_cannot_begin_leaves_nothing(cli: Cli) -> None:
    document = cli.document(GRAPHS["still"], **WORDS)
    done = cli("run", document, STOKER_FAILPOINTS="store.commit.before:1:enospc")
    assert done.code not in (0, -9) and "resume" not in done.err, done.err
    assert rows(cli) == {} and list((cli.store / "runs").iterdir()) == []
    assert "no runs yet" in cli("resume").err


def test_of_an_older_program(cli: Cli) -> None:
    """An older program wrote the row before the first events; a run that was killed in between says
    so."""
    document = cli.document(GRAPHS["still"], **WORDS)
    assert cli("run", document).code == 0
    with sqlite3.connect(cli.store / "store.db") as db:
        db.execute("DELETE FROM events")
        db.execute("UPDATE runs SET status = 'running', ended_ms = 0")
    for words in (["resume"], ["resume", "latest"]):
        done = cli(*words)
        assert done.code == 2 and "'stoker run'" in done.err, done.err
