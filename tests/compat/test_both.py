"""Flows and pipelines together: each calls the other as a run of its own, in one store."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from front_tools import WAIT_S, engine, environment, needs_engine

FLOW = """
from stoker import pipeline, step as pipeline_step
from stoker.flow import FlowSpec, Parameter, step

@pipeline_step(enable_cache=True)
def double(x: int) -> int:
    print("doubling")
    return 2 * x

@pipeline
def twice(x: int = 1):
    double(x)

class Outer(FlowSpec):
    x = Parameter("x", default=21)
    @step
    def start(self):
        run = twice(x=self.x)
        self.inner = (run.id, run.steps["double"].status)
        self.value = run.steps["double"].output.load()
        self.next(self.end)
    @step
    def end(self):
        pass

if __name__ == "__main__":
    Outer()
"""
PIPELINE = """
from stoker import pipeline, step

@step
def call(x: int) -> int:
    from stoker.flow import Runner
    with Runner("flow.py", show_output=False) as runner:
        return runner.run(x=x).run.data.value

@step
def add(value: int) -> int:
    return value + 1

@pipeline
def outer(x: int = 4):
    add(call(x))

if __name__ == "__main__":
    outer()
"""


def started(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**environment(folder / ".stoker"), "METAFLOW_USER": "tester"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def runs(folder: Path, *words: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [str(engine()), "runs", "--json", *words],
        env=environment(folder / ".stoker"),
        capture_output=True,
        check=True,
    )
    return list(json.loads(done.stdout))


@needs_engine
def test_a_flow_calls_a_pipeline(tmp_path: Path) -> None:
    """It is a run of its own, found from the task by its tag; its steps come from the one cache."""
    (tmp_path / "flow.py").write_text(FLOW)
    for status in ("completed", "cached"):
        started(tmp_path, "flow.py", "run")
        (inner, outer) = runs(tmp_path)[:2]
        assert (inner["pipeline"], outer["pipeline"]) == ("twice", "Outer")
        found = runs(tmp_path, "--tag", f"called-by:{outer['run']}/start/1")
        assert [one["run"] for one in found] == [inner["run"]]
        program = (
            "from stoker.flow import *; namespace(None); "
            "data = Flow('Outer').latest_run.data; print(*data.inner, data.value)"
        )
        assert started(tmp_path, "-c", program).stdout.split() == [inner["run"], status, "42"]


@needs_engine
def test_a_pipeline_calls_a_flow_that_calls_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(FLOW)
    (tmp_path / "pipe.py").write_text(PIPELINE)
    started(tmp_path, "pipe.py")
    inner, flow, outer = runs(tmp_path)
    names = [one["pipeline"] for one in (inner, flow, outer)]
    assert names == ["twice", "Outer", "outer"]
    for caller, called, step in ((outer, flow, "call/0"), (flow, inner, "start/1")):
        tagged = runs(tmp_path, "--tag", f"called-by:{caller['run']}/{step}")
        assert [one["run"] for one in tagged] == [called["run"]]
    value = "from stoker.flow import *; namespace(None); print(Flow('Outer').latest_run.data.value)"
    assert started(tmp_path, "-c", value).stdout.strip() == "8"


@needs_engine
def test_a_pipelines_step_calls_no_pipeline(tmp_path: Path) -> None:
    text = PIPELINE.replace("from stoker.flow import Runner", "return outer()").split("    with ")[
        0
    ]
    (tmp_path / "pipe.py").write_text(
        text
        + "\n@pipeline\ndef outer(x: int = 4):\n    call(x)\n\nif __name__ == '__main__':\n    outer()\n"
    )
    done = subprocess.run(
        [sys.executable, "pipe.py"],
        cwd=tmp_path,
        env=environment(tmp_path / ".stoker"),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 1 and "is called inside of a running step" in done.stderr
