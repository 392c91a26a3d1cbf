"""NBRunner and NBDeployer in a Jupyter kernel: a flow of a cell runs, and only what defines it."""

from __future__ import annotations

from front_tools import needs_engine
from jupyter_kernel import Kernel

pytestmark = needs_engine

CELL = """
import time
from stoker.flow import FlowSpec, NBRunner, Parameter, step
FACTOR = 2

class N(FlowSpec):
    x = Parameter("x", default=1)
    @step
    def start(self):
        self.y = self.x * FACTOR
        self.next(self.end)
    @step
    def end(self):
        print("y is", self.y)

print("once")
run = NBRunner(N).nbrun(x=21)
print("RESULT", run.data.y, run.successful)
"""


def test_a_flow_of_a_cell_runs(tmp_path):
    kernel = Kernel(tmp_path)
    try:
        out, failed = kernel.cell(CELL)
        assert failed is None, out
        assert "RESULT 42 True" in out and "] y is 42" in out
        assert out.count("once") == 1  # the rest of the cell isn't run again
        assert not list(tmp_path.glob("N*.py"))
    finally:
        kernel.stop()


def test_a_flow_of_a_cell_is_deployed(tmp_path):
    """Its runs don't need the cell, nor the file made of it."""
    cell = CELL[: CELL.index('print("once")')].replace("NBRunner", "NBDeployer")
    cell += """
made = NBDeployer(N, show_output=False)
flow = made.machine().create(tags=["cell"])
made.cleanup()
run = flow.trigger(x=4)
run.wait_for_completion(check_interval=0.05, timeout=60)
print("RESULT", run.status, run.run.data.y, flow.name, sorted(run.run.user_tags))
"""
    kernel = Kernel(tmp_path)
    try:
        out, failed = kernel.cell(cell)
        assert failed is None, out
        assert "RESULT Succeeded 8 n ['cell']" in out
    finally:
        kernel.stop()


TWO = """
import stoker.flow
from stoker.flow import FlowSpec, step

class A(FlowSpec):
    @step
    def start(self):
        self.y = BASE
        self.next(self.end)
    @step
    def end(self):
        pass

BASE = 1
made = stoker.flow.NBRunner(A, show_output=False)
first = made.nbrun()
print("FIRST", first.data.y)

class B(A):
    @step
    def start(self):
        self.y = BASE + FACTOR
        self.next(self.end)

print("once")
LEAST = 40
if first.data.y > 1:
    FACTOR = 0
FACTOR = LEAST + 1
run = stoker.flow.NBRunner(B, show_output=False).nbrun()
answer = run.data.y
print("RESULT", run.pathspec.split("/")[0], answer)
"""


def test_two_flows_of_a_cell(tmp_path):
    """The one that is asked for runs, with constants defined after it; Metaflow runs the first."""
    kernel = Kernel(tmp_path)
    try:
        out, failed = kernel.cell(TWO)
        assert failed is None, out
        assert "FIRST 1" in out and "RESULT B 42" in out
        assert out.count("once") == 1
    finally:
        kernel.stop()
