#!/usr/bin/env python3
"""A stand-in for ``stoker launch`` where no binary is built: starts the ranks of a task and waits for them.

Both ways of docs/decisions/0006-ranks.md: ``launch --gang TASK.json -- ARGV`` and ``--forkserver-fd N``. It doesn't
supervise: where a rank fails the others are ended, and the first one's result is the attempt's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path


def variables(directory: Path, rank: int, world: int, port: int) -> dict[str, str]:
    numbers = {
        **dict.fromkeys(("RANK", "LOCAL_RANK", "ROLE_RANK"), rank),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"), world),
        **dict.fromkeys(("NODE_RANK", "GROUP_RANK", "TORCHELASTIC_RESTART_COUNT"), 0),
        "MASTER_PORT": port,
    }
    texts = {"MASTER_ADDR": "127.0.0.1", "STOKER_RANK_DIR": str(directory / f"rank-{rank}")}
    return {**texts, **{name: str(value) for name, value in numbers.items()}}


class Server:
    """The engine's end of a fork server, as far as ranks need it."""

    def __init__(self, fd: int) -> None:
        self.sock = socket.socket(fileno=fd)
        self.receive()  # hello

    def receive(self) -> dict:
        head, ancillary, _, _ = self.sock.recvmsg(4, socket.CMSG_SPACE(64))
        for _, _, data in ancillary:
            os.close(struct.unpack("i", data[:4])[0])
        if len(head) < 4:
            raise EOFError("the fork server is gone")
        return json.loads(self.sock.recv(int.from_bytes(head, "little"), socket.MSG_WAITALL))

    def spawn(self, rank: int, directory: Path, env: dict[str, str]) -> int:
        message = {"op": "spawn", "id": rank, "dir": str(directory), "env": env}
        raw = json.dumps(message).encode()
        fds = struct.pack("2i", 1, 2)
        self.sock.sendmsg(
            [len(raw).to_bytes(4, "little") + raw], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)]
        )
        while True:
            said = self.receive()
            if said["op"] == "started":
                return int(said["pid"])
            if said["op"] != "note":
                raise RuntimeError(f"the fork server said {said}")

    def ended(self) -> tuple[int, int]:
        """Rank and status of the next one to end."""
        while True:
            said = self.receive()
            if said["op"] == "ended":
                return int(said["id"]), os.waitstatus_to_exitcode(said["status"])


def main(argv: list[str]) -> int:
    assert argv[:2] == ["launch", "--gang"], argv
    task = json.loads(Path(argv[2]).read_text())
    directory, world = Path(argv[2]).parent, int(task["gang"]["ranks"])
    (directory / "launched").write_text(" ".join(argv[3:]))
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        envs = [variables(directory, k, world, held.getsockname()[1]) for k in range(world)]
    pids: dict[int, int] = {}
    if argv[3] == "--forkserver-fd":
        server = Server(int(argv[4]))
        for k, env in enumerate(envs):
            pids[k] = server.spawn(k, directory, env)
        next_end = server.ended
    else:
        for k, env in enumerate(envs):
            pids[k] = subprocess.Popen(argv[4:], env={**os.environ, **env}).pid
        ranks = {pid: k for k, pid in pids.items()}

        def next_end() -> tuple[int, int]:
            pid, status = os.wait()
            return ranks[pid], os.waitstatus_to_exitcode(status)

    first = None
    for _ in range(world):
        rank, status = next_end()
        del pids[rank]
        if status and first is None:
            first = status
            said = directory / f"rank-{rank}" / "result.json"
            for other in pids.values():
                os.kill(other, signal.SIGKILL)
    if first is not None and said.exists():
        shutil.copy(said, directory / "result.json")
    return abs(first or 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
