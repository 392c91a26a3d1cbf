"""`stoker top` and `stoker gpus --watch` on a real terminal: what it shows, and its keys."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import termios
from collections.abc import Iterator
from typing import Any

import pytest
from cli_tools import Cli, alive, wait_for
from terminal import Terminal

LEAVE = b"\x1b[?7h\x1b[?25h\x1b[?1049l"
UP, DOWN, PAGE_UP, END = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[F"
BLOCKS, BRAILLE = re.compile("[█-▏]"), re.compile("[\u2801-\u28ff]")
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")
# Whatever a terminal would take for more than text, but for what the screen itself is drawn by.
STEERS = re.compile(
    rb"\x1b(?!\[(?:[0-9;]*m|\d+;1H|K|\?(?:7|25|1049)[hl]))|\x9b|[\x00-\x06\x07\x08\x0b-\x0c\x0e-\x1a]"
)


@pytest.fixture
def screens(cli: Cli) -> Iterator[Screens]:
    made = Screens(cli)
    yield made
    for one in made.all:
        one.close()


class Screens:
    def __init__(self, cli: Cli) -> None:
        self.cli, self.all = cli, list[Terminal]()

    def __call__(
        self, *words: str, columns: int = 120, rows: int = 40, stdin: str = "", **env: str
    ) -> Terminal:
        argv = [str(self.cli.binary), *(words or ("top", "-i", "200ms"))]
        env = {**self.cli.env, "TERM": "xterm", "LC_ALL": "C.UTF-8", **env}
        self.all.append(Terminal(argv, columns, rows, cwd=self.cli.folder, env=env))
        return self.all[-1]


def devices(cli: Cli, n: int = 2, **more: Any) -> None:
    cli.write(
        "new.json",
        json.dumps(
            [
                {
                    "uuid": f"GPU-{i}",
                    "index": i,
                    "model": "NVIDIA Toy 80GB",
                    "memory_bytes": 80 << 30,
                    "memory_used": 20 << 30,
                    "busy_percent": 37 + i,
                    "temperature_c": 51,
                    "power_mw": 250_000,
                    "power_limit_mw": 700_000,
                    "processes": {},
                    **more,
                }
                for i in range(n)
            ]
        ),
    )
    os.replace(cli.folder / "new.json", cli.folder / "devices.json")
    cli.env["STOKER_ACCEL"] = f"fake:{cli.folder / 'devices.json'}"


def start(cli: Cli, **steps: str) -> subprocess.Popen[str]:
    """Runs commands as steps of the pipeline `tune`, each with a device, until all have started."""
    count = 1 if "STOKER_ACCEL" in cli.env and cli.env["STOKER_ACCEL"] != "none" else 0
    made = {
        step: {
            "run": f"echo $$ > {step}.pid; {command}",
            "resources": {"gpu_count": count, "cpu_count": 0.1},
        }
        for step, command in steps.items()
    }
    document = cli.write("tune.json", json.dumps({"stoker": 1, "name": "tune", "steps": made}))
    engine = cli.start("run", document.name)
    for step in steps:
        cli.until(f"{step}.pid")
    return engine


def row(text: str, word: str) -> str:
    return next(line for line in text.splitlines() if re.search(word, line))


def of_tune(step: str) -> str:
    """Of the run of `start`: others' runs are on the same screen."""
    return rf"\btune +\S+ +{step} "


def test_devices_and_steps(cli: Cli, screens: Screens) -> None:
    devices(cli)
    start(cli, train="sleep 600", idle="sleep 600")
    top = screens()
    text = top.until(
        lambda t: (
            BRAILLE.search(t)
            and all(re.search(of_tune(x), t) and f"/{x}" in t for x in ("train", "idle"))
        )
    )
    head = row(text, "tune/train")
    assert re.match(r"GPU \d  Toy 80GB +51°C 250/700 W  tune/train  \w+", head)
    meters = text.splitlines()[text.splitlines().index(head) + 1]
    assert re.search(r"3[78]%", meters) and "21.5 GB / 85.9 GB" in meters
    use, memory = (len(BLOCKS.findall(part)) for part in meters.split("memory"))
    assert 0.3 < use / 50 < 0.5 and 0.2 < memory / 34 < 0.3, meters
    line = row(text, of_tune("train"))
    assert re.search(r"\d+%", line) and re.search(r"\d [kM]B", line, re.I)
    assert "CPU" in text.splitlines()[1] and "memory" in text.splitlines()[1]
    assert text.splitlines()[-1].startswith("q end")


def test_history_is_what_was(cli: Cli, screens: Screens) -> None:
    """The newest look is at the right of the curve, older ones to its left."""
    devices(cli, 1, busy_percent=0)
    top = screens("top", "-i", "100ms")
    top.until(lambda t: len(BRAILLE.findall(t)) > 8, "a curve of some looks")
    devices(cli, 1, busy_percent=100)
    curve = lambda t: [x[:58] for x in t.splitlines()[4:8]]  # noqa: E731
    text = top.until(lambda t: curve(t)[0].endswith("⣿⣿"), "a high end of the curve")
    assert not BRAILLE.search(curve(text)[0][:-8]), "the curve was low before"
    assert curve(text)[3].endswith("⣿⣿")


def test_without_a_device(cli: Cli, screens: Screens) -> None:
    text = screens().until(lambda t: BRAILLE.search(t))
    assert "no GPU" in text.splitlines()[0]
    assert re.match(r"CPU .*%  memory .* / .* GB$", text.splitlines()[1])
    assert "no step runs on this host" in text or "root" in text


@pytest.mark.parametrize(
    "columns, rows", [(40, 18), (40, 60), (80, 24), (200, 50), (20, 5), (1, 1)]
)
def test_sizes(cli: Cli, screens: Screens, columns: int, rows: int) -> None:
    devices(cli, 8)
    start(cli, train="sleep 600")
    top = screens(columns=columns, rows=rows)
    top.until(lambda t: top.raw.count(b"\x1b[1;1H") > 2)
    if columns >= 40:
        text = top.until(lambda t: "train" in t)
        assert text.splitlines()[-1].startswith("q end")
        assert re.search("3[78]%", text) and text.splitlines()[1].startswith("CPU")
        shown = [n for n in range(8) if re.search(rf"^(GPU|   ) ?{n} ", text, re.M)]
        assert shown == list(range(8)), text
        assert "GB / 85.9 GB" in text or columns < 80
        top.press("k")
        assert "Cancel? y/n" in top.until("Cancel?").splitlines()[-1]
        top.press("n?")
        assert len([x for x in top.until("Ctrl-Z").splitlines() if x.startswith("  ")]) == 10
        top.press("xq")
    else:
        top.press("q")
    assert top.end() == 0


def test_no_line_is_too_long(cli: Cli, screens: Screens) -> None:
    """A terminal that wraps would show the rest of a long line below it."""
    devices(cli, 3, trouble="it is on fire, " * 20, usable=False)
    for columns in (40, 57, 80, 99, 100, 121):
        top = screens(columns=columns, rows=30)
        top.until("on fire")
        drawn = re.split(rb"\x1b\[\d+;1H\x1b\[K", COLOUR.sub(b"", top.raw).split(LEAVE)[0])
        widths = {len(line.decode("utf-8", "replace")) for line in drawn[1:-1]}
        assert max(widths) <= columns, max(widths)


def test_resize(cli: Cli, screens: Screens) -> None:
    devices(cli, 1)
    top = screens("top", "-i", "1h")  # only the size makes it draw
    top.until("PIPELINE")
    for columns, rows in ((40, 15), (150, 50), (60, 20)):
        top.resize(columns, rows)
        text = top.until(lambda t: t.splitlines()[-1].startswith("q end"))
        assert ("PIPELINE" in text) == (columns > 60)


def test_colour(cli: Cli, screens: Screens) -> None:
    devices(cli)
    coloured = screens()
    coloured.until("Toy")
    assert COLOUR.search(coloured.raw)
    plain = screens(NO_COLOR="1")
    plain.until("Toy")
    assert not COLOUR.search(plain.raw)


def test_without_utf8(cli: Cli, screens: Screens) -> None:
    devices(cli)
    start(cli, train="sleep 600")
    top = screens(LC_ALL="C", LANG="")
    text = top.until(lambda t: " train " in t and "::::" in t)
    assert top.raw.isascii() and "###" in text


ENDINGS = {"q": 0, "Q": 0, "\x04": 0, "\x03": 0}


@pytest.mark.parametrize("how", [*ENDINGS, signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("words", [("top",), ("gpus", "--watch")])
def test_the_terminal_comes_back(
    screens: Screens, how: str | signal.Signals, words: tuple[str, ...]
) -> None:
    top = screens(*words)
    top.until("q end")
    assert top.raw.startswith(b"\x1b[?1049h")
    assert not termios.tcgetattr(top.side)[3] & termios.ECHO
    if isinstance(how, str):
        top.press(how)
    else:
        top.child.send_signal(how)
    assert top.end() == 0
    assert top.raw.endswith(LEAVE)
    assert termios.tcgetattr(top.side) == top.modes


def test_left_for_a_while(cli: Cli, screens: Screens) -> None:
    """Ctrl-Z gives the terminal back to the shell, and `fg` takes it again."""
    shell = f"set -m; {cli.binary} top -i 1h; stty -a; fg; echo over"
    top = Terminal(
        ["bash", "-c", shell], cwd=cli.folder, env={**cli.env, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
    )
    screens.all.append(top)
    top.until("q end")
    top.press("\x1a")
    top.until(
        lambda t: LEAVE in top.raw and b"q end" in top.raw.rpartition(LEAVE)[2],
        "the picture after fg",
    )
    between = top.raw.split(LEAVE)[1].split(b"\x1b[?1049h")[0]
    assert b" icanon" in between and b" echo " in between
    top.press("q")
    assert top.end() == 0
    assert top.raw.endswith(LEAVE + b"over\r\n")


def test_sort_and_filter(cli: Cli, screens: Screens) -> None:
    devices(cli, 4)
    start(cli, x1="sleep 600", x2="sleep 600", y1="sleep 600")
    top = screens(columns=140)
    names = lambda t: re.findall(r" ([xy]\d) +1 ", t)  # noqa: E731
    top.until(lambda t: sorted(names(t)) == ["x1", "x2", "y1"])
    top.press("ss")  # TIME, CPU, MEMORY
    assert "MEMORY▾" in top.until("sort (MEMORY)")
    top.press("SSSS")
    top.until(lambda t: "sort (STEP)" in t and names(t) == ["x1", "x2", "y1"])
    top.press("r")
    top.until(lambda t: "STEP▾" in t and names(t) == ["y1", "x2", "x1"])
    top.press("/X")
    top.until(lambda t: t.splitlines()[-1] == "/X_" and names(t) == ["x2", "x1"])
    top.press("2\r")
    top.until(lambda t: "with 'X2'" in t and names(t) == ["x2"])
    top.press("/\x7f\x7fnobody\r")
    top.until("no line has this text")
    top.press("\x1b")
    top.until(lambda t: names(t) == ["y1", "x2", "x1"])


def test_a_log_is_followed(cli: Cli, screens: Screens) -> None:
    lines = (
        "for i in $(seq 200); do echo line $i; done; printf '\\033[31mred\\033[0m\\r1%%\\r2%%\\n'"
    )
    start(
        cli,
        talk=f"{lines}; echo oops >&2; while ! test -e go; do sleep 0.05; done; echo gone on; sleep 600",
    )
    top = screens()
    top.until("talk")
    top.press("/talk\r\r")
    text = top.until("line 200")
    assert "talk  stdout.log" in text.splitlines()[0] and "line 1\n" not in text
    assert text.splitlines()[-2] == "2%"
    (cli.folder / "go").touch()
    top.until("gone on")
    top.press(PAGE_UP)
    top.until(lambda t: "gone on" not in t and "line 160" in t)
    top.press(END + "\t")
    top.until(lambda t: "stderr.log" in t and "oops" in t)
    top.press("q")
    top.until("PIPELINE")


def test_a_run_is_cancelled_after_a_yes(cli: Cli, screens: Screens) -> None:
    engine = start(cli, train="sleep 600", other="sleep 600")
    pid = int(cli.until("train.pid"))
    top = screens()
    top.until(" train ")
    run = cli.json("runs")[0]["run"]
    top.press(f"/{run}\rk")
    assert f"Cancel? y/n  run {run}, 2 steps here" in top.until("Cancel?")
    top.press("n")
    top.until(lambda t: "Cancel?" not in t)
    assert engine.poll() is None and alive(pid)
    top.press("ky")
    top.until(f"run {run} is ending its steps")
    assert engine.wait(30) != 0
    wait_for(lambda: not alive(pid))
    top.until(lambda t: "no line has this text" in t or "no step runs on this host" in t)
    assert cli.json("runs")[0]["status"] == "cancelled"


def test_programs_on_devices(cli: Cli, screens: Screens) -> None:
    """Those of steps with their step; of others, no log and nothing to cancel."""
    devices(cli, 1)
    start(cli, train="exec sleep 600")
    other = subprocess.Popen(["sleep", "600"])
    try:
        mine = int(cli.until("train.pid"))
        devices(cli, 1, processes={str(mine): 3 << 30, str(other.pid): 5 << 30})
        watch = screens("gpus", "--watch", "0.2")
        text = watch.until(lambda t: str(mine) in t and str(other.pid) in t)
        assert re.search(r"3.22 GB +sleep +2\d+-\S+ +train", row(text, str(mine)))
        assert re.search(r"5.37 GB +sleep +- +-", row(text, str(other.pid)))
        watch.press(f"/{other.pid}\rk")
        watch.until(f"process {other.pid} is no step of a run")
        watch.press("\r")
        watch.until(f"process {other.pid} is no step of a run")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_nothing_steers_the_terminal(cli: Cli, screens: Screens) -> None:
    evil = "\x1b]0;pwned\x07\x1b[2J\u202e\x9b31m"
    devices(cli, 1, model=f"Toy{evil}", trouble=f"hot{evil}", usable=False)
    cli.env["STOKER_ACCEL"] = f"fake:{cli.folder / 'devices.json'}"
    made = {
        "talk": {
            "run": "echo $$ > talk.pid; printf 'say\\033]0;pwned\\007\\033[2J\\233x\\n'; sleep 600"
        }
    }
    cli.start("run", cli.document(made))
    cli.until("talk.pid")
    top = screens()
    top.until(lambda t: "Toy" in t and "hot" in t and "talk" in t)
    top.press("/talk\r\r")
    top.until(lambda t: "say" in t and "stdout.log" in t)
    top.press("q/\x01\x1b[2J\r")
    top.until("PIPELINE")
    raw = top.raw.decode("utf-8", "replace")
    assert not STEERS.search(top.raw), STEERS.search(top.raw)
    assert "\u202e" not in raw and "\x9b" not in raw and "pwned" in raw


def test_once_fits_the_terminal(cli: Cli, screens: Screens) -> None:
    devices(cli, 2)
    start(cli, train="sleep 600")
    top = screens("top", "--once", columns=40)
    assert top.end() == 0
    lines = COLOUR.sub(b"", top.raw).decode().splitlines()
    assert max(map(len, lines)) <= 40 and any("37%" in x for x in lines)
    assert any("STEP" in x for x in lines) and any(" train " in x for x in lines)


@pytest.mark.parametrize("env", [{}, {"TERM": "dumb"}])
def test_elsewhere_one_picture(cli: Cli, screens: Screens, env: dict[str, str]) -> None:
    """In a pipe, and on a terminal whose cursor can't be moved."""
    if env:
        top = screens("top", **env)
        assert top.end() == 0 and b"\x1b[?" not in top.raw
        assert top.raw.count(b", load ") == 1
    else:
        done = cli("top")
        assert done.code == 0 and done.out.count(", load ") == 1 and "\x1b" not in done.out
