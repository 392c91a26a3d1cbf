"""Secrets: stars in shown text, never in data; logs never have a value on the disk, whichever
process dies."""

from __future__ import annotations

import json
import os
import signal
import stat
from pathlib import Path

import pytest
from cli_tools import PYTHON, WAIT_S, Cli, Run, wait_for

SECRET = "hunter2-hunter2"
STARS = "*" * len(SECRET)
LINES = 'first line of it\nsecond "line" of it'
ENV = {"STOKER_SECRET_token": SECRET, "STOKER_SECRET_lines": LINES}


def attempt(cli: Cli, step: str = "a") -> Path:
    (found,) = cli.store.glob(f"runs/*/{step}/0/1")
    return found


def log(cli: Cli, step: str = "a", stream: str = "stdout") -> str:
    path = [*cli.store.glob(f"runs/*/{step}/0/1/{stream}.log")]
    return path[0].read_text() if path else ""


def nowhere(cli: Cli, *texts: str) -> None:
    for path in cli.store.rglob("*"):
        if path.is_file() and not path.is_symlink():
            kept = path.read_bytes()
            assert not any(text.encode() in kept for text in texts), path


def scribes(engine: int) -> list[int]:
    """The processes of an engine that hide secrets."""
    found = []
    for proc in Path("/proc").iterdir():
        try:
            fields = (proc / "stat").read_text().rpartition(")")[2].split()
            if int(fields[1]) == engine and (proc / "comm").read_text() == "stoker-scribe\n":
                found.append(int(proc.name))
        except (OSError, ValueError, IndexError):
            pass
    return found


STEPS = """
import json, os, sys
def say():
    for stream in (sys.stdout, sys.stderr):
        print("it is", os.environ["token"], "and", os.environ["lines"], "and",
              json.dumps(os.environ["lines"]), file=stream)
    os.write(1, os.environ["token"][:7].encode())
    os.write(1, os.environ["token"][7:].encode() + b", cut in two\\n")
def say_and_fail():
    say()
    raise ValueError("bad token " + os.environ["token"])
def give():
    from stoker import get_step_context, log_metadata
    log_metadata({"latest": os.environ["token"]})
    return {"test": os.environ["token"], "latest": 1}
"""

KINDS = {
    "command": {"run": [PYTHON, "-c", "import steps; steps.say()"]},
    "fork": {"python": "steps:say"},
    "spawn": {"python": "steps:say", "isolation": "spawn"},
    "ranks": {"run": [PYTHON, "-c", "import steps; steps.say()"], "gang": {"ranks": 2}},
    "python ranks": {"python": "steps:say", "gang": {"ranks": 2}},
    "hook": {
        "run": "true",
        "hooks": {"on_success": {"run": f"{PYTHON} -c 'import steps; steps.say()'"}},
    },
}


def run(cli: Cli, step: dict[str, object], **more: object) -> Run:
    cli.write("steps.py", STEPS)
    cli.env["PYTHONPATH"] = f"{cli.folder}:{cli.env['PYTHONPATH']}"
    step = {"secrets": ["token", "lines"], **step}
    return cli.run({"a": step}, "--python", PYTHON, timeout=60, env=ENV, **more)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_it_is_in_a_log(cli: Cli, kind: str) -> None:
    ran = run(cli, KINDS[kind])
    assert ran.code == 0, ran.err
    out, err = ran.text("a"), ran.text("a", "stderr")
    n = 2 if "ranks" in kind else 1
    assert out.count(f"it is {STARS} and") == err.count(f"it is {STARS} and") == n
    assert out.count(f"{STARS}, cut in two") == n
    nowhere(cli, SECRET, "first line of it", "second ")
    assert SECRET not in ran.out + ran.err


def test_a_failure_is_shown_without_it(cli: Cli) -> None:
    ran = run(cli, {"python": "steps:say_and_fail"})
    assert ran.code == 1 and f"bad token {STARS}" in ran.cause("a")
    nowhere(cli, SECRET)


def test_what_a_command_says_of_its_failure(cli: Cli) -> None:
    """Its result.json stays as it is; text shown from it has stars."""
    said = {"stoker": 1, "status": "failed", "warnings": [], "error": {"message": f"bad {SECRET}"}}
    body = f"echo '{json.dumps(said)}' > $STOKER_TASK_DIR/result.json; exit 3"
    ran = run(cli, {"run": body.replace(SECRET, "'\"$token\"'")})
    assert f"bad {STARS}" in ran.cause("a") and SECRET not in ran.out + ran.err
    assert json.loads((attempt(cli) / "result.json").read_text())["error"] == said["error"]
    assert SECRET.encode() not in (cli.store / "store.db").read_bytes()


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
def test_data_is_never_changed(cli: Cli, isolation: str) -> None:
    step = {"python": "steps:give", "isolation": isolation, "outputs": ["output"]}
    cli.write("steps.py", STEPS)
    cli.env["PYTHONPATH"] = f"{cli.folder}:{cli.env['PYTHONPATH']}"
    env = {"STOKER_SECRET_token": "test", "STOKER_SECRET_output": "output"}
    ran = cli.run({"a": {**step, "secrets": ["token", "output"]}}, "--python", PYTHON, env=env)
    assert ran.code == 0, ran.err
    assert ran.steps["a"]["outputs"]["output"]["value"] == {"test": "test", "latest": 1}
    assert ran.steps["a"]["metadata"] == {"latest": "test"}


def test_the_data_of_a_command_is_never_changed(cli: Cli) -> None:
    said = {"stoker": 1, "status": "ok", "metadata": {"latest": "test"}}
    said["outputs"] = {"latest": {"value": "a test"}, "output": {"value": "output"}}
    env = {"STOKER_SECRET_a": "test", "STOKER_SECRET_b": "output"}
    body = f"echo '{json.dumps(said)}' > $STOKER_TASK_DIR/result.json"
    step = {"run": body, "outputs": ["latest", "output"], "secrets": ["a", "b"]}
    ran = cli.run({"a": step}, env=env)
    assert ran.code == 0, ran.err
    values = {name: one["value"] for name, one in ran.steps["a"]["outputs"].items()}
    assert values == {"latest": "a test", "output": "output"}
    assert ran.steps["a"]["metadata"] == {"latest": "test"}


def test_a_graph_that_grows_keeps_its_items(cli: Cli) -> None:
    steps = {
        "start": {
            "run": 'echo "[\\"$token\\", 2]" > $STOKER_OUTPUT/todo',
            "outputs": ["todo"],
            "next": "work",
            "foreach": "todo",
            "secrets": ["token"],
        },
        "work": {
            "run": 'printf %s "$STOKER_ITEM" > $STOKER_OUTPUT/x',
            "outputs": ["x"],
            "next": "end",
        },
        "end": {"run": "true", "join": True},
    }
    ran = cli.run(steps, env=ENV)
    assert ran.code == 0, ran.err
    made = [p.read_text() for p in (cli.store / "artifacts").rglob("*") if p.is_file()]
    assert f'"{SECRET}"' in made and "2" in made


def test_while_it_runs_and_after_the_engine_was_killed(cli: Cli) -> None:
    body = (
        'echo "it is $token"; printf %.7s "$token"; echo > said; '
        "while [ ! -e go ]; do sleep 0.01; done; printf %s hunter2; sleep 100"
    )
    cli.document({"a": {"run": body, "secrets": ["token"]}})
    engine = cli.start("run", "p.json", env=ENV)
    cli.until("said")
    wait_for(lambda: log(cli).startswith(f"it is {STARS}\n"))
    nowhere(cli, SECRET)
    os.kill(engine.pid, signal.SIGKILL)
    engine.wait()
    # what was held back, as it could have been the beginning of the value, is written in the end
    wait_for(lambda: log(cli) == f"it is {STARS}\nhunter2")
    nowhere(cli, SECRET)
    (cli.folder / "go").touch()
    cli.document({"a": {"run": body.replace("sleep 100", "true"), "secrets": ["token"]}})
    assert cli("resume", timeout=60, **ENV).code in (0, 1, 2)


def test_the_process_that_hides_them_is_killed(cli: Cli) -> None:
    body = (
        'for i in $(seq 2000); do echo "$i it is $token"; done; echo > said; '
        "while [ ! -e go ]; do sleep 0.01; done; "
        'for i in $(seq 2000); do echo "$i again $token"; done'
    )
    cli.document({"a": {"run": body, "secrets": ["token"]}})
    engine = cli.start("run", "-q", "p.json", env=ENV)  # nobody reads what it prints
    for _ in range(3):
        (pid,) = wait_for(lambda: scribes(engine.pid))
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda pid=pid: (now := scribes(engine.pid)) and pid not in now)
    cli.until("said")
    (cli.folder / "go").touch()
    assert engine.wait(WAIT_S) == 0
    ran = cli("show", "latest")
    expected = [f"{i} {word} {STARS}" for word in ("it is", "again") for i in range(1, 2001)]
    assert ran.text("a").splitlines() == expected
    assert any("hides its secrets was killed" in note for note in ran.shown["notes"])


def test_the_log_is_whole_when_the_end_is_told(cli: Cli) -> None:
    ran = run(cli, {"run": 'head -c 5000000 /dev/zero | tr "\\0" x; printf "$token"'})
    assert ran.code == 0 and ran.text("a") == "x" * 5000000 + STARS


def test_who_holds_the_pipes_holds_up_nobody(cli: Cli) -> None:
    """A process that left its step, without a sign of where it came from."""
    body = 'echo "$token"; env -i setsid sh -c "echo $$ > pid; exec sleep 300" & until [ -s pid ]; do sleep 0.02; done'
    ran = run(cli, {"run": body})
    assert ran.code == 0 and ran.text("a") == f"{STARS}\n"


def test_a_step_that_closes_its_streams(cli: Cli) -> None:
    # sleeps: its streams end before it does
    ran = run(cli, {"run": 'echo "$token"; exec >&- 2>&-; sleep 0.3; exit 3'})
    assert ran.code == 1 and "exit status 3" in ran.cause("a") and ran.text("a") == f"{STARS}\n"


def test_what_only_its_user_can_read(cli: Cli) -> None:
    ran = run(cli, {"run": "true"})
    folder = attempt(cli)
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "stdout.log").stat().st_mode) == 0o600
    plain = cli.run({"b": {"run": "echo x; cat /etc/passwd > $STOKER_OUTPUT/x", "outputs": ["x"]}})
    assert ran.code == plain.code == 0
    assert stat.S_IMODE(attempt(cli, "b").parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((attempt(cli, "b") / "stderr.log").stat().st_mode) == 0o600


def test_a_name_that_no_shell_can_set(cli: Cli) -> None:
    step = {"run": "true", "secrets": ["a-b"]}
    ran = cli.run({"a": step})
    assert "no shell can set a variable with such a name" in ran.cause("a")
    assert "STOKER_SECRET_" not in ran.cause("a")
    assert cli.run({"a": step}, env={"STOKER_SECRET_a-b": "swordfish"}).code == 0


def test_a_short_value_is_no_secret(cli: Cli) -> None:
    step = {"run": 'echo "$x abc"', "secrets": ["x"]}
    assert cli.run({"a": step}, env={"STOKER_SECRET_x": "abc"}).text("a") == "abc abc\n"


@pytest.mark.parametrize("isolation", ["fork", "spawn"])
@pytest.mark.parametrize("kind", ["ValueError", "KeyError"])
def test_an_exception_of_50_mb_is_told(cli: Cli, isolation: str, kind: str) -> None:
    cli.write("steps.py", f"def f(): raise {kind}('well, ' + 'é' * 25_000_000)\n")
    step = {"python": "steps:f", "isolation": isolation}
    ran = cli.run({"a": step}, "--python", PYTHON, timeout=120)
    assert ran.code == 1 and ran.steps["a"]["error"]["class"] == "exception"
    assert ran.cause("a").startswith(kind) and "well, éé" in ran.cause("a")
    assert "characters in all; the step's log has them" in ran.cause("a")
    assert len(ran.cause("a")) < 20000 and "steps.py" in ran.steps["a"]["error"]["traceback"]
    assert len(ran.text("a", "stderr")) > 25_000_000
