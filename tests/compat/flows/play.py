"""Runs a program of the family on one side, and returns what can be seen of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from family import Case, Command

OBSERVE = Path(__file__).with_name("observe.py")
WAIT_S = 300


class Side:
    """An engine: an interpreter, and an environment in which ``from metaflow import …`` is it."""

    def __init__(self, python: str, env: dict[str, str]) -> None:
        kept = {
            k: v
            for k, v in os.environ.items()
            if not k.startswith(("STOKER_", "METAFLOW", "PYTHONPATH"))
        }
        self.python = python
        self.env = {**kept, "METAFLOW_USER": "tester", **env}

    def start(self, folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """``python WORDS`` in a folder that holds what it leaves."""
        own = {"HOME": str(folder), "STOKER_STORE": str(folder / ".stoker")}
        return subprocess.run(
            [self.python, *words],
            cwd=folder,
            env={**self.env, **own, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )


def real(python: str) -> Side:
    """Real Metaflow, in this interpreter's environment.

    What waits for tasks beside it waits longer here. The processes of its ``@parallel`` are started by the interpreter that the environment was made from, which has to
    find the environment's packages.
    """
    code = "import metaflow; print(metaflow.__path__[0])"
    asked = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return Side(python, {"PYTHONPATH": os.path.dirname(asked.stdout.split()[-1]), "WAIT": "14"})


def stoker(binary: str, package: Path) -> Side:
    """Stoker's stand-in."""
    path = os.pathsep.join([str(package / "stoker" / "_compat"), str(package)])
    return Side(sys.executable, {"PYTHONPATH": path, "STOKER_BIN": binary})


def _words(command: Command, runs: list[str], number: int) -> list[str]:
    words = [runs[0] + w[2:] if w.startswith("$0") and runs else w for w in command.words]
    return [*words, "--run-id-file", f"run{number}"] if {"run", "resume"} & {*words} else words


def play(side: Side, case: Case, folder: Path) -> dict[str, Any]:
    """Run a case's commands; returns the observations after the last one."""
    (folder / "flow.py").write_text(case.source)
    runs: list[str] = []
    said: list[Any] = []
    errors: list[str] = []
    for number, command in enumerate(case.commands):
        done = side.start(folder, "flow.py", *_words(command, runs, number), **command.env)
        said.append([done.returncode, done.stdout] if command.prints else done.returncode)
        errors.append(done.stdout + done.stderr)
        file = folder / f"run{number}"
        if file.exists():
            runs.append(file.read_text())
    dumps = [f"--dump={one}" for one in folder.glob("*.pkl")]
    cards = ["--cards"] if "@card" in case.source else []
    seen = side.start(folder, str(OBSERVE), "F", *runs, *dumps, *cards)
    if seen.returncode != 0:
        raise RuntimeError(f"{case.name}: {seen.stderr[-3000:]}\n{errors[-1][-3000:]}")
    return {"commands": said, **json.loads(seen.stdout.splitlines()[-1])}


def digest(case: Case) -> str:
    """Digest of the programs; a new digest needs a new record."""
    commands = [[c.words, c.env, c.prints] for c in case.commands]
    return hashlib.sha256(f"{case.source}{commands}".encode()).hexdigest()[:16]


_NOISE = re.compile(r"^(>.*|.*KILLED BY ORCHESTRATOR.*|.*Step \w+ timed out.*)\n", re.M)
_NO_FAILURE = (None, "cancelled")


def comparable(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Take away, on both sides, what hangs on which task was how far when another one failed, and words.

    Where a run failed, a step that isn't wholly done on both sides counts by its distinct failures, and where one task
    of it failed on both, by the artifacts that this task had.
    """
    for one in (ours, theirs):
        for task in [
            t for run in one["runs"] for step in run["steps"].values() for t in step["tasks"]
        ]:
            task["failure"] = task["failure"] and task["failure"].rpartition(".")[2]
            task["stdout"] = _NOISE.sub("", task["stdout"])
    for mine, other in zip(ours["runs"], theirs["runs"]):
        if mine["successful"] and other["successful"]:
            continue
        for name in sorted({*mine["steps"], *other["steps"]}):
            steps = [run["steps"].get(name, {"tasks": []}) for run in (mine, other)]
            if all(s["tasks"] and all(t["successful"] for t in s["tasks"]) for s in steps):
                continue
            failed = [[t for t in s["tasks"] if t["failure"] not in _NO_FAILURE] for s in steps]
            for step, own in zip(steps, failed):
                failures = {(t["failure"], t["attempt"]) for t in own}
                step["tasks"] = sorted(list(f) for f in failures)
                if all(len(tasks) == 1 for tasks in failed):
                    step["left"] = own[0]["artifacts"]
            if not any(step["tasks"] for step in steps):
                mine["steps"].pop(name, None)
                other["steps"].pop(name, None)


def differences(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """Differences of two observations: ``path: ours | theirs``."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = sorted({*ours, *theirs})
        return [d for k in keys for d in differences(ours.get(k), theirs.get(k), f"{path}/{k}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{path}/{i}")]
    return [] if ours == theirs else [f"{path}: {ours!r} | {theirs!r}"]
