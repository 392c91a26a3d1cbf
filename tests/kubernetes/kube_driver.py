"""The Kubernetes driver without an engine: ``kube_shell`` (kube_shell.c), driven by hand."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

ROOT = Path(__file__).resolve().parents[2]
SHELL = Path(os.environ.get("STOKER_KUBE_SHELL", ROOT / "build/tests/kubernetes/kube_shell"))
WAIT_S = 120.0
Object = dict[str, Any]


class Driver:
    """Jobs in (``submit``), reports out (``reports``, in their order). ``env`` names the kubeconfig."""

    def __init__(
        self,
        kubeconfig: Path,
        options: Optional[Object] = None,
        run: str = "r1",
        pending_ms: int = 0,
        env: Optional[dict[str, str]] = None,
    ) -> None:
        self.reports: list[Object] = []
        self._come: queue.Queue[Optional[Object]] = queue.Queue()
        args = [str(SHELL), "run", json.dumps(options or {}), run, str(pending_ms)]
        self.process = subprocess.Popen(
            args,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "KUBECONFIG": str(kubeconfig), **(env or {})},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._come.put(json.loads(line))
        self._come.put(None)

    def do(self, what: str, **values: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **values}) + "\n")
        self.process.stdin.flush()

    def submit(self, id: int, script: str = "true", **more: Any) -> str:
        """A job of one shell script; its name."""
        job = {
            "id": id,
            "name": f"s-r1-train-{id}-{more.get('attempt', 1)}",
            "image": "localhost/bb:1",
            "argv": ["/bin/sh", "-c", script],
            **more,
        }
        self.do("submit", **job)
        return str(job["name"])

    def until(self, test: Callable[[Object], Any], wait_s: float = WAIT_S) -> Object:
        """Reads reports until one passes the test; returns that one."""
        end = time.monotonic() + wait_s
        while True:
            try:
                report = self._come.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"not told within {wait_s} s: {self.reports[-20:]}") from None
            assert report is not None, f"it ended: {self.reports[-20:]}"
            self.reports.append(report)
            if test(report):
                return report

    def end(self, id: int, wait_s: float = WAIT_S) -> Object:
        return self.until(
            lambda r: r["id"] == id and r["state"] in ("ended", "failed", "error"), wait_s
        )

    def log(self, id: int, node: int = 0) -> str:
        return "".join(
            r["data"]
            for r in self.reports
            if r["state"] == "log" and r["id"] == id and r["node"] == node
        )

    def texts(self, state: str) -> list[str]:
        return [r["text"] for r in self.reports if r["state"] == state]

    def close(self) -> None:
        if self.process.poll() is None:
            try:
                self.do("close")
                assert self.process.stdin is not None
                self.process.stdin.close()
                assert self.process.wait(30) == 0
            except BrokenPipeError:  # a fatal error has just ended it
                self.process.wait(30)
        self._reader.join(10)
        while not self._come.empty():
            if (report := self._come.get()) is not None:
                self.reports.append(report)

    def kill(self) -> None:
        """Kills it, as if its engine died."""
        self.process.kill()
        self.process.wait()


def shell(*args: str, kubeconfig: Optional[Path] = None, stdin: str = "") -> list[Object]:
    """``kube_shell manifest`` or ``check``: the lines that it writes."""
    env = {**os.environ, **({"KUBECONFIG": str(kubeconfig)} if kubeconfig else {})}
    done = subprocess.run(
        [str(SHELL), *args], input=stdin, stdout=subprocess.PIPE, text=True, env=env
    )
    assert done.returncode in (0, 1), done.returncode
    return [json.loads(line) for line in done.stdout.splitlines()]


def manifest(job: Object, **config: Any) -> list[Object]:
    """What would be sent for a job of kube_shell's form."""
    return shell("manifest", json.dumps(config), "-", stdin=json.dumps(job))
