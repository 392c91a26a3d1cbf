"""`stoker launch` on a terminal: the lines that ranks redraw stand below the others."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from pathlib import Path

import pytest
from launch_tools import ENV, WAIT_S, binary, launch, python, shell, wait_for

COLUMNS, ROWS = 60, 24


class Terminal:
    """A terminal of 60 × 24, and what stands on it: enough of one for what the launcher writes."""

    def __init__(self, *words: str | Path, out: bool = True, cwd: Path, **env: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [binary(), "launch", *words],
            env=ENV | {"TERM": "xterm"} | env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=slave if out else subprocess.PIPE,
            stderr=slave,
            text=True,
        )
        os.close(slave)
        self.rows = [""]
        self.at = 0
        self.raw = ""
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
            self.raw = raw.decode(errors="replace")
            self.rows = self._rendered()

    def _rendered(self) -> list[str]:
        rows, y, x = [""], 0, 0
        for part in re.findall(r"\033\[\d*[A-Za-z]|\r|\n|[^\r\n\033]+", self.raw):
            if part == "\r":
                x = 0
            elif part == "\n":
                y += 1
                rows += [""] * (y + 1 - len(rows))
            elif part.endswith("A") and part[0] == "\033":
                y = max(0, y - int(part[2:-1]))
            elif part == "\033[J":
                rows = [*rows[:y], rows[y][:x]]
            elif part[0] != "\033":
                rows[y] = rows[y][:x].ljust(x) + part + rows[y][x + len(part) :]
                x += len(part)
        return rows

    def shows(self, *rows: str) -> None:
        """Waits until the last rows are these."""
        wait_for(lambda: [r for r in self.rows if r][-len(rows) :] == list(rows), why=str(rows))

    def end(self, code: int = 0) -> list[str]:
        assert self.process.wait(WAIT_S) == code, self.raw
        self.thread.join()
        os.close(self.master)
        return [row for row in self.rows if row]


# Each rank draws what stands in the file that has its number.
DRAW = """
import pathlib
seen = None
while seen != "end":
    file = pathlib.Path(str(RANK))
    text = file.read_text() if file.exists() else ""
    if text != seen and text.endswith("!"):
        seen = text
        if text == "end!":
            break
        stream = sys.stdout if text.startswith("out ") else sys.stderr
        stream.write(text[:-1].replace("out ", "", 1))
        stream.flush()
    time.sleep(0.01)
"""


def tell(folder: Path, rank: int, text: str) -> None:
    (folder / "new").write_bytes((text + "!").encode())
    (folder / "new").replace(folder / str(rank))


@pytest.mark.parametrize("to_pipe", [False, True])
def test_one_line_a_rank(tmp_path: Path, to_pipe: bool) -> None:
    draw = python(DRAW.replace("read_text()", "read_bytes().decode()"))
    screen = Terminal("-n", "2", *draw, out=not to_pipe, cwd=tmp_path)
    tell(tmp_path, 0, "\repoch 0:  10%")
    tell(tmp_path, 1, "\repoch 1:  \033[32m10%")
    screen.shows("[0] epoch 0:  10%", "[1] epoch 1:  10%")
    tell(tmp_path, 0, "\repoch 0:  20%")
    screen.shows("[0] epoch 0:  20%", "[1] epoch 1:  10%")
    tell(tmp_path, 1, "out hello\n")
    if screen.process.stdout is not None:
        assert screen.process.stdout.readline() == "[1] hello\n"
    else:
        screen.shows("[1] hello", "[0] epoch 0:  20%", "[1] epoch 1:  10%")
    tell(tmp_path, 1, "\repoch 1: 100%\n")
    screen.shows("[1] epoch 1: 100%", "[0] epoch 0:  20%")
    tell(tmp_path, 0, "\r" + "wide " * 30)
    screen.shows("[1] epoch 1: 100%", ("[0] " + "wide " * 30)[: COLUMNS - 1])
    tell(tmp_path, 0, "\repoch 0: 100%")
    screen.shows("[1] epoch 1: 100%", "[0] epoch 0: 100%")
    tell(tmp_path, 0, "end")
    tell(tmp_path, 1, "end")
    hello = [] if to_pipe else ["[1] hello"]
    assert screen.end() == [*hello, "[1] epoch 1: 100%", "[0] epoch 0: 100%"]


def test_more_ranks_than_rows(tmp_path: Path) -> None:
    body = "printf '\\rrank %02d' $RANK >&2; while [ ! -e ok ]; do sleep 0.02; done"
    screen = Terminal("-n", "20", *shell(body), cwd=tmp_path)
    rows = [f"[{k}] rank {k:02}" for k in range(15)]
    screen.shows(*rows, "and of 5 more ranks")
    (tmp_path / "ok").touch()
    assert sorted(screen.end()) == sorted(f"[{k}] rank {k:02}" for k in range(20))


def test_a_hidden_rank_has_no_line(tmp_path: Path) -> None:
    body = "printf '\\rrank %d' $RANK >&2; while [ ! -e ok ]; do sleep 0.02; done"
    screen = Terminal("-n", "2", "--local-ranks-filter", "1", *shell(body), cwd=tmp_path)
    screen.shows("[1] rank 1")
    (tmp_path / "ok").touch()
    assert screen.end() == ["[1] rank 1"]


def test_no_block_elsewhere(tmp_path: Path) -> None:
    """In a pipe a bar is one line, its last state; on a dumb terminal, too."""
    body = "for i in 1 2 3; do printf '\\rstep %d' $i >&2; sleep 0.2; done; echo >&2"  # sleeps: redraws
    done = launch(*shell(body), TERM="xterm")
    assert done.err == "[0] step 3\n"
    screen = Terminal(*shell(body), cwd=tmp_path, TERM="dumb")
    assert screen.end() == ["[0] step 3"] and "\033" not in screen.raw


def test_a_bar_of_any_length_is_one_line() -> None:
    code = "for i in range(20000): sys.stderr.write(f'\\rstep {i}')\nsys.stderr.write('\\n')"
    assert launch(*python(code)).err == "[0] step 19999\n"
