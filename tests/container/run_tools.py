"""Runs in containers as a user starts them: a project's folder and its containers."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any

from contain import wait_for
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
STOKER = str(find_binary())
WAIT_S = 120


class Project:
    """A folder with a pipeline, its store, and a Podman to run in."""

    def __init__(self, folder: Path, podman: Any) -> None:
        self.folder, self.podman = folder, podman
        self.env = {**podman.env, "STOKER_STORE": str(folder / ".stoker"), "STOKER_BIN": STOKER}
        self.env["PYTHONPATH"] = str(ROOT / "python")
        self.env.pop("STOKER_ACCEL", None)

    def write(self, name: str, text: str, mode: int = 0o644) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        path.chmod(mode)
        return path

    def stoker(
        self, *words: str, ok: bool | None = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [STOKER, *words],
            cwd=self.folder,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
        if ok is not None:
            assert (done.returncode == 0) == ok, done.stderr + done.stdout
        return done

    def run(self, *words: str, ok: bool = True, **env: str) -> dict[str, Any]:
        """A run of p.yaml; its record."""
        done = self.stoker("run", "--json", *words, "p.yaml", ok=ok, **env)
        return dict(json.loads(done.stdout))

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [STOKER, "run", *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def show(self) -> dict[str, Any]:
        return dict(json.loads(self.stoker("show", "latest", "--json").stdout))

    def log(self, step: dict[str, Any], name: str = "stdout") -> str:
        return Path(step["logs"][name]).read_text()


def ours(podman: Any, run: str) -> list[str]:
    return [name for name in podman.containers() if run in name]


def project_in(tmp_path: Path, engine: Any) -> Project:
    """A folder that is marked as a project."""
    folder = tmp_path / "proj"
    folder.mkdir()
    (folder / "stoker.yaml").write_text("")
    return Project(folder, engine)


def log_of(project: Project, step: str, attempt: int = 1) -> Path:
    """The file, once it exists."""
    pattern = f".stoker/runs/*/{step}/0/{attempt}/stdout.log"
    found: Path = wait_for(lambda: next(project.folder.glob(pattern), None))
    return found


def log_when_up(project: Project, step: str) -> Path:
    """The same, once the step has printed `up`."""
    log = log_of(project, step)
    wait_for(lambda: "up" in log.read_text())
    return log
