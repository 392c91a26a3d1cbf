"""Processes that outlive the step or the program that starts them: servers of models.

A step's own processes end with it. So the program that runs the pipeline starts a keeper beside the
engine, ``python -m stoker._zen.daemons SOCKET``, which starts what a step asks it for. It ends with
that program; what it started goes on.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from .._worker.context import in_task

_PLACE = "STOKER_KEEPER"  # the variable with the keeper's socket
_LONGEST = 1 << 20  # bytes of a request
_keeper: Optional[subprocess.Popen[bytes]] = None


class Daemon(NamedTuple):
    """A process, leader of its group, by its number and its begin, so that another process with the
    number isn't taken for it."""

    pid: int
    began: str

    def is_alive(self) -> bool:
        """Whether it still runs."""
        return _began(self.pid) == self.began

    def end(self, timeout: float, force: bool) -> bool:
        """End it and what it started: at once if ``force``, else by SIGTERM, and by SIGKILL where
        it hasn't ended after ``timeout`` seconds. Returns whether it ended; with 0 it isn't waited
        for."""
        if not self.is_alive():
            return True
        self._tell(signal.SIGKILL if force else signal.SIGTERM)
        if timeout <= 0:
            return False
        if not _wait(lambda: not self.is_alive(), timeout):
            self._tell(signal.SIGKILL)
        return _wait(lambda: not self.is_alive(), 5)

    def _tell(self, number: int) -> None:
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            pass


def _wait(is_so: Any, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def _began(pid: int) -> Optional[str]:
    """When a process began, since which boot; None: it isn't there, or has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            words = stream.read().rpartition(")")[2].split()
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as stream:
            boot = stream.read().strip()
    except OSError:
        return None
    return None if words[0] in "ZX" else f"{boot}/{words[19]}"


def start(command: List[str], env: Mapping[str, str], log: str) -> Daemon:
    """Start a program that goes on when this one ends; it prints into ``log``.

    ``env`` is added to this program's environment; in a step, to that of the program that runs the
    pipeline.

    Raises:
        RuntimeError: a step asks, and no keeper is there.
    """
    if not in_task():
        return _spawn(command, env, log)
    place = os.environ.get(_PLACE)
    if place is None:
        raise RuntimeError(
            "a step can start a server only on the machine of the program that runs the pipeline, "
            "which imports the model deployer at its top level"
        )
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(place)
        except OSError as bad:
            raise RuntimeError(
                f"the program that runs the pipeline has ended, so no server can be started: {bad}"
            ) from None
        line.sendall(json.dumps({"command": command, "env": dict(env), "log": log}).encode())
        line.shutdown(socket.SHUT_WR)
        answer: Dict[str, Any] = json.loads(_all(line))
    if "error" in answer:
        raise RuntimeError(answer["error"])
    return Daemon(answer["pid"], answer["began"])


def _spawn(command: List[str], env: Mapping[str, str], log: str) -> Daemon:
    with open(log, "ab") as out:
        made = subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            close_fds=True,
        )
    made.returncode = 0  # it isn't waited for, and its object says nothing of that
    return Daemon(made.pid, _began(made.pid) or "ended")


def _all(line: socket.socket) -> bytes:
    text = b""
    while len(text) < _LONGEST:
        more = line.recv(1 << 16)
        if not more:
            break
        text += more
    return text


def keep() -> None:
    """Start the keeper, for runs that this program begins."""
    global _keeper
    if in_task() or (_keeper is not None and _keeper.poll() is None):
        return
    # the path of a socket has at most 107 bytes
    above = "/tmp" if len(tempfile.gettempdir()) > 60 else None
    place = os.path.join(tempfile.mkdtemp(prefix="stoker-keeper-", dir=above), "socket")
    command = [sys.executable, "-m", __name__, place]
    _keeper = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    assert _keeper.stdout is not None
    if not _keeper.stdout.readline():
        raise RuntimeError(f"{' '.join(command)} ended with status {_keeper.wait()}")
    os.environ[_PLACE] = place


def main(place: str) -> None:
    """Be the keeper, until standard input ends."""
    import selectors

    signal.signal(signal.SIGCHLD, _reap)
    with socket.socket(socket.AF_UNIX) as listener, selectors.DefaultSelector() as waits:
        listener.bind(place)
        listener.listen()
        print("ready", flush=True)
        waits.register(listener, selectors.EVENT_READ)
        waits.register(sys.stdin, selectors.EVENT_READ)
        while all(key.fileobj is listener for key, _ in waits.select()):
            try:
                with listener.accept()[0] as line:
                    line.settimeout(10)
                    line.sendall(json.dumps(_answer(line)).encode())
            except OSError:
                pass  # who asked has ended
    os.remove(place)
    os.rmdir(os.path.dirname(place))


def _reap(*_: Any) -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _answer(line: socket.socket) -> Dict[str, Any]:
    try:
        asked = json.loads(_all(line))
        return _spawn(asked["command"], asked["env"], asked["log"])._asdict()
    except (OSError, ValueError, KeyError, TypeError) as bad:
        return {"error": str(bad)}


if __name__ == "__main__":
    main(sys.argv[1])
