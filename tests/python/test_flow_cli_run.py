"""run, resume, spin and their files and streams; the client over what they leave: with the real engine."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import front_tools
import pytest

from stoker.flow import client, inspect_spin
from stoker.flow.client import Flow, Run
from stoker.flow.runner import Runner

pytestmark = front_tools.needs_engine

FLOW = '''\
import os, sys
from stoker.flow import FlowSpec, step, Parameter, JSONType, IncludeFile, current

class F(FlowSpec):
    """About F."""
    alpha = Parameter("alpha", help="learning rate", default=0.5)
    n = Parameter("n_items", type=int, default=3)
    shape = Parameter("shape", type=JSONType, default="[1]")
    text = IncludeFile("text", default="text.txt")

    @step
    def start(self):
        print("begins")
        self.xs = list(range(self.n))
        self.next(self.work, foreach="xs")

    @step
    def work(self):
        print("item", self.input, file=sys.stderr)
        self.y = self.input * self.alpha
        self.next(self.join)

    @step
    def join(self, inputs):
        if os.path.exists("fail"):
            raise ValueError("told to fail")
        self.total = sum(i.y for i in inputs)
        self.seen = (self.shape, self.text, current.origin_run_id)
        self.next(self.end)

    @step
    def end(self):
        print("total", self.total)

if __name__ == "__main__":
    F()
'''


class Program:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "flow.py").write_text(FLOW)
        (folder / "text.txt").write_text("included\n")

    def __call__(self, *words: str, ok: bool = True, **env: str) -> Any:
        done = subprocess.run(
            [sys.executable, "flow.py", *words],
            cwd=self.folder,
            env=front_tools.environment(self.folder / ".stoker", METAFLOW_USER="ann", **env),
            capture_output=True,
            text=True,
            timeout=front_tools.WAIT_S,
        )
        if ok:
            assert done.returncode == 0, done.stdout + done.stderr
        return done

    def stoker(self, *words: str) -> Any:
        return subprocess.run(
            [str(front_tools.engine()), *words],
            cwd=self.folder,
            env=front_tools.environment(
                self.folder / ".stoker", METAFLOW_USER="ann", PYTHON=sys.executable
            ),
            capture_output=True,
            text=True,
            timeout=front_tools.WAIT_S,
        )


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: Any) -> Program:
    monkeypatch.setenv("STOKER_STORE", str(tmp_path / ".stoker"))
    monkeypatch.setenv("STOKER_BIN", str(front_tools.engine()))
    monkeypatch.setenv("METAFLOW_USER", "ann")
    monkeypatch.setattr("stoker.flow.client._place._namespace", client._place._UNSET)
    monkeypatch.setattr("stoker.flow.client._place._metadata", None)
    return Program(tmp_path)


def test_run_says_and_leaves_what_metaflows_does(flow: Program) -> None:
    done = flow(
        *("run", "--alpha", "2", "--tag", "t1", "--tag", "t2"),
        *("--run-id-file", "id", "--runner-attribute-file", "facts"),
    )
    run = (flow.folder / "id").read_text()
    store = str(flow.folder / ".stoker")
    facts = {"run_id": run, "flow_name": "F", "metadata": f"local@{store}"}
    assert json.loads((flow.folder / "facts").read_text()) == facts
    # What tasks write comes out as they wrote it, each stream on its own.
    assert re.search(rf"^\[{run}/start/1 \(pid \d+\)\] begins$", done.stdout, re.M)
    assert re.search(rf"^\[{run}/end/6 \(pid \d+\)\] total 6.0$", done.stdout, re.M)
    assert re.search(rf"^\[{run}/work/3 \(pid \d+\)\] item 1$", done.stderr, re.M)
    found = Flow("F").latest_run
    assert found.id == run and found.successful and found.user_tags == {"t1", "t2"}
    assert {"user:ann", "runtime:dev"} < found.system_tags
    assert any(t.startswith("metaflow_version:") for t in found.system_tags)
    assert found.data.total == 6.0 and found.data.alpha == 2.0
    assert found["join"].task.data.seen == ([1], "included\n", None)
    assert found["work"].task.stderr == "item 2\n" and found["start"].task.stdout == "begins\n"
    assert [t.data.y for t in found["work"]] == [4.0, 2.0, 0.0]


def test_parameters_by_variable_and_by_stoker_run(flow: Program) -> None:
    flow("run", METAFLOW_RUN_ALPHA="3", METAFLOW_RUN_SHAPE='{"a": 1}')
    assert Flow("F").latest_run.data.alpha == 3.0
    assert Flow("F").latest_run["join"].task.data.seen[0] == {"a": 1}
    for words in (
        ("run", "-p", "alpha=4", "flow.py"),
        ("run", "flow.py", "run", "--alpha", "4"),
        ("run", "flow.py", "--alpha", "4"),
        ("run", "flow.py:F", "-p", "alpha=4"),
    ):
        done = flow.stoker(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert Flow("F").latest_run.data.alpha == 4.0
    assert len(list(Flow("F"))) == 5
    flow("run", "--alpha", "inf")
    assert Flow("F").latest_run.data.alpha == float("inf")


def test_options_before_the_file_count_for_flows(flow: Program) -> None:
    quiet = flow.stoker("run", "--quiet", "flow.py", "--cache")
    assert quiet.returncode == 0 and (quiet.stdout, quiet.stderr) == ("", "")
    again = flow.stoker("run", "--no-cache", "flow.py", "--cache")
    assert "all cached" not in again.stderr and "total 1.5" in again.stdout
    wants = FLOW.replace(
        "    @step\n    def end", "    @resources(cpu=5000)\n    @step\n    def end"
    )
    wants = wants.replace("import FlowSpec,", "import FlowSpec, resources,")
    (flow.folder / "flow.py").write_text(wants)
    refused = flow.stoker("run", "--policy", "strict", "flow.py")
    assert refused.returncode == 1 and "cpu_count 5000" in refused.stderr
    # The flow's own word, behind the file, wins.
    assert flow.stoker("run", "--policy", "strict", "flow.py", "--policy", "fit").returncode == 0


def test_pipelines_and_flows_share_a_store(flow: Program) -> None:
    flow("run", "--alpha", "2")
    (flow.folder / "pipe.yaml").write_text("stoker: 1\nname: p\nsteps: {a: {run: echo hi}}\n")
    at = {"cwd": flow.folder, "env": front_tools.environment(flow.folder / ".stoker")}
    stoker = str(front_tools.engine())
    subprocess.run([stoker, "run", "pipe.yaml"], check=True, capture_output=True, **at)
    runs = subprocess.run([stoker, "runs"], check=True, capture_output=True, text=True, **at).stdout
    assert re.search(r" F +succeeded", runs) and re.search(r" p +succeeded", runs), runs
    assert [one.id for one in client.Metaflow()] == ["F"]


def test_a_failed_run_is_status_1_and_is_resumed_with_its_parameters(flow: Program) -> None:
    (flow.folder / "fail").touch()
    failed = flow("run", "--alpha", "2", "--shape", '"text"', ok=False)
    assert failed.returncode == 1 and "told to fail" in failed.stdout + failed.stderr
    origin = Flow("F").latest_run
    assert not origin.successful and not origin.finished and origin.data is None
    join = origin["join"].task
    assert (join.exception.type, join.exception.exception) == (
        "builtins.ValueError",
        "told to fail",
    )
    assert 'raise ValueError("told to fail")' in join.exception.stacktrace
    (flow.folder / "fail").unlink()
    (flow.folder / "text.txt").write_text("another\n")  # the origin's value counts
    again = flow("resume", "--tag", "again", "--run-id-file", "id")
    assert f"Resuming run {origin.id}" in again.stderr
    run = Flow("F").latest_run
    assert (flow.folder / "id").read_text() == run.id and run.user_tags == {"again"}
    assert run.successful and run.data.total == 6.0
    assert run["join"].task.data.seen == ("text", "included\n", origin.id)
    assert run.origin_pathspec == origin.pathspec
    assert run["work"]["3"].origin_pathspec == f"{origin.pathspec}/work/3"
    assert run["join"].task.origin_pathspec is None and run["start"].task.stdout == ""
    dumped = flow("dump", f"{run.id}/work", "--file", "d.pkl", "--include", "y")
    assert dumped.stdout == ""
    values = pickle.loads((flow.folder / "d.pkl").read_bytes())
    assert values == {f"{run.id}/work/{2 + i}": {"y": i * 2.0} for i in range(3)}


def test_resume_from_a_step_and_clone_only(flow: Program) -> None:
    flow("run")
    first = Flow("F").latest_run
    flow("resume", "work")
    run = Flow("F").latest_run
    assert run.origin_pathspec == first.pathspec
    assert run["start"].task.origin_pathspec and not run["work"].task.origin_pathspec
    flow("resume", "join", "--origin-run-id", first.id, "--clone-only")
    cloned = Flow("F").latest_run
    assert cloned.origin_pathspec == first.pathspec
    assert sorted(s.id for s in cloned if s.origin_pathspec) == ["start", "work"]
    assert not cloned.finished


def test_a_resumed_run_is_resumed(flow: Program) -> None:
    (flow.folder / "fail").touch()
    flow("run", ok=False)
    assert flow("resume", ok=False).returncode == 1
    middle = Flow("F").latest_run
    (flow.folder / "fail").unlink()
    flow("resume")
    run = Flow("F").latest_run
    assert run.origin_pathspec == middle.pathspec and run.successful
    assert all(t.origin_pathspec for t in run["work"])


def test_splits_are_limited(flow: Program) -> None:
    done = flow("run", "--n_items", "5", "--max-num-splits", "4", ok=False)
    assert done.returncode == 1 and "--max-num-splits" in done.stdout + done.stderr
    flow("run", "--n_items", "5", "--max-num-splits", "5", "--max-workers", "2")


def test_decorators_are_added_on_the_command_line(flow: Program) -> None:
    (flow.folder / "fail").touch()
    for words in (
        ("--with", "retry:times=1,minutes_between_retries=0", "run"),
        ("run", "--with", "retry:times=1,minutes_between_retries=0"),
    ):
        assert flow(*words, ok=False).returncode == 1
        assert Flow("F").latest_run["join"].task.current_attempt == 1
    done = flow("run", "--with", "nosuch", ok=False)
    assert done.returncode == 1 and "nosuch" in done.stderr and "Traceback" not in done.stderr
    (flow.folder / "stoker.yaml").write_text("stacks: {lab: {backend: slurm, store: /s}}\n")
    done = flow("run", "--with", "labx:pilot=4", ok=False)
    assert done.returncode == 1 and "stacks of stoker.yaml are lab" in done.stderr
    assert "did you mean 'lab'?" in done.stderr


@pytest.mark.parametrize("words", [("kubernetes",), ("batch:queue=q",)])
def test_with_a_cluster_never_runs_here(flow: Program, words: Any) -> None:
    done = flow("run", "--with", *words, ok=False)
    assert done.returncode != 0 and "names no image" in done.stderr and "begins" not in done.stdout


def test_catch_is_seen_by_the_client(flow: Program) -> None:
    (flow.folder / "fail").touch()
    text = FLOW.replace(
        '        print("total", self.total)', "        self.why = self.oops.exception"
    )
    text = text.replace(
        "    @step\n    def join", '    @catch(var="oops")\n    @step\n    def join'
    )
    (flow.folder / "flow.py").write_text(text.replace("current\n", "current, catch\n"))
    flow("run")
    first = Flow("F").latest_run
    flow("resume", "end")
    for run in (first, Flow("F").latest_run):
        join = run["join"].task
        assert join.finished and not join.successful and run.successful
        assert join.exception is None and run.data.why == "told to fail"
        assert run["start"].task.successful


def test_attempts_that_were_followed_have_their_logs_and_failures(flow: Program) -> None:
    text = FLOW.replace("current\n", "current, retry\n")
    text = text.replace(
        '        print("total", self.total)',
        '        self.at = current.retry_count\n        print("try", self.at)\n'
        '        if not self.at:\n            raise KeyError("first")',
    ).replace(
        "    @step\n    def end", "    @retry(minutes_between_retries=0)\n    @step\n    def end"
    )
    (flow.folder / "flow.py").write_text(text)
    flow("run")
    task = Flow("F").latest_run["end"].task
    assert (task.current_attempt, task.data.at, task.stdout) == (1, 1, "try 1\n")
    last, first, none = (client.Task(task.pathspec, attempt=n) for n in (1, 0, 7))
    assert last.successful and last.data.at == 1 and last.exception is None
    assert (
        not first.successful and not first.finished and first.exception.type == "builtins.KeyError"
    )
    assert first.data.at == 0 and first.stdout == "try 0\n"
    assert [first.metadata_dict[k] for k in ("attempt", "attempt_ok")] == ["0", "False"]
    assert not none.finished and none.exception is None and (list(none), none.stdout) == ([], "")


def test_spin_runs_one_step_on_what_a_past_task_had(flow: Program) -> None:
    flow("run", "--alpha", "2")
    n = len(list(Flow("F")))
    done = flow("spin", "join", "--run-id-file", "id")
    assert "Task finished successfully." in done.stdout
    name = (flow.folder / "id").read_text()
    assert name.startswith("spin-")
    run = Flow("F").latest_run
    done = flow("spin", f"{run.id}/work/4")
    assert re.search(r"^\[spin-.*/work/4 \(pid \d+\)\] item 2$", done.stderr, re.M)
    assert len(list(Flow("F"))) == n  # it is no run
    (flow.folder / "fail").touch()
    failed = flow("spin", "join", ok=False)
    assert failed.returncode == 1 and "told to fail" in failed.stderr
    assert "Task failed." in failed.stdout


def test_spin_takes_other_artifacts_and_keeps_what_came_of_it(flow: Program) -> None:
    flow("run")
    (flow.folder / "given.py").write_text("ARTIFACTS = {'total': 77}\n")
    with Runner(str(flow.folder / "flow.py"), show_output=False, cwd=str(flow.folder)) as runner:
        spun = runner.spin("end", artifacts_module="given.py", persist=True)
        assert spun.task.stdout == "total 77\n" and spun.task["total"].data == 77
        again = runner.spin("work", persist=True)
        ran = next(iter(Flow("F").latest_run["work"]))
        assert again.task.successful and again.task.data.y == ran.data.y
        inspect_spin(str(flow.folder))
        try:
            found = client.Task(again.task.pathspec)
        finally:
            client.default_metadata()
        assert found.data.y == ran.data.y and found.index == ran.index
        assert {a.id for a in again.task} == {a.id for a in ran} >= {"alpha", "xs", "y"}


def test_the_runner_runs_resumes_and_waits(flow: Program) -> None:
    file = str(flow.folder / "flow.py")
    with Runner(file, show_output=False, cwd=str(flow.folder)) as runner:
        result = runner.run(alpha=2, n_items=2, shape=[1, 2], tags=["a", "b"], max_workers=1)
        assert result.status == "successful" and result.run.data.total == 2.0
        assert result.run.user_tags == {"a", "b"} and "] begins\n" in result.stdout
        resumed = runner.resume(step_to_rerun="join", origin_run_id=result.run.id)
        assert resumed.run.origin_pathspec == result.run.pathspec
        assert resumed.run["join"].task.data.seen[0] == [1, 2]

    async def go() -> Run:
        async with Runner(file, cwd=str(flow.folder)) as runner:
            running = await runner.async_run(alpha=1)
            await running.wait()
            assert running.returncode == 0
            return running.run

    assert asyncio.run(go()).data.total == 3.0


def test_namespaces_of_runs(flow: Program, monkeypatch: Any) -> None:
    flow("run")
    monkeypatch.setenv("METAFLOW_USER", "bob")
    with pytest.raises(client._object.MetaflowNamespaceMismatch):
        Flow("F")
    client.namespace("user:ann")
    assert Flow("F").latest_run is not None
    text = pickle.dumps(Flow("F").latest_run)
    assert pickle.loads(text).pathspec == Flow("F").latest_run.pathspec


def test_the_store_is_where_datastore_root_says(flow: Program) -> None:
    flow("--datastore-root", "elsewhere", "run")
    assert not os.path.exists(flow.folder / ".stoker")
    client.metadata(str(flow.folder / "elsewhere"))
    assert Flow("F").latest_run.successful


LOOP = """\
import os
from stoker.flow import FlowSpec, step

class L(FlowSpec):
    @step
    def start(self):
        self.n, self.log = 0, []
        self.next(self.turn)

    @step
    def turn(self):
        self.n += 1
        self.log = [*self.log, self.n]
        self.todo = list(range(self.n + 1))
        self.next(self.each, foreach="todo")

    @step
    def each(self):
        self.got = self.input
        self.next(self.join)

    @step
    def join(self, inputs):
        if inputs[0].n == 3 and os.path.exists("fail"):
            raise ValueError("told to fail")
        self.merge_artifacts(inputs, exclude=["got"])
        self.sum = sum(i.got for i in inputs)
        self.next(self.decide)

    @step
    def decide(self):
        self.go = "on" if self.n < 4 else "off"
        self.next({"on": self.turn, "off": self.end}, condition="go")

    @step
    def end(self):
        pass

if __name__ == "__main__":
    L()
"""


def test_resume_takes_over_loops_and_their_foreaches(flow: Program) -> None:
    (flow.folder / "flow.py").write_text(LOOP)
    (flow.folder / "fail").touch()
    assert flow("run", ok=False).returncode == 1
    failed = Flow("L").latest_run
    (flow.folder / "fail").unlink()
    flow("resume")
    run = Flow("L").latest_run
    assert run.successful and run.data.log == [1, 2, 3, 4] and run.data.sum == 10
    done = {t.pathspec for s in failed for t in s if t.successful}
    assert {t.origin_pathspec for s in run for t in s if t.origin_pathspec} == done
    assert len(list(run["turn"])) == 4 and len(list(run["each"])) == 2 + 3 + 4 + 5
    turns = sorted(run["turn"], key=lambda t: int(t.id))
    assert [t.id for t in turns[1].parent_tasks] == [
        max(failed["decide"], key=lambda t: -int(t.id)).id
    ]


@pytest.mark.parametrize("how", ["Ctrl-C", "the engine is killed"])
def test_a_run_that_is_ended(flow: Program, how: str) -> None:
    text = FLOW.replace('        print("begins")', "        import time; time.sleep(600)")
    (flow.folder / "flow.py").write_text(text)
    process = subprocess.Popen(
        [sys.executable, "flow.py", "run", "--run-id-file", "id"],
        cwd=flow.folder,
        env=front_tools.environment(flow.folder / ".stoker", METAFLOW_USER="ann"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    try:
        until = time.monotonic() + front_tools.WAIT_S
        while not (flow.folder / "id").exists() and time.monotonic() < until:
            time.sleep(0.02)
        if how == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        else:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
            os.kill(int(children.split()[0]), signal.SIGKILL)
        said = process.communicate(timeout=front_tools.WAIT_S)[1]
    finally:
        process.kill()
        process.wait()
    run = Flow("F").latest_run
    if how == "Ctrl-C":
        assert process.returncode == 130 and run.status == "cancelled"
    else:
        assert process.returncode == 3
        assert f"`stoker resume {run.id}` continues it" in said


def test_lines_of_logs_have_times(flow: Program) -> None:
    """Of when they were written, not of the log's end; the last line's is the file's own."""
    line = "        print(time.time(), flush=True)\n"
    text = FLOW.replace(
        '        print("begins")\n',
        # sleeps: as far apart are the lines
        f"        import time\n{line}        time.sleep(2.5)\n{line * 2}",
    )
    (flow.folder / "flow.py").write_text(text)
    flow("run")
    task = Flow("F").latest_run["start"].task
    found = list(task.loglines("stdout"))
    assert len(found) == 3
    for seen, said in found:
        assert seen.timestamp() - float(said) > -0.02, found
    assert found[0][0].timestamp() < float(found[1][1]), found
    done = flow("logs", f"{task.parent.parent.id}/start", "--timestamps", "--stdout")
    shown = [f"{seen:%Y-%m-%d %H:%M:%S.%f}"[:-3] + f" {said}\n" for seen, said in found]
    assert done.stdout == "".join(shown)
