"""`stoker run --echo`, which shows the output of steps on stdout and stderr while they run; `stoker
tag`."""

from __future__ import annotations

import re

from cli_tools import WAIT_S, Cli


def lines_of(text: str, step: str) -> list[str]:
    """The lines of one step, without the prefix."""
    found = re.findall(rf"^\[[0-9a-f-]+/{step}(?: \(pid \d+\))?\] (.*)$", text, re.MULTILINE)
    return [re.sub(r"after [\d.]+ m?s", "after T", line) for line in found]


def test_lines_come_while_the_step_runs(cli: Cli) -> None:
    """The step continues only after its line was read, so the line came before the end."""
    wait = "while [ ! -e ok ]; do sleep 0.02; done"
    document = cli.document({"a": {"run": f"echo one; printf tw; {wait}; echo o; printf three"}})
    run = cli.start("run", "-q", "--echo", document)
    assert run.stdout is not None
    started, first = run.stdout.readline(), run.stdout.readline()
    assert started.endswith("] Started.\n") and first.endswith("] one\n"), (started, first)
    assert re.match(r"\[[0-9a-f-]+/a \(pid \d+\)\] ", first)
    cli.write("ok", "")
    rest, _ = run.communicate(timeout=WAIT_S)
    assert lines_of(rest, "a") == ["two", "three", "Finished successfully after T."]


def test_streams_ends_and_attempts(cli: Cli) -> None:
    """Each stream goes to its counterpart; all lines of a step come before its end; causes are
    shown."""
    many = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; echo bad >&2; exit 3"
    run = cli.run(
        {"a": {"run": many, "retry": {"max_retries": 1, "delay": 0}}, "b": {"run": "echo b"}},
        "-q",
        "--echo",
    )
    assert run.code == 1
    assert lines_of(run.out, "b") == ["Started.", "b", "Finished successfully after T."]
    out = lines_of(run.out, "a")
    assert [line for line in out if line.startswith("Started")] == [
        "Started.",
        "Started, attempt 2.",
    ]
    assert [line for line in out if line.startswith("line")] == [
        f"line {i}" for i in range(2000)
    ] * 2
    assert lines_of(run.err, "a") == [
        "bad",
        "Failed after T: exit status 3; it will be tried again.",
        "bad",
        "Failed after T: exit status 3.",
    ]
    again = cli("run", "-q", "--echo", "p.json")
    assert re.fullmatch(r"Not run: .* run \d\S+\.", lines_of(again.out, "b")[0])


def test_long_line_and_secret(cli: Cli) -> None:
    """A line without an end is shown in time; a secret's value never appears."""
    run = cli.run(
        {
            "long": {"run": "head -c 200000 /dev/zero | tr '\\0' x"},
            "hush": {
                "run": 'echo "it is $KEY"; sleep 0.3',
                "secrets": ["KEY"],
            },  # sleeps: to be read live
        },
        "-q",
        "--echo",
        env={"STOKER_SECRET_KEY": "swordfish"},
    )
    assert run.code == 0, run.err
    assert sum(line.count("x") for line in lines_of(run.out, "long")) == 200000
    assert "swordfish" not in run.out + run.err and "it is *********" in run.out


def test_tags_of_a_live_run(cli: Cli) -> None:
    """Other processes can tag a run while its engine commits, and after its end."""
    wait = "echo > here; while [ ! -e ok ]; do sleep 0.02; done"
    document = cli.document({"a": {"run": wait}, "b": {"run": "true", "after": ["a"]}}, tags=["x"])
    run = cli.start("run", "-q", document)
    cli.until("here")
    assert cli.json("tag", "latest")["tags"] == ["x"]
    assert cli.json("tag", "latest", "--add", "y", "--add", "ä b", "--remove", "x")["tags"] == [
        "y",
        "ä b",
    ]
    cli.write("ok", "")
    assert run.wait(WAIT_S) == 0
    assert cli.json("show", "latest")["tags"] == ["y", "ä b"]
    assert cli.json("show", "latest")["steps"]["b"]["status"] == "succeeded"
    assert cli.json("tag", "latest", "--replace", "z")["tags"] == ["z"]
    assert [r["tags"] for r in cli.json("runs", "--tag", "z")] == [["z"]]
    assert cli.json("runs", "--tag", "z", "--tag", "y") == []
    assert cli("tag", "latest").out == "z\n"
    for wrong in (["--add", ""], ["--add", "x" * 501]):
        assert cli("tag", "latest", *wrong).code == 2
    assert cli("tag", "nothing", "--add", "a").code == 2
