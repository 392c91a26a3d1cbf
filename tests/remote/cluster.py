"""A cluster of one machine, for the fake driver (src/away/remote/remote_fake.c): pods are processes with a
root of their own in which `folders` are empty, /stoker is what `stoker carry` made, and PID 1 is the
container's program. They outlive whoever asked for them.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

# Everything of this machine but what is mounted over it: the pod's image.
SETUP = """
set -e
mount -t tmpfs pod "$ROOT"
for e in /*; do
  n=${e#/}
  if [ -L "$e" ]; then cp -d "$e" "$ROOT/$n"
  elif [ "$n" = proc ]; then mkdir "$ROOT/proc"; mount -t proc proc "$ROOT/proc"
  elif [ "$n" = stoker ]; then :
  elif [ -d "$e" ]; then mkdir "$ROOT/$n"; mount --rbind "$e" "$ROOT/$n"
  fi
done
mkdir "$ROOT/stoker"
mount --bind "$CARRY" "$ROOT/stoker"
for f in $FOLDERS; do mkdir -p "$ROOT$f"; mount -t tmpfs volume "$ROOT$f"; done
for f in $KEEP; do mkdir -p "$ROOT$f"; mount --rbind "$f" "$ROOT$f"; done
[ -z "$HOSTS" ] || { cp /etc/hosts "$ROOT/tmp-hosts"; echo "$HOSTS" >> "$ROOT/tmp-hosts"; mount --bind "$ROOT/tmp-hosts" "$ROOT/etc/hosts"; }
exec chroot "$ROOT" "$@"
"""


class Pod:
    """One container: `index` of a job of several nodes."""

    def __init__(self, cluster: Cluster, job: dict, index: int) -> None:
        self.job, self.index = job, index
        self.is_killed = False
        self.log = cluster.folder / f"{job['name']}.log{f'-{index}' if index else ''}"
        root = cluster.roots / f"{job['name']}-{index}-{time.monotonic_ns()}"
        root.mkdir(parents=True)
        env = {"PATH": cluster.path, "HOME": "/root", "LANG": "C.UTF-8", **cluster.env}
        env |= dict(pair.split("=", 1) for pair in [*job["env"], *job["secret"]])
        env["HOSTNAME"] = f"{job['name']}-{cluster.n_pods}"
        cluster.n_pods += 1
        if job["nodes"] > 1:
            env["STOKER_GANG_NODE"] = str(index)
            env["STOKER_GANG_RDZV"] = f"127.0.0.1:{cluster.port_of(job)}"
        outer = {
            "PATH": os.environ["PATH"],
            "ROOT": str(root),
            "CARRY": str(cluster.carry),
            "FOLDERS": " ".join(job["folders"]),
            "KEEP": " ".join(cluster.keep),
            "HOSTS": "",
        }
        argv = [*cluster.wrap, *job["argv"]]
        inner = ["env", "-i", *[f"{k}={v}" for k, v in env.items()], *argv]
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                ["unshare", "-m", "-p", "-f", "--kill-child", "--propagation", "private", "sh", "-c", SETUP, "pod", *inner],
                env=outer, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def first(self) -> int | None:
        """The container's PID 1, as this machine numbers it."""
        with contextlib.suppress(OSError, ValueError):
            children = (
                Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
                .read_text()
                .split()
            )
            return int(children[0]) if children else None
        return None

    def stopped(self) -> int | None:
        """The stopped child of its PID 1."""
        with contextlib.suppress(OSError):
            first = self.first()
            for pid in Path(f"/proc/{first}/task/{first}/children").read_text().split():
                if ") T " in Path(f"/proc/{pid}/stat").read_text():
                    return int(pid)
        return None

    def is_agent(self) -> bool:
        """Whether it has set up its root."""
        with contextlib.suppress(OSError):
            return b"agent" in Path(f"/proc/{self.first()}/cmdline").read_bytes().split(b"\0")
        return False

    def signal(self, number: int) -> None:
        first = self.first()
        if first is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, number)
            self.is_killed = self.is_killed or number == signal.SIGKILL

    def end(self) -> tuple[int, int] | None:
        """(exit status, signal), None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        if self.is_killed:  # of which unshare makes an error of its own
            return -1, signal.SIGKILL
        return (-1, -code) if code < 0 else (code, 0)


class Cluster:
    """Runs the jobs requested in `folder` until `close`. Faults are attributes that tests set."""

    def __init__(self, folder: Path, carry: Path, path: str) -> None:
        self.folder, self.carry, self.path = folder, carry, path
        self.roots = folder / "roots"
        self.roots.mkdir(parents=True)
        self.env: dict[str, str] = {}
        self.keep: list[str] = []  # folders of this machine that stay visible within `folders`
        self.wrap: list[str] = []
        self.pending: dict[str, str] = {}  # job's name contains → why it waits
        self.is_deaf = False  # nobody is ended who should be
        self.jobs: dict[str, list[Pod]] = {}
        self.done: dict[str, dict] = {}
        self.history: list[str] = []  # names, in the order in which they were made
        self.forgotten: list[str] = []
        self.n_pods = 0
        self._stops: dict[str, float] = {}
        self._over = threading.Event()
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def port_of(self, job: dict) -> int:
        return 20000 + hash((job["name"], str(self.folder))) % 20000

    def say(self, name: str, **state: object) -> None:
        temporary = self.folder / f".{name}.state"
        temporary.write_text(json.dumps(state))
        temporary.rename(self.folder / f"{name}.state")

    def _run(self) -> None:
        try:
            while not self._over.wait(0.02):
                for path in sorted(self.folder.glob("s-*.json")):
                    self._look(path.stem)
        except BaseException as e:
            self.error = e
            raise

    def _look(self, name: str) -> None:
        if (self.folder / f"{name}.forget").exists():
            self._forget(name)
            return
        if name in self.done:
            return
        if name not in self.jobs:
            if (self.folder / f"{name}.stop").exists():
                self.finish(
                    name,
                    phase="failed",
                    failure="cancelled",
                    text="its job was deleted before it had a pod",
                )
                return
            why = next((text for part, text in self.pending.items() if part in name), None)
            if why is not None:
                self.say(name, phase="queued", text=why)
                return
            job = json.loads((self.folder / f"{name}.json").read_text())
            self.jobs[name] = [Pod(self, job, i) for i in range(job["nodes"])]
            self.history.append(name)
            self.say(name, phase="running", text="node here")
        self._stop(name)
        ends = [pod.end() for pod in self.jobs[name]]
        if all(end is not None for end in ends):
            status, number = ends[0]
            if number:
                self.finish(
                    name,
                    phase="failed",
                    signal=number,
                    exit_status=-1,
                    failure="lost",
                    text="its pod was killed",
                )
            else:
                self.finish(name, phase="ended", exit_status=status)

    def finish(self, name: str, **state: object) -> None:
        self.done[name] = state
        self.say(name, **state)

    def _stop(self, name: str) -> None:
        path = self.folder / f"{name}.stop"
        if not path.exists() or self.is_deaf:
            return
        grace = json.loads(path.read_text())["grace_ms"] / 1000 + 10  # to write down how it ended
        if name not in self._stops:
            self._stops[name] = time.monotonic() + grace
            for pod in self.jobs[name]:
                pod.signal(signal.SIGTERM)
        elif time.monotonic() > self._stops[name]:
            for pod in self.jobs[name]:
                pod.signal(signal.SIGKILL)

    def _forget(self, name: str) -> None:
        self.forgotten.append(name)
        for pod in self.jobs.pop(name, []):
            pod.signal(signal.SIGKILL)
            pod.process.wait()
        for suffix in ("json", "state", "stop", "forget", "log"):
            (self.folder / f"{name}.{suffix}").unlink(missing_ok=True)
        for path in self.folder.glob(f"{name}.log-*"):
            path.unlink()

    def pod(self, part: str, timeout: float = 120) -> Pod:
        """The pod whose job's name contains `part`, once its agent runs."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for name, pods in list(self.jobs.items()):
                if part in name and pods and pods[0].is_agent():
                    return pods[0]
            time.sleep(0.02)
        raise AssertionError(f"no pod of {part!r} within {timeout} s; there are {list(self.jobs)}")

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        for pods in self.jobs.values():
            for pod in pods:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pod.process.pid, signal.SIGKILL)
                pod.process.wait()
        shutil.rmtree(self.roots, ignore_errors=True)
        if self.error is not None:
            raise self.error
