"""Components of a program's own classes under `stoker compat`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from front_tools import WAIT_S, engine, environment, needs_engine

PROGRAM = """
import os
import subprocess
import sys

from zenml import pipeline, step
from zenml.client import Client
from zenml.enums import ExecutionStatus
from zenml.orchestrators import BaseOrchestrator, BaseOrchestratorFlavor
from zenml.step_operators import BaseStepOperator, BaseStepOperatorFlavor


class Elsewhere(BaseOrchestrator):
    pass


class ElsewhereFlavor(BaseOrchestratorFlavor):
    name = "elsewhere"
    implementation_class = Elsewhere


class Lazy(BaseStepOperator):
    def launch(self, info, entrypoint_command, environment):
        pass


class LazyFlavor(BaseStepOperatorFlavor):
    name = "lazy"
    implementation_class = Lazy


class Later(BaseStepOperator):
    def submit(self, info, entrypoint_command, environment):
        self.started = subprocess.Popen(entrypoint_command, env={**os.environ, **environment})

    def get_status(self, step_run):
        self.started.wait()
        return ExecutionStatus.COMPLETED


class LaterFlavor(BaseStepOperatorFlavor):
    name = "later"
    implementation_class = Later


@step(step_operator=True)
def work() -> str:
    return os.environ["ZENML_STEP_OPERATOR"]


@pipeline(enable_cache=False)
def working():
    work()


if __name__ == "__main__":
    client = Client()
    try:
        client.create_flavor("prog.ElsewhereFlavor", "orchestrator")
    except NotImplementedError as bad:
        print("REFUSED", bad)
    for name in ("lazy", "later"):
        client.create_flavor(f"prog.{name.title()}Flavor", "step_operator")
        client.create_stack_component(name, name, "step_operator")
        parts = {"orchestrator": "default", "artifact_store": "default", "step_operator": name}
        client.create_stack(f"with_{name}", parts)
        client.activate_stack(f"with_{name}")
        try:
            print("GOT", working().steps["work"].output.load())
        except Exception as bad:
            print("FAILED", bad)
"""


@needs_engine
def test_what_can_not_work_says_why(tmp_path: Path) -> None:
    """An orchestrator is refused; a step operator that does nothing fails its step; one that submits
    is waited for."""
    (tmp_path / "prog.py").write_text(PROGRAM)
    done = subprocess.run(
        [str(engine()), "compat", "--", sys.executable, "prog.py"],
        cwd=tmp_path,
        env=environment(tmp_path / ".stoker", XDG_CONFIG_HOME=str(tmp_path / "config")),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert "REFUSED Stoker's stacks take no orchestrator of the program's own" in done.stdout
    assert "step operator 'lazy' came back, but the step didn't run" in done.stderr, done.stdout
    assert "GOT True" in done.stdout, done.stdout + done.stderr
