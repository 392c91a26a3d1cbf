"""Flows, run by the engine: artifacts, all forms of next, joins, messages of failures."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from front_tools import needed, needs_engine, run_python

pytestmark = needs_engine

HEAD = """
import os, sys, time
from stoker.flow import (FlowSpec, step, Parameter, JSONType, IncludeFile, Config, current, retry, catch,
    timeout, resources, environment, secrets, kubernetes, batch, parallel, project)
"""
TAIL = """
if __name__ == "__main__":
    from stoker.flow._run import run_flow
    sys.exit(run_flow(F, PARAMETERS, OPTIONS))
"""


def run(
    folder: Path,
    body: str,
    ok: bool = True,
    parameters: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """Run the flow `F` of this source."""
    tail = TAIL.replace("PARAMETERS", repr(parameters or {})).replace(
        "OPTIONS", repr(options or {})
    )
    return run_python(folder, HEAD + body + tail, ok=ok, **env)


def logs(folder: Path, step: str, kind: str = "stdout") -> list[str]:
    """The output of a step's tasks in their last attempts, by task."""
    found = sorted(folder.glob(f".stoker/runs/*/{step}/[1-9]*"), key=lambda p: int(p.name))
    last = [
        max((d for d in one.iterdir() if d.name.isdigit()), key=lambda p: int(p.name))
        for one in found
    ]
    return [(one / f"{kind}.log").read_text() for one in last]


def results(folder: Path, step: str) -> list[dict[str, Any]]:
    """The results of a step's tasks, by task and attempt."""
    found = sorted(folder.glob(f".stoker/runs/*/{step}/*/*/result.json"))
    return [json.loads(one.read_text()) for one in found]


def test_linear(tmp_path: Path) -> None:
    run(tmp_path, """
class F(FlowSpec):
    alpha = Parameter("alpha", default=0.5)
    CONST = {"k": (1, 2)}
    @step
    def start(self):
        self.x = 1
        self.same = "s"
        self.gone = 1
        self.next(self.mid)
    @step
    def mid(self):
        self.x += 1
        assert self.same == "s"
        del self.gone
        self.next(self.end)
    @step
    def end(self):
        assert not hasattr(self, "gone") and not hasattr(self, "never")
        print(self.x, self.same, self.alpha, self.CONST, current.pathspec.split("/")[2:])
""", parameters={"alpha": "2"})  # fmt: skip
    assert logs(tmp_path, "end") == ["2 s 2.0 {'k': (1, 2)} ['end', '3']\n"]
    assert set(results(tmp_path, "mid")[0]["outputs"]) == {"x"}
    assert results(tmp_path, "mid")[0]["dropped"] == ["gone"]
    assert results(tmp_path, "end")[0].get("outputs", {}) == {}


def test_foreach_nested_in_branches(tmp_path: Path) -> None:
    run(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        self.base = 7
        self.next(self.a, self.b)
    @step
    def a(self):
        self.outer = [{"k": i, "pad": "x" * 400} for i in range(3)]
        self.next(self.inner, foreach="outer")
    @step
    def inner(self):
        self.letters = {"p": 1, "q": 2}
        self.next(self.deep, foreach="letters")
    @step
    def deep(self):
        self.v = (self.index, self.input, [(i, n, v if isinstance(v, str) else v["k"]) for i, n, v in self.foreach_stack()])
        self.next(self.inner_join)
    @step
    def inner_join(self, inputs):
        self.vs = [one.v for one in inputs]
        assert self.index is not None and self.input["k"] == self.index
        self.next(self.outer_join)
    @step
    def outer_join(self, inputs):
        self.all = [v for one in inputs for v in one.vs]
        self.items = [one.index for one in inputs]
        assert self.index is None and self.input is None and self.foreach_stack() == []
        self.next(self.after)
    @step
    def after(self):
        self.next(self.join)
    @step
    def b(self):
        self.only_b = "b"
        self.next(self.join)
    @step
    def join(self, inputs):
        assert inputs.b.only_b == "b" and not hasattr(inputs.after, "only_b")
        assert len(list(inputs)) == 2 and inputs[-1].base == 7 and not hasattr(inputs[0], 'base')
        self.merge_artifacts(inputs)
        self.next(self.end)
    @step
    def end(self):
        print(self.all)
        print(self.items, self.only_b, self.base)
""")  # fmt: skip
    want = [(i, v, [(k, 3, k), (i, 2, v)]) for k in range(3) for i, v in enumerate(["p", "q"])]
    assert logs(tmp_path, "end") == [f"{want}\n{[0, 1, 2]} b 7\n"]


def test_items_are_stored_once_and_read_alone(tmp_path: Path) -> None:
    run(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        self.texts = [str(i) * 100 for i in range(50)]
        self.next(self.work, foreach="texts")
    @step
    def work(self):
        self.n = len(self.input)
        self.next(self.join)
    @step
    def join(self, inputs):
        self.ns = sum(one.n for one in inputs)
        self.next(self.end)
    @step
    def end(self):
        print(self.ns)
""")  # fmt: skip
    assert logs(tmp_path, "end") == [f"{10 * 100 + 40 * 200}\n"]
    start = results(tmp_path, "start")[0]
    assert start["outputs"]["texts"]["format"] == "items" and "items" not in start["next"]
    task = next(tmp_path.glob(".stoker/runs/*/work/*/1/task.json")).read_text()
    assert "000000" not in task  # no task is told of other tasks' items


def test_switch_and_loop(tmp_path: Path) -> None:
    run(tmp_path, """
class F(FlowSpec):
    cfg = Config("cfg", default_value={"stop": "done"})
    @step
    def start(self):
        self.n = 0
        self.next(self.again)
    @step
    def again(self):
        self.n += 1
        self.state = "more" if self.n < 4 else "done"
        self.next({"more": self.again, self.cfg.stop: self.decide}, condition="state")
    @step
    def decide(self):
        self.right = True
        self.next({True: self.yes, False: self.no, 7: self.yes}, condition="right")
    @step
    def yes(self):
        self.next(self.end)
    @step
    def no(self):
        self.next(self.end)
    @step
    def end(self):
        print(self.n, self.cfg.stop)
""")  # fmt: skip
    assert logs(tmp_path, "end") == ["4 done\n"]
    assert len(results(tmp_path, "again")) == 4 and not results(tmp_path, "no")


def test_merge_says_what_differs_and_loads_nothing(tmp_path: Path) -> None:
    run(tmp_path, """
class Loud:
    def __init__(self, n): self.n = n
    def __setstate__(self, state): print("loaded"); self.__dict__.update(state)
class F(FlowSpec):
    K = 1
    @step
    def start(self):
        self.same, self.other = Loud(1), Loud(1)
        self.next(self.a, self.b)
    @step
    def a(self):
        self.x = 1
        self.other = Loud(2)
        self.next(self.join)
    @step
    def b(self):
        self.x = 2
        self.next(self.join)
    @step
    def join(self, inputs):
        from stoker.flow.exception import (UnhandledInMergeArtifactsException as U,
            MissingInMergeArtifactsException as M, MetaflowException)
        try: self.merge_artifacts(inputs)
        except U as bad: assert bad.artifact_names == ["other", "x"], bad.artifact_names; print(bad)
        else: assert 0
        try: self.merge_artifacts(inputs, include=["nope"])
        except M as bad: assert bad.artifact_names == ["nope"]; print(bad)
        else: assert 0
        try: self.merge_artifacts(inputs, include=["x"], exclude=["x"])
        except MetaflowException as bad: print(bad)
        else: assert 0
        self.x = max(one.x for one in inputs)
        self.merge_artifacts(inputs, exclude=["other"])
        self.next(self.end)
    @step
    def end(self):
        from stoker.flow.exception import MetaflowException
        try: self.merge_artifacts([])
        except MetaflowException as bad: print(bad)
        else: assert 0
        print(self.x, self.same.n, hasattr(self, "other"), self.K)
""")  # fmt: skip
    (said,) = logs(tmp_path, "join")
    assert "loaded" not in said
    assert "can't merge other, x: the branches have different values; set self.other" in said
    assert "can't merge nope, which no branch has" in said
    (said,) = logs(tmp_path, "end")
    assert "step 'end' isn't a join" in said and said.endswith("loaded\n2 1 False 1\n")


def test_failures_are_caught_or_tried_again(tmp_path: Path) -> None:
    run(tmp_path, """
class F(FlowSpec):
    @retry(times=1, minutes_between_retries=0.001)
    @catch(var="oops")
    @step
    def start(self):
        self.before = current.retry_count
        raise ValueError("boom")
        self.next(self.crash)
    @catch(var="crashed")
    @step
    def crash(self):
        os.kill(os.getpid(), 11)
        self.next(self.slow)
    @catch(var="late", print_exception=False)
    @timeout(seconds=1)
    @step
    def slow(self):
        time.sleep(60)
        self.next(self.stuck)
    @catch(var="in_c", print_exception=False)
    @timeout(seconds=1)
    @step
    def stuck(self):
        sum(range(1 << 60))  # no signal's handler runs before this returns
        self.next(self.fine)
    @catch(var="nothing")
    @step
    def fine(self):
        self.next(self.end)
    @step
    def end(self):
        assert self.before == 1 and self.nothing is None
        for one in (self.oops, self.crashed, self.late, self.in_c):
            print(one.step, one.type, one.exception)
""")  # fmt: skip
    oops, crashed, late, in_c = logs(tmp_path, "end")[0].splitlines()
    assert oops == "start builtins.ValueError boom"
    assert crashed.startswith("crash stoker.flow.exception.FailureHandledByCatch")
    assert "signal 11" in crashed
    assert late.startswith(
        "slow stoker.flow.exception.TimeoutException step 'slow' timed out after 1 sec"
    )
    assert (
        in_c.startswith("stuck stoker.flow.exception.FailureHandledByCatch")
        and "still running after 6" in in_c
    )
    assert ">  ValueError: boom" in logs(tmp_path, "start")[0]


FAILING = {
    "unpicklable": ("self.bad = open('/dev/null')", "artifact 'bad' can't be kept.*TextIOWrapper"),
    "exit": ("sys.exit(3)", r"the step called sys.exit\(3\), so nothing follows it"),
    "no next": ("if self.name: return", "ended without self.next.*end follows"),
    "the flow itself": ("self.me = self", "artifact 'me'.*a flow can't be stored"),
    "parameter": ("self.alpha = 1", "'alpha' is a parameter or attribute of the flow's class, which no"),
    "constant": ("self.K = 1", "'K' is a parameter or attribute of the flow's class"),
    "missing": ("self.nope", "step 'start' has no artifact 'nope': no step before it sets self.nope"),
    "segfault": (
        "import ctypes; ctypes.string_at(0)",
        r"signal 11 \(SIGSEGV\) in compiled code, called at File .*line \d+ in string_at; .*"
        r"│   File .*line \d+ in string_at\n    │   File .*line \d+ in start\n",
    ),
    "no word": ("raise KeyboardInterrupt", r"failed: KeyboardInterrupt \("),
    "twice": ("self.next(self.end)", "it was called before"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_failing_sentences(name: str, tmp_path: Path) -> None:
    line, sentence = FAILING[name]
    done = run(tmp_path, f"""
class F(FlowSpec):
    alpha = Parameter("alpha", default=1)
    K = 0
    @step
    def start(self):
        {line}
        self.next(self.end)
    @step
    def end(self):
        pass
""", ok=False)  # fmt: skip
    assert done.returncode == 1
    assert re.search(rf"start/1 failed: .*{sentence}", done.stderr, re.S), done.stderr


def test_out_of_memory_in_an_item(tmp_path: Path) -> None:
    done = run(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        self.items = ["a", "b"]
        self.next(self.work, foreach="items")
    @resources(memory=100)
    @step
    def work(self):
        kept = []
        while self.input == "b":
            kept.append(b"x" * 10_000_000)
            time.sleep(0.01)
        self.next(self.join)
    @step
    def join(self, inputs):
        self.next(self.end)
    @step
    def end(self):
        pass
""", ok=False)  # fmt: skip
    assert done.returncode == 1
    sentence = r"work/3 \(item 1 of start\) failed: host OOM: used .* of its 100 MB; ask for more memory: @resources\(memory=…\), in MB"
    assert re.search(sentence, done.stderr), done.stderr


def test_foreach_and_switch_that_lead_nowhere(tmp_path: Path) -> None:
    body = """
class F(FlowSpec):
    @step
    def start(self):
        self.items = ITEMS
        self.next(self.a, foreach="items")
    @step
    def a(self):
        self.v = "maybe"
        self.next({"yes": self.b, "no": self.c}, condition="v")
    @step
    def b(self):
        self.next(self.j)
    @step
    def c(self):
        self.next(self.j)
    @step
    def j(self, inputs):
        self.next(self.end)
    @step
    def end(self):
        pass
"""
    for items, sentence in (
        ("[]", "foreach='items', but self.items is empty"),
        ("5", "foreach='items' needs something to iterate over, but self.items is a int"),
        ("range(200)", "has 200 items, which is more than the 100 .*--max-num-splits 200"),
        ("[1]", "switches on self.v, which is 'maybe', and there is no case for it: the cases are 'yes', 'no'"),
    ):  # fmt: skip
        done = run(tmp_path, body.replace("ITEMS", items), ok=False)
        assert done.returncode == 1 and re.search(sentence, done.stderr), done.stderr


def test_parameters(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("one\ntwo\n" * 2000)
    body = """
class F(FlowSpec):
    n = Parameter("n", required=True, type=int, help="how many")
    words = Parameter("words", default="a,b", separator=",")
    js = Parameter("js", type=JSONType, default='{"a": [1]}')
    none = Parameter("none", type=int)
    made = Parameter("made", default=lambda context: context.flow_name + context.parameter_name)
    data = IncludeFile("data", default="data.txt")
    big = Parameter("big", type=JSONType, default=list(range(3000)))
    @step
    def start(self):
        print(self.n, self.words, self.js, self.none, self.made, len(self.data), len(self.big))
        self.next(self.a, self.b)
    @step
    def a(self):
        self.next(self.j)
    @step
    def b(self):
        assert self.data[:3] == "one"
        self.next(self.j)
    @step
    def j(self, inputs):
        assert inputs.a.n == self.n
        print(self.n, self.words, self.js, self.none, self.made, len(self.data), len(self.big))
        self.next(self.end)
    @step
    def end(self):
        print(self.n, self.words, self.js, self.none, self.made, len(self.data), len(self.big))
"""
    done = run(tmp_path, body, ok=False)
    assert done.returncode != 0
    assert (
        "parameter 'n' is missing and has no default: give --n VALUE, or set METAFLOW_RUN_N"
        in done.stderr
    )
    run(tmp_path, body, parameters={"words": "x"}, METAFLOW_RUN_N="4")
    want = "4 ['x'] {'a': [1]} None Fmade 16000 3000\n"
    assert [logs(tmp_path, name) for name in ("start", "j", "end")] == [[want]] * 3


def test_decorators(tmp_path: Path) -> None:
    done = run(tmp_path, """
@project(name="proj")
class F(FlowSpec):
    cfg = Config("cfg", default_value={"var": "v"})
    @environment(vars={"A": cfg.var})
    @secrets(sources=["MY_TOKEN", {"type": "inline", "options": {"env_vars": {"INLINE": "i"}}}])
    @step
    def start(self):
        print(os.environ["A"], os.environ["MY_TOKEN"], os.environ["INLINE"], current.project_name, current.tags)
        self.next(self.end)
    @kubernetes(image="img", gpu=1, gpu_vendor="nvidia", memory=100)
    @resources(cpu=1, memory=200)
    @step
    def end(self):
        print("attached", [one.name for one in type(self)._graph["end"].decorators])
        shown = {one["name"]: one["attributes"] for one in current.graph["steps"]["start"]["decorators"]}
        print(shown["environment"])
""", options={"with": ["retry:times=1"], "tags": ["t"]}, STOKER_SECRET_MY_TOKEN="hush")  # fmt: skip
    assert logs(tmp_path, "start") == ["v **** i proj {'t'}\n"]
    shown = "attached ['resources', 'kubernetes', 'retry']\n{'vars': {'A': 'v'}}\n"
    assert logs(tmp_path, "end") == [shown], "a configuration's expression has its value"
    assert "asked for 1" in done.stderr and "GPU" in done.stderr
    task = json.loads(next(tmp_path.glob(".stoker/runs/*/end/*/1/task.json")).read_text())
    assert task["asked"]["memory_bytes"] == 200_000_000 and task["asked"]["gpu_count"] == 1
    text = next(tmp_path.glob(".stoker/runs/*/spec.json")).read_text()
    assert "hush" not in text and '"i"' not in text


def test_arrays_that_were_only_looked_at_stay(tmp_path: Path) -> None:
    needed("numpy")
    run(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        import numpy
        self.seen, self.changed = numpy.arange(1 << 18), numpy.arange(1 << 18)
        self.listed = [1, 2, 3]
        self.next(self.mid)
    @step
    def mid(self):
        assert self.seen.sum() and self.listed
        self.changed[5] = -1
        self.next(self.end)
    @step
    def end(self):
        print(self.seen[5], self.changed[5])
""")  # fmt: skip
    assert set(results(tmp_path, "mid")[0]["outputs"]) == {"changed"}
    assert logs(tmp_path, "end") == ["5 -1\n"]


def test_large_arrays_arrive_and_what_others_hold_stays(tmp_path: Path) -> None:
    """An array that only the flow has gives its memory back while it is written; nobody sees that."""
    needed("numpy")
    run(
        tmp_path,
        """
import atexit
import numpy
N = 80 << 20
KEPT = []

class F(FlowSpec):
    @step
    def start(self):
        def array(k):
            return numpy.random.default_rng(k).integers(0, 255, N, dtype=numpy.uint8)
        self.alone = array(1)
        self.one = self.other = array(2)
        self.kept = array(3)
        KEPT.append(self.kept[N // 2:])
        self.sums = [int(a.sum()) for a in (self.alone, self.one, self.kept, KEPT[0])]
        atexit.register(self.look)
        self.next(self.end)

    def look(self):
        print([int(a.sum()) for a in (self.alone, self.one, self.kept, KEPT[0])] == self.sums)

    @step
    def end(self):
        found = [int(a.sum()) for a in (self.alone, self.other, self.kept, self.kept[N // 2:])]
        print(found == self.sums)
        del self.alone, self.one, self.other, self.kept
""",
    )
    assert logs(tmp_path, "start") == ["True\n"]
    assert logs(tmp_path, "end") == ["True\n"]


def test_nodes_of_num_parallel(tmp_path: Path) -> None:
    run(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        self.base = 3
        self.n = 3
        self.next(self.train, num_parallel=self.n)
    @parallel
    @step
    def train(self):
        here = current.parallel
        print(here.node_index, here.num_nodes, current.task_id, current.is_parallel, self.index, self.input)
        self.mine = here.node_index * 10
        self.next(self.join)
    @step
    def join(self, inputs):
        self.all = [(one.index, one.mine, one.base) for one in inputs]
        self.merge_artifacts(inputs, exclude=["mine"])
        self.next(self.end)
    @step
    def end(self):
        print(self.all, self.base)
""")  # fmt: skip
    assert logs(tmp_path, "end") == ["[(0, 0, 3), (1, 10, 3), (2, 20, 3)] 3\n"]
    ranks = [
        next(tmp_path.glob(f".stoker/runs/*/train/2/1/rank-{k}/stdout.log")).read_text()
        for k in range(3)
    ]
    assert ranks == ["0 3 2 True 0 0\n", "1 3 2_node_1 True 1 1\n", "2 3 2_node_2 True 2 2\n"]


def test_a_process_that_cannot_be_forked(tmp_path: Path) -> None:
    """Tasks in fresh interpreters find the class, its configurations and `--with` again."""
    done = run(tmp_path, """
import threading
threading.Thread(target=lambda: time.sleep(600), daemon=True).start()
class F(FlowSpec):
    cfg = Config("cfg", default_value={"secs": 60, "v": "w"})
    n = Parameter("n", default=1)
    @timeout(seconds=cfg.secs)
    @environment(vars={"V": cfg.v})
    @step
    def start(self):
        print(os.environ["V"], [one.name for one in type(self)._graph["start"].decorators], self.n)
        self.next(self.end)
    @step
    def end(self):
        print(current.retry_count, self.cfg.v)
        if not current.retry_count:
            raise ValueError("once")
""", parameters={"n": 5}, options={"with": ["retry:times=1"]})  # fmt: skip
    assert "fresh interpreter" in done.stderr
    assert logs(tmp_path, "start") == ["w ['environment', 'timeout', 'retry'] 5\n"]
    assert logs(tmp_path, "end") == ["1 w\n"]


def test_cached_steps_are_not_run_again(tmp_path: Path) -> None:
    body = """
class F(FlowSpec):
    n = Parameter("n", default=1)
    @step
    def start(self):
        self.items = [self.n, 2]
        self.next(self.work, foreach="items")
    @step
    def work(self):
        print("works")
        self.y = self.input * FACTOR
        self.next(self.join)
    @step
    def join(self, inputs):
        self.sum = sum(one.y for one in inputs)
        self.next(self.end)
    @step
    def end(self):
        open("sums", "a").write(f"{self.sum} ")
"""

    def ran(factor: int, **options: Any) -> int:
        before = len(list(tmp_path.glob(".stoker/runs/*/work/*/1/stdout.log")))
        run(tmp_path, body.replace("FACTOR", str(factor)), options={"cache": True, **options})
        return len(list(tmp_path.glob(".stoker/runs/*/work/*/1/stdout.log"))) - before

    assert (ran(10), ran(10), ran(100)) == (2, 0, 2)
    assert ran(10, cache=False) == 2
    # The last step is cached with the rest: what it does besides its artifacts isn't done again.
    assert (tmp_path / "sums").read_text().split() == ["30", "300", "30"]


def test_one_step_is_cached(tmp_path: Path) -> None:
    body = """
from stoker.flow import cache
class F(FlowSpec):
    @cache
    @step
    def start(self):
        self.x = 1
        self.next(self.end)
    @step
    def end(self):
        assert self.x == 1
"""
    for _ in range(2):
        run(tmp_path, body)
    assert (len(results(tmp_path, "start")), len(results(tmp_path, "end"))) == (1, 2)


def test_base_classes_and_other_files(tmp_path: Path) -> None:
    (tmp_path / "base.py").write_text(
        """
from stoker.flow import FlowSpec, Parameter, step

class Base(FlowSpec):
    size = Parameter("size", default=2)
    KIND = "base"

    @step
    def start(self):
        self.made = [self.helper(i) for i in range(self.size)]
        self.next(self.end)

    def helper(self, i):
        return i
"""
    )
    run(tmp_path, """
from base import Base
class F(Base):
    KIND = "derived"
    def helper(self, i):
        return -i
    @step
    def end(self):
        print(self.made, self.KIND, self.name)
""")  # fmt: skip
    assert logs(tmp_path, "end") == ["[0, -1] derived F\n"]


def test_sentences_of_other_ends(tmp_path: Path) -> None:
    """A step that leaves by ``os._exit`` is tried no more often than it says; what can't say what it is still fails by
    name; a value without a case shows the step's lines and none of ours; a thread that goes on is named."""
    done = run(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        os._exit(0)
        self.next(self.end)
    @step
    def end(self):
        pass
""", ok=False)  # fmt: skip
    assert (
        "start/1 failed: it ended with exit status 0, but without a result: os._exit" in done.stderr
    )
    assert len(list(tmp_path.glob(".stoker/runs/*/start/1/[0-9]*"))) == 1
    done = run(tmp_path, """
class Mute(Exception):
    def __str__(self): raise RuntimeError
class F(FlowSpec):
    @catch(var="err", print_exception=False)
    @step
    def start(self):
        raise Mute()
        self.next(self.bad)
    @step
    def bad(self):
        assert "__str__ raised RuntimeError" in self.err.exception
        raise Mute()
        self.next(self.end)
    @step
    def end(self):
        pass
""", ok=False)  # fmt: skip
    assert re.search(
        r"bad/2 failed: \S*Mute: \(it has no message: its __str__ raised RuntimeError\) \(prog.py:\d+\)",
        done.stderr,
    ), done.stderr
    done = run(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        self.v = 3
        self.next({1: self.end, 2: self.other}, condition="v")
    @step
    def other(self):
        self.next(self.end)
    @step
    def end(self):
        pass
""", ok=False)  # fmt: skip
    assert (
        "which is 3, and there is no case for it" in done.stderr and "_next.py" not in done.stderr
    )
    assert "self.next({1: self.end" in done.stderr


def test_a_thread_that_goes_on_is_named(tmp_path: Path) -> None:
    run(tmp_path, """
import threading
def poll():
    log = os.environ["STOKER_TASK_DIR"] + "/stderr.log"
    while "goes on until" not in open(log).read(): time.sleep(0.05)
class F(FlowSpec):
    @step
    def start(self):
        threading.Thread(target=poll, name="poller").start()
        self.next(self.end)
    @step
    def end(self):
        pass
""")  # fmt: skip
    (said,) = logs(tmp_path, "start", "stderr")
    assert "the task goes on until its thread 'poller' ends: join it in the step" in said
