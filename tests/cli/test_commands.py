"""The command line: what each command prints, wrong usage, colours; damaged and unusable stores."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_tools import PYTHON, WAIT_S, Cli, wait_for

COMMANDS = [
    "run",
    "plan",
    "show",
    "runs",
    "logs",
    "resume",
    "cancel",
    "why",
    "artifact",
    "metadata",
    "tag",
    "card",
    "spec",
]
COMMANDS += ["store", "gpus", "doctor", "compat", "completion", "help"]


def test_version_and_help(cli: Cli) -> None:
    assert re.fullmatch(r"stoker \d+\.\d+\.\d+\n", cli("--version").out)
    for args in ([], ["help"], ["--help"], ["-h"]):
        run = cli(*args)
        assert run.code == 0 and all(f"  {name} " in run.out for name in COMMANDS), run.out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(cli: Cli, name: str) -> None:
    run = cli(name, "--help")
    assert run.code == 0 and run.out.startswith(f"usage: stoker {name}") and "--json" in run.out
    assert cli("help", name).out == run.out


@pytest.mark.parametrize(
    "args, words",
    [
        (["rn", "p.yaml"], ["'rn'", "did you mean 'run'"]),
        (["frobnicate"], ["'frobnicate'", "stoker help"]),
        (["run"], ["pipeline.yaml", "stoker run --help"]),
        (["run", "--polcy", "fit", "p.yaml"], ["polcy", "did you mean '--policy'"]),
        (["run", "--policy", "nice", "p.yaml"], ["'nice'", "strict", "fit"]),
        (["run", "--mode", "quick", "p.yaml"], ["'quick'", "fail_fast"]),
        (["run", "--with", "slurmm", "p.yaml"], ["'slurmm'", "local"]),
        (["run", "--max-workers", "0", "p.yaml"], ["'0'"]),
        (["run", "--max-workers"], ["max-workers"]),
        (["run", "p.txt"], ["'p.txt'", ".yaml"]),
        (["run", "-p", "a", "p.py"], ["'a' is not NAME=VALUE"]),
        (["run", "-p", "=1", "p.yaml"], ["'=1' is not NAME=VALUE"]),
        (["run", "--run-name", "a/b", "p.yaml"], ["'a/b'", "RUN/STEP"]),
        (["run", "--python", "/no/python", "p.py"], ["/no/python", "--python"]),
        (["run", "p.yaml", "--param", "a=1"], ["'a'"]),
        (["show", "a", "b", "c"], []),
        (["runs", "--limit", "many"], ["'many'"]),
        (["store", "clean"], ["clean", "gc"]),
        (["spec", "p.yaml"], []),
    ],
)
def test_wrong_usage(cli: Cli, args: list[str], words: list[str]) -> None:
    cli.write("p.yaml", "stoker: 1\nname: p\nsteps: {a: {run: 'touch ran'}}\n")
    cli.write("p.py", "open('ran', 'w')\n")
    run = cli(*args)
    assert run.code == 2 and run.err.startswith("stoker: ") and all(w in run.err for w in words), (
        run.err
    )
    assert not (cli.folder / "ran").exists()


@pytest.mark.parametrize(
    "args",
    [
        ["show", "nope"],
        ["logs", "latest/nope"],
        ["why", "latest/nope"],
        ["resume", "nope"],
        ["cancel", "nope"],
    ],
)
def test_what_is_not_there(cli: Cli, args: list[str]) -> None:
    assert cli(*args).code == 2  # no store yet
    cli.run({"a": {"run": "true"}})
    run = cli(*args)
    assert run.code == 2 and "nope" in run.err
    error = cli.json(*args)["error"]
    assert error["class"] == "not_found" and "nope" in error["text"]


STEPS = {
    "make": {"run": "echo 1 > $STOKER_OUTPUT/x", "outputs": ["x"], "resources": {"cpu_count": 1}},
    "use": {"run": "cat $STOKER_INPUT_x", "inputs": {"x": {"from": "make.x"}}},
}


def test_plan(cli: Cli) -> None:
    document = cli.document(STEPS)
    plan = json.loads(cli("plan", "--json", document).out)
    assert set(plan) >= {"pipeline", "steps", "cached", "notes"}
    assert [s["step"] for s in plan["steps"]] == ["make", "use"] and plan["cached"] == 0
    assert plan["steps"][1]["needs"] == ["make"] and plan["steps"][0]["cpu_count"] == 1
    assert not cli.store.exists()  # reading creates nothing
    cli("run", document)
    plan = json.loads(cli("plan", "--json", document).out)
    assert plan["cached"] == 2 and all(s["cached"] and s["miss"] is None for s in plan["steps"])
    text = cli("plan", document).out
    assert "2 of 2 steps come from the cache" in text


def test_plan_of_a_python_file(cli: Cli) -> None:
    cli.write(
        "flow.py",
        "from stoker import pipeline, step\n"
        "@step\ndef one() -> int: return 1\n"
        "@step\ndef two(x: int) -> int: return x + 1\n"
        "@pipeline\ndef flow(): two(one())\n"
        "if __name__ == '__main__': flow()\n",
    )
    run = cli("plan", "--python", PYTHON, "flow.py", timeout=60)
    assert run.code == 0 and "one" in run.out and "two" in run.out
    assert not cli.store.exists()
    assert cli("run", "--python", PYTHON, "flow.py", timeout=60).code == 0
    run = cli("run", "--python", PYTHON, "flow.py:flow", timeout=60)  # of module flow, not __main__
    assert run.code == 0 and set(run.statuses.values()) == {"cached"}


def test_options_after_the_name_of_a_pipeline(cli: Cli) -> None:
    """Arguments after '--' belong to the file."""
    cli.write("flow.py", FLOW)
    start = ["run", "--python", PYTHON, "flow.py:flow"]
    run = cli(*start, "--param", "x=7", timeout=60)
    assert run.code == 0 and run.shown["parameters"]["x"] == 7
    run = cli(*start, "--param", "y=7", timeout=60)
    assert run.code == 2 and "'y'" in run.err
    run = cli(*start, "--parm", "x=7", timeout=60)
    assert run.code == 2 and "did you mean '--param'" in run.err
    run = cli(*start, "-p", "x=8", "--", "--param", timeout=60)
    assert run.code == 0 and run.shown["parameters"]["x"] == 8


@pytest.mark.parametrize(
    "arguments, code, said",
    [
        (
            [],
            2,
            "flow.py called no pipeline and no flow, so there is nothing to plan; name one: stoker plan",
        ),
        (["empty"], 0, "pipeline 'empty' has no steps"),
        (["wrong"], 2, "Wrong arguments when calling pipeline 'flow'"),
    ],
)
def test_plan_of_a_file_that_plans_nothing(
    cli: Cli, arguments: list[str], code: int, said: str
) -> None:
    cli.write(
        "flow.py",
        "import sys\n"
        "from stoker import pipeline, step\n"
        "@step\ndef one() -> int: return 1\n"
        "@pipeline\ndef flow(): one()\n"
        "@pipeline\ndef empty(): pass\n"
        "if 'empty' in sys.argv: empty()\n"
        "if 'wrong' in sys.argv: flow(3)\n",
    )
    run = cli("plan", "--python", PYTHON, "flow.py", "--", *arguments, timeout=60)
    assert run.code == code and said in run.err
    assert ("called no pipeline" in run.err) == (arguments == [])
    assert ":flow (it has: flow, empty)" in run.err or arguments
    assert not cli.store.exists()


def test_programs_answer_as_json(cli: Cli) -> None:
    """--json is for pipelines and flows in Python, too; what steps print goes to stderr."""
    cli.write(
        "p.py",
        "from stoker import pipeline, step\n"
        "@step\ndef one() -> int: print('said'); return 1\n"
        "@pipeline\ndef p(): one()\np()\n",
    )
    cli.write(
        "f.py",
        "from stoker.flow import FlowSpec, step\n"
        "class F(FlowSpec):\n"
        "    @step\n    def start(self): print('said'); self.next(self.end)\n"
        "    @step\n    def end(self): assert False\n"
        "F()\n",
    )
    for name, status in (("p.py", "succeeded"), ("f.py", "failed")):
        run = cli("run", "--json", "--python", PYTHON, name, timeout=60)
        assert json.loads(run.out)["status"] == status and "said" in run.err
    assert json.loads(cli("resume", "--json", timeout=60).out)["status"] == "failed"


NEVER = """
import sys
from stoker import pipeline, step
@step
def one() -> int: return 1
@pipeline
def flow(): one()
"""


@pytest.mark.parametrize(
    ("text", "words", "code", "said"),
    [
        (NEVER, [], 2, ["flow.py called no pipeline", "stoker run flow.py:flow"]),
        (NEVER + "print('it ends')", [], 2, ["flow.py called no pipeline"]),
        (NEVER + "sys.exit(3)", [], 3, []),
        (NEVER + "import argparse; argparse.ArgumentParser().parse_args()", ["--", "-h"], 0, []),
        (NEVER + "1 / 0", [], 1, ["ZeroDivisionError"]),
        ("import stoker; print(stoker.__version__)", [], 0, []),
        (
            "from metaflow import FlowSpec, step\nclass F(FlowSpec):\n"
            "    @step\n    def start(self): self.next(self.end)\n    @step\n    def end(self): pass\n",
            [],
            2,
            ["flow.py called no pipeline and no flow", "stoker run flow.py:F"],
        ),
    ],
)
def test_run_of_a_file_that_calls_nothing(
    cli: Cli, text: str, words: list[str], code: int, said: list[str]
) -> None:
    cli.write("flow.py", text.replace("from metaflow", "from stoker.flow"))
    done = cli("run", "--python", PYTHON, "flow.py", *words, timeout=60)
    assert done.code == code and all(part in done.err for part in said), done.err
    assert "called no pipeline" in done.err or not any("called" in part for part in said)
    assert ("it ends" in done.out) == ("it ends" in text)
    assert not cli.store.exists()


FLOW = """
import sys
from stoker import ResourceSettings, pipeline, step

@step
def scale(x: int) -> int:
    return x * 10

@step(settings={"resources": ResourceSettings(gpu_count=1)})
def wants() -> None: ...

@pipeline
def flow(x: int = 1, gpu: bool = False):
    scale(x)
    if gpu:
        wants()

if __name__ == "__main__":
    print("argv", sys.argv[1:])
    if "--gpu" in sys.argv:
        flow(gpu=True)
    else:
        flow()
"""


def test_a_step_that_always_runs_gives_its_result_to_later_runs(cli: Cli) -> None:
    text = "stoker: 1\nname: p\nsteps:\n  a: {{run: 'true', cache: {{reuse: {}}}}}\n"
    cli.write("p.yaml", text.format("false"))
    assert cli("run", "p.yaml").statuses == {"a": "succeeded"}
    again = cli("run", "p.yaml")
    assert again.statuses == {"a": "succeeded"}
    assert "caching is off for this step" in cli("why", "latest").out
    cli.write("p.yaml", text.format("true"))
    assert cli("run", "p.yaml").statuses == {"a": "cached"}


def test_options_of_a_python_file(cli: Cli) -> None:
    """Options of the command line are defaults of the file's runs; arguments after '--' belong to
    the file."""
    cli.write("flow.py", FLOW)
    base = ["run", "--python", PYTHON]
    run = cli(*base, "-p", "x=7", "--run-name", "seven", "flow.py", "--", "--data", "d", timeout=60)
    assert run.code == 0 and "argv ['--data', 'd']" in run.out
    assert run.steps["scale"]["outputs"]["output"]["value"] == 70 and run.shown["name"] == "seven"
    again = cli(*base, "-p", "x=7", "flow.py", timeout=60)
    assert again.statuses == {"scale": "cached"}
    again = cli(*base, "-p", "x=7", "--no-cache", "flow.py", timeout=60)
    assert again.statuses == {"scale": "succeeded"}
    fit = cli(*base, "flow.py", "--", "--gpu", timeout=60)
    assert fit.code == 0 and "runs on the CPU (policy fit)" in fit.err
    strict = cli(*base, "--policy", "strict", "flow.py", "--", "--gpu", timeout=60)
    assert strict.code == 2 and strict.err.rstrip().endswith("--policy fit to run without devices")
    assert "step 'wants': gpu_count 1: this machine has no GPU" in strict.err


def test_spec_check_and_convert(cli: Cli) -> None:
    cli.write("p.yaml", "stoker: 1\nname: p\nsteps:\n  a: {run: 'true', timeout: 10m}\n")
    assert cli("spec", "check", "p.yaml").code == 0
    doc = json.loads(cli("spec", "convert", "p.yaml").out)
    assert doc == {"stoker": 1, "name": "p", "steps": {"a": {"run": "true", "timeout": "10m"}}}
    cli.write("q.json", json.dumps(doc))
    assert cli("run", "q.json").code == 0


def test_json_of_a_run(cli: Cli) -> None:
    run = cli("run", "--json", cli.document(STEPS))
    assert run.code == 0 and json.loads(run.out)["status"] == "succeeded"
    bad = cli("run", "--json", cli.document({"a": {"run": "exit 1"}}))
    assert bad.code == 1 and json.loads(bad.out)["steps"]["a"]["error"]["class"] == "exit"
    wrong = cli("run", "--json", "nowhere.yaml")
    assert wrong.code == 2 and json.loads(wrong.out)["error"]["text"]


REFUSED = {
    "strict": (
        FLOW,
        ["--policy", "strict", "flow.py", "--", "--gpu"],
        "resources",
        9,
        "has no GPU",
    ),
    "argument": (FLOW.replace("flow()", "flow(q=1)"), ["flow.py"], "usage", 23, "argument 'q'"),
    "parameter": (FLOW, ["-p", "y=1", "flow.py"], "usage", 23, "no parameter 'y'"),
    "name": (FLOW, ["flow.py:flw"], "usage", None, "did you mean 'flow'"),
    "nothing": (NEVER, ["flow.py"], "usage", None, "called no pipeline"),
    "import": (FLOW + "import nothere", ["flow.py"], "failed", 24, "'nothere' is not installed"),
    "exception": (FLOW + "{}['x']", ["flow.py"], "failed", 24, "KeyError: 'x'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_json_of_a_python_file_that_is_refused(cli: Cli, name: str) -> None:
    text, words, kind, line, said = REFUSED[name]
    cli.write("flow.py", text)
    done = cli("run", "--json", "--python", PYTHON, *words, timeout=60)
    error = json.loads(done.out.splitlines()[-1])["error"]
    assert (
        error["class"] == kind
        and said in error["text"]
        and done.code == (1 if kind == "failed" else 2)
    )
    hint = "remove it, or use --policy fit to run without devices"
    assert error["hint"] == (hint if kind == "resources" else "")
    assert (error.get("file"), error.get("line")) == (line and "flow.py", line), error
    assert said in done.err


def test_json_of_a_python_file_that_has_no_plan(cli: Cli) -> None:
    """As of the run: the file, and the line apart from it."""
    cli.write("flow.py", FLOW)
    words = ("--json", "--policy", "strict", "--python", PYTHON, "flow.py", "--", "--gpu")
    error = json.loads(cli("plan", *words, timeout=60).out.splitlines()[-1])["error"]
    assert (error["class"], error["file"], error["line"]) == ("resources", "flow.py", 9)


def test_a_step_that_exits(cli: Cli) -> None:
    """Its traceback ends at its own line."""
    cli.write("flow.py", FLOW.replace("return x * 10", "sys.exit('no data')"))
    done = cli("run", "--python", PYTHON, "flow.py", timeout=60)
    assert done.code == 1 and "called sys.exit('no data') (flow.py:7)" in done.err
    log = cli("logs", "scale").out
    assert 'flow.py", line 7, in scale' in log and "/stoker/_" not in log


def test_a_flow_by_its_name(cli: Cli) -> None:
    """Behind FILE:FLOW stand the same words as behind FILE."""
    cli.write(
        "f.py",
        "from stoker.flow import FlowSpec, Parameter, step\nclass F(FlowSpec):\n    n = Parameter('n', default=1)\n"
        "    @step\n    def start(self): self.next(self.end)\n    @step\n    def end(self): print('n is', self.n)\n",
    )
    for words in (["run", "--n", "2"], ["--n", "2"]):
        done = cli("run", "--python", PYTHON, "f.py:F", *words, timeout=60)
        assert done.code == 0 and "n is 2" in done.out, done.err
    wrong = cli("run", "--json", "--python", PYTHON, "f.py:F", "--n", "x", timeout=60)
    assert wrong.code == 2 and "--n: 'x' is not" in json.loads(wrong.out)["error"]["text"]


def test_resume_and_cancel_as_json(cli: Cli) -> None:
    cli.run({"a": {"run": "test -e go"}})
    (cli.folder / "go").touch()
    assert json.loads(cli("resume", "--json").out)["status"] == "succeeded"
    assert cli.json("cancel")["error"]["class"] == "not_found"


def test_run_names(cli: Cli) -> None:
    document = cli.document(STEPS)
    assert cli("run", "--run-name", "first", document).code == 0
    assert cli.json("show", "first")["name"] == "first"
    run_id = cli.json("show", "first")["run"]
    assert cli.json("show", run_id[:-2])["run"] == run_id


def test_a_document_from_standard_input(cli: Cli) -> None:
    run = cli("run", "-", stdin="stoker: 1\nname: p\nsteps: {a: {run: 'pwd'}}\n")
    assert run.code == 0 and run.text("a").strip() == str(cli.folder)


# --- colours and progress ---


def on_terminal(cli: Cli, *args: str, **env: str) -> str:
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [cli.binary, *args],
        cwd=cli.folder,
        env={**cli.env, "TERM": "xterm", **env},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    text = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        text += data
    os.close(master)
    child.wait(WAIT_S)
    return text.decode()


def test_colours_only_on_a_terminal(cli: Cli) -> None:
    document = cli.document({"a": {"run": "sleep 0.3"}})
    piped = cli("run", "--no-cache", document)
    assert "\x1b" not in piped.err + piped.out and "\r" not in piped.err
    assert "\x1b[" in on_terminal(cli, "run", "--no-cache", document)
    plain = on_terminal(cli, "run", "--no-cache", document, NO_COLOR="1")
    assert not re.search(r"\x1b\[[0-9;]*m", plain)


def test_quiet(cli: Cli) -> None:
    run = cli("run", "-q", cli.document({"a": {"run": "true"}}))
    assert run.code == 0 and run.err == run.out == ""
    run = cli("run", "-q", cli.document({"a": {"run": "exit 3"}}))
    assert run.code == 1 and "exit status 3" in run.err


# --- stores in a bad way ---


def test_a_store_that_is_a_file(cli: Cli) -> None:
    cli.write(".stoker", "not a folder")
    for args in (["run", cli.document(STEPS)], ["runs"], ["show"]):
        run = cli(*args)
        assert run.code in (2, 3) and ".stoker" in run.err and run.err.count("\n") == 1
    assert (cli.folder / ".stoker").read_text() == "not a folder"


def test_a_truncated_store(cli: Cli) -> None:
    cli.run(STEPS)
    db = cli.store / "store.db"
    for name in ("store.db-wal", "store.db-shm"):
        (cli.store / name).unlink(missing_ok=True)
    whole = db.read_bytes()
    db.write_bytes(whole[: len(whole) // 2])
    for args in (["runs"], ["run", "p.json"]):
        run = cli(*args)
        assert run.code == 3 and "store" in run.err, run.err
    db.write_bytes(b"this is no database at all" * 500)
    assert cli("runs").code == 3


def test_a_store_whose_database_was_removed(cli: Cli) -> None:
    """gc would take all artifacts for garbage. If its runs are removed, too, the store starts
    empty."""
    cli.run(STEPS)
    for path in cli.store.glob("store.db*"):
        path.unlink()
    before = sorted(cli.store.rglob("*"))
    for args in (["runs"], ["run", "p.json"], ["store", "gc"], ["store", "gc", "--dry-run"]):
        run = cli(*args)
        assert run.code == 3 and "store.db isn't there, but there are runs" in run.err, run.err
    assert sorted(cli.store.rglob("*")) == before
    shutil.rmtree(cli.store / "runs")
    assert cli.run(STEPS).code == 0


@pytest.mark.parametrize(
    "words", [["gc", "--dry-run"], ["gc"], ["verify", "--repair"]], ids=" ".join
)
def test_nothing_is_made_in_a_folder_without_a_store(cli: Cli, words: list[str]) -> None:
    cli.store.mkdir()
    run = cli("store", *words)
    assert run.code == 2 and "has no run" in run.err, run.err
    assert list(cli.store.iterdir()) == []


def as_nobody(cli: Cli, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [cli.binary, *args],
        cwd=cli.folder,
        env=cli.env,
        capture_output=True,
        text=True,
        user=65534,
        group=65534,
        extra_groups=[],
    )


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become another user")
def test_a_store_of_somebody_else(cli: Cli) -> None:
    """It can be read, but not written."""
    cli.run(STEPS)
    for parent in [cli.folder, *cli.folder.parents]:
        if parent != Path("/") and parent != Path("/tmp"):
            parent.chmod(0o755)
    mine = shutil.copy(cli.binary, cli.folder / "stoker")
    cli.binary = Path(mine)
    seen = as_nobody(cli, "show", "--json")
    assert seen.returncode == 0 and json.loads(seen.stdout)["status"] == "succeeded"
    run = as_nobody(cli, "run", "p.json")
    assert run.returncode == 3 and str(cli.store) in run.stderr and run.stderr.count("\n") == 1


@pytest.fixture
def small_disk(cli: Cli):
    """The store is on a file system of 4 MB."""
    cli.store.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "tmpfs", str(cli.store)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs to mount")
    yield cli.store
    cli.close()
    subprocess.run(["umount", "-l", str(cli.store)], check=True)


def test_a_full_disk(cli: Cli, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    steps = {
        "a": {"run": "echo a >> ran; echo 1 > $STOKER_OUTPUT/x", "outputs": ["x"]},
        "b": {
            "run": "echo b >> ran; head -c 1000000 /dev/zero > big; cp big $STOKER_OUTPUT/y || cp small $STOKER_OUTPUT/y",
            "inputs": {"x": {"from": "a.x"}},
            "outputs": ["y"],
        },
    }
    engine = cli.start(
        "run",
        cli.document(
            {"w": {"run": "echo up > up; while ! test -e go; do sleep 0.01; done"}, **steps}
        ),
    )
    cli.until("up")
    fd = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    try:
        while os.write(fd, b"x" * 4096):
            pass
    except OSError:
        pass  # nothing fits any more
    os.close(fd)
    (cli.folder / "go").touch()
    code = engine.wait(WAIT_S)
    text = engine.stderr.read()
    assert code == 3 and "no space left" in text.lower() and "stoker resume" in text, text
    ballast.unlink()
    status = cli.json("show")["status"]
    assert status in ("interrupted", "failed")
    run = cli("resume")
    assert run.code == 0 and set(run.statuses.values()) == {"succeeded"}
    assert cli("store", "verify").code == 0


def test_no_folder_to_stand_in(cli: Cli) -> None:
    gone = cli.folder / "gone"
    gone.mkdir()
    run = subprocess.run(
        ["/bin/sh", "-c", f"cd gone && rmdir ../gone && exec '{cli.binary}' runs"],
        cwd=cli.folder,
        env={k: v for k, v in cli.env.items() if k != "STOKER_STORE"},
        capture_output=True,
        text=True,
    )
    assert run.returncode in (2, 3) and run.stderr.startswith("stoker: ")


def test_output_that_nobody_reads(cli: Cli) -> None:
    cli.run({f"s{i}": {"run": "true"} for i in range(50)})
    run = subprocess.run(
        ["/bin/sh", "-c", f"'{cli.binary}' show --json | head -c 10 > /dev/null"],
        cwd=cli.folder,
        env=cli.env,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0 and "assert" not in run.stderr


def test_two_engines_on_one_store(cli: Cli) -> None:
    documents = [
        cli.document({"a": {"run": f"echo {i} > $STOKER_OUTPUT/x", "outputs": ["x"]}}, f"d{i}.json")
        for i in range(6)
    ]
    engines = [cli.start("run", document) for document in documents]
    assert [engine.wait(WAIT_S) for engine in engines] == [0] * 6
    wait_for(lambda: len(cli.json("runs")) == 6)
    assert {row["status"] for row in cli.json("runs")} == {"succeeded"}


def test_files_that_are_not_there_name_a_way_out(cli: Cli) -> None:
    for command in ("run", "plan"):
        done = cli(command, "nope.yaml")
        assert done.code != 0 and "can't open 'nope.yaml'" in done.err
        assert "name a pipeline document (.yaml or .json) or a Python file" in done.err
    steps = {"a": {"run": "true", "inputs": {"table": {"file": "data/none.csv"}}}}
    run = cli.run(steps)
    assert run.code != 0
    cause = run.cause("a")
    assert f"input 'table': there is no file '{cli.folder}/data/none.csv'; make it before" in cause
    assert "counts from the folder of the pipeline's document" in cause
