"""A user's terminal for tests of the `stoker` binary: a folder, an environment, documents, runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from stoker_binary import find_binary
from waiting import WAIT_S as WAIT_S
from waiting import wait_for as wait_for

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get("STOKER_TEST_PYTHON", sys.executable)
FILTER = ROOT / "tests/support/system_calls.py"
Steps = dict[str, Any]


def tell(pid: int, number: int) -> None:
    """Sends a signal and comes back once the process has taken it: a second one is another then."""

    def is_pending() -> bool:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        sets = [int(line.split()[1], 16) for line in lines if line[:7] in ("SigPnd:", "ShdPnd:")]
        return any(of & 1 << (number - 1) for of in sets)

    os.kill(pid, number)
    wait_for(lambda: not is_pending(), why="the signal to be taken")


# Of a step's program in Python: comes back when the task's samples say that its devices were looked
# at after the call. What is written first may have been looked at before it.
LOOKED_AT = """
import os, time
def look_at_me():
    path = os.environ["STOKER_TASK_DIR"] + "/samples.bin"
    size = lambda: os.path.getsize(path) if os.path.exists(path) else 0
    for _ in range(2):
        before = size()
        while size() == before: time.sleep(0.01)
"""


def alive(pid: int) -> bool:
    """Whether the process runs (a zombie doesn't)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Run:
    """A finished `stoker` command, and the run that it made as `show --json` tells it."""

    def __init__(self, cli: Cli, done: subprocess.CompletedProcess[str]) -> None:
        self.cli, self.code, self.out, self.err = cli, done.returncode, done.stdout, done.stderr
        self._shown: dict[str, Any] | None = None

    @property
    def shown(self) -> dict[str, Any]:
        if self._shown is None:
            self._shown = self.cli.json("show", "latest")
        return self._shown

    @property
    def steps(self) -> Steps:
        return self.shown["steps"]

    @property
    def statuses(self) -> dict[str, str]:
        return {name: step["status"] for name, step in self.steps.items()}

    def text(self, step: str, stream: str = "stdout") -> str:
        return Path(self.steps[step]["logs"][stream]).read_text()

    def output(self, step: str, name: str) -> str:
        return Path(self.steps[step]["outputs"][name]["path"]).read_text()

    def cause(self, step: str) -> str:
        return self.steps[step]["error"]["cause"]


class Cli:
    """`stoker` in one folder, with its own store, lease folder and environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.binary = folder, find_binary()
        self.store = folder / ".stoker"
        drop = ("STOKER_", "OMP_", "CUDA_", "NO_COLOR", "CLICOLOR", "FORCE_COLOR")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        self.env |= {
            "STOKER_STORE": str(self.store),
            "STOKER_LEASE_DIR": str(folder / "leases"),
            "STOKER_ACCEL": "none",
            "XDG_STATE_HOME": str(folder / "state"),
            "PYTHONPATH": str(ROOT / "python"),
        }
        self.children: list[subprocess.Popen[str]] = []

    def filter_calls(self, kind: str) -> None:
        """From here on the system calls of `stoker`, and of what it starts, are as FILTER says."""
        script = self.write(
            "bin/stoker",
            f'#!/bin/sh\nexec "{sys.executable}" "{FILTER}" {kind} "{self.binary}" "$@"\n',
        )
        script.chmod(0o755)
        self.binary = script

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def document(self, steps: Steps, name: str = "p.json", **settings: Any) -> str:
        """Writes a pipeline document and returns its file's name."""
        doc = {"stoker": 1, "name": "p", **settings, "steps": steps}
        self.write(name, json.dumps(doc, indent=1))
        return name

    def devices(self, *uuids: str, **more: Any) -> None:
        """Fake GPUs for all later commands."""
        self.write(
            "devices.json",
            json.dumps([{"uuid": u, "memory_bytes": 1 << 33, **more} for u in uuids]),
        )
        self.env["STOKER_ACCEL"] = f"fake:{self.folder / 'devices.json'}"

    def __call__(
        self, *args: str | Path, timeout: float = WAIT_S, stdin: str = "", **env: str
    ) -> Run:
        done = subprocess.run(
            [self.binary, *args],
            cwd=self.folder,
            env={**self.env, **env},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        print(
            f"$ stoker {' '.join(map(str, args))}  → {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"
        )
        return Run(self, done)

    def run(
        self,
        steps: Steps,
        *options: str,
        timeout: float = WAIT_S,
        env: dict[str, str] | None = None,
        **settings: Any,
    ) -> Run:
        """Writes a document of these steps and settings and runs it."""
        return self(
            "run", *options, self.document(steps, **settings), timeout=timeout, **(env or {})
        )

    def json(self, *args: str | Path) -> Any:
        return json.loads(self(*args, "--json").out)

    def start(
        self, *args: str | Path, env: dict[str, str] | None = None, **more: Any
    ) -> subprocess.Popen[str]:
        """The same in the background; ended with the test."""
        more = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "stdin": subprocess.DEVNULL,
            **more,
        }
        child = subprocess.Popen(
            [self.binary, *args],
            cwd=self.folder,
            env={**self.env, **(env or {})},
            text=True,
            **more,
        )
        self.children.append(child)
        return child

    def until(self, name: str, timeout_s: float = WAIT_S) -> str:
        """The text of a file in the folder, once a step has written a whole line of it."""
        path = self.folder / name
        return wait_for(
            lambda: path.exists() and (text := path.read_text()).endswith("\n") and text,
            timeout_s,
            f"{name} to be written",
        ).strip()

    def close(self) -> None:
        for child in self.children:
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
            child.wait()
            for pipe in (child.stdout, child.stderr, child.stdin):
                if pipe is not None:
                    pipe.close()
