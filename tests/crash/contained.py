"""Rounds whose steps run in containers of a private Podman (tests/container/conftest.py)."""

from __future__ import annotations

import collections
import importlib.util
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from documents import contained_spec
from rounds import ROOT, Round, Wrong

CONFTEST = ROOT / "tests/container/conftest.py"  # each folder of tests has one, all of one name
sys.path.insert(0, str(ROOT / "tests/support"))


@contextmanager
def place(folder: Path, args: Any) -> Iterator[Any]:
    """The Podman, with the image `debian`, for all rounds."""
    where = importlib.util.spec_from_file_location("conftest_of_containers", CONFTEST)
    assert where is not None and where.loader is not None
    conftest = importlib.util.module_from_spec(where)
    where.loader.exec_module(conftest)
    if shutil.which("podman") is None:
        conftest.cannot("no podman here; `make deps-test-all` installs it")
    with conftest.running_podman() as podman:
        podman.image = conftest._debian(podman, folder / "debian")
        yield podman


class ContainedRound(Round):
    n_steps = 6
    strikes = (1, 4)
    pace = 2
    orphans_s = 120.0

    def __init__(self, *given: Any) -> None:
        self.image = given[-1].image
        super().__init__(*given)
        names = ("CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "CONTAINERS_REGISTRIES_CONF", "DOCKER_HOST")  # fmt: skip
        self.env |= {name: self.place.env[name] for name in names}

    def spec(self) -> str:
        return contained_spec(self.marker, self.image, self.n_steps)

    def begin(self, **more: str) -> subprocess.Popen[bytes]:
        return self.start(["run", "--with", "docker", "spec.yaml"], **more)

    # --- what is there ---

    def attempts(self) -> Iterator[Path]:
        """Folders of all attempts."""
        return (self.folder / ".stoker").glob("runs/*/*/*/*")

    def lines(self) -> collections.Counter[str]:
        found: collections.Counter[str] = collections.Counter()
        for attempt in self.attempts():
            log = attempt / "stdout.log"
            if log.exists():
                found.update(line for line in log.read_text().split("\n") if " s" in line)
        return found

    def run_names(self) -> list[str]:
        return [path.name for path in (self.folder / ".stoker/runs").glob("2*")]

    def monitors(self) -> list[int]:
        """Every conmon of this round's containers, by the containers' names in its arguments."""
        runs = self.run_names()
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                if (path / "comm").read_text().strip() != "conmon":
                    continue
                words = (path / "cmdline").read_text()
            except OSError:
                continue
            if any(run in words for run in runs):
                found.append(int(path.name))
        return found

    def processes(self) -> dict[int, str]:
        return {**super().processes(), **dict.fromkeys(self.monitors(), "conmon")}

    def victims(self) -> dict[str, list[int]]:
        names = self.processes()
        monitors = [pid for pid, name in names.items() if name == "conmon"]
        runners = []
        for attempt in self.attempts():
            try:
                pid = json.loads((attempt / "container.json").read_text()).get("pid", -1)
                comm = Path(f"/proc/{pid}/comm").read_text().strip()
            except (OSError, ValueError):
                continue
            if comm == "stk-runner":
                runners.append(pid)
        return {**super().victims(), "contain": super().victims()["task"], "runner": runners, "conmon": monitors}  # fmt: skip

    # --- killing ---

    def groups(self) -> list[list[str]]:
        return [
            ["engine"],
            ["contain"],
            ["runner"],
            ["conmon"],
            ["guard"],
            ["engine", "contain"],
            ["engine", "conmon"],
            ["engine", "runner"],
            ["contain", "conmon"],
            ["engine", "guard"],
            ["engine", "guard", "contain", "conmon"],
            ["engine", "guard", "contain", "runner", "conmon"],
        ]

    def wait_for_instant(self, process: subprocess.Popen[bytes]) -> str:
        return wait_for_steps(self, process)

    # --- checking ---

    def check_left(self, run: str) -> None:
        until = time.monotonic() + self.orphans_s
        while left := [name for name in self.place.containers() if run in name]:
            if time.monotonic() > until:
                raise Wrong(f"containers are left: {left}", "left")
            time.sleep(0.1)

    def close(self) -> None:
        super().close()
        for run in self.run_names():
            for name in self.place.containers():
                if run in name:
                    self.place.api("DELETE", f"/containers/{name}?force=true")


def wait_for_steps(game: Round, process: subprocess.Popen[bytes]) -> str:
    """Until so many steps have started, plus a moment; or until the run has ended."""
    number = game.random.randint(0, game.n_steps)
    delay = game.random.uniform(0, 0.3)
    until = time.monotonic() + game.args.timeout
    while process.poll() is None and time.monotonic() < until:
        if sum(n for line, n in game.lines().items() if line.startswith("begin ")) >= number:
            break
        time.sleep(0.01)
    time.sleep(delay)  # sleeps: kills come at any moment
    return f"{delay:.3f} s after {number} steps had begun"


def skips() -> tuple[Any, Any]:
    """What `cannot` raises if this machine can't do it: a skip, or in CI a failure."""
    import pytest

    return pytest.skip.Exception, pytest.fail.Exception
