"""A Jupyter kernel for tests; where Jupyter isn't installed, who imports this is skipped."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from front_tools import WAIT_S, environment, needed

jupyter_client = needed("jupyter_client")
needed("ipykernel")


class Kernel:
    """A kernel and what its cells print."""

    def __init__(self, folder: Path, env: dict[str, str] | None = None) -> None:
        """A kernel in this folder; ``env``: its variables, else those of a program with Stoker."""
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        self.manager = jupyter_client.KernelManager()
        self.manager.kernel_spec.argv = command
        env = {**(env or environment(folder / ".stoker")), "JUPYTER_RUNTIME_DIR": str(folder)}
        env.pop("PYTEST_CURRENT_TEST", None)  # with it ipykernel leaves descriptors 1 and 2 alone
        self.manager.start_kernel(cwd=str(folder), env=env)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=WAIT_S)

    def stop(self) -> None:
        """End it."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def cell(
        self,
        source: str,
        while_running: Callable[[], bool] | None = None,
        on_text: Callable[[str], object] | None = None,
        html: dict[str, str] | None = None,
    ) -> tuple[str, str | None]:
        """Run a cell; returns (standard output, name of the exception or None).

        `on_text` gets what appears at once; `html[""]` becomes the result as HTML."""
        sent = self.client.execute(source)
        out: list[str] = []
        failed = None
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            if while_running is not None and while_running():
                while_running = None
            try:
                message = self.client.get_iopub_msg(timeout=0.1)
            except Exception:
                continue
            if message["parent_header"].get("msg_id") != sent:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                out.append(content["text"])
                if on_text is not None:
                    on_text(content["text"])
            elif message["msg_type"] == "execute_result" and html is not None:
                html[""] = content["data"].get("text/html", "")
            elif message["msg_type"] == "error":
                failed = content["ename"]
                out.append("\n".join(content["traceback"]))
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return "".join(out), failed
        raise AssertionError("the cell didn't end: " + "".join(out))
