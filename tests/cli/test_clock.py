"""The wall clock is set during runs: durations don't change, and neither does the order of
events."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import struct
import subprocess
from pathlib import Path
from typing import Callable

import pytest
from cli_tools import WAIT_S, Cli, Steps, wait_for

DAYS = 2 * 86400
LONG_S = 3600  # no run here takes an hour, however busy the machine is
Set = Callable[[int], None]


@pytest.fixture
def set_clock(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Set:
    """Moves the wall clock of all programs of the test by so many seconds, also while they run."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("takes a C compiler")
    folder = tmp_path_factory.mktemp("shift")
    library = folder / "shift.so"
    source = Path(__file__).with_name("shift.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    told = folder / "seconds"
    told.write_bytes(struct.pack("q", 0))
    cli.env |= {"LD_PRELOAD": str(library), "SHIFT_FILE": str(told)}

    def set_clock(seconds: int) -> None:
        with open(told, "r+b") as file:
            file.write(struct.pack("q", seconds))

    return set_clock


def steps(name: str = "a") -> Steps:
    wait = "echo $$ > pid; while ! test -e go; do sleep 0.02; done"
    return {
        "before": {"run": "date +%s > before; sleep 0.05"},  # sleeps: takes some ms
        name: {"run": wait, "after": ["before"]},
        "after": {"run": "date +%s > after; sleep 0.05", "after": [name]},  # sleeps: some ms
    }


def check(shown: dict, n_steps: int = 3) -> None:
    took = {"the run": shown["ended_ms"] - shown["created_ms"]}
    took |= {n: s["ended_ms"] - s["started_ms"] for n, s in shown["steps"].items()}
    assert len(took) == n_steps + 1
    assert all(0 < ms < LONG_S * 1000 for ms in took.values()), took
    order = [shown["steps"][n]["started_ms"] for n in ("before", "a", "after")]
    assert order == sorted(order)


@pytest.mark.parametrize("seconds", [DAYS, -DAYS])
def test_it_is_set_while_a_step_runs(cli: Cli, set_clock: Set, seconds: int) -> None:
    engine = cli.start("run", cli.document(steps()))
    cli.until("pid")
    set_clock(seconds)
    for words in (["show"], ["runs"], ["top", "--once"]):
        text = cli(*words).out
        assert not re.search(r"(?<!\S)-?(4[78]h|[12]d)", text)
    (cli.folder / "go").touch()
    assert engine.wait(WAIT_S) == 0
    jumped = int(cli.until("after")) - int(cli.until("before"))
    assert abs(jumped - seconds) < LONG_S  # the steps saw it
    check(cli.json("show"))


@pytest.mark.parametrize("seconds", [DAYS, -DAYS])
def test_it_is_set_between_two_engines(cli: Cli, set_clock: Set, seconds: int) -> None:
    engine = cli.start("run", cli.document(steps()))
    cli.until("pid")
    engine.kill()
    engine.wait()
    set_clock(seconds)
    (cli.folder / "go").touch()
    run = cli("resume")
    assert run.code == 0
    check(run.shown)
    # a later run is the latest, even if the clock makes it older
    document = cli.document({"new": {"run": "true"}}, "new.json")
    assert cli("run", document).code == 0
    assert [*cli.json("show")["steps"]] == ["new"]
    assert [*map(lambda r: r["run"], cli.json("runs"))][1] == run.shown["run"]


@pytest.mark.parametrize("seconds", [0, -DAYS])
@pytest.mark.parametrize("boot", ["of another boot", None], ids=["boot", "unknown"])
def test_a_run_of_another_boot_never_goes_backwards(
    cli: Cli, set_clock: Set, boot: str | None, seconds: int
) -> None:
    """The machine was rebooted, or the run's first engine recorded no boot: the wall clock
    counts."""
    engine = cli.start("run", cli.document(steps()))
    cli.until("pid")
    engine.kill()
    engine.wait()
    with sqlite3.connect(cli.folder / ".stoker" / "store.db") as db:
        ((number, text),) = db.execute("SELECT id, data FROM events WHERE kind = 'run_started'")
        began = {**json.loads(text), "boot": boot, "boot_ms": 1}
        if boot is None:
            del began["boot"], began["boot_ms"]
        db.execute("UPDATE events SET data = ? WHERE id = ?", (json.dumps(began), number))
    db.close()
    set_clock(seconds)
    (cli.folder / "go").touch()
    run = cli("resume")
    assert run.code == 0
    check(run.shown)


@pytest.mark.parametrize("seconds", [DAYS, -DAYS])
def test_it_is_set_while_a_retry_waits(cli: Cli, set_clock: Set, seconds: int) -> None:
    text = "test -e tried && exit 0; touch tried; exit 1"
    retry = {"max_retries": 1, "delay": 0.5}
    engine = cli.start("run", cli.document({"a": {"run": text, "retry": retry}}))
    wait_for(lambda: (cli.folder / "tried").exists(), why="the first attempt")
    set_clock(seconds)
    assert engine.wait(WAIT_S) == 0
    shown = cli.json("show")
    assert shown["steps"]["a"]["attempts"] == 2
    assert 0 < shown["ended_ms"] - shown["created_ms"] < LONG_S * 1000


@pytest.mark.parametrize("seconds", [DAYS, -DAYS])
def test_it_is_set_while_ranks_run(cli: Cli, set_clock: Set, seconds: int) -> None:
    text = "echo x >> ranks; while ! test -e go; do sleep 0.02; done"
    engine = cli.start("launch", "--ranks", "2", "--log-dir", "gang", "--", "sh", "-c", text)
    wait_for(lambda: cli.until("ranks").split() == ["x", "x"], why="two ranks")
    set_clock(seconds)
    (cli.folder / "go").touch()
    assert engine.wait(WAIT_S) == 0
    told = json.loads((cli.folder / "gang/gang.json").read_text())
    (attempt,) = told["attempts"]
    (ranks,) = (value for value in attempt.values() if isinstance(value, list))
    assert len(ranks) == 2
    for one in [told, *ranks]:
        assert 0 <= one["ended_ms"] - one["started_ms"] < LONG_S * 1000, told


@pytest.mark.parametrize("seconds", [DAYS, -DAYS])
def test_it_is_set_while_a_device_has_trouble(cli: Cli, set_clock: Set, seconds: int) -> None:
    """An ongoing event is reported once, and a later event of the device isn't mistaken for it."""
    cli.devices("GPU-a")
    hold = "touch up; while ! test -e go; do sleep 0.02; done"
    step = {"run": hold, "resources": {"cpu_count": 0.1, "gpu_count": 1}}
    engine = cli.start("run", "--no-cache", cli.document({"a": step}))
    wait_for(lambda: (cli.folder / "up").exists(), why="the step")
    events: list[dict[str, object]] = []

    def happens(xid: int, of: int) -> None:
        events.append({"xid": xid, "text": f"Xid {xid}: number {len(events)}"})
        devices = json.loads((cli.folder / "devices.json").read_text())
        devices[0]["events"] = events
        cli.write("devices.new", json.dumps(devices))
        (cli.folder / "devices.new").rename(cli.folder / "devices.json")
        told = lambda: cli("show", "latest").out.count("Xid ")  # noqa: E731
        wait_for(lambda: told() >= of, why=f"Xid {xid}")

    happens(31, 1)
    set_clock(seconds)
    events.append({"xid": 31, "text": "Xid 31: again"})
    happens(13, 2)  # another event, reported after it
    (cli.folder / "go").touch()
    assert engine.wait(60) == 0
    notes = [note for note in cli.json("show")["notes"] if "Xid" in note]
    assert ["number 0" in notes[0], "number 2" in notes[1], len(notes)] == [True, True, 2], notes
