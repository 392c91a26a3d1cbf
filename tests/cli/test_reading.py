"""The reading commands on a real run: show, runs, logs, why, artifact, card, help --man, completion."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest
from cli_tools import WAIT_S, Cli, Run

STEPS = {
    "make": {"run": "echo made; echo 42 > $STOKER_OUTPUT/number", "outputs": ["number"]},
    "tree": {
        "run": "mkdir $STOKER_OUTPUT/folder; echo a > $STOKER_OUTPUT/folder/a",
        "outputs": ["folder"],
    },
    "broken": {
        "run": "echo something is wrong >&2; exit 3",
        "inputs": {"n": {"from": "make.number"}},
        "retry": {"max_retries": 1, "delay": 0.05},
    },
    "after": {"run": "true", "after": ["broken"]},
    "last": {"run": "true", "after": ["after"]},
}


@pytest.fixture
def ran(cli: Cli) -> Run:
    run = cli.run(STEPS)
    assert run.code == 1
    return run


def test_show(cli: Cli, ran: Run) -> None:
    text = cli("show", "latest", LANG="C.UTF-8").out
    assert "✗ broken failed: exit status 3 after 2 attempts [exit]" in text
    assert "│ something is wrong" in text
    assert "2 steps skipped because of 'broken': after, last" in text
    assert "make.number" in text and "tree.folder" in text
    assert "\x1b" not in text  # not a terminal
    assert "\x1b[31m" in cli("show", CLICOLOR_FORCE="1").out
    assert all(ord(c) < 128 for c in cli("show", LC_ALL="C").out)


def test_show_json(cli: Cli, ran: Run) -> None:
    assert ran.statuses == {
        "make": "succeeded",
        "tree": "succeeded",
        "broken": "failed",
        "after": "skipped",
        "last": "skipped",
    }
    error = ran.steps["broken"]["error"]
    assert error["class"] == "exit"
    assert error["text"] == "step 'broken' failed after 2 attempts: exit status 3"
    assert ran.steps["broken"]["attempts"] == 2
    assert ran.steps["broken"]["inputs"]["n"]["from"] == "make.number"
    assert (
        ran.steps["broken"]["inputs"]["n"]["digest"]
        == ran.steps["make"]["outputs"]["number"]["digest"]
    )
    assert ran.output("make", "number") == "42\n"
    one = cli.json("show", "latest/make")
    assert one == ran.steps["make"] == cli.json("show", "latest", "make")


def test_a_run_and_its_names(cli: Cli, ran: Run) -> None:
    run_id = ran.shown["run"]
    (row,) = cli.json("runs")
    assert (row["run"], row["pipeline"], row["status"]) == (run_id, "p", "failed")
    assert cli.json("show", run_id[:-1])["run"] == run_id  # a unique prefix
    assert cli.json("runs", "other") == []
    assert run_id in cli("runs", "--limit", "1").out


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["show", "nosuch"], 2, "nosuch"),
        (["show", "latest/brokn"], 2, "did you mean 'broken'?"),
        (["show", "latest", "make", "more"], 2, "'more' is one argument too many"),
        (["runs", "--limit", "x"], 2, "--limit: 'x' is not a whole number"),
        (["logs", "latest/nosuch"], 2, "has no step 'nosuch'"),
        (["artifact", "fetch"], 2, "'fetch':"),
        (["artifact", "get", "latest/make.nosuch"], 2, "has no output 'nosuch'"),
        (["artifact", "get", "nosuch"], 2, "no artifact is named 'nosuch'"),
        (
            ["artifact", "get", "latest/make.number", "--copy-to", "p.json"],
            2,
            "'p.json' ",
        ),
        (["artifact", "add", "p.json", "--meta", "[1]"], 2, "--meta is not a JSON object"),
        (["artifact", "add", "p.json", "--version", "2"], 2, "--version 2 needs --name"),
        (["artifact", "list", "--all"], 2, "--all is for 'artifact rm', not for 'list'"),
        (["artifact", "add", "p.json", "--copy-to", "x"], 2, "--copy-to is for 'artifact get'"),
        (["artifact"], 2, "list, get, path, add, mv or rm"),
        (["store", "verify", "more"], 2, "'more' is one argument too many"),
        (["cancel", "latest", "more"], 2, "'more' is one argument too many"),
        (["resume", "latest", "more"], 2, "'more' is one argument too many"),
        (["plan", "p.json", "make"], 2, "'make' is one argument too many"),
        (["help", "run", "show"], 2, "'show' is one argument too many"),
        (["completion"], 2, "stoker completion bash|zsh|fish"),
        (["doctor", "--simulate", "8xabacus"], 2, "no device 'abacus' is known"),
        (["doctor", "--python", "/no/python"], 2, "'/no/python' can't be started"),
        (["compat", "--", "/no/program"], 2, "'/no/program'"),
        (["simulate", "-c", "8xH100", "--mean", "0"], 2, "--mean '0'"),
        (["card", "latest", "--list"], 2, "RUN/STEP/ID"),
        (["completion", "tcsh"], 2, "'tcsh'"),
    ],
)
def test_wrong(cli: Cli, ran: Run, args: list[str], code: int, words: str) -> None:
    wrong = cli(*args)
    assert wrong.code == code
    assert words in wrong.err
    assert wrong.err.count("\n") == 1


def test_logs(cli: Cli, ran: Run) -> None:
    assert cli("logs", "latest/make").out == "made\n"
    assert cli("logs", "latest/broken", "--stderr").out == "something is wrong\n"
    assert cli("logs", "latest/broken", "--stdout").out == ""
    assert cli("logs", "latest").out == "make | made\nbroken | something is wrong\n"
    paths = {row["step"]: row for row in cli.json("logs", "latest")}
    assert Path(paths["make"]["stdout"]).read_text() == "made\n"
    assert paths["broken"]["attempt"] == 2


def test_logs_of_what_did_not_run(cli: Cli) -> None:
    document = cli.document({"make": {"run": "echo made"}})
    first = cli.run({"make": {"run": "echo made"}}).shown["run"]
    assert cli("run", document).code == 0
    whole, one = cli("logs", "latest"), cli("logs", "latest/make")
    assert (whole.code, whole.out, one.code, one.out) == (0, "", 0, "")
    assert whole.err.endswith(" has run, 1 came from the cache\n")
    assert one.err.endswith(f"came from the cache; it ran in: stoker logs {first}/make\n")
    assert cli("logs", f"{first}/make").out == "made\n"
    skipped = cli.run({"bad": {"run": "false"}, "after": {"run": "true", "after": ["bad"]}})
    assert skipped.code == 1 and "'after' has not run" in cli("logs", "latest/after").err


def test_logs_that_nobody_takes(cli: Cli) -> None:
    """`stoker logs | head` doesn't read the rest; what can't be written is told."""
    run = cli.run({"a": {"run": "echo a"}})
    os.truncate(run.steps["a"]["logs"]["stdout"], 1 << 40)
    with open("/dev/full", "w") as full:
        done = cli.start("logs", "latest/a", stdout=full)
        assert done.communicate(timeout=WAIT_S)[1].count("No space left") == 1
        assert done.returncode == 3
    head = cli.start("logs", "latest/a")
    assert head.stdout is not None and head.stdout.read(2) == "a\n"
    head.stdout.close()
    assert head.wait(WAIT_S) == 0


def test_logs_follow_a_running_step(cli: Cli) -> None:
    doc = cli.document(
        {"slow": {"run": "echo one; while [ ! -e go ]; do sleep 0.01; done; echo two", "cwd": "."}}
    )
    engine = cli.start("run", doc)
    while not list(cli.store.glob("runs/*/slow/0/1/stdout.log")):
        assert engine.poll() is None
    follower = cli.start("logs", "--follow", "latest/slow")
    assert follower.stdout is not None
    assert follower.stdout.readline() == "one\n"
    cli.write("go", "")
    assert follower.stdout.read() == "two\n"
    assert follower.wait(WAIT_S) == 0
    assert engine.wait(WAIT_S) == 0


def test_why(cli: Cli, ran: Run) -> None:
    assert "step 'broken' failed: exit status 3 [exit]" in cli("why", "latest").out
    assert "'broken', which has failed" in cli("why", "latest/last").out
    assert "step 'make' ran: " in cli("why", "latest", "make").out
    again = cli("run", "p.json")
    assert again.code == 1
    assert (
        "did not run: nothing that its result depends on has changed"
        in cli("why", "latest/make").out
    )
    assert cli.json("why", "latest/make")["step"] == "make"


def test_artifacts(cli: Cli, ran: Run) -> None:
    listed = {
        f"{row['step']}.{row['output']}": row for row in cli.json("artifact", "list", "latest")
    }
    assert set(listed) == {"make.number", "tree.folder"}
    digest = listed["make.number"]["digest"]
    for name in ("latest/make.number", "latest/make", digest):
        assert Path(cli("artifact", "path", name).out.strip()).read_text() == "42\n"
    assert cli("artifact", "get", "latest/make.number", "--copy-to", "copy").code == 0
    assert cli("artifact", "get", "latest/tree", "--copy-to", "folder").code == 0
    assert (cli.folder / "copy").read_text() == "42\n"
    assert (cli.folder / "folder/a").read_text() == "a\n"
    added = json.loads(
        cli(
            "artifact",
            "add",
            "copy",
            "--format",
            "text",
            "--type",
            "builtins.str",
            "--meta",
            '{"a": 1}',
            "--name",
            "n",
        ).out
    )
    assert (added["digest"], added["size"]) == (digest, 3)
    named = cli.json("artifact", "get", "n:1")
    assert (named["name"], named["format"], named["type"], named["meta"]) == (
        "n",
        "text",
        "builtins.str",
        {"a": 1},
    )
    assert "n:1" in cli("artifact", "list").out


def test_card(cli: Cli, ran: Run) -> None:
    path = Path(cli("card", "latest").out.strip())
    assert (
        path
        == Path(cli.json("card", "latest")["path"])
        == cli.store / "runs" / ran.shown["run"] / "card.html"
    )
    page = path.read_text()
    assert "Step <b>broken</b> failed: exit status 3" in page
    assert "://" not in page
    assert cli("card", "latest", "--output", "mine.html").code == 0
    assert "broken" in (cli.folder / "mine.html").read_text()


def test_manual_pages_and_completion(cli: Cli) -> None:
    words = [line.split()[0] for line in cli("help").out.splitlines() if line.startswith("  ")]
    assert {"run", "show", "card", "completion", "rm"} <= set(words)
    heads = [line for line in cli("help").out.splitlines() if re.fullmatch("[a-z]+:", line)]
    assert heads == ["run:", "look:", "store:", "machines:", "more:"]
    groups = {one["command"]: one["group"] for one in cli.json("help")["commands"]}
    assert [groups[word] for word in words] == sorted(
        (groups[word] for word in words), key=lambda group: heads.index(f"{group}:")
    )
    for text in (cli("help", "run").out, cli("help", "--man", "run").out):
        assert "max-workers" in text.replace("\\", "") and "fd" not in text
    for word in words:
        page = cli("help", "--man", word).out
        assert page.startswith(f".TH STOKER-{word.upper()} 1")
        assert "EXIT STATUS" in page
    assert "stoker\\-show" in cli("help", "--man").out
    script = cli("completion", "bash").out
    bash = shutil.which("bash")
    assert bash is not None
    cli.write("p.yaml", "")
    ask = (
        f"PATH={cli.binary.parent}:$PATH\n{script}\n"
        'for words in "stoker ru" "stoker show lat" "stoker artifact g" "stoker runs --l" "stoker run --policy s" \\\n'
        '"stoker store p" "stoker metadata lat" "stoker completion b" "stoker help resu" "stoker run p.y"; do\n'
        "COMP_WORDS=($words); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _stoker; echo ${COMPREPLY[*]}; done\n"
    )
    done = subprocess.run(
        [bash, "-c", ask], cwd=cli.folder, env=cli.env, capture_output=True, text=True
    )
    words = done.stdout.splitlines()
    assert words[:5] == ["run runs", "latest", "get", "--limit", "strict"], done.stderr
    assert words[5:] == ["path", "latest", "bash", "resume", "p.yaml"], done.stderr


def test_completion_of_fish(cli: Cli, ran: Run) -> None:
    fish = shutil.which("fish")
    if fish is None:
        pytest.skip("needs fish")
    cli.write("s.fish", cli("completion", "fish").out)
    run = cli.json("show", "latest")["run"]
    for line, expected in {
        "stoker ru": {"run", "runs"},
        "stoker show 2": {run},
        "stoker run --policy ": {"fit", "strict"},
        "stoker store ": {"path", "verify", "gc", "rm"},
        "stoker run --max": {"--max-workers"},
        "stoker run --spec-": set(),
    }.items():
        done = subprocess.run(
            [fish, "-c", f"source s.fish; complete -C '{line}'"],
            cwd=cli.folder,
            env={**cli.env, "PATH": f"{cli.binary.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=True,
        )
        assert {word.split("\t")[0] for word in done.stdout.splitlines()} >= expected, line
        assert ("spec-fd" in done.stdout) is False


def test_completion_of_zsh(cli: Cli) -> None:
    """Two words, each completed by the tab key."""
    zsh = shutil.which("zsh")
    if zsh is None:
        pytest.skip("needs zsh")
    script = """
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z 'eval "$(stoker completion zsh)"; echo REA""DY'
zpty -r z out '*READY*'
zpty -w -n z $'stoker comple\\t fis\\t\\n'
zpty -r z out '*complete -c stoker*'
"""
    subprocess.run(
        [zsh, "-f", "-c", script],
        cwd=cli.folder,
        env={**cli.env, "PATH": f"{cli.binary.parent}:{os.environ['PATH']}"},
        check=True,
        timeout=120,
    )
    wrong = cli("completion", "tcsh")
    assert wrong.code == 2 and "'tcsh'" in wrong.err and "bash|zsh|fish" in wrong.err


def test_what_prints_text_answers_as_json_too(cli: Cli, ran: Run) -> None:
    commands = cli.json("help")["commands"]
    assert {"run", "metadata"} <= {c["command"] for c in commands}
    run = cli.json("help", "run")
    assert {"--policy", "--detach"} <= {o["option"] for o in run["options"]}
    assert "_stoker()" in cli.json("completion", "bash")["script"]
    assert cli.json("compat", "--path")["path"].endswith("/stoker/_compat")


def test_runs_of_a_pipeline_that_has_none(cli: Cli, ran: Run) -> None:
    found = cli("runs", "nosuch")
    assert found.code == 0 and "no runs of pipeline 'nosuch'" in found.out


def test_a_tag_that_no_text_can_hold(ran: Run, cli: Cli) -> None:
    """A record of another program: it is listed, together with the others."""
    assert cli("tag", "latest", "--add", "aXb", "--add", "good").code == 0
    with sqlite3.connect(cli.store / "store.db") as db:
        db.execute("UPDATE events SET data = replace(data, 'aXb', 'a\\u0000b')")
    shown = cli("tag", "latest")
    assert shown.code == 0 and shown.out == "?\ngood\n"
    assert cli.json("tag", "latest")["tags"] == ["a\0b", "good"]


def test_metadata_and_artifacts_of_no_object(ran: Run, cli: Cli) -> None:
    for words in (
        ("metadata", "latest", "[1]"),
        ("metadata", "latest", "{"),
        ("artifact", "add", "/dev/null", "--meta", "3"),
    ):
        done = cli(*words)
        assert done.code == 2 and "is not a JSON object: " in done.err


def test_a_step_of_the_latest_run(cli: Cli, ran: Run) -> None:
    """A word that isn't a run names a step of the latest run."""
    for command in ("show", "logs", "why", "card"):
        words = [command, "--json"] if command == "logs" else [command]
        alone, whole = cli(*words, "broken"), cli(*words, "latest/broken")
        assert alone.code == whole.code == 0, alone.err
        assert alone.out == whole.out
    assert cli("logs", "broken/0").out == cli("logs", "broken").out
    older = cli.json("show", "latest")["run"]
    assert cli.run({"other": {"run": "true"}}).code == 0
    gone = cli("why", "broken")
    assert gone.code != 0 and "no run 'broken'" in gone.err and "no step 'broken'" in gone.err
    assert cli("why", f"{older}/broken").code == 0
    near = cli("why", "othr")
    assert near.code != 0 and "did you mean 'other'" in near.err
    assert "no task '7'" in cli("logs", "other/7").err
    assert "it is a pipeline: 'stoker runs p' lists its runs" in cli("show", "p").err


def test_what_to_type_next(cli: Cli, ran: Run) -> None:
    """The commands in the last line of a failed run work as printed."""
    run = cli.json("show", "latest")["run"]
    last = ran.err.splitlines()[-1].split("next")[1]
    commands = [part.split()[1:] for part in last.replace("·", ",").split(",")]
    assert commands == [["logs", "broken"], ["why", "broken"], ["resume", run]]
    assert "something is wrong" in cli(*commands[0]).out + cli(*commands[0]).err
    assert cli(*commands[1]).code == 0
    assert cli(*commands[2]).code == 1  # it fails again
    assert cli.run({"fine": {"run": "true"}}).code == 0
    assert "next" not in cli("show").out
    assert f"stoker logs {run}/broken" in cli("show", run).out.splitlines()[-1]
