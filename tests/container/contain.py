"""`stoker contain` as the engine starts it: a folder with task.json, streams in files, a separate
session."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Optional

from stoker_binary import find_binary
from waiting import wait_for as wait_for

STOKER = find_binary()


class Contained:
    """One task's container: running until `end()`."""

    def __init__(
        self,
        podman: Any,
        folder: Path,
        image: str,
        *argv: str,
        environ: Optional[dict[str, str]] = None,
        pass_fds: tuple[int, ...] = (),
        stoker: Path = STOKER,
        before: tuple[str, ...] = (),
        **container: Any,
    ) -> None:
        self.podman, self.folder = podman, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.name = f"stoker-{folder.parent.name}-{folder.name}-1"
        container = {"image": image, "argv": list(argv), "socket": str(podman.socket), **container}
        task = {"run": folder.parent.name, "step": folder.name, "attempt": 1}
        (folder / "task.json").write_text(json.dumps({**task, "container": container}))
        with open(folder / "stdout.log", "wb") as out, open(folder / "stderr.log", "wb") as err:
            self.process = subprocess.Popen(
                [*before, str(stoker), "contain", str(folder / "task.json")],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**podman.env, **(environ or {})},
                pass_fds=pass_fds,
                **podman.as_user,
                start_new_session=True,
            )

    def end(self, seconds: float = 60.0) -> int:
        """Its exit status; -N by a signal."""
        return self.process.wait(seconds)

    def kill(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.process.pid, number)

    @property
    def out(self) -> str:
        return (self.folder / "stdout.log").read_text(errors="replace")

    @property
    def err(self) -> str:
        return (self.folder / "stderr.log").read_text(errors="replace")

    @property
    def state(self) -> dict[str, Any]:
        try:
            return json.loads((self.folder / "container.json").read_text())
        except FileNotFoundError:
            return {}

    def started(self) -> int:
        """The runner's pid, once it is known."""
        return wait_for(lambda: self.state.get("pid"))

    def says(self, text: str) -> None:
        wait_for(lambda: text in self.out)

    def is_gone(self) -> bool:
        return self.name not in self.podman.containers()
