"""Inputs, parameters, outputs and secrets of steps; and when a result is reused."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Callable

import pytest
from cli_tools import PYTHON, ROOT, WAIT_S, Cli, wait_for

# --- inputs ---


def test_every_kind_of_input(cli: Cli) -> None:
    cli.write("data/table.csv", "a,b\n1,2\n")
    added = json.loads(cli("artifact", "add", cli.write("seven", "7\n"), "--format", "file").out)
    show = (
        'cat "$STOKER_INPUT_one" "$STOKER_INPUT/table" "$STOKER_INPUT_stored" "$STOKER_INPUT_parts"/*; '
        'echo "$STOKER_PARAM_lr $STOKER_PARAM_word $STOKER_PARAM_plain $STOKER_PARAM_tree $STOKER_PARAM_text"'
    )
    steps = {
        "make": {
            "run": 'cd "$STOKER_OUTPUT"; for i in $(seq 1 11); do echo $i > o$i; done',
            "outputs": [f"o{i}" for i in range(1, 12)],
        },
        "take": {
            "run": show,
            "inputs": {
                "one": {"from": "make.o1"},
                "parts": {"from": [f"make.o{i}" for i in range(1, 12)]},
                "table": {"file": "data/table.csv"},
                "stored": {"artifact": added["digest"]},
                "lr": {"param": "lr"},
                "word": {"param": "word"},
                "plain": 3,
                "tree": {"value": {"a": [1, None]}},
                "text": {"value": 'say "hi"\n'},
            },
        },
    }
    run = cli.run(steps, "--param", "lr=0.5", "-p", "word=12", parameters={"lr": 1.0, "word": "x"})
    assert run.code == 0
    lines = run.text("take").splitlines()
    assert lines[:4] == ["1", "a,b", "1,2", "7"]
    assert lines[4:15] == [str(i) for i in range(1, 12)]
    assert lines[15] == '0.5 12 3 {"a":[1,null]} say "hi"'
    task = json.loads((Path(run.steps["take"]["dir"]) / "task.json").read_text())
    assert (
        task["inputs"]["tree"] == {"value": {"a": [1, None]}}
        and len(task["inputs"]["parts"]["list"]) == 11
    )
    assert task["inputs"]["stored"]["digest"] == added["digest"]
    assert run.shown["parameters"] == {"lr": 0.5, "word": "12"}


@pytest.mark.parametrize(
    "given, parts",
    [
        (["--param", "lr=fast"], ["'lr'", "fast", "number"]),
        (["--param", "lrr=1"], ["'lrr'", "did you mean 'lr'?"]),
        (["--param", "lr"], ["NAME=VALUE"]),
        ([], ["'need'"]),
    ],
)
def test_wrong_parameters(cli: Cli, given: list[str], parts: list[str]) -> None:
    declared: dict[str, Any] = {"lr": 0.1}
    if not given:
        declared["need"] = {"type": "int", "required": True}
    run = cli.run({"a": {"run": "touch ran"}}, *given, parameters=declared)
    assert run.code == 2 and all(part in run.err for part in parts), run.err
    assert not (cli.folder / "ran").exists()


def test_the_environment_of_a_task(cli: Cli) -> None:
    cli.env["INHERITED"] = "yes"
    step = {"run": "env", "environment": {"MINE": 1, "FLAG": True}}
    run = cli.run({"a": step}, environment={"COMMON": "c", "MINE": "overridden"})
    env = dict(line.split("=", 1) for line in run.text("a").splitlines() if "=" in line)
    where = run.steps["a"]["dir"]
    assert (
        env
        | {
            "STOKER_RUN": run.shown["run"],
            "STOKER_PIPELINE": "p",
            "STOKER_STEP": "a",
            "STOKER_TASK": "0",
            "STOKER_ATTEMPT": "1",
            "STOKER_TASK_DIR": where,
            "STOKER_INPUT": f"{where}/in",
            "STOKER_OUTPUT": f"{where}/out",
            "STOKER_STORE": str(cli.store),
            "MINE": "1",
            "FLAG": "true",
            "COMMON": "c",
            "INHERITED": "yes",
        }
        == env
    )


def test_where_commands_run(cli: Cli) -> None:
    (cli.folder / "sub").mkdir()
    cli.write(
        "deep/p.yaml",
        "stoker: 1\nname: p\nsteps:\n  a: {run: pwd}\n  b: {run: pwd, cwd: ..}\n  c: {run: pwd, cwd: /}\n",
    )
    run = cli("run", "deep/p.yaml")
    assert [run.text(s).strip() for s in "abc"] == [str(cli.folder / "deep"), str(cli.folder), "/"]


def test_stdin_is_empty_and_a_list_is_argv(cli: Cli) -> None:
    run = cli.run({"a": {"run": "cat"}, "b": {"run": ["printf", "%s|", "a b", "$HOME", ""]}})
    assert run.code == 0 and run.text("a") == "" and run.text("b") == "a b|$HOME||"


def test_a_large_parameter_is_in_task_json(cli: Cli) -> None:
    look = "import json, os; t = json.load(open(os.environ['STOKER_TASK_DIR'] + '/task.json')); print(len(t['inputs']['x']['value']))"
    run = cli.run({"a": {"run": [PYTHON, "-c", look], "inputs": {"x": {"value": "y" * 300_000}}}})
    assert run.code == 0 and run.text("a") == "300000\n"


# --- outputs ---


def test_files_folders_and_json(cli: Cli) -> None:
    body = (
        'cd "$STOKER_OUTPUT"; echo text > note; mkdir -p tree/deep; echo leaf > tree/deep/leaf; '
        "echo '{\"n\": [1, 2]}' > numbers"
    )
    steps = {
        "a": {
            "run": body,
            "outputs": {
                "note": {},
                "tree": {"type": "dir"},
                "numbers": {"type": "json", "tags": ["t"]},
            },
        },
        "b": {
            "run": 'cat "$STOKER_INPUT_tree/deep/leaf"; echo more > "$STOKER_INPUT_tree/deep/leaf" || echo kept',
            "inputs": {"tree": {"from": "a.tree"}, "numbers": {"from": "a.numbers"}},
        },
    }
    run = cli.run(steps)
    outputs = run.steps["a"]["outputs"]
    assert outputs["note"]["format"] == "file" and outputs["tree"]["format"] == "dir"
    assert outputs["numbers"]["value"] == {"n": [1, 2]} and outputs["numbers"]["tags"] == ["t"]
    task = json.loads((Path(run.steps["b"]["dir"]) / "task.json").read_text())
    assert task["inputs"]["numbers"]["value"] == {"n": [1, 2]}
    assert run.output("a", "note") == "text\n" and run.text("b").startswith("leaf\n")
    for path in Path(outputs["tree"]["path"]).rglob("*"):
        assert path.stat().st_mode & 0o222 == 0  # inputs are read-only
    assert outputs["note"]["digest"] == cli.json("artifact", "get", "latest/a.note")["digest"]


def test_a_step_in_c(cli: Cli) -> None:
    cli.write(
        "step.c",
        """
#include <stoker/step.h>
int main(void)
{
    double lr = stk_step_number("lr", 0);
    FILE *in = fopen(stk_step_input("x"), "r");
    FILE *out = fopen(stk_step_output("y"), "w");
    int n = 0;
    if (in == NULL || out == NULL || fscanf(in, "%d", &n) != 1) return stk_step_fail("x can't be read");
    fprintf(out, "%g", n * lr);
    fclose(in);
    fclose(out);
    stk_step_log_number("n", n);
    return n < 0 ? stk_step_fail("x is negative") : stk_step_done();
}
""",
    )
    subprocess.run(
        ["cc", f"-I{ROOT / 'include'}", "-o", cli.folder / "step", cli.folder / "step.c", "-lm"],
        check=True,
    )

    def run(x: int):
        return cli.run(
            {
                "x": {"run": f"echo {x} > $STOKER_OUTPUT/x", "outputs": ["x"]},
                "c": {
                    "run": ["./step"],
                    "inputs": {"x": {"from": "x.x"}, "lr": 0.5},
                    "outputs": ["y"],
                },
            }
        )

    good = run(8)
    assert (
        good.code == 0 and good.output("c", "y") == "4" and good.steps["c"]["metadata"] == {"n": 8}
    )
    bad = run(-1)
    assert bad.code == 1 and bad.cause("c") == "x is negative"


def test_values_and_metadata_of_result_json(cli: Cli) -> None:
    result = {
        "stoker": 1,
        "status": "ok",
        "outputs": {
            "score": {"value": 0.5, "type": "builtins.float"},
            "file": {"path": "out/f", "format": "csv"},
        },
        "metadata": {"acc": 1},
        "output_names": {"file": {"name": "table", "version": "7"}},
        "warnings": ["careful"],
    }
    cli.write("r.json", json.dumps(result))
    step = {
        "run": "echo 1,2 > $STOKER_OUTPUT/f; cp r.json $STOKER_TASK_DIR/result.json",
        "outputs": ["score", "file"],
    }
    run = cli.run({"a": step})
    a = run.steps["a"]
    assert (
        a["outputs"]["score"]["value"] == 0.5 and a["outputs"]["score"]["type"] == "builtins.float"
    )
    assert a["outputs"]["file"]["format"] == "csv" and a["outputs"]["file"]["name"] == "table"
    assert a["metadata"] == {"acc": 1} and a["warnings"] == ["careful"] and "careful" in run.err
    assert cli.json("artifact", "get", "table:7")["digest"] == a["outputs"]["file"]["digest"]


# --- the cache ---

BASE: dict[str, Any] = {
    "run": 'cat "$STOKER_INPUT_t" > "$STOKER_OUTPUT/x"',
    "inputs": {"t": {"file": "t.csv"}, "n": {"param": "n"}, "lit": 1},
    "outputs": ["x"],
    "cache": {"files": ["lib.sh"], "salt": "s"},
    "environment": {"MODE": "fast"},
}


@pytest.mark.parametrize(
    "change, why",
    [
        (lambda c, s: s.update(run=s["run"] + " "), "command changed"),
        (lambda c, s: c.write("t.csv", "2"), "input 't' changed"),
        (lambda c, s: s["inputs"].update(lit=2), "lit"),
        (lambda c, s: s["inputs"].update(new=2), "new"),
        (lambda c, s: s["environment"].update(MODE="slow"), "environment variable MODE changed"),
        (lambda c, s: s["environment"].update(MORE="1"), "environment variable MORE is new"),
        (lambda c, s: c.write("lib.sh", "2"), "file 'lib.sh' changed"),
        (lambda c, s: s["cache"].update(salt="t"), "cache salt changed"),
        (lambda c, s: s.update(outputs={"x": {"type": "text"}}), "list of outputs changed"),
        (lambda c, s: s.update(cwd="sub"), "working directory"),
        (lambda c, s: s.update(code={"f": "1"}), "code"),
        (lambda c, s: s.update(parameter="n=9"), "parameter n changed from 1 to 9"),
    ],
)
def test_every_change_is_a_miss_with_its_reason(
    cli: Cli, change: Callable[[Cli, dict], None], why: str
) -> None:
    cli.write("t.csv", "1")
    cli.write("lib.sh", "1")
    (cli.folder / "sub").mkdir()
    step = json.loads(json.dumps(BASE))
    params = {"n": 1}
    first = cli.run({"a": step}, parameters=params)
    assert first.code == 0 and first.steps["a"]["miss"] == "never ran before"
    again = cli.run({"a": step}, parameters=params)
    assert (
        again.statuses == {"a": "cached"} and again.steps["a"]["cached_from"] == first.shown["run"]
    )
    assert "1 of 1 step comes from the cache" in cli("plan", "p.json").out
    change(cli, step)
    option = ["--param", step.pop("parameter")] if "parameter" in step else []
    planned = cli("plan", "--json", *option, cli.document({"a": step}, parameters=params))
    assert why in json.loads(planned.out)["steps"][0]["miss"]
    run = cli.run({"a": step}, *option, parameters=params)
    assert run.statuses == {"a": "succeeded"} and why in run.steps["a"]["miss"]
    assert why in cli("why", "latest/a").out


def test_unchanged_content_stops_the_ripple(cli: Cli) -> None:
    def steps(comment: str) -> dict:
        return {
            "a": {"run": f"echo 5 > $STOKER_OUTPUT/x # {comment}", "outputs": ["x"]},
            "b": {"run": "cat $STOKER_INPUT_x", "inputs": {"x": {"from": "a.x"}}},
        }

    assert cli.run(steps("one")).code == 0
    assert cli.run(steps("two")).statuses == {"a": "succeeded", "b": "cached"}


def test_two_steps_that_read_the_same_are_two(cli: Cli) -> None:
    same = {
        "run": "echo $STOKER_STEP >> ran; echo $STOKER_STEP > $STOKER_OUTPUT/x",
        "outputs": ["x"],
    }
    steps = {"a": same, "b": {**same, "after": ["a"]}, "c": {**same, "after": ["b"]}}
    run = cli.run(steps)
    assert set(run.statuses.values()) == {"succeeded"}
    assert [run.output(s, "x") for s in "abc"] == ["a\n", "b\n", "c\n"]


def test_what_is_ignored(cli: Cli) -> None:
    def step(noise: int) -> dict:
        return {"run": "true", "inputs": {"noise": noise}, "cache": {"ignore_inputs": ["noise"]}}

    assert cli.run({"a": step(1)}).statuses == {"a": "succeeded"}
    assert cli.run({"a": step(2)}).statuses == {"a": "cached"}


def test_a_result_expires(cli: Cli) -> None:
    step = {"run": "true", "cache": {"expires": "0.3s"}}
    assert cli.run({"a": step}).statuses == {"a": "succeeded"}
    run = wait_for(lambda: (run := cli.run({"a": step})).statuses == {"a": "succeeded"} and run)
    assert "expired" in run.steps["a"]["miss"]


@pytest.mark.parametrize("how", ["option", "step", "pipeline", "enabled"])
def test_caching_is_off(cli: Cli, how: str) -> None:
    step: dict[str, Any] = {"run": "true"}
    settings: dict[str, Any] = {}
    if how in ("step", "enabled"):
        step["cache"] = False if how == "step" else {"enabled": False}
    elif how == "pipeline":
        settings["cache"] = False
    options = ["--no-cache"] if how == "option" else []
    for _ in range(2):
        assert cli.run({"a": step}, *options, **settings).statuses == {"a": "succeeded"}


def test_a_failure_is_never_reused(cli: Cli) -> None:
    step = {"run": "test -e go"}
    assert cli.run({"a": step}).code == 1
    (cli.folder / "go").touch()
    assert cli.run({"a": step}).code == 0


def test_an_artifact_that_is_gone_is_made_again(cli: Cli) -> None:
    steps = {
        "a": {"run": "echo 5 > $STOKER_OUTPUT/x", "outputs": ["x"]},
        "b": {"run": "true", "after": ["a"]},
    }
    first = cli.run(steps)
    path = Path(first.steps["a"]["outputs"]["x"]["path"])
    path.chmod(0o644)
    path.unlink()
    run = cli.run(steps)
    assert run.statuses == {"a": "succeeded", "b": "cached"} and path.read_text() == "5\n"
    assert "missing" in run.steps["a"]["miss"]


def test_python_code_that_it_loads_counts(cli: Cli) -> None:
    cli.write("helper.py", "N = 1\n")
    cli.write("steps.py", "import helper\ndef f() -> int: return helper.N\n")
    steps = {"a": {"python": "steps:f", "outputs": ["output"]}}
    assert cli.run(steps, "--python", PYTHON).code == 0
    assert cli.run(steps, "--python", PYTHON).statuses == {"a": "cached"}
    cli.write("helper.py", "N = 2\n")
    run = cli.run(steps, "--python", PYTHON)
    assert (
        run.statuses == {"a": "succeeded"}
        and "helper.py, which it loaded" in run.steps["a"]["miss"]
    )
    assert run.steps["a"]["outputs"]["output"]["value"] == 2


# --- secrets ---

SECRET = "hunter2-hunter2"


def everything_in(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


@pytest.mark.parametrize("kind", ["run", "python"])
def test_a_secret_reaches_its_step_and_nothing_else(cli: Cli, kind: str) -> None:
    cli.write(
        "steps.py",
        "import hashlib, os, time\ndef f():\n    s = os.environ['token']\n    print('it is', s)\n"
        "    print(hashlib.sha256(s.encode()).hexdigest(), 'STOKER_SECRET_token' in os.environ)\n"
        "    print(*(open(f'/proc/{p}/cmdline').read() for p in (os.getpid(), os.getppid())))\n"
        "    open('up', 'w').write('up\\n')\n"
        "    while not os.path.exists('go'): time.sleep(0.01)\n",
    )
    command = [PYTHON, "-c", "import steps; steps.f()"]
    body = {"run": command, "python": "steps:f"}[kind]
    env = {"STOKER_SECRET_token": SECRET, "STOKER_SECRET_other": "not-for-you-1"}
    document = cli.document(
        {"a": {kind: body, "secrets": ["token"]}, "b": {"run": "env; touch seen", "after": ["a"]}}
    )
    engine = cli.start("run", "--python", PYTHON, document, env=env)
    cli.until("up")
    for proc in Path("/proc").iterdir():
        if proc.name.isdigit():
            try:
                assert SECRET.encode() not in (proc / "cmdline").read_bytes()
            except OSError:
                pass
    (cli.folder / "go").touch()
    assert engine.wait(WAIT_S) == 0, engine.stderr.read()
    import hashlib

    run = cli("show", "latest")
    assert f"{hashlib.sha256(SECRET.encode()).hexdigest()} False" in run.text("a")
    assert "it is " + "*" * len(SECRET) in run.text("a")
    assert "token" not in run.text("b") and "SECRET" not in run.text("b")
    cli("card", "latest")
    kept = everything_in(cli.store)
    assert SECRET.encode() not in kept and b"not-for-you-1" not in kept


def test_a_secret_in_a_failure_is_masked(cli: Cli) -> None:
    cli.write(
        "steps.py", "import os\ndef f(): raise ValueError('bad token ' + os.environ['token'])\n"
    )
    step = {"python": "steps:f", "secrets": ["token"]}
    run = cli.run({"a": step}, "--python", PYTHON, env={"STOKER_SECRET_token": SECRET})
    assert run.code == 1 and "bad token" in run.cause("a")
    assert SECRET not in run.err and SECRET.encode() not in everything_in(cli.store)


def test_a_secret_that_is_not_there(cli: Cli) -> None:
    run = cli.run({"a": {"run": "touch ran", "secrets": ["token"]}})
    assert run.code == 1 and not (cli.folder / "ran").exists()
    assert "'token'" in run.cause("a") and "STOKER_SECRET_token" in run.cause("a")


def test_logs_are_followed(cli: Cli) -> None:
    engine = cli.start(
        "run",
        cli.document({"a": {"run": "echo one; while ! test -e go; do sleep 0.01; done; echo two"}}),
    )
    wait_for(lambda: cli("logs", "latest/a").out == "one\n")
    reader = cli.start("logs", "-f", "latest/a")
    assert reader.stdout is not None and reader.stdout.readline() == "one\n"
    (cli.folder / "go").touch()
    assert reader.stdout.read() == "two\n" and reader.wait(WAIT_S) == 0 and engine.wait(WAIT_S) == 0


def test_the_same_store_from_a_folder_below(cli: Cli) -> None:
    """Without STOKER_STORE, the store is searched in the folders above."""
    del cli.env["STOKER_STORE"]
    cli.run({"a": {"run": "true"}})
    (cli.folder / "sub/deep").mkdir(parents=True)
    done = subprocess.run(
        [cli.binary, "runs", "--json"],
        cwd=cli.folder / "sub/deep",
        env=cli.env,
        capture_output=True,
        text=True,
    )
    assert len(json.loads(done.stdout)) == 1 and os.path.isdir(cli.folder / ".stoker")
