"""`stoker launch` as a user types it, and programs for its ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli_tools import WAIT_S, wait_for

__all__ = ["WAIT_S", "wait_for"]
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sys.executable
DROP = (
    *("STOKER_", "OMP_", "MKL_", "TORCH", "RANK", "LOCAL_", "WORLD_", "MASTER_", "GROUP_", "ROLE_"),
    *("NODE_RANK", "PYTHONUNBUFFERED", "PYTHONFAULTHANDLER"),
)
ENV = {k: v for k, v in os.environ.items() if not k.startswith(DROP)} | {"STOKER_ACCEL": "none"}


def binary() -> Path:
    return find_binary()


@dataclass
class Launch:
    code: int
    out: str
    err: str

    @property
    def gang(self) -> dict[str, Any]:
        """gang.json of a launch with --json."""
        answer: dict[str, Any] = json.loads(self.out)
        return answer

    @property
    def sentence(self) -> str:
        return self.err.strip().splitlines()[-1].removeprefix("stoker launch: ")


def launch(
    *args: str | Path, timeout: float = WAIT_S, cwd: Path | None = None, **env: str
) -> Launch:
    done = subprocess.run(
        [binary(), "launch", *args],
        env=ENV | env,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    print(f"→ {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return Launch(done.returncode, done.stdout, done.stderr)


def python(code: str) -> list[str]:
    """Words that run it with `os`, `sys`, `time` and RANK as a number."""
    head = "import os, sys, time, signal\nRANK = int(os.environ['RANK'])\n"
    return ["--", PYTHON, "-c", head + code]


def shell(code: str) -> list[str]:
    return ["--", "/bin/sh", "-c", code]


def processes_with(mark: str) -> list[int]:
    """Living processes with the variable MARK=`mark` in their environment."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"MARK={mark}".encode() in words and state not in "ZX":
            found.append(int(folder.name))
    return found
