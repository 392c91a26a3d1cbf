"""Nodes on one machine: network namespaces on one bridge, each with its own address."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest
from launch_tools import ENV, WAIT_S, Launch, binary


def why_not() -> str | None:
    """Why no namespaces can be made here; None if they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "no `ip` (iproute2) here"
    name = f"stk-{uuid.uuid4().hex[:8]}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode != 0:
        return (
            "this machine lets nobody make network namespaces (a container without CAP_SYS_ADMIN)"
        )
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return None


class Nodes:
    """Namespaces with addresses 10.123.0.1 (node 0), 10.123.0.2 …, joined by a bridge in another one."""

    def __init__(self, n: int) -> None:
        self.mark = uuid.uuid4().hex
        self.hub = f"stk-{self.mark[:6]}-hub"
        self.names = [f"stk-{self.mark[:6]}-{k}" for k in range(n)]
        self.started: list[subprocess.Popen[str]] = []
        self.ip("netns", "add", self.hub)
        self.inside(self.hub, "ip", "link", "add", "br0", "type", "bridge")
        self.inside(self.hub, "ip", "link", "set", "br0", "up")
        for k, name in enumerate(self.names):
            self.ip("netns", "add", name)
            end = f"v{k}"
            made = ("type", "veth", "peer", "name", "eth0", "netns", name)
            self.inside(self.hub, "ip", "link", "add", end, *made)
            self.inside(self.hub, "ip", "link", "set", end, "master", "br0", "up")
            self.inside(name, "ip", "addr", "add", f"{self.address(k)}/24", "dev", "eth0")
            self.inside(name, "ip", "link", "set", "eth0", "up")
            self.inside(name, "ip", "link", "set", "lo", "up")

    @staticmethod
    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    @staticmethod
    def inside(name: str, *words: str) -> None:
        subprocess.run(["ip", "netns", "exec", name, *words], check=True, capture_output=True)

    @staticmethod
    def address(k: int) -> str:
        return f"10.123.0.{k + 1}"

    def on(self, k: int, *words: str) -> None:
        """Run it on node K."""
        self.inside(self.names[k], *words)

    def cut(self, k: int) -> None:
        """Pull node K's cable."""
        self.inside(self.hub, "ip", "link", "set", f"v{k}", "down")

    def start(self, k: int, *words: str | Path, **env: str) -> subprocess.Popen[str]:
        p = subprocess.Popen(
            ["ip", "netns", "exec", self.names[k], *map(str, words)],
            env=ENV | {"MARK": self.mark} | env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(p)
        return p

    def launch(
        self, k: int, *words: str | Path, n: int | None = None, **env: str
    ) -> subprocess.Popen[str]:
        """`stoker launch` as node K of this gang."""
        count = str(len(self.names) if n is None else n)
        place = ("--nnodes", count, "--node-rank", str(k), "--rdzv", f"{self.address(0)}:29400")
        key = {"STOKER_GANG_KEY": self.mark}
        return self.start(k, binary(), "launch", *place, *words, **(key | env))

    def close(self) -> None:
        for p in self.started:
            if p.poll() is None:
                p.kill()
            p.communicate()
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def ends(launchers: Sequence[subprocess.Popen[str]], timeout: float = WAIT_S) -> list[Launch]:
    """The exit status of each."""
    done = []
    for k, p in enumerate(launchers):
        out, err = p.communicate(timeout=timeout)
        print(f"node {k} → {p.returncode}\n{out[-2000:]}{err[-2000:]}")
        done.append(Launch(p.returncode, out, err))
    return done


skip_without = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
