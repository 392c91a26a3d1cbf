"""``NBRunner`` in a kernel: the same cells with real Metaflow and with Stoker."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from compat_tools import metaflow_python
from front_tools import PACKAGE, engine, needs_engine
from jupyter_kernel import Kernel

sys.path.insert(0, str(Path(__file__).parent / "flows"))

import play

DEFINED = """
import os
from metaflow import FlowSpec, NBRunner, Parameter, step

class N(FlowSpec):
    x = Parameter("x", type=int, default=1)

    @step
    def start(self):
        self.y = self.x * 2
        self.where = os.path.basename(os.getcwd())
        self.kernel = os.environ.get("JPY_PARENT_PID")
        self.word = os.environ.get("WORD")
        self.next(self.end)

    @step
    def end(self):
        if self.x == 13:
            raise ValueError("unlucky")
        print("y is", self.y)

"""
LEFT = "import glob\nprint('LEFT', glob.glob('N*.py') + glob.glob('below/N*.py'))"
# Each is a cell of its own; what a line beginning with SAID says is compared.
CELLS = [
    "run = NBRunner(N, show_output=False, env={'WORD': 'w'}).nbrun(x=21, tags=['a'])\n"
    "print('SAID', type(run).__name__, run.successful, run.data.y, run.data.kernel, run.data.word, 'a' in run.user_tags)",
    "os.makedirs('below', exist_ok=True)\n"
    "run = NBRunner(N, show_output=False, base_dir='below').nbrun()\nprint('SAID', run.data.y, run.data.where)",
    "runner = NBRunner(N, show_output=False)\nresult = runner.run(x=13)\n"
    "print('SAID', result.status, result.run.successful, 'unlucky' in result.stdout + result.stderr)\n"
    "again = runner.resume(origin_run_id=result.run.id)\nprint('SAID', again.status)\nrunner.cleanup()",
    "runner = NBRunner(N, show_output=False)\nresult = await runner.async_run(x=4)\n"
    "print('SAID', result.run.id == result.run.pathspec.split('/')[1])\nawait result.wait()\n"
    "print('SAID', result.status, result.run.data.y, result.returncode)\nrunner.cleanup()",
    "NBRunner(N, show_output=False).nbrun(unknown=1)",
    "NBRunner(N, show_output=False).nbrun(x='text')",
    "NBRunner(N, show_output=False, nothing=1).nbrun()",
    "# alone\nNBRunner(N, show_output=False)",
    "run = NBRunner(N).nbrun(x=3)\nprint('SAID', run.data.y)",
]


def played(side: play.Side, folder: Path) -> list[object]:
    """What each cell says, and the name of its exception; "y is" where a task's output is shown."""
    folder.mkdir()
    own = {"HOME": str(folder), "STOKER_STORE": str(folder / ".stoker"), "USERNAME": "tester"}
    env = {k: v for k, v in side.env.items() if k != "PYTEST_CURRENT_TEST"}
    kernel = Kernel(folder, {**env, **own})
    found: list[object] = []
    try:
        for cell in CELLS:
            out, failed = kernel.cell(cell if "alone" in cell else DEFINED + cell)
            said = [one for one in out.splitlines() if one.startswith("SAID")]
            found.append([said, failed, bool(re.search(r"\] y is", out))])
            assert said or failed, out
        out, failed = kernel.cell("await runner.async_run() if False else None\n" + LEFT)
        found.append([re.findall(r"LEFT .*", out), failed])
    finally:
        kernel.stop()
    return found


@needs_engine
@pytest.mark.slow
def test_the_same_cells(tmp_path: Path) -> None:
    ours = played(play.stoker(str(engine()), PACKAGE), tmp_path / "ours")
    theirs = played(play.real(metaflow_python()), tmp_path / "theirs")
    # Cells that raise leave their file with Metaflow; Stoker removes it.
    assert ours[:-1] == theirs[:-1]
    assert ours[-1] == [["LEFT []"], None]
