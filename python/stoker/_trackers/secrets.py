"""What this program and the trackers print: without secrets, sentences to the engine, the rest to the
log (our stderr)."""

from __future__ import annotations

import os
import re
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Callable, List

    from .line import Line

_LONGEST_S = 600.0  # how long a slow tracker may go on after the run's end
_NAMES = re.compile(r"KEY|TOKEN|PASSWORD|SECRET|CREDENTIAL|HEADERS", re.IGNORECASE)
_USER = re.compile(r"(\w+://)[^/\s@]*@")


def _values() -> List[str]:
    found = {value for name, value in os.environ.items() if _NAMES.search(name) and len(value) > 5}
    return sorted(found, key=len, reverse=True)


def clean(text: str) -> str:
    """The text without users and passwords in URLs, and without the values of variables that are
    named like secrets."""
    text = _USER.sub(r"\1", text)
    for value in _values():
        text = text.replace(value, "***")
    return text


def _copy(source: int, target: int) -> None:
    with os.fdopen(source, "rb") as stream:
        for line in stream:
            os.write(target, clean(line.decode("utf-8", "replace")).encode())


_copier: threading.Thread


def take_output() -> Callable[[str], None]:
    """Send all output through :func:`clean`; returns the function that tells the engine."""
    global _copier
    answers, log = os.dup(1), os.dup(2)
    source, target = os.pipe()
    os.dup2(target, 1)
    os.dup2(target, 2)
    os.close(target)
    _copier = threading.Thread(target=_copy, args=(source, log), daemon=True)
    _copier.start()

    def say(sentence: str) -> None:
        text = clean(" ".join(sentence.split()))
        print(text, file=sys.stderr, flush=True)
        try:
            os.write(answers, text.encode("utf-8", "replace")[:2000] + b"\n")
        except OSError:
            pass  # the engine has ended

    return say


def finish(lines: Iterable[Line]) -> int:
    """Wait until the trackers have everything; returns the exit status."""
    end = time.monotonic() + _LONGEST_S
    for line in lines:
        line.join(max(0.0, end - time.monotonic()))
        if line.is_alive():
            print("stoker: gave up on a tracker that takes too long", file=sys.stderr, flush=True)
            os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os.close(1)
    os.close(2)
    _copier.join(1.0)  # a process of a tracker's may still have the pipe
    return 0
