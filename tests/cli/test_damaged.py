"""A damaged artifact is found before it is used: by steps, by the cache, by `load`, by `store
verify` and by an idle engine."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli_tools import PYTHON, WAIT_S, Cli, wait_for

SMALL, LARGE = 1000, 3_000_000


def make(size: int) -> dict[str, Any]:
    return {
        "run": ["sh", "-c", f"head -c {size} /dev/zero > $STOKER_OUTPUT/out; echo x >> made"],
        "outputs": ["out"],
    }


def make_folder() -> dict[str, Any]:
    text = "mkdir -p $STOKER_OUTPUT/out/sub; echo a > $STOKER_OUTPUT/out/a; echo b > $STOKER_OUTPUT/out/sub/b; echo x >> made"
    return {"run": ["sh", "-c", text], "outputs": ["out"]}


def reader(**more: Any) -> dict[str, Any]:
    return {
        "run": ["sh", "-c", "ls -l $STOKER_INPUT_x > /dev/null"],
        "inputs": {"x": {"from": "make.out"}},
        **more,
    }


def flip(path: Path, keep_times: bool = False) -> None:
    """Changes one byte; the size stays."""
    before = path.stat()
    os.chmod(path, 0o644)
    with path.open("r+b") as file:
        file.seek(before.st_size // 2)
        file.write(b"!")
    os.chmod(path, before.st_mode & 0o777)
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def rot(cli: Cli, path: Path) -> None:
    """Changes the content without a trace in the file system, as a faulty disk does."""
    flip(path)
    now = path.stat()
    stamp = f"{now.st_ino} {now.st_size} {now.st_mtime_ns} {now.st_ctime_ns}"
    digest = path.parent.name + path.name
    with sqlite3.connect(cli.store / "store.db") as db:
        db.execute("UPDATE artifacts SET stamp = ? WHERE digest = ?", (stamp, digest))


def artifact(cli: Cli, name: str = "latest/make.out") -> Path:
    return Path(cli.json("artifact", "get", name)["path"])


def made(cli: Cli) -> int:
    return (cli.folder / "made").read_text().count("x")


def quarantined(cli: Cli) -> list[str]:
    folder = cli.store / "quarantine"
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_changed_artifact_is_no_hit_and_is_made_again(cli: Cli, size: int) -> None:
    assert cli.run({"make": make(size)}).code == 0
    path = artifact(cli)
    flip(path, keep_times=True)
    again = cli.run({"make": make(size)})
    assert again.statuses == {"make": "succeeded"}
    assert made(cli) == 2
    assert path.read_bytes() == bytes(size)
    assert quarantined(cli) == [path.parent.name + path.name]
    assert "set aside" in cli("show", "latest").out + again.err


@pytest.mark.parametrize("what", ["a", "sub/b", "new"])
def test_a_changed_folder_is_no_hit_and_is_made_again(cli: Cli, what: str) -> None:
    assert cli.run({"make": make_folder()}).code == 0
    path = artifact(cli)
    if what == "new":
        os.chmod(path, 0o755)
        (path / what).write_text("new")
    else:
        flip(path / what)
    again = cli.run({"make": make_folder()})
    assert again.statuses == {"make": "succeeded"}
    assert made(cli) == 2


def test_an_unchanged_folder_is_a_hit(cli: Cli) -> None:
    assert cli.run({"make": make_folder()}).code == 0
    again = cli.run({"make": make_folder(), "read": reader()})
    assert again.statuses == {"make": "cached", "read": "succeeded"}
    assert made(cli) == 1


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_a_step_whose_input_was_changed_says_so_and_resume_makes_it_again(
    cli: Cli, size: int
) -> None:
    between = {
        "run": ["sh", "-c", "echo > between.done; while [ ! -e go ]; do sleep 0.01; done"],
        "after": ["make"],
    }
    read = reader(after=["between"])
    name = cli.document({"make": make(size), "between": between, "read": read})
    run = cli.start("run", name)
    cli.until("between.done", 60)
    path = next(p for p in (cli.store / "artifacts").glob("*/*") if p.stat().st_size == size)
    flip(path)
    cli.write("go", "")
    assert run.wait(WAIT_S) == 1
    shown = cli("show", "latest", "--json").out
    assert "set aside" in shown and path.parent.name + path.name in shown
    assert cli("resume", "latest", timeout=60).code == 0
    assert made(cli) == 2


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_resume_makes_again_what_was_changed_meanwhile(cli: Cli, size: int) -> None:
    name = cli.document({"make": make(size), "read": reader()})
    killed = cli("run", name, STOKER_FAILPOINTS="exec.launch.before:2:kill")
    assert killed.code == -signal.SIGKILL
    path = next(p for p in (cli.store / "artifacts").glob("*/*") if p.stat().st_size == size)
    flip(path)
    assert cli("resume", "latest", timeout=60).code == 0
    assert made(cli) == 2


def test_a_copied_store_costs_one_summing_and_no_more(cli: Cli, tmp_path: Path) -> None:
    steps = {"make": make(LARGE)}
    assert cli.run(steps).code == 0
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", cli.store, copy], check=True)
    shutil.rmtree(cli.store)
    cli.env["STOKER_STORE"], cli.store = str(copy), copy
    hold = cli.write("hold", "")
    held = {"STOKER_FAILPOINTS": "store.sum.mid:1:hold", "STOKER_FAILPOINT_HOLD": str(hold)}
    run = cli.start("run", cli.document(steps), env=held)
    # its digest is checked before it counts as a hit
    with pytest.raises(subprocess.TimeoutExpired):
        run.wait(1)
    hold.unlink()
    assert run.wait(WAIT_S) == 0
    cli.write("hold", "")
    assert cli("run", "p.json", timeout=60, **held).statuses == {"make": "cached"}
    assert made(cli) == 1 and quarantined(cli) == []


def test_a_store_of_the_format_before_gets_stamps_at_first_use(cli: Cli) -> None:
    assert cli.run({"make": make(LARGE)}).code == 0
    with sqlite3.connect(cli.store / "store.db") as db:
        db.execute("ALTER TABLE artifacts DROP COLUMN stamp")
        db.execute("ALTER TABLE artifacts DROP COLUMN verified_ms")
        db.execute("DROP TABLE records")
        db.execute("PRAGMA user_version = 2")
    assert cli.run({"make": make(LARGE)}).statuses == {"make": "cached"}
    with sqlite3.connect(cli.store / "store.db") as db:
        assert db.execute("SELECT count(*) FROM artifacts WHERE stamp IS NULL").fetchone() == (0,)
    flip(artifact(cli))
    assert cli.run({"make": make(LARGE)}).statuses == {"make": "succeeded"}


LOAD = """
import sys, stoker
run = stoker.Client().get_pipeline_run("latest")
try:
    print("loaded", len(run.steps["make"].output.load()))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("size", [SMALL, LARGE])
def test_load_finds_what_was_changed(cli: Cli, size: int) -> None:
    cli.write(
        "p.py",
        f"""
import stoker

@stoker.step
def make() -> bytes:
    return bytes({size})

@stoker.pipeline
def p():
    make()

if __name__ == "__main__":
    p()
""",
    )
    assert cli("run", "p.py", timeout=60).code == 0
    cli.write("load.py", LOAD)

    def load() -> str:
        done = subprocess.run(
            [PYTHON, "load.py"],
            cwd=cli.folder,
            env={**cli.env, "STOKER_BIN": str(cli.binary)},
            capture_output=True,
            text=True,
            timeout=60,
        )
        return done.stdout + done.stderr

    assert load().startswith(f"loaded {size}")
    path = next(p for p in (cli.store / "artifacts").glob("*/*") if p.stat().st_size >= size)
    flip(path)
    said = load()
    assert said.startswith("LoadError") and "set aside" in said
    assert quarantined(cli) == [path.parent.name + path.name]


def test_verify_finds_silent_rot_and_sets_it_aside(cli: Cli) -> None:
    assert cli.run({"make": make(LARGE)}).code == 0
    path = artifact(cli)
    rot(cli, path)
    assert cli.run({"make": make(LARGE)}).statuses == {"make": "cached"}  # nothing shows it
    assert "1 bad" in cli("store", "verify").out
    assert quarantined(cli) == []
    assert "quarantine" in cli("store", "verify", "--repair").out
    assert quarantined(cli) == [path.parent.name + path.name]
    assert cli.run({"make": make(LARGE)}).statuses == {"make": "succeeded"}


def waiting(cli: Cli, age: str) -> subprocess.Popen[str]:
    name = cli.document(
        {"wait": {"run": ["sh", "-c", "while [ ! -e go ]; do sleep 0.01; done"], "cache": False}},
        "w.json",
    )
    return cli.start("run", name, env={"STOKER_IDLE_READ": age})


def test_an_idle_engine_finds_silent_rot(cli: Cli) -> None:
    assert cli.run({"make": make(LARGE)}).code == 0
    path = artifact(cli)
    rot(cli, path)
    run = waiting(cli, "1ms")
    wait_for(lambda: quarantined(cli), 60)
    cli.write("go", "")
    assert run.wait(WAIT_S) == 0
    assert "set aside" in cli("show", "latest").out


def test_an_idle_engine_that_reads_ends_at_once(cli: Cli) -> None:
    assert cli.run({"make": make(LARGE)}).code == 0
    hold = cli.write("hold", "")
    cli.env |= {"STOKER_FAILPOINTS": "store.sum.mid:1:hold", "STOKER_FAILPOINT_HOLD": str(hold)}
    run = waiting(cli, "1ms")
    wait_for(lambda: any((cli.store / "runs").glob("*/wait/0/1/task.json")), 60)
    cli.write("go", "")
    assert run.wait(WAIT_S) == 0


def test_an_idle_engine_reads_nothing_where_that_is_turned_off(cli: Cli) -> None:
    assert cli.run({"make": make(LARGE)}).code == 0
    path = artifact(cli)
    rot(cli, path)
    run = waiting(cli, "0")
    wait_for(lambda: any((cli.store / "runs").glob("*/wait/0/1/task.json")), 60)
    cli.write("go", "")
    assert run.wait(WAIT_S) == 0
    assert path.exists() and quarantined(cli) == []
