"""A run's record: accepted values can be read again, others are refused before anything starts."""

from __future__ import annotations

import os
import sqlite3
import subprocess

import pytest
from cli_tools import Cli

DOCUMENT = """
stoker: 1
name: p
parameters: {n: 1, s: x, f: 1.5, a: {type: json, default: 1}}
steps:
  one: {run: "echo ran >> RAN"}
  two: {run: "echo two", after: [one]}
"""
EDGE = 1 << 63
KEPT = (
    f"n={EDGE - 1}",
    f"n={-EDGE}",
    "f=1e308",
    f"f={EDGE}",
    "s=\x01\x7f\n",
    "s=日本 \U0001f600 \u2028",
    f"s={EDGE}",
    f"a=[{EDGE - 1}, -0.0, null]",
)
REFUSED = (
    f"n={EDGE}".encode(),
    f"n={-EDGE - 1}".encode(),
    b"n=1" + b"0" * 5000,
    b"f=1e400",
    b"f=nan",
    b"s=\xff",
    b"s=\xed\xa0\x80",
    b"a=[1, %d]" % EDGE,
    b'a={"k": "\\u0000"}',
    b"n\xff=1",
)


def call(cli: Cli, *args: str | bytes, **more: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(cli.binary), *args],
        cwd=cli.folder,
        env=cli.env,
        capture_output=True,
        timeout=60,
        **more,
    )


@pytest.mark.parametrize("param", KEPT)
def test_what_is_accepted_is_read_again(cli: Cli, param: str) -> None:
    cli.write("p.yaml", DOCUMENT)
    assert cli("run", "p.yaml", "--param", param).code == 0
    for args in (["show"], ["show", "--json"], ["runs"], ["logs"], ["why", "latest/one"]):
        assert cli(*args).code == 0, args
    name, _, value = param.partition("=")
    shown = cli.json("show")["parameters"][name]
    if name in ("n", "s"):
        assert str(shown) == value
    assert cli("store", "verify").code == 0


@pytest.mark.parametrize("param", REFUSED, ids=repr)
def test_what_is_not_is_refused_first(cli: Cli, param: bytes) -> None:
    cli.write("p.yaml", DOCUMENT)
    for words in (["run", "p.yaml", "--param", param], ["run", "--param", param, "p.yaml"]):
        done = call(cli, *words)
        assert done.returncode == 2 and b"param" in done.stderr, done.stderr
    assert not (cli.folder / "RAN").exists()


@pytest.mark.parametrize("value", [str(EDGE), "[1, [18446744073709551616]]", '"a\\0b"'])
def test_a_document_s_own_values(cli: Cli, value: str) -> None:
    text = DOCUMENT.replace("default: 1}", f"default: {value}}}")
    cli.write("p.yaml", text)
    run = cli("run", "p.yaml")
    assert run.code == 2 and "parameter 'a'" in run.err and "p.yaml:4" in run.err
    assert not (cli.folder / "RAN").exists()


def test_names_that_are_not_utf8(cli: Cli) -> None:
    cli.write("p.yaml", DOCUMENT)
    odd = os.fsencode(cli.folder) + b"/x\xffy"
    os.mkdir(odd)
    with open(odd + b"/p.yaml", "w") as stream:
        stream.write(DOCUMENT)
    for words in (
        ["run", odd + b"/p.yaml"],
        ["run", "p.yaml", "--run-name", b"a\xff"],
    ):
        done = call(cli, *words)
        assert done.returncode == 2 and b"UTF-8" in done.stderr
    inside = subprocess.run(
        [str(cli.binary), "run", "p.yaml"], cwd=odd, env=cli.env, capture_output=True, timeout=60
    )
    assert inside.returncode == 2 and b"UTF-8" in inside.stderr
    assert not (cli.folder / "RAN").exists()


@pytest.mark.parametrize(
    "change", ["data = '{\"x'", "kind = 'odd'", "data = ''", "data = x'ff'", "task = 77"]
)
def test_a_damaged_event_hides_no_other(cli: Cli, change: str) -> None:
    """Damages each event of a run in turn: every command continues, and reports it."""
    cli.write("p.yaml", DOCUMENT)
    assert cli("run", "p.yaml").code == 0
    assert cli("run", "p.yaml", "--no-cache").code == 0
    good, bad = cli.json("runs")["runs"] if isinstance(cli.json("runs"), dict) else cli.json("runs")
    db = sqlite3.connect(cli.store / "store.db")
    rows = db.execute("SELECT id, kind, task FROM events WHERE id >> 32 = 1 ORDER BY id").fetchall()
    assert len(rows) > 5
    for row, kind, task in rows:
        if change.startswith("task") and task is None:
            continue
        before = db.execute("SELECT kind, task, data FROM events WHERE id = ?", (row,)).fetchone()
        db.execute(f"UPDATE events SET {change} WHERE id = ?", (row,))
        db.commit()
        for args in (
            ["show", bad["run"]],
            ["show", bad["run"], "--json"],
            ["runs"],
            ["show", good["run"]],
        ):
            assert cli(*args).code == 0, (kind, args)
        assert "two" in cli("logs", bad["run"], "two").out
        if not change.startswith("task"):
            assert "damaged" in cli("show", bad["run"]).out + cli("show", bad["run"]).err, kind
            checked = cli("store", "verify")
            assert checked.code == 3 and bad["run"] in checked.out and "damaged" in checked.out
        db.execute("UPDATE events SET kind = ?, task = ?, data = ? WHERE id = ?", (*before, row))
        db.commit()
    assert cli("store", "verify").code == 0


def test_seal_opens_for_its_own_name_only(cli: Cli) -> None:
    sealed = call(cli, "record", "seal", "secret", "db", input=b"pa\xc3\xa4ss\n")
    assert sealed.returncode == 0 and b"ss" not in sealed.stdout, sealed.stderr
    opened = call(cli, "record", "open", "secret", "db", input=sealed.stdout.strip())
    assert opened.stdout == b"pa\xc3\xa4ss\n"
    other = call(cli, "record", "open", "secret", "other", input=sealed.stdout.strip())
    assert other.returncode == 2 and b"can't be read" in other.stderr
    assert not other.stdout


@pytest.mark.parametrize("text", [b"", b"zz", b"00" * 20, "é".encode()])
def test_what_was_not_sealed_is_refused(cli: Cli, text: bytes) -> None:
    done = call(cli, "record", "open", "secret", "db", input=text)
    assert done.returncode == 2 and not done.stdout, done.stderr
