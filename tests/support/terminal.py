"""A program on a terminal of its own: what its screen shows, keys, sizes, signals."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable
from typing import Any

import pyte
from waiting import WAIT_S


class Terminal:
    """Runs `argv` as the leader of a session whose terminal has this size. Ended by close()."""

    def __init__(self, argv: list[str], columns: int = 120, rows: int = 40, **popen: Any) -> None:
        self.main, self.side = pty.openpty()
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._set_size(columns, rows)
        self.modes = termios.tcgetattr(self.side)
        self.child = subprocess.Popen(
            argv,
            stdin=self.side,
            stdout=self.side,
            stderr=self.side,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            **popen,
        )

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns: int, rows: int) -> None:
        self.read()
        self.screen.resize(rows, columns)
        self._set_size(columns, rows)

    def read(self, timeout_s: float = 0) -> bool:
        """Takes in what the program has written; False if that is nothing."""
        if not select.select([self.main], [], [], timeout_s)[0]:
            return False
        try:
            part = os.read(self.main, 65536)
        except OSError:  # nobody has the other side
            return False
        self.raw += part
        self.stream.feed(part)
        return bool(part)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def until(self, is_so: str | Callable[[str], Any], why: str = "") -> str:
        """Waits until the screen has the text, or is as the function wants it; returns the screen."""
        end = time.monotonic() + WAIT_S
        while True:
            while self.read():
                pass
            text = self.text
            if is_so in text if isinstance(is_so, str) else is_so(text):
                return text
            if time.monotonic() > end:
                raise AssertionError(f"the screen never had {why or is_so!r}:\n{text}")
            self.read(0.1)

    def press(self, keys: str) -> None:
        os.write(self.main, keys.encode())

    def end(self) -> int:
        """Waits for the program, and for the rest of what it writes."""
        stop = time.monotonic() + WAIT_S
        while self.child.poll() is None and time.monotonic() < stop:
            self.read(0.05)
        while self.read(0.05):
            pass
        return self.child.wait(1)

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.send_signal(signal.SIGKILL)
            self.child.send_signal(signal.SIGCONT)
        self.child.wait()
        os.close(self.main)
        os.close(self.side)
