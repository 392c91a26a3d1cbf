"""Growing graphs of YAML and command steps: their order, what each task sees, and resuming."""

from __future__ import annotations

import collections
import json
import sqlite3
from typing import Any

import pytest
from cli_tools import Cli

Rows = list[tuple[str, int | None, dict[str, Any]]]


def events(cli: Cli, run: str | None = None) -> Rows:
    """(kind, task, data) of a run's events (default: the newest run), in order."""
    with sqlite3.connect(cli.store / "store.db") as db:
        row = db.execute(
            "SELECT id FROM runs WHERE ? IS NULL OR run = ? ORDER BY id DESC LIMIT 1",
            (run, run),
        ).fetchone()
        found = db.execute(
            "SELECT kind, task, data FROM events WHERE id >> 32 = ? ORDER BY id", row[:1]
        ).fetchall()
    return [(kind, task, json.loads(data or "{}")) for kind, task, data in found]


def of(rows: Rows, kind: str) -> list[tuple[int | None, dict[str, Any]]]:
    return [(task, data) for k, task, data in rows if k == kind]


def journal(cli: Cli) -> collections.Counter[str]:
    path = cli.folder / "journal"
    return collections.Counter(path.read_text().split() if path.exists() else [])


def newest(cli: Cli) -> str:
    with sqlite3.connect(cli.store / "store.db") as db:
        return db.execute("SELECT run FROM runs ORDER BY id DESC LIMIT 1").fetchone()[0]


def stdout(cli: Cli, task: str, attempt: int = 1) -> str:
    """The stdout of `STEP/ID` of the newest run."""
    return (cli.store / "runs" / newest(cli) / task / str(attempt) / "stdout.log").read_text()


WIDE = {
    "start": {
        "run": 'echo start >> journal; echo "[10, \\"b c\\", {\\"d\\": 1}]" > $STOKER_OUTPUT/todo',
        "outputs": ["todo"],
        "next": "work",
        "foreach": "todo",
    },
    "work": {
        "run": "echo work$STOKER_INDEX >> journal; "
        'printf "%s|%s|%s|%s" "$STOKER_ITEM" "$STOKER_PARAM_x" $STOKER_INDEX $STOKER_TASK; '
        'test "$(cat $STOKER_INPUT_all)" = "$(cat $STOKER_INPUT_all)"; echo $STOKER_INDEX > $STOKER_OUTPUT/part',
        "inputs": {"x": {"item": True}, "all": {"from": "start.todo"}},
        "outputs": ["part"],
        "next": "gather",
    },
    "gather": {
        "run": "echo gather >> journal; cat $STOKER_INPUT_parts/*; echo '\"yes\"' > $STOKER_OUTPUT/verdict",
        "join": True,
        "inputs": {"parts": {"from": "work.part"}},
        "outputs": ["verdict"],
        "switch": "verdict",
        "cases": {"yes": "good", "no": "bad"},
    },
    "good": {"run": "echo good >> journal", "next": "end"},
    "bad": {"run": "echo bad >> journal", "next": "end"},
    "end": {"run": "echo end >> journal"},
}


def test_foreach_join_switch(cli: Cli) -> None:
    assert cli.run(WIDE).code == 0
    assert journal(cli) == collections.Counter(
        ["start", "work0", "work1", "work2", "gather", "good", "end"]
    )
    assert stdout(cli, "work/2") == "10|10|0|2"
    assert stdout(cli, "work/3") == '"b c"|b c|1|3'
    assert stdout(cli, "work/4") == '{"d":1}|{"d":1}|2|4'
    assert stdout(cli, "gather/5") == "0\n1\n2\n"
    rows = events(cli)
    assert [row[:2] for row in rows[:2]] == [("run_created", None), ("task_added", 0)]
    assert of(rows, "task_added")[1] == (
        1,
        {"step": "work", "n": 3, "deps": [0], "split": 0, "branch": 0},
    )
    assert dict(of(rows, "task_succeeded"))[4]["next"] == {"steps": ["good"], "n": 0}


def test_what_a_task_is_told(cli: Cli) -> None:
    assert cli.run(WIDE).code == 0
    folder = cli.store / "runs" / newest(cli)
    work = json.loads((folder / "work/3/1/task.json").read_text())
    flow = work["flow"]
    assert (work["task"], work["step"]) == (3, "work")
    assert flow["parents"] == [{"step": "start", "task": 1, "rank": 0, "scope": {"todo": 0}}]
    assert len(flow["refs"]) == 1
    frame = flow["foreach"][0]
    assert (frame["step"], frame["task"], frame["index"], frame["n"]) == ("start", 1, 1, 3)
    assert frame["list"] == flow["refs"][0] and frame["items"] is None
    gather = json.loads((folder / "gather/5/1/task.json").read_text())["flow"]
    assert [p["task"] for p in gather["parents"]] == [2, 3, 4]
    assert len({p["scope"]["todo"] for p in gather["parents"]}) == 1  # each ref once
    assert len(gather["refs"]) == 4 and gather["join"] and gather["foreach"] == []
    assert gather["cases"] == {"yes": "good", "no": "bad"} and gather["grows"] == "switch"


@pytest.mark.parametrize(
    "output, text, words",
    [
        ("todo", "[]", ["todo", "no items"]),
        ("todo", '{"a": 1}', ["todo", "a mapping", "JSON list"]),
        ("todo", "nonsense", ["todo", "not JSON"]),
        ("verdict", '"maybe"', ["maybe", "yes", "no"]),
    ],
)
def test_what_cant_follow_is_the_steps_failure(
    cli: Cli, output: str, text: str, words: list[str]
) -> None:
    step = "start" if output == "todo" else "gather"
    steps = json.loads(json.dumps(WIDE))
    steps[step]["run"] = f"echo '{text}' > $STOKER_OUTPUT/{output}"
    run = cli.run(steps)
    assert run.code == 1
    (task, data) = of(events(cli), "task_failed")[-1]
    assert data["class"] == "usage" and data["final"]
    assert all(word in data["text"] for word in words), data["text"]
    assert not any(t == task for t, _ in of(events(cli), "task_succeeded"))


def test_resume_runs_what_is_missing(cli: Cli) -> None:
    steps = json.loads(json.dumps(WIDE))
    steps["work"]["run"] = (
        "echo work$STOKER_INDEX >> journal; [ $STOKER_INDEX != 1 -o -e mended ] || exit 3; "
        "echo $STOKER_INDEX > $STOKER_OUTPUT/part"
    )
    assert cli.run(steps, "--max-workers", "1").code == 1
    before = journal(cli)
    assert before["work0"] == 1 and before["work1"] == 1 and before["gather"] == 0
    cli.write("mended", "")
    assert cli("resume", "latest").code == 0
    after = journal(cli)
    assert after == before + collections.Counter(["work1", "work2", "gather", "good", "end"])
    assert stdout(cli, "gather/5") == "0\n1\n2\n"


def test_what_is_gone_from_the_store_is_made_again(cli: Cli) -> None:
    steps = json.loads(json.dumps(WIDE))
    steps["gather"]["run"] = (
        "echo gather >> journal; [ -e mended ] || exit 3; " + WIDE["gather"]["run"]
    )
    assert cli.run(steps).code == 1
    part = dict(of(events(cli), "task_succeeded"))[2]["outputs"]["part"]["digest"]
    path = cli.store / "artifacts" / part[:2] / part[2:]
    path.parent.chmod(0o755)
    path.chmod(0o644)
    path.unlink()
    cli.write("mended", "")
    before = journal(cli)
    assert cli("resume", "latest").code == 0
    made = journal(cli) - before
    assert made["work1"] == 1 and made["work0"] + made["work2"] == 0
    assert stdout(cli, "gather/5", 2) == "0\n1\n2\n"


def test_a_clone_takes_over_what_had_succeeded(cli: Cli) -> None:
    steps = json.loads(json.dumps(WIDE))
    steps["gather"]["run"] = (
        "echo gather >> journal; [ -e mended ] || exit 3; " + WIDE["gather"]["run"]
    )
    name = cli.document(steps)
    assert cli("run", name).code == 1
    first = newest(cli)
    before = journal(cli)
    cli.write("mended", "")
    assert cli("run", "--clone", first, name).code == 0
    assert set(journal(cli) - before) == {"gather", "good", "end"}
    cached = of(events(cli), "task_cached")
    assert [task for task, _ in cached] == [0, 1, 2, 3]
    assert all(data["from_run"] == first for _, data in cached)
    told = cli.store / "runs" / newest(cli) / "gather/5/1/task.json"
    assert json.loads(told.read_text())["flow"]["origin_run"] == first
    before = journal(cli)
    assert cli("run", "--clone", "latest", "--clone-until", "work", name).code == 0
    assert set(journal(cli) - before) == set(before) - {"start"}


def test_a_clone_alone_and_resume(cli: Cli) -> None:
    name = cli.document(WIDE)
    assert cli("run", name).code == 0
    before = journal(cli)
    assert cli("run", "--clone", "latest", "--clone-until", "good", "--clone-only", name).code == 0
    assert journal(cli) == before
    assert of(events(cli), "run_ended")[0][1]["status"] == "interrupted"
    assert cli("resume", "latest").code == 0
    assert set(journal(cli) - before) == {"good", "end"}


def test_clone_says_what_it_cant(cli: Cli) -> None:
    name = cli.document(WIDE)
    assert cli("run", "--clone-only", name).code == 2
    missing = cli("run", "--clone", "20200101-000000-abcdef", name)
    assert missing.code != 0 and "20200101-000000-abcdef" in missing.err
    static = cli.document({"a": {"run": "true"}}, "static.json")
    assert cli("run", static).code == 0
    refused = cli("run", "--clone", "latest", static)
    assert refused.code == 2 and "cache" in refused.err


RANKS = {
    "start": {
        "run": "echo 3 > $STOKER_OUTPUT/n",
        "outputs": ["n"],
        "next": "train",
        "num_parallel": 3,
    },
    "train": {
        "run": "mkdir -p $STOKER_RANK_DIR/out; echo $RANK/$WORLD_SIZE >> journal; "
        "to=$STOKER_OUTPUT; [ $RANK = 0 ] || to=$STOKER_RANK_DIR/out; echo made by $RANK > $to/w",
        "outputs": ["w"],
        "next": "gather",
    },
    "gather": {
        "run": "cat $STOKER_INPUT_ws/*",
        "join": True,
        "inputs": {"ws": {"from": "train.w"}},
    },
}


def test_num_parallel_is_one_gang_whose_ranks_are_joined(cli: Cli) -> None:
    assert cli.run(RANKS).code == 0
    assert journal(cli) == collections.Counter(["0/3", "1/3", "2/3"])
    assert stdout(cli, "gather/3") == "made by 0\nmade by 1\nmade by 2\n"
    rows = events(cli)
    assert of(rows, "task_added")[1][1]["ranks"] == 3
    ranks = dict(of(rows, "task_succeeded"))[1]["ranks"]
    assert len(ranks) == 2 and all(set(one["outputs"]) == {"w"} for one in ranks)
    told = json.loads((cli.store / "runs" / newest(cli) / "gather/3/1/task.json").read_text())
    assert [(p["task"], p["rank"]) for p in told["flow"]["parents"]] == [(2, 0), (2, 1), (2, 2)]
    assert cli("store", "gc").code == 0 and cli("store", "verify").code == 0
    before = journal(cli)
    again = cli("run", "--clone", "latest", "p.json")
    assert again.code == 0 and journal(cli) == before  # the artifacts of every rank are kept


def test_ranks_that_dont_fit_are_that_tasks_failure(cli: Cli) -> None:
    cli.devices("GPU-0", "GPU-1")
    steps = json.loads(json.dumps(RANKS))
    steps["train"]["resources"] = {"gpu_count": 1}
    assert cli.run(steps).code == 1
    task, data = of(events(cli), "task_failed")[0]
    assert (task, data["class"], data["final"]) == (1, "resources", True)
    assert "3 ranks" in data["text"] and "3 devices" in data["text"]
    assert dict(of(events(cli), "task_succeeded")).keys() == {0}


@pytest.mark.parametrize("good", [True, False])
def test_fallback_is_one_more_attempt_that_is_told(cli: Cli, good: bool) -> None:
    cli.write(
        "step.py",
        "import json, os, sys\n"
        "told = json.load(open(os.environ['STOKER_TASK_DIR'] + '/task.json'))['flow']['fallback']\n"
        "print(json.dumps(told))\n"
        f"sys.exit(0 if told and {good} else 5)\n",
    )
    steps = {
        "start": {
            "run": "python3 step.py",
            "fallback": True,
            "retry": {"max_retries": 1, "delay": 0},
            "next": "end",
        },
        "end": {"run": "echo end >> journal"},
    }
    assert cli.run(steps).code == (0 if good else 1)
    assert [json.loads(stdout(cli, "start/1", n)) for n in (1, 2)] == [None, None]
    told = json.loads(stdout(cli, "start/1", 3))
    assert (told["class"], told["text"]) == ("exit", "exit status 5")
    assert not (cli.store / "runs" / newest(cli) / "start/1/4").exists()
    assert journal(cli)["end"] == good


def test_the_content_cache_is_for_who_asks(cli: Cli) -> None:
    assert cli.run(WIDE).code == 0
    first = journal(cli)
    assert cli.run(WIDE).code == 0
    assert journal(cli) == first + first
    assert cli.run(WIDE, cache=True).code == 0
    before = journal(cli)
    assert cli.run(WIDE, cache=True).code == 0
    assert journal(cli) == before
    assert len(of(events(cli), "task_cached")) == 7
    other = json.loads(json.dumps(WIDE))
    other["work"]["run"] += "; echo more"
    assert cli.run(other, cache=True).code == 0
    assert set(journal(cli) - before) == {"work0", "work1", "work2"}  # made the same


def test_a_loop_by_a_switch(cli: Cli) -> None:
    steps = {
        "start": {"run": "echo 0 > $STOKER_OUTPUT/n", "outputs": ["n"], "next": "again"},
        "again": {
            "run": "echo round >> journal; n=$(($(wc -l < journal))); "
            "[ $n -lt 5 ] && echo true > $STOKER_OUTPUT/more || echo false > $STOKER_OUTPUT/more",
            "outputs": ["more"],
            "switch": "more",
            "cases": {"true": "again", "false": "end"},
        },
        "end": {"run": "true"},
    }
    assert cli.run(steps).code == 0
    assert journal(cli)["round"] == 5
    assert [t for t, _ in of(events(cli), "task_succeeded")] == list(range(7))
    assert cli("run", "--clone", "latest", "p.json").code == 0
    assert journal(cli)["round"] == 5


def test_checkpoints_are_each_tasks_own(cli: Cli) -> None:
    steps = json.loads(json.dumps(WIDE))
    steps["work"] |= {
        "run": "mkdir -p $STOKER_CHECKPOINT_DIR; ls $STOKER_CHECKPOINT_DIR | wc -l; "
        "touch $STOKER_CHECKPOINT_DIR/$STOKER_INDEX; echo 1 > $STOKER_OUTPUT/part",
        "keep_checkpoints": True,
    }
    assert cli.run(steps).code == 0
    folder = cli.store / "runs" / newest(cli) / "work"
    for i in range(3):
        assert stdout(cli, f"work/{i + 2}").strip() == "0"
        assert [p.name for p in (folder / str(i + 2) / "checkpoints").iterdir()] == [str(i)]


def test_a_rank_that_dies_ends_the_gang_at_once(cli: Cli) -> None:
    steps = json.loads(json.dumps(RANKS))
    steps["train"]["run"] = "[ $RANK = 1 ] && exit 3; sleep 3000"
    assert cli.run(steps).code == 1
    task, data = of(events(cli), "task_failed")[0]
    assert (task, data["rank"]) == (1, 1) and "rank 1 failed: exit status 3" in data["text"]
    assert 0 <= data["noticed_us"] < 100_000 * 10  # ten times what it takes, on a busy machine
    assert not any(data["step"] == "gather" for _, data in of(events(cli), "task_added"))


@pytest.mark.parametrize("size, inline", [(256, True), (257, False)])
def test_long_values_are_left_in_the_store(cli: Cli, size: int, inline: bool) -> None:
    steps = {
        "start": {
            "run": f"printf '\"%0{size - 2}d\"' 0 > $STOKER_OUTPUT/x",
            "outputs": {"x": {"type": "json"}},
            "next": "end",
        },
        "end": {"run": "wc -c < $STOKER_INPUT_x", "inputs": {"x": {"from": "start.x"}}},
    }
    assert cli.run(steps).code == 0
    made = dict(of(events(cli), "task_succeeded"))[0]["outputs"]["x"]
    assert ("value" in made, made["size"]) == (inline, size)
    assert stdout(cli, "end/2").strip() == str(size)


def test_a_clone_that_is_killed_goes_on_cloning(cli: Cli) -> None:
    name = cli.document(WIDE)
    assert cli("run", name).code == 0
    first, before = newest(cli), journal(cli)
    killed = cli("run", "--clone", first, name, STOKER_FAILPOINTS="store.commit.before:2:kill")
    assert killed.code == -9 and not of(events(cli), "task_cached")
    assert cli("resume", "latest").code == 0
    assert journal(cli) == before
    assert len(of(events(cli), "task_cached")) == 7


def test_hooks_that_a_killed_engine_owed_are_run_of_each_task(cli: Cli) -> None:
    steps = json.loads(json.dumps(WIDE))
    steps["work"]["hooks"] = {"on_success": {"run": "echo hook$STOKER_TASK >> journal"}}
    steps["gather"]["run"] = "[ -e mended ] || kill -9 $PPID; " + steps["gather"]["run"]
    assert cli.run(steps).code != 0
    cli.write("mended", "")
    assert cli("resume", "latest").code == 0
    counts = journal(cli)  # a task that ran when the engine was killed starts again
    assert all(counts[name] in (1, 2) for name in ("hook2", "hook3", "hook4"))
