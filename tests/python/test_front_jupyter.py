"""A Jupyter kernel: steps of cells run in separate processes, edits are seen, interrupts cancel."""

from __future__ import annotations

import pytest
from front_tools import needed, needs_engine
from jupyter_kernel import Kernel

pytestmark = needs_engine


@pytest.fixture
def kernel(tmp_path):
    started = Kernel(tmp_path)
    yield started
    started.stop()


STEP = """
@step
def add(x: int, config: Config) -> int:
    return helper(x) + config.depth
"""


def test_cells(kernel):
    def cell(source):
        out, failed = kernel.cell(source)
        assert failed is None, out
        return out

    cell("import os, dataclasses\nfrom stoker import step, pipeline, PipelineFailed")
    cell("@dataclasses.dataclass\nclass Config:\n    depth: int = 1\n\ndef helper(x): return x * 2")
    cell(STEP)
    cell("@pipeline\ndef p(n: int = 3):\n    add(add(n, Config(5)), Config())")
    assert "result 23 False" in cell(
        "run = p()\nprint('result', run.steps['add_2'].output.load(), run.steps['add'].is_cached)"
    )
    assert "result 23 True" in cell(
        "run = p()\nprint('result', run.steps['add_2'].output.load(), run.steps['add'].is_cached)"
    )
    cell("def helper(x): return x * 3")
    assert "result 43 False" in cell(
        "run = p()\nprint('result', run.steps['add_2'].output.load(), run.steps['add'].is_cached)"
    )
    cell("@step\ndef boom() -> int:\n    raise ValueError('kaput')")
    out, failed = kernel.cell("boom()")
    assert failed == "PipelineFailed" and "kaput" in out
    assert "alive 7" in cell("print('alive', add(2, Config(1)))")


def test_prints_appear_in_the_cell(kernel, tmp_path):
    """They appear while the step runs: it continues only after its line appeared."""
    kernel.cell(
        "import os, sys, time\nfrom stoker import step\n"
        "@step\ndef talk() -> int:\n    print('epoch 1')\n    print('a warning', file=sys.stderr)\n"
        "    while not os.path.exists('go'): time.sleep(0.02)\n    return 1"
    )
    seen = []

    def on_text(text):
        seen.append(text)
        if "epoch 1" in "".join(seen):
            (tmp_path / "go").touch()

    out, failed = kernel.cell("talk()", on_text=on_text)
    assert failed is None and "a warning" in out and "done" in out, out
    assert out.index("epoch 1") < out.index("done")


def test_views_show_themselves(kernel):
    """A run and a step as their cards, an artifact as its value."""
    kernel.cell(
        "from stoker import step, pipeline, Client\n"
        "class Table:\n    def _repr_html_(self): return '<table>mine</table>'\n"
        "@step\ndef make() -> dict:\n    return {'loss': 0.25}\n"
        "@step\ndef table() -> Table:\n    return Table()\n"
        "@pipeline\ndef p():\n    make(); table()\nrun = p()"
    )
    shown = {}
    for name in (
        "run",
        "run.steps['make']",
        "run.steps['make'].output",
        "run.steps['table'].output",
    ):
        out, failed = kernel.cell(f"print(type({name}).__name__)\n{name}", html=shown)
        assert failed is None, out
        shown[name] = shown.pop("")
    assert "<iframe srcdoc=" in shown["run"] and "make" in shown["run"]
    assert "<script" not in shown["run"] and "sandbox" in shown["run"]
    assert "<iframe srcdoc=" in shown["run.steps['make']"]
    assert (
        "0.25" in shown["run.steps['make'].output"] and "dict" in shown["run.steps['make'].output"]
    )
    assert "<table>mine</table>" in shown["run.steps['table'].output"]


def test_interrupt(kernel, tmp_path):
    kernel.cell(
        "import pathlib, time\nfrom stoker import step\n"
        "@step\ndef slow() -> int:\n    pathlib.Path('started').write_text('x')\n    time.sleep(600)\n    return 1"
    )

    def interrupt():
        if not (tmp_path / "started").exists():
            return False
        kernel.manager.interrupt_kernel()
        return True

    out, failed = kernel.cell("slow()", while_running=interrupt)
    assert failed == "KeyboardInterrupt", out
    out, failed = kernel.cell("print('alive')")
    assert (out.strip(), failed) == ("alive", None)


GANG = """
import os
from stoker import pipeline, step, torchrun
secret = 41
@torchrun(nproc_per_node=2, all_ranks=True)
@step
def cell(x: int) -> int:
    return secret + x + int(os.environ["RANK"])
@pipeline
def in_notebook():
    cell(1)
print("ranks said", in_notebook().steps["cell"].output.load())
"""


def test_cells_step_of_two_ranks(kernel):
    """The function is in no file, and a kernel has threads: its ranks are forks all the same."""
    out, failed = kernel.cell(GANG)
    assert failed is None, out
    assert "ranks said [42, 43]" in out


ACCELERATED = """
from typing import Any
from stoker import pipeline, run_with_accelerate, step
offset = 41
@run_with_accelerate(num_processes=2, cpu=True, all_ranks=True)
@step
def accelerated(x: int) -> Any:
    from accelerate import Accelerator
    import torch
    accelerator = Accelerator()
    return accelerator.reduce(torch.tensor(float(offset + x + accelerator.process_index)), "sum").item()
@pipeline
def in_a_notebook():
    accelerated(1)
print("ranks said", in_a_notebook().steps["accelerated"].output.load())
"""


@pytest.mark.torch
def test_cells_step_with_accelerate(kernel):
    needed("accelerate")
    out, failed = kernel.cell(ACCELERATED)
    assert failed is None, out
    assert "ranks said [85.0, 85.0]" in out
