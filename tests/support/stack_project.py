"""A user's project whose stack `lab` is machines elsewhere, and what its runs are the same as on every kind of them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Dict, List

from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
STOKER = find_binary()


class StackProject:
    """A folder with a stoker.yaml. `env` is the environment of its programs."""

    def __init__(self, folder: Path, stack: Dict[str, Any], env: Dict[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.prefix: List[str] = []  # what stands before `stoker` on a command line
        self.umask = -1  # this process's
        self.engines: List[subprocess.Popen[str]] = []
        self.stack: Dict[str, Any] = stack
        self.say()
        self.env = {
            **env,
            "STOKER_BIN": str(STOKER),
            "STOKER_ACCEL": "none",
            "STOKER_LEASE_DIR": str(folder / "leases"),
            "STOKER_SYNC": "0",
            "PYTHONPATH": str(ROOT / "python"),
        }

    def say(self, **more: Any) -> None:
        """Writes the stack, with what is more."""
        self.stack |= more
        (self.folder / "stoker.yaml").write_text(json.dumps({"stacks": {"lab": self.stack}}))

    def document(self, steps: Dict[str, Any], **more: Any) -> str:
        (self.folder / "p.json").write_text(
            json.dumps({"stoker": 1, "name": "p", "steps": steps, **more})
        )
        return "p.json"

    def begin(self, *words: str, **more: Any) -> subprocess.Popen[str]:
        engine = subprocess.Popen(
            [*self.prefix, str(STOKER), *words],
            cwd=self.folder,
            env=self.env,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **{"umask": self.umask, **more},
        )
        self.engines.append(engine)
        return engine

    def close(self) -> None:
        """What a failed test has left running would go on beside the next one."""
        for engine in self.engines:
            if engine.poll() is None:
                engine.kill()
                engine.communicate()

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.begin(*words)
        out, err = process.communicate(timeout=280)
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def run(self, steps: Dict[str, Any], **more: Any) -> subprocess.CompletedProcess[str]:
        return self("run", self.document(steps, **more), "--with", "lab")

    def show(self) -> Dict[str, Any]:
        shown: Dict[str, Any] = json.loads(self("show", "latest", "--json").stdout)
        return shown

    def logs(self) -> str:
        return self("logs", "latest").stdout


# --- the same on every kind of machines ---


def check_two_steps(project: StackProject, where: str, **resources: Any) -> str:
    """Code and values reach the machines, results come back, and nothing is written into the project itself. `where` is a
    shell's words for the place. Returns what the steps printed."""
    (project.folder / "words.txt").write_text("from the project\n")
    (project.folder / "left.txt").symlink_to("words.txt")
    run = f"cat words.txt; pwd; echo at {where}; echo 42 > $STOKER_OUTPUT/x"
    steps = {
        "a": {"run": run, "outputs": ["x"], "resources": {**resources, "memory": "300MiB"}},
        "b": {"run": "cat $STOKER_INPUT_x; echo made > new.txt", "inputs": {"x": {"from": "a.x"}}},
    }
    done = project.run(steps)
    assert done.returncode == 0, done.stderr + done.stdout
    logs = project.logs()
    assert "from the project" in logs and "b | 42" in logs and str(project.folder) in logs
    assert not (project.folder / "new.txt").exists(), "a job wrote into the project itself"
    return logs


def check_python(project: StackProject) -> None:
    """A Python file, on machines that have nothing but an interpreter."""
    (project.folder / "p.py").write_text(
        "from stoker import pipeline, step\n"
        "@step\ndef one() -> int:\n    print('one')\n    return 20\n"
        "@step\ndef two(x: int) -> int:\n    print('two', x + 1)\n    return x + 1\n"
        "@pipeline\ndef both():\n    two(one())\n"
        "if __name__ == '__main__':\n    both()\n"
    )
    done = project("run", "p.py", "--with", "lab")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "two 21" in project.logs()


def check_how_it_failed(project: StackProject) -> None:
    """The exit status is the program's; the machine's faults aren't charged."""
    done = project.run({"bad": {"run": "echo no >&2; exit 9"}})
    assert done.returncode == 1
    told = project.show()["steps"]["bad"]
    assert (told["error"]["class"], told["attempts"]) == ("exit", 1)
    assert "exit status 9" in told["error"]["text"]
    assert "no" in project.logs()
