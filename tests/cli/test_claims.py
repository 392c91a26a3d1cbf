"""What a step claims about its outputs: the digest is always the computed one, never the claimed
one."""

from __future__ import annotations

import json
import sqlite3

import pytest
from cli_tools import PYTHON, Cli

FALSE = "ab" * 32

CLAIM = (
    """
import json, os
path = os.environ["STOKER_TASK_DIR"] + "/result.json"
def claim(name, where="out/x"):
    os.makedirs(os.path.dirname(os.environ["STOKER_TASK_DIR"] + "/" + where), exist_ok=True)
    open(os.environ["STOKER_TASK_DIR"] + "/" + where, "w").write("what is written\\n")
    said = {"path": where, "format": "text", "type": "builtins.str", "digest": "%s", "size": 16}
    open(path, "w").write(json.dumps({"stoker": 1, "status": "ok", "outputs": {name: said}}))
"""
    % FALSE
)


def no_such_artifact(cli: Cli) -> None:
    with sqlite3.connect(cli.store / "store.db") as db:
        named = [row for row in db.execute("SELECT digest FROM artifacts") if row[0] == FALSE]
    assert not named and not (cli.store / "artifacts" / FALSE[:2] / FALSE[2:]).exists()


@pytest.mark.parametrize("kind", ["command", "fork", "spawn", "ranks"])
def test_a_claimed_digest_is_not_believed(cli: Cli, kind: str) -> None:
    cli.write("claims.py", CLAIM)
    cli.write(
        "steps.py",
        "import atexit, claims\ndef f():\n    atexit.register(claims.claim, 'output')\n    return 1\n",
    )
    step = {
        "command": {"run": [PYTHON, "-c", "import claims; claims.claim('x')"], "outputs": ["x"]},
        "ranks": {
            "run": [
                PYTHON,
                "-c",
                "import claims, os; os.environ['RANK'] == '0' and claims.claim('x')",
            ],
            "outputs": ["x"],
            "gang": {"ranks": 2},
        },
    }.get(kind, {"python": "steps:f", "outputs": ["output"], "isolation": kind})
    run = cli.run(
        {"a": step},
        "--python",
        PYTHON,
        timeout=60,
        env={"PYTHONPATH": f"{cli.folder}:{cli.env['PYTHONPATH']}"},
    )
    assert run.code == 1 and run.statuses == {"a": "failed"}
    assert run.steps["a"]["error"]["class"] == "output"
    name = "x" if kind in ("command", "ranks") else "output"
    assert f"output '{name}' claims digest abababababab…" in run.cause("a")
    assert "its content has" in run.cause("a")
    no_such_artifact(cli)


def test_a_true_claim_is_fine(cli: Cli) -> None:
    body = "printf hello > $STOKER_OUTPUT/x"
    digest = cli.run({"a": {"run": body, "outputs": ["x"]}}).steps["a"]["outputs"]["x"]["digest"]
    said = {"stoker": 1, "status": "ok", "outputs": {"x": {"path": "out/x", "digest": digest}}}
    body += f"; echo '{json.dumps(said)}' > $STOKER_TASK_DIR/result.json"
    run = cli.run({"a": {"run": body, "outputs": ["x"]}})
    assert run.code == 0 and run.steps["a"]["outputs"]["x"]["digest"] == digest


@pytest.mark.parametrize("other", ["there", "not there"])
def test_an_artifact_of_somebody_else_is_no_output(cli: Cli, other: str) -> None:
    cli.write("file", "somebody's\n")
    digest = cli.json("artifact", "add", "file")["digest"] if other == "there" else FALSE
    said = {"stoker": 1, "status": "ok", "outputs": {"x": {"artifact": digest}}}
    body = f"echo '{json.dumps(said)}' > $STOKER_TASK_DIR/result.json"
    run = cli.run({"a": {"run": body, "outputs": ["x"]}})
    assert run.code == 1 and run.steps["a"]["error"]["class"] == "output"
    assert f"output 'x' names artifact {digest[:12]}…" in run.cause("a")
    assert "(null)" not in run.cause("a")
    steps = {"a": {"run": body, "outputs": ["x"], "next": "b"}, "b": {"run": "true"}}
    run = cli.run(steps)
    assert run.code == 1 and "none of its inputs has under that name" in run.cause("a")
