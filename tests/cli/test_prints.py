"""Prints of steps appear while they run: unchanged for a single step, after the step's name for
several."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from pathlib import Path

import pytest
from cli_tools import PYTHON, WAIT_S, Cli, wait_for

WAIT = "while [ ! -e ok ]; do sleep 0.02; done"
MEET = "touch $0; while [ ! -e a ] || [ ! -e b ]; do sleep 0.02; done; sleep 0.2"


def meets(name: str, then: str) -> dict[str, object]:
    """Steps `a` and `b`, each of which prints while the other one runs."""
    return {"run": ["sh", "-c", f"{MEET}; {then}", name]}


def told(text: str) -> list[str]:
    """The lines that aren't progress of Stoker."""
    own = r"(start|done|cached|failed|store|stoker:|run |note|retry) ?"
    lines = text.split("\n\n")[0].splitlines()
    return [line for line in lines if line and not re.match(own, line)]


def test_a_lone_step_prints_plainly_and_at_once(cli: Cli) -> None:
    """The step continues only after its line was read, so the line came before the end."""
    run = cli.start("run", cli.document({"a": {"run": f"echo one; {WAIT}; echo two; printf end"}}))
    assert run.stdout is not None
    assert run.stdout.readline() == "one\n"
    cli.write("ok", "")
    out, err = run.communicate(timeout=WAIT_S)
    assert out == "two\nend\n"
    assert err.index("start") < err.index("done")


def test_streams_stay_apart(cli: Cli) -> None:
    run = cli.run({"a": {"run": "echo out; echo err >&2"}})
    assert run.out == "out\n" and "err\n" in run.err and "out\n" not in run.err


def test_steps_at_once_have_their_name_before_each_line(cli: Cli) -> None:
    steps = {"a": meets("a", "echo 1; echo 2"), "b": meets("b", "echo 3; echo e >&2")}
    run = cli.run(steps, "-j2", env={"LC_ALL": "C.UTF-8"})
    assert run.code == 0
    assert sorted(run.out.splitlines()) == ["a │ 1", "a │ 2", "b │ 3"]
    assert "b │ e\n" in run.err
    again = cli.run(steps, "-j2", "--no-cache", env={"LC_ALL": "C"})
    assert sorted(again.out.splitlines()) == ["a | 1", "a | 2", "b | 3"]


def test_steps_after_each_other_print_in_order(cli: Cli) -> None:
    """In one stream, the end of a step comes after its lines and before those of the next step."""
    steps = {"a": {"run": "echo in a"}, "b": {"run": "echo in b", "after": ["a"]}}
    run = subprocess.run(
        [cli.binary, "run", cli.document(steps)],
        cwd=cli.folder,
        env=cli.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=WAIT_S,
    )
    found = [line for line in run.stdout.splitlines() if re.match(r"start|done|in ", line)]
    assert [" ".join(line.split()[:2]) for line in found] == [
        "start a", "in a", "done a", "start b", "in b", "done b",
    ]  # fmt: skip


def test_a_progress_bar_is_one_line(cli: Cli) -> None:
    bar = "for i in 1 2 3; do printf '\\rstep %d/3' $i; done; echo; printf 'a\\r\\nb\\rc\\r\\n'"
    run = cli.run({"a": {"run": bar}})
    assert run.out == "step 3/3\na\nc\n"


@pytest.mark.parametrize("how", ["quiet", "setting"])
def test_off(cli: Cli, how: str) -> None:
    options, env = (("-q",), {}) if how == "quiet" else ((), {"STOKER_PRINTS": "off"})
    run = cli.run({"a": {"run": "echo out; echo err >&2"}}, *options, env=env)
    assert run.out == "" and "err" not in run.err
    assert run.text("a") == "out\n"


def test_with_json_all_of_it_goes_to_stderr(cli: Cli) -> None:
    run = cli.run({"a": {"run": "echo out; echo err >&2"}}, "--json")
    assert json.loads(run.out)["status"] == "succeeded"
    assert sorted(run.err.splitlines()) == ["err", "out"]
    flow = cli.run({"a": {"run": "echo out"}}, "--json", "--echo", "--no-cache")
    assert json.loads(flow.out)["status"] == "succeeded" and "] out\n" in flow.err


def test_secrets_are_masked(cli: Cli) -> None:
    run = cli.run(
        {"a": {"run": "echo token $key", "secrets": ["key"]}},
        env={"STOKER_SECRET_key": "swordfish"},
    )
    assert run.out.startswith("token *") and "swordfish" not in run.out + run.err


def test_ranks(cli: Cli) -> None:
    steps = {"a": {"run": "echo hello", "gang": {"ranks": 2}}}
    run = cli.run(steps, env={"LC_ALL": "C.UTF-8"})
    assert run.code == 0, run.err
    assert {"a[0] │ hello", "a[1] │ hello"} <= set(run.out.splitlines())


PROGRAM = """
import os, sys, time
from stoker import step, pipeline
@step
def train() -> int:
    print("in train")
    print("to stderr", file=sys.stderr)
    os.write(1, b"raw\\n")
    while not os.path.exists("ok"): time.sleep(0.02)
    return 1
@pipeline
def p(): train()
if __name__ == "__main__":
    print("before")
    p()
    print("after")
"""


@pytest.mark.parametrize("door", ["run", "python"])
def test_a_python_file(cli: Cli, door: str) -> None:
    """Prints of the program come before and after the prints of its steps."""
    cli.write("prog.py", PROGRAM)
    argv = [cli.binary, "run", "prog.py"] if door == "run" else [PYTHON, "prog.py"]
    run = subprocess.Popen(
        argv, cwd=cli.folder, env=cli.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert [run.stdout.readline() for _ in range(3)] == ["before\n", "in train\n", "raw\n"]
    cli.write("ok", "")
    out, err = run.communicate(timeout=WAIT_S)
    assert out == "after\n" and "to stderr\n" in err and run.returncode == 0, err


def test_a_python_command_prints_at_once(cli: Cli) -> None:
    cli.write("now.py", "import os\nprint('now')\nwhile not os.path.exists('ok'): pass\n")
    run = cli.start("run", cli.document({"a": {"run": [PYTHON, "now.py"]}}))
    assert run.stdout is not None and run.stdout.readline() == "now\n"
    cli.write("ok", "")
    run.communicate(timeout=WAIT_S)


def test_nobody_reads(cli: Cli) -> None:
    """Our stdout is a full pipe: the step still ends, and later every line appears."""
    n = 300_000
    body = f"seq {n}; touch ended; while [ ! -e ok ]; do sleep 0.02; done; echo last"
    run = cli.start("run", cli.document({"a": {"run": body}}))
    wait_for(lambda: (cli.folder / "ended").exists())
    cli.write("ok", "")
    run_id = wait_for(lambda: cli.json("runs"))[0]["run"]
    wait_for(lambda: cli.json("show", run_id)["steps"]["a"]["status"] == "succeeded")
    out, err = run.communicate(timeout=WAIT_S)
    assert out == "".join(f"{i}\n" for i in range(1, n + 1)) + "last\n"
    assert run.returncode == 0 and "done" in err


def test_a_reader_that_goes(cli: Cli) -> None:
    """`stoker run | head -1` doesn't harm the run."""
    steps = {"a": {"run": "seq 200000; touch made"}}
    run = cli.start("run", cli.document(steps))
    assert run.stdout is not None and run.stdout.readline() == "1\n"
    run.stdout.close()
    assert run.wait(WAIT_S) == 0 and (cli.folder / "made").exists()


# --- on a terminal ---


class Screen:
    """Runs a program on a terminal of 80 columns; keeps its output."""

    def __init__(self, cli: Cli, *argv: str) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        env = cli.env | {"LC_ALL": "C.UTF-8", "TERM": "xterm"}
        self.process = subprocess.Popen(
            argv, cwd=cli.folder, env=env, stdin=slave, stdout=slave, stderr=slave
        )
        cli.children.append(self.process)  # type: ignore[arg-type]
        os.close(slave)
        self.master, self.text = master, ""
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        raw = b""
        while True:
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:
                return
            if not data:
                return
            raw += data
            self.text = raw.decode(errors="replace")

    def end(self) -> None:
        assert self.process.wait(WAIT_S) == 0, self.text
        self.thread.join()
        os.close(self.master)


def test_on_a_terminal_lines_stand_above_the_live_ones(cli: Cli) -> None:
    body = f"printf '\\033[31mred\\033[0m\\033[2J\\n'; printf 'epoch 1: 45%%\\r'; {WAIT}; printf 'epoch 1: 100%%\\n'"
    screen = Screen(cli, cli.binary, "run", cli.document({"a": {"run": body}}))
    wait_for(lambda: "epoch 1: 45%" in screen.text, why="the bar didn't appear")
    wait_for(lambda: "1 running" in screen.text, why="no live line")
    assert "\033[31mred\033[0m" in screen.text and "\033[2J" not in screen.text
    cli.write("ok", "")
    screen.end()
    tail = screen.text[screen.text.rindex("epoch 1: 100%") :]
    assert tail.index("\n") < tail.index("✓")


def test_each_rank_has_a_line_for_its_bar(cli: Cli) -> None:
    """As tqdm draws it: on stderr, behind a carriage return, without a newline until the end."""
    draw = "printf 'plain\\n'; printf '\\repoch %d:  45%%' $RANK >&2"
    body = f"{draw}; {WAIT}; printf '\\repoch %d: 100%%\\n' $RANK >&2"
    steps = {"a": {"run": body, "gang": {"ranks": 2}}}
    screen = Screen(cli, cli.binary, "run", cli.document(steps))
    for k in range(2):
        wait_for(lambda k=k: f"    [{k}] epoch {k}:  45%" in screen.text, why="no live bar")
    wait_for(
        lambda: re.search(
            r"\[0\] epoch 0:  45%\S*\n\r?.*\[1\] epoch 1:  45%", screen.text.replace("\r", "")
        ),
        why="the bars don't stand below each other",
    )
    assert "│ epoch" not in screen.text
    cli.write("ok", "")
    screen.end()
    for k in range(2):
        assert len(re.findall(rf"a\[{k}\] │ \S*epoch {k}: 100%", screen.text)) == 1
    assert not re.search(r"│ \S*epoch \d:  45%", screen.text)


def test_names_have_colours(cli: Cli) -> None:
    steps = {"a": meets("a", "echo 1"), "b": meets("b", "echo 2")}
    screen = Screen(cli, cli.binary, "run", "-j2", cli.document(steps))
    screen.end()
    found = dict(re.findall(r"\033\[(\d+)m([ab]) │ ", screen.text))
    assert len(found) == 2, screen.text


def test_a_stopped_terminal_holds_up_no_step(cli: Cli) -> None:
    master, slave = pty.openpty()
    run = cli.start(
        "run", cli.document({"a": {"run": "seq 100000; touch made"}}), stdout=slave, stderr=slave
    )
    os.close(slave)
    wait_for(lambda: (cli.folder / "made").exists())
    runs = wait_for(lambda: cli.json("runs"))
    wait_for(lambda: cli.json("show", runs[0]["run"])["steps"]["a"]["status"] == "succeeded")
    run.send_signal(2)  # no reader: Ctrl-C ends the waiting
    os.set_blocking(master, False)
    Path(cli.folder / "done").touch()
    thread = threading.Thread(target=lambda: _drain(master, run))
    thread.start()
    assert run.wait(WAIT_S) == 0
    thread.join()
    os.close(master)


def _drain(master: int, run: subprocess.Popen[str]) -> None:
    while run.poll() is None:
        try:
            os.read(master, 1 << 16)
        except (BlockingIOError, OSError):
            continue
