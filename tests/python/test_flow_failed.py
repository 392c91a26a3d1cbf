"""What a failed task leaves: the artifacts that it had set, for reading only."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

from front_tools import engine, environment, needs_engine, run_python

pytestmark = needs_engine

HEAD = """
import os, sys, time
from stoker.flow import FlowSpec, step, current, retry, catch, timeout, parallel
"""
TAIL = """
if __name__ == "__main__":
    F()
"""
LOOK = """
import json, sys
from stoker.flow import Flow, namespace
namespace(None)
run = Flow("F").latest_run
print(json.dumps({
    f"{task.parent.id}/{task.id}": [
        task.successful, {a.id: repr(a.data) for a in task if a.id != "name"}, str(task.exception),
    ] for one in run for task in one
}))
"""


def run(folder: Path, body: str, *words: str, ok: bool = False, **env: str) -> str:
    """Run the flow; returns its stderr."""
    done = run_python(folder, HEAD + body + TAIL, *(words or ("run",)), ok=ok, **env)
    assert ok or done.returncode == 1, done.stdout + done.stderr
    return done.stderr


def seen(folder: Path) -> dict[str, Any]:
    """STEP/TASK → (successful, artifacts, exception) in the newest run, by the client."""
    done = run_python(folder, LOOK, name="look.py")
    return json.loads(done.stdout)


def stoker(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [str(engine()), *words],
        cwd=folder,
        env=environment(folder / ".stoker"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_it_had_set_is_kept(tmp_path: Path) -> None:
    """Inherited, set, changed and deleted until the failure; a retry sees nothing of the attempt before it."""
    said = run(tmp_path, """
import numpy
class F(FlowSpec):
    K = {"k": 1}
    @step
    def start(self):
        self.x, self.gone, self.items, self.same = 1, 2, [1], numpy.zeros(40000)
        self.next(self.work)
    @retry(times=1, minutes_between_retries=0)
    @step
    def work(self):
        assert not hasattr(self, "only_first") and self.items == [1]
        if current.retry_count == 0: self.only_first = 1
        self.x = 2
        self.big = numpy.ones(40000)
        self.bad = lambda: 1
        del self.gone
        self.items.append(2)
        self.same.sum()
        raise ValueError("told to")
        self.next(self.end)
    @step
    def end(self): pass
""")  # fmt: skip
    assert "work/2 failed: ValueError: told to" in said
    successful, found, why = seen(tmp_path)["work/2"]
    assert not successful and "told to" in why
    assert sorted(found) == ["K", "big", "items", "same", "x"]
    assert found["x"] == "2" and found["items"] == "[1, 2]" and "1., 1." in found["big"]
    # its files are the store's: they outlive the collection of what nobody refers to
    stoker(tmp_path, "store", "gc", "--keep-runs", "1")
    assert "1., 1." in seen(tmp_path)["work/2"][1]["big"]
    shown = json.loads(stoker(tmp_path, "show", "latest/work", "--json"))["tasks"][0]
    assert Path(shown["artifacts"]["big"]["path"]).exists()
    dumped = run_python(
        tmp_path, (tmp_path / "prog.py").read_text(), "dump", f"{run_of(tmp_path)}/work"
    )
    assert re.search(r"^items .* = \[1, 2\]$", dumped.stdout, re.M), dumped.stdout


def run_of(folder: Path) -> str:
    """The newest run's id."""
    return json.loads(stoker(folder, "show", "latest", "--json"))["run"]


RESUMED = """
class F(FlowSpec):
    @step
    def start(self):
        self.items = [0, 1]
        self.next(self.work, foreach="items")
    @step
    def work(self):
        assert not hasattr(self, "half")
        self.half = self.input
        if self.input == 1 and os.environ.get("FAIL"): raise ValueError("told to")
        self.whole = self.input
        self.next(self.join)
    @step
    def join(self, inputs):
        self.merge_artifacts(inputs, exclude=["half", "whole"])
        self.all = [one.whole for one in inputs]
        if os.environ.get("FAIL_JOIN"): sys.exit(3)
        self.next(self.end)
    @step
    def end(self): pass
"""


def test_it_is_not_taken_for_done(tmp_path: Path) -> None:
    """Neither by a resumed run, nor when the same run continues."""
    run(tmp_path, RESUMED, FAIL="1")
    before = seen(tmp_path)
    failed = next(one for one in before.values() if not one[0])
    assert failed[1]["half"] == "1" and "whole" not in failed[1]
    first = run_of(tmp_path)
    run(tmp_path, RESUMED, "resume", ok=True)
    after = seen(tmp_path)
    assert all(one[0] for one in after.values())
    assert after["join/4"][1]["all"] == "[0, 1]"
    stoker(tmp_path, "resume", first)  # the failed run itself
    assert json.loads(stoker(tmp_path, "show", first, "--json"))["status"] == "succeeded"
    shown = json.loads(stoker(tmp_path, "show", f"{first}/work", "--json"))["tasks"]
    assert ["half" in one["artifacts"] and "whole" in one["artifacts"] for one in shown] == [
        True,
        True,
    ]


def test_a_join_and_sys_exit(tmp_path: Path) -> None:
    """What was merged is kept as well, and what a step had set before it left."""
    said = run(tmp_path, RESUMED, FAIL_JOIN="1")
    assert "the step called sys.exit(3), so nothing follows it" in said
    successful, found, _ = seen(tmp_path)["join/4"]
    assert not successful and found == {"items": "[0, 1]", "all": "[0, 1]"}


def test_nodes_of_a_gang(tmp_path: Path) -> None:
    """Each node keeps its artifacts, both the failed one and the one that waited for it."""
    run(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        self.x = 0
        self.next(self.train, num_parallel=2)
    @parallel
    @step
    def train(self):
        self.node = current.parallel.node_index
        if self.node == 1: raise ValueError("told to")
        self.next(self.join)
    @step
    def join(self, inputs):
        self.next(self.end)
    @step
    def end(self): pass
""")  # fmt: skip
    found = seen(tmp_path)
    assert found["train/2_node_1"][1] == {"x": "0", "node": "1"}
    assert found["train/2"][1]["x"] == "0" and found["train/2"][1].get("node", "0") == "0"


def test_a_crash_is_told_in_the_tasks_log(tmp_path):
    """The process can't say it itself."""
    run(
        tmp_path,
        """
class F(FlowSpec):
    @step
    def start(self):
        import ctypes
        ctypes.string_at(0)
        self.next(self.end)
    @step
    def end(self): pass
""",
    )
    log = next((tmp_path / ".stoker" / "runs").glob("*/start/1/1/stderr.log"))
    assert log.read_text().endswith("Task failed with a segmentation fault.\n")
