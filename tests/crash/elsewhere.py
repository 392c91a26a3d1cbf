"""Rounds whose steps run on other machines: a share that is a folder, and the cluster of tests/remote/cluster.py."""

from __future__ import annotations

import collections
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contained import wait_for_steps
from documents import remote_spec
from rounds import ROOT, Round, Wrong, begun

sys.path.insert(0, str(ROOT / "tests/remote"))
sys.path.insert(0, str(ROOT / "tests/support"))

AGENT_POINTS = re.findall(r'X\("(agent\.[a-z.]+)"', (ROOT / "src/tbl/failpoints.def").read_text())


def carried(folder: Path, stoker: Path) -> Path:
    """What `stoker carry` makes, for the pods of all rounds."""
    import front_tools

    words = ["unshare", "-m", "-p", "-f", "true"]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        front_tools.cannot("this machine lets nobody make a mount namespace, so there are no pods")
    carry = folder / "carry/stoker"
    carry.parent.mkdir()
    return front_tools.carried(carry, stoker)


def children(pid: int) -> list[int]:
    try:
        return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def is_agent(pid: int) -> bool:
    """Whether it has set up its root."""
    try:
        return b"agent" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


class ElsewhereRound(Round):
    """Steps go to a stack `prod` whose share is a folder of this machine."""

    n_steps = 6
    strikes = (1, 4)
    pace = 2

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.share = self.base / "share"
        self.share.mkdir()

    def write_stack(self, **stack: Any) -> None:
        stack = {"store": str(self.share), "default_image": "127.0.0.1:1/img:1", **stack}
        (self.folder / "stoker.yaml").write_text(json.dumps({"stacks": {"prod": stack}}))

    def spec(self) -> str:
        return remote_spec(self.journal, self.n_steps)

    def begin(self, **more: str) -> subprocess.Popen[bytes]:
        return self.start(["run", "--with", "prod", "spec.yaml"], **more)

    # --- killing ---

    def agents(self) -> list[int]:
        """The first processes of the containers that run now."""
        raise NotImplementedError

    def victims(self) -> dict[str, list[int]]:
        agents = self.agents()
        jobs = [child for agent in agents for child in children(agent)]
        return {**super().victims(), "agent": agents, "job": jobs}

    def groups(self) -> list[list[str]]:
        return [
            ["engine"],
            ["engine"],
            ["agent"],
            ["job"],
            ["guard"],
            ["engine", "agent"],
            ["engine", "job"],
            ["engine", "guard"],
            ["engine", "guard", "agent", "job"],
        ]

    def wait_for_instant(self, process: subprocess.Popen[bytes]) -> str:
        return wait_for_steps(self, process)

    # --- checking ---

    def living(self) -> list[str]:
        """Processes of the cluster that still run, and objects to be removed."""
        raise NotImplementedError

    def made(self) -> list[str]:
        """Names of the created jobs."""
        return []

    def ended(self, run: str) -> set[str]:
        """Steps that succeeded by the share, even if no engine here knows yet."""
        found = set()
        for path in self.share.glob(f"runs/{run}/*/*/*/end.json"):
            if json.loads(path.read_text())["outcome"]["ok"]:
                found.add(path.parts[-4])
        return found

    def go_on(self, before: dict[str, object] | None, is_struck: bool) -> None:
        ended = self.ended(str(before["run"])) if before is not None else set()
        lines: collections.Counter[str] = self.lines()
        super().go_on(before, is_struck)
        now = self.lines()
        for name in ended:
            if begun(now, name) != begun(lines, name):
                raise Wrong(f"step {name} had ended well in its pod and ran again", "doubled")

    def check_left(self, run: str) -> None:
        """No pod lives, each attempt had one job, and another machine reads the run's record in the share."""
        until = time.monotonic() + self.args.timeout
        while left := self.living():
            if time.monotonic() > until:
                raise Wrong(f"pods are left: {left}", "left")
            time.sleep(0.02)
        told = {line: n for line, n in self.lines().items() if line.split()[0] == "begin" and n > 1}
        made = {name: n for name, n in collections.Counter(self.made()).items() if n > 1}
        if told or made:
            raise Wrong(f"attempts that began twice: {told}, jobs made twice: {made}", "doubled")
        self.check_share(run)

    def check_share(self, run: str) -> None:
        """If an engine was killed after its run's end, the next one updates the share."""
        states: dict[str, str] = {}
        for is_told in (False, True):
            status, states = self.read_share(run)
            if status == "succeeded" and set(states.values()) == {"succeeded"}:
                return
            if not is_told and self.wait(self.resume()) != 0:
                break
        raise Wrong(f"the share's record says {status}, {states}", "lost")

    def read_share(self, run: str) -> tuple[str, dict[str, str]]:
        other = subprocess.run(
            [str(self.args.stoker), "show", run, "--stack", "prod", "--json"],
            cwd=self.folder,
            env={**self.env, "STOKER_STORE": str(self.base / "other/.stoker")},
            capture_output=True,
            check=False,
        )
        if other.returncode != 0:
            raise Wrong(f"another machine can't read the record: {other.stderr.decode()}", "lost")
        read = json.loads(other.stdout)
        return read["status"], {name: step["status"] for name, step in read["steps"].items()}


@contextmanager
def place(folder: Path, args: Any) -> Iterator[Path]:
    yield carried(folder, args.stoker)


class RemoteRound(ElsewhereRound):
    """Pods of tests/remote/cluster.py, which the engine asks for by files."""

    def __init__(self, *given: Any) -> None:
        from cluster import Cluster

        super().__init__(*given)
        path = f"{self.args.python.parent}:{os.environ['PATH']}"
        self.cluster = Cluster(self.base / "cluster", self.place, path)
        self.write_stack(backend="kubernetes")
        self.env["STOKER_REMOTE_FAKE"] = str(self.cluster.folder)

    def close(self) -> None:
        super().close()
        self.cluster.close()

    # --- killing ---

    def agents(self) -> list[int]:
        pods = [pod for pods in list(self.cluster.jobs.values()) for pod in pods]
        return [pid for pod in pods if pod.is_agent() and (pid := pod.first()) is not None]

    def kill(self, pid: int) -> None:
        """The cluster must know how a pod ended."""
        for pods in list(self.cluster.jobs.values()):
            for pod in pods:
                if pod.first() == pid:
                    pod.is_killed = True
        super().kill(pid)

    def begin(self, **more: str) -> subprocess.Popen[bytes]:
        """In a third of the rounds the agents of the first pods end at a failpoint, besides."""
        ends = not self.what and self.random.random() < 0.33
        if ends:
            point = self.random.choice(AGENT_POINTS)
            self.cluster.env["STOKER_FAILPOINTS"] = f"{point}:1:exit"
            self.what = f"first agents end at {point}, "
        engine = super().begin(**more)
        until = time.monotonic() + self.args.timeout
        while ends and not self.cluster.history and engine.poll() is None:
            if time.monotonic() > until:
                raise Wrong("no pod was made")
            time.sleep(0.01)
        self.cluster.env.pop("STOKER_FAILPOINTS", None)
        return engine

    # --- checking ---

    def living(self) -> list[str]:
        pods = [pod for pods in list(self.cluster.jobs.values()) for pod in pods]
        return [str(pod.job["name"]) for pod in pods if pod.process.poll() is None]

    def made(self) -> list[str]:
        return list(self.cluster.history)

    def check_left(self, run: str) -> None:
        super().check_left(run)
        self.cluster.close()
