"""Flows on gangs and devices: num_parallel's nodes, torch's and accelerate's processes, leases, checkpoints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import textwrap
from pathlib import Path
from typing import Any, Iterator

import pytest
from front_tools import engine, environment, needs_engine, run_python
from test_flow_run import logs, results, run

pytestmark = needs_engine

NOTICED_US = 100_000
IMPORTS = """
from stoker.flow import (pytorch_parallel, torchrun, deepspeed, run_with_accelerate, checkpoint, gpu_profile, parallel,
    TorchrunSingleNodeMultiGPU)
"""
MASKS = """
def masks():
    names = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "NEURON_RT_VISIBLE_CORES",
        "NEURON_RT_NUM_CORES")
    return {k: os.environ[k] for k in names if os.environ.get(k)}
"""


def play(folder: Path, body: str, ok: bool = True, **env: Any) -> subprocess.CompletedProcess[str]:
    """Run the flow `F`; leases are the folder's own."""
    (folder / "leases").mkdir(exist_ok=True)
    env.setdefault("STOKER_LEASE_DIR", str(folder / "leases"))
    return run(folder, IMPORTS + MASKS + body, ok=ok, **env)


def gang(
    step: str, n: str = "3", decorators: str = "@parallel", join: str = "pass", before: str = ""
) -> str:
    """start → train on n nodes, whose method is `step` → j → end."""
    lines = "\n".join("        " + one for one in step.strip("\n").splitlines())
    return f"""
class F(FlowSpec):
    @step
    def start(self):
        self.n = {n}
        {before}
        self.next(self.train, num_parallel=self.n)
    {decorators}
    @step
    def train(self):
{lines}
        self.next(self.j)
    @step
    def j(self, inputs):
        {join}
        self.next(self.end)
    @step
    def end(self):
        pass
"""


def task_of(folder: Path, step: str) -> dict[str, Any]:
    """task.json of the step's newest attempt."""
    found = sorted(folder.glob(f".stoker/runs/*/{step}/*/*/task.json"))
    return dict(json.loads(found[-1].read_text()))


# ---------------------------------------------------------------------------- nodes

NODES = gang(
    """
del self.gone
here = current.parallel
assert current.is_parallel and self.index == self.input == here.node_index and self.foreach_stack() == [(self.index, here.num_nodes, self.index)]
assert os.environ["MF_PARALLEL_MAIN_IP"] == here.main_ip == "127.0.0.1"
assert os.environ["MF_PARALLEL_CONTROL_TASK_ID"] == here.control_task_id == "2"
assert os.environ["MF_PARALLEL_NUM_NODES"] == os.environ["WORLD_SIZE"] == "3" == str(here.num_nodes)
names = ["RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "GROUP_RANK", "GROUP_WORLD_SIZE", "MF_PARALLEL_NODE_INDEX"]
print(*(os.environ[one] for one in names), current.task_id, bool(os.environ["MASTER_PORT"]))
self.mine = here.node_index * 10
""",
    before="self.gone, self.kept = 1, 'k'",
    join="print([(i.mine, i.index, i.kept, hasattr(i, 'gone')) for i in inputs], current.is_parallel)",
)


def test_nodes(tmp_path: Path) -> None:
    """Each node's own artifacts reach the join in its order; variables are Metaflow's and torchrun's; logs by node."""
    play(tmp_path, NODES)
    rows = [(k * 10, k, "k", False) for k in range(3)]
    assert logs(tmp_path, "j") == [f"{rows} False\n"]
    (attempt,) = tmp_path.glob(".stoker/runs/*/train/2/1")
    for k in range(3):
        name = f"2_node_{k}" if k else "2"
        said = (attempt / f"rank-{k}" / "stdout.log").read_text()
        assert said == f"{k} 0 1 {k} {k} 3 {k} {name} True\n"
    found = run_python(tmp_path, """
        from stoker.flow import Flow, namespace
        namespace(None)
        run = Flow("F").latest_run
        train = run["train"]
        print(sorted(t.id for t in train.tasks()), train.control_task.id, [t.id for t in train.control_tasks()])
        for k, name in enumerate(["2", "2_node_1", "2_node_2"]):
            t = train[name]
            assert t.data.mine == 10 * k and t.index == k and t.data.kept == "k" and "gone" not in t, (t, t.index)
            print(t.stdout.split()[0], t.successful)
            facts = t.metadata_dict
            assert facts["parallel-world-size"] == 3 and ("internal_task_type" in facts) == (k == 0), facts
        print(list(run["j"].task.parent_task_pathspecs))
    """, name="look.py").stdout.splitlines()  # fmt: skip
    assert found[0] == "['2', '2_node_1', '2_node_2'] 2 ['2']"
    assert found[1:4] == ["0 True", "1 True", "2 True"]
    flow = (
        "import os, sys, time\nfrom stoker.flow import *\n"
        + NODES
        + "\nif __name__ == '__main__': F()\n"
    )
    shown = run_python(tmp_path, flow, "logs", found[4].split("'")[1].split("/", 1)[1], name="f.py")
    assert shown.stdout.split()[0] in "012"
    assert all(f"/train/2{k}'" in found[4] for k in ("", "_node_1", "_node_2")), found[4]


def test_one_node_and_gangs_in_a_foreach(tmp_path: Path) -> None:
    play(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        self.sizes = [1, 2]
        self.next(self.each, foreach="sizes")
    @step
    def each(self):
        self.size = self.input
        self.next(self.train, num_parallel=self.size)
    @parallel
    @step
    def train(self):
        self.said = (current.parallel.num_nodes, current.parallel.node_index, current.is_parallel, self.foreach_stack())
        self.next(self.j)
    @step
    def j(self, inputs):
        self.said = [i.said for i in inputs]
        self.next(self.all)
    @step
    def all(self, inputs):
        for i in inputs: print(i.said)
        self.next(self.end)
    @step
    def end(self):
        pass
""")  # fmt: skip
    one = [(1, 0, True, [(0, 2, 1), (0, 1, 0)])]
    two = [(2, k, True, [(1, 2, 2), (k, 2, k)]) for k in range(2)]
    assert logs(tmp_path, "all") == [f"{one}\n{two}\n"]


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("os._exit(3)", "rank 2 failed: exit status 3; 2 other ranks were ended because of it"),
        ("os.kill(os.getpid(), 9)", r"rank 2 failed: killed by signal 9 \(SIGKILL\); 2 other ranks"),
        ("raise ValueError('boom')", "ValueError: rank 2 of 3: boom; 2 other ranks were ended"),
    ],
)  # fmt: skip
def test_a_dead_node_ends_all_at_once(how: str, sentence: str, tmp_path: Path) -> None:
    step = f"if self.index == 2: {how}\ntime.sleep(600)"
    done = play(tmp_path, gang(step), ok=False)
    assert done.returncode == 1
    assert re.search(rf"train/2 failed: {sentence}", done.stderr), done.stderr
    (told,) = tmp_path.glob(".stoker/runs/*/train/2/1/gang.json")
    last = json.loads(told.read_text())["attempts"][-1]
    assert last["first"] == 2 and 0 <= last["noticed_us"] < NOTICED_US, last
    assert not results(tmp_path, "j")


def test_retry_and_catch_are_of_the_whole_gang(tmp_path: Path) -> None:
    """All nodes begin again; the last failure is caught on every node, and all go on."""
    step = """
print(current.retry_count)
self.before = current.retry_count
if current.retry_count == 0 and self.index == 1: raise ValueError("first")
if current.retry_count == 1 and self.index == 0: os._exit(3)
time.sleep(600)
"""
    decorators = "@retry(times=1, minutes_between_retries=0)\n    @catch(var='oops')\n    @parallel"
    join = "print([(i.oops.step, i.oops.type, i.oops.exception, hasattr(i, 'before')) for i in inputs])"
    play(tmp_path, gang(step, "2", decorators, join))
    (said,) = logs(tmp_path, "j")
    assert (
        said.count("('train', 'stoker.flow.exception.FailureHandledByCatch', 'rank 0 failed: ") == 2
    ), said
    assert said.count("exit status 3") == 2 and said.count("False)") == 2
    attempts = sorted(tmp_path.glob(".stoker/runs/*/train/2/*/gang.json"))
    assert len(attempts) == 3


def test_catch_keeps_what_each_node_set(tmp_path: Path) -> None:
    """After the last attempt: what failing and healthy nodes set, in the join and for the client."""
    step = """
self.tries, self.node = current.retry_count, self.index
self.large = [self.index] * 3000
if self.index == 1: raise KeyError("own words")
self.ended = True
"""
    decorators = "@retry(times=1, minutes_between_retries=0)\n    @catch(var='oops')\n    @parallel"
    join = "print([(i.tries, i.node, len(i.large), hasattr(i, 'ended'), i.oops.type, i.oops.exception) for i in inputs])"
    play(tmp_path, gang(step, "3", decorators, join))
    (said,) = logs(tmp_path, "j")
    oops = ("builtins.KeyError", "'own words'")
    assert eval(said) == [(1, n, 3000, n != 1, *oops) for n in range(3)]
    (run,) = (p.name for p in tmp_path.glob(".stoker/runs/*"))
    program = f"""
        from stoker.flow import Task, namespace
        namespace(None)
        for node in ("2", "2_node_1", "2_node_2"):
            task = Task("F/{run}/train/" + node)
            tried = [m.value for m in task.metadata if m.name == "attempt"]
            first = Task(task.pathspec, attempt=0).data
            print(task.data.tries, first.tries, first.node, len(first.large), tried, task.current_attempt)
    """
    told = run_python(tmp_path, textwrap.dedent(program)).stdout.splitlines()
    assert told == [f"1 0 {n} 3000 ['0', '1'] 1" for n in range(3)]


def test_resume_clones_a_gang(tmp_path: Path) -> None:
    body = gang(
        "self.mine = os.getpid()",
        join="print([i.mine for i in inputs]); assert os.path.exists('mended')",
    )
    program = "import os, sys, time\nfrom stoker.flow import *\n" + IMPORTS + body
    program += "\nif __name__ == '__main__': F()\n"
    done = run_python(tmp_path, program, "run", ok=False)
    assert done.returncode == 1
    (tmp_path / "mended").touch()
    run_python(tmp_path, program, "resume")
    first, second = [
        p.read_text() for p in sorted(tmp_path.glob(".stoker/runs/*/j/*/1/stdout.log"))
    ]
    assert first == second and len(set(json.loads(first))) == 3
    assert (
        len(list(tmp_path.glob(".stoker/runs/*/train/2/1/gang.json"))) == 1
    )  # of the first run only


def test_secrets_are_masked_in_what_nodes_wrote(tmp_path: Path) -> None:
    step = "print(os.environ['MY_TOKEN'])\nprint(os.environ['MY_TOKEN'], file=sys.stderr)\nself.got = os.environ['MY_TOKEN'][:0]"
    body = gang(step, "2", "@secrets(sources=['MY_TOKEN'])\n    @parallel")
    play(tmp_path, body, STOKER_SECRET_MY_TOKEN="hush-hush")
    files = [p for p in tmp_path.rglob("*") if p.is_file()]
    assert not [p for p in files if b"hush-hush" in p.read_bytes()]
    assert len([p for p in files if p.name == "stdout.log" and b"*********" in p.read_bytes()]) == 3


def test_spin_of_a_node(tmp_path: Path) -> None:
    """One process, the only node; with the variables, secrets and checkpoints that its decorators say."""
    step = """
assert current.parallel.num_nodes == 1 or os.environ["STOKER_RANK_DIR"]
current.checkpoint.save(__file__)
print(os.environ.get("A"), len(os.environ.get("MY_TOKEN", "")), current.parallel.num_nodes)
"""
    decorators = "@environment(vars={'A': 'b'})\n    @secrets(sources=['MY_TOKEN'])\n    @checkpoint\n    @parallel"
    program = (
        "import os, sys, time\nfrom stoker.flow import *\n" + IMPORTS + gang(step, "2", decorators)
    )
    program += "\nif __name__ == '__main__': F()\n"
    run_python(tmp_path, program, "run", STOKER_SECRET_MY_TOKEN="hush")
    spun = run_python(tmp_path, program, "spin", "train", STOKER_SECRET_MY_TOKEN="hush")
    assert re.search(r"^\[spin-.*/train/2 \(pid \d+\)\] b 4 1$", spun.stdout, re.M), spun.stdout
    bare = program.replace(
        "current.checkpoint.save(__file__)", "assert 'checkpoint' not in current"
    )
    spun = run_python(tmp_path, bare, "spin", "train", "--skip-decorators")
    assert re.search(r"\] None 0 1$", spun.stdout, re.M), spun.stdout


WRONG = {
    "no @parallel": (gang("pass", decorators=""), "starts 'train' by num_parallel, but 'train' has no @parallel"),
    "no num_parallel": (
        gang("pass").replace(", num_parallel=self.n", ""),
        "step 'train' is @parallel, but 'start' starts it without num_parallel",
    ),
    "none": (gang("pass", "0"), "step 'start': self.next.*: num_parallel is a number of nodes from 1 on, not 0"),
    "a text": (gang("pass", "'2'"), "num_parallel is a number of nodes from 1 on, not '2'"),
    "too many": (gang("pass", "5000"), "num_parallel is 5000; it must be between 1 and 1024"),
    "no join": (
        gang("pass").replace("def j(self, inputs)", "def j(self)"),
        "step 'j' follows the @parallel step 'train', so it must be a join",
    ),
    "nested": (
        gang("pass").replace("self.next(self.j)", "self.next(self.deep, num_parallel=2)").replace(
            "    @step\n    def j(",
            "    @parallel\n    @step\n    def deep(self):\n        self.next(self.j)\n    @step\n    def j(",
        ),
        "step 'deep' follows the @parallel step 'train', so it must be a join",
    ),
    "accelerate": (
        gang("pass", decorators="@run_with_accelerate(num_processes=2)\n    @parallel"),
        "step 'train' has both num_parallel and @run_with_accelerate",
    ),
    "port": (gang("pass", decorators="@pytorch_parallel(master_port='x')"), "master_port is 'x'; it must be"),
    "processes": (gang("pass", decorators="@torchrun(nproc_per_node=0)"), "nproc_per_node is 0; it must be"),
    "policy": (gang("pass", decorators="@checkpoint(load_policy='old')\n    @parallel"), "load_policy is 'old'; it is one of"),
    "interval": (gang("pass", decorators="@gpu_profile(interval=0)\n    @parallel"), "gpu_profile: interval"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_use_is_one_sentence(name: str, tmp_path: Path) -> None:
    body, sentence = WRONG[name]
    done = play(tmp_path, body, ok=False)
    assert done.returncode != 0 and re.search(sentence, done.stderr, re.S), done.stderr


# ---------------------------------------------------------------------------- devices

DEALT = {
    "sim:4xA100": ("@resources(gpu=2)", [{"CUDA_VISIBLE_DEVICES": f"GPU-sim-{a},GPU-sim-{a + 1}"} for a in (0, 2)]),
    "sim:4xMI300X": (
        '@kubernetes(gpu=2, gpu_vendor="amd")',
        [{"ROCR_VISIBLE_DEVICES": f"GPU-sim-{a},GPU-sim-{a + 1}", "HIP_VISIBLE_DEVICES": "0,1"} for a in (0, 2)],
    ),
    "sim:16xTrainium": (
        "@batch(trainium=8)",
        [{"NEURON_RT_VISIBLE_CORES": ",".join(map(str, range(a, a + 16))), "NEURON_RT_NUM_CORES": "16"} for a in (0, 16)],
    ),
    "sim:2xInferentia": (
        "@batch(inferentia=1)",
        [{"NEURON_RT_VISIBLE_CORES": a, "NEURON_RT_NUM_CORES": "4"} for a in ("0,1,2,3", "4,5,6,7")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("machine", DEALT)
def test_each_node_has_devices_of_its_own(machine: str, tmp_path: Path) -> None:
    decorator, seen = DEALT[machine]
    step = "self.seen = masks(); self.own = len(current._task['granted']['devices'])"
    join = "print([i.seen for i in inputs], [i.own for i in inputs])"
    play(tmp_path, gang(step, "2", f"{decorator}\n    @parallel", join), STOKER_ACCEL=machine)
    per = int(re.search(r"=(\d+)", decorator)[1])  # type: ignore[index]
    assert logs(tmp_path, "j") == [f"{seen} {[per, per]}\n"]
    assert len(task_of(tmp_path, "train")["granted"]["devices"]) == 2 * per


def test_devices_that_are_too_few(tmp_path: Path) -> None:
    """There are some: never fewer in silence. There are none: on the CPU, and a note says so."""
    body = gang("print(masks())", "2", "@resources(gpu=2)\n    @parallel")
    done = play(tmp_path, body, ok=False, STOKER_ACCEL="sim:3xA100")
    assert (
        "train/2 failed: its 2 ranks together ask for 4 devices, but this machine has 3"
        in done.stderr
    )
    assert not list(tmp_path.glob(".stoker/runs/*/train/2/*/rank-*"))
    done = play(tmp_path, body.replace("gpu=2", "gpu=8"), ok=False, STOKER_ACCEL="sim:3xA100")
    assert done.returncode == 1 and "step 'train'" in done.stderr and "8" in done.stderr, (
        done.stderr
    )
    body = gang("pass", "2", '@kubernetes(gpu=1, gpu_vendor="amd")\n    @parallel')
    done = play(tmp_path, body, ok=False, STOKER_ACCEL="sim:2xA100")
    assert "step 'train': gpu_vendor amd: this machine has 2 × NVIDIA A100" in done.stderr
    body = gang("print(masks())", "2", "@resources(gpu=2)\n    @parallel")
    done = play(tmp_path, body, STOKER_ACCEL="none")
    assert (
        "step 'train' asked for 2 GPUs: this machine has none, so it runs on the CPU (policy fit)"
        in done.stderr
    )
    assert logs(tmp_path, "train") == ["[0] {}\n[1] {}\n"] or logs(tmp_path, "train") == [
        "[1] {}\n[0] {}\n"
    ]


@pytest.fixture
def few_cpus() -> Iterator[int]:
    """Limits the test's programs to two CPUs; returns the number."""
    all_of_them = os.sched_getaffinity(0)
    few = set(sorted(all_of_them)[:2])
    os.sched_setaffinity(0, few)
    yield len(few)
    os.sched_setaffinity(0, all_of_them)


def test_a_gang_that_asks_for_more_than_there_is(tmp_path: Path, few_cpus: int) -> None:
    """Of memory and CPUs policy fit gives what there is, and says so; strict refuses."""
    cpus = few_cpus
    body = gang("pass", str(cpus + 1), "@resources(cpu=1, memory=100)\n    @parallel")
    done = play(tmp_path, body)
    said = rf"the {cpus + 1} ranks of step 'train' ask for {cpus + 1} CPUs together: this machine has .*, which they share"
    assert len(re.findall("  ! " + said, done.stderr)) == 1, done.stderr
    done = run(tmp_path, IMPORTS + body, ok=False, options={"policy": "strict"})
    assert re.search(
        rf"train/2 failed: its {cpus + 1} ranks together ask for {cpus + 1} CPUs and .*, but",
        done.stderr,
    )


def test_a_foreach_shares_the_devices(tmp_path: Path) -> None:
    """12 tasks on 4 GPUs: never two on one GPU, and all four are used."""
    play(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        self.items = list(range(12))
        self.next(self.work, foreach="items")
    @resources(gpu=1, cpu=0.05)
    @step
    def work(self):
        self.mask = masks()["CUDA_VISIBLE_DEVICES"]
        os.mkdir("in-" + self.mask)
        time.sleep(0.1)  # sleeps: for others to come meanwhile
        os.rmdir("in-" + self.mask)
        self.next(self.join)
    @step
    def join(self, inputs):
        print(sorted({i.mask for i in inputs}), len(list(inputs)))
        self.next(self.end)
    @step
    def end(self):
        pass
""", STOKER_ACCEL="sim:4xA100")  # fmt: skip
    assert logs(tmp_path, "join") == [f"{[f'GPU-sim-{k}' for k in range(4)]} 12\n"]


def test_gangs_share_the_devices(tmp_path: Path) -> None:
    """Each gets two of three at once, or waits: none holds one and waits for the other."""
    play(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        self.items = list(range(4))
        self.next(self.each, foreach="items")
    @step
    def each(self):
        self.next(self.train, num_parallel=2)
    @resources(gpu=1, cpu=0.05)
    @parallel
    @step
    def train(self):
        self.mask = masks()["CUDA_VISIBLE_DEVICES"]
        os.mkdir("in-" + self.mask)
        time.sleep(0.2)  # sleeps: for others to come meanwhile
        os.rmdir("in-" + self.mask)
        self.next(self.j)
    @step
    def j(self, inputs):
        self.n = len({i.mask for i in inputs})
        self.next(self.join)
    @step
    def join(self, inputs):
        print([i.n for i in inputs])
        self.next(self.end)
    @step
    def end(self):
        pass
""", STOKER_ACCEL="sim:3xA100")  # fmt: skip
    assert logs(tmp_path, "join") == ["[2, 2, 2, 2]\n"]


def test_gpu_profile(tmp_path: Path) -> None:
    """The curves are artifacts, of each node those of its own devices; `from stoker` is the same decorator."""
    join = (
        "print([(i.p_num_gpus, [d['device_id'] for d in i.p_data['devices']], "
        "{k: len(v['time_s']) > 0 for k, v in i.p_data['profile'].items()}) for i in inputs])"
    )
    decorators = "@stoker.gpu_profile(interval=0.02, artifact_prefix='p_')\n    @resources(gpu=1)\n    @parallel"
    # sleeps: for 25 samples, of which one is enough
    body = "import stoker\n" + gang("time.sleep(0.5)", "2", decorators, join)
    play(tmp_path, body, STOKER_ACCEL="sim:2xA100")
    rows = [(1, [f"GPU-sim-{k}"], {f"GPU-sim-{k}": True}) for k in range(2)]
    assert logs(tmp_path, "j") == [f"{rows}\n"]


# ---------------------------------------------------------------------------- processes within a node

SCRIPT = """
import os, sys, time
print("script", sys.argv[1:], *(os.environ[k] for k in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK")), flush=True)
if os.environ.get("FAIL") == os.environ["RANK"]:
    sys.exit(4)
if os.environ.get("FAIL"):
    time.sleep(600)
"""
TORCHRUN = gang(
    """
current.torch.run(entrypoint="script.py", entrypoint_args={"lr": 0.1, "flag": "", "name": "a b"})
current.torch.run(entrypoint="script.py", entrypoint_args=["x"], nproc_per_node=1)
current.torch.run({"nproc_per_node": 1, "max_restarts": 0}, "script.py")
self.done = self.index
""",
    "2",
    "@torchrun(nproc_per_node=2)",
    "print([i.done for i in inputs])",
)


def test_torchrun(tmp_path: Path) -> None:
    """The decorator's nproc_per_node counts where run() says none (in Metaflow's extension it doesn't)."""
    (tmp_path / "script.py").write_text(SCRIPT)
    play(tmp_path, TORCHRUN)
    assert logs(tmp_path, "j") == ["[0, 1]\n"]
    said = sorted(
        re.sub(r"^(\[\d\] )+", "", one) for one in logs(tmp_path, "train")[0].splitlines()
    )
    first = [
        f"script ['--lr', '0.1', '--flag', '--name', 'a b'] {r} {r % 2} 4 {r // 2}"
        for r in range(4)
    ]
    rest = [f"script {words} {r} 0 2 {r}" for words in ("['x']", "[]") for r in range(2)]
    assert said == sorted(first + rest)


def test_torchrun_that_fails_names_the_process(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = play(tmp_path, TORCHRUN, ok=False, FAIL="3")
    assert re.search(
        r"train/2 failed: .*TorchrunException: rank \d of 2: 'script.py' failed: rank 3 on node 1 .* failed: exit status 4",
        done.stderr,
    ), done.stderr
    body = TORCHRUN.replace('"x"]', '"x"], torchrun_args={"nproc_per_node": 2}')
    for given, sentence in (
        (TORCHRUN.replace("script.py", "nope.py"), "entrypoint 'nope.py' was not found in"),
        (body, "nproc_per_node is given twice, 1 and in torchrun_args 2"),
        (TORCHRUN.replace('"x"]', '"x"], push_results_dir_to_cloud=True'), "push_results_dir_to_cloud needs a datastore in a cloud"),
        (TORCHRUN.replace('["x"]', "7"), "entrypoint_args is 7; it must be a mapping or a list"),
    ):  # fmt: skip
        done = play(tmp_path, given, ok=False)
        assert sentence in done.stderr, done.stderr


DEEPSPEED = gang(
    """
current.deepspeed.run(entrypoint="script.py", entrypoint_args={"lr": 0.1, "name": "a b$c"})
current.deepspeed.run(["--num_gpus", "1", "--no_local_rank"], "script.py", ["x"])
current.deepspeed.run({"num_gpus": 1, "module": None, "num_nodes": 2}, entrypoint="script")
self.done = self.index
""",
    "2",
    "@resources(cpu=2)\n    @deepspeed",
    "print([i.done for i in inputs])",
)


def test_deepspeed(tmp_path: Path) -> None:
    """Processes as the program `deepspeed` starts them: one for each CPU asked for, without devices."""
    names = '("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")'
    script = re.sub(r'\("RANK".*?\)', names, SCRIPT)
    (tmp_path / "script.py").write_text(script)
    play(tmp_path, DEEPSPEED)
    assert logs(tmp_path, "j") == ["[0, 1]\n"]
    said = sorted(
        re.sub(r"^(\[\d\] )+", "", one) for one in logs(tmp_path, "train")[0].splitlines()
    )
    first = [
        f"script ['--local_rank={r % 2}', '--lr', '0.1', '--name', 'a b$c'] {r} {r % 2} 4 2 {r // 2} 2"
        for r in range(4)
    ]
    second = [f"script ['x'] {r} 0 2 1 {r} 2" for r in range(2)]
    third = [f"script ['--local_rank=0'] {r} 0 2 1 {r} 2" for r in range(2)]
    assert said == sorted(first + second + third)
    devices = DEEPSPEED.replace("cpu=2", "gpu=1").replace('{"num_gpus": 1, ', "{")
    (other := tmp_path / "devices").mkdir()
    for name in ("script.py", "my $HOME.py"):
        (other / name).write_text(script)
    play(other, devices.replace("script.py", "my $HOME.py"), STOKER_ACCEL="sim:2xA100")
    assert (
        "script ['--local_rank=0', '--lr', '0.1', '--name', 'a b$c'] 1 0 2 1 1 2"
        in (logs(other, "train")[0])
    )


def test_deepspeed_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = play(tmp_path, DEEPSPEED, ok=False, FAIL="3")
    assert re.search(
        r"DeepspeedException: rank \d of 2: 'script.py' failed: rank 3 on node 1 .* failed: exit status 4",
        done.stderr,
    ), done.stderr
    for given, sentence in (
        (DEEPSPEED.replace('"num_nodes": 2', '"num_nodes": 3'), "num_nodes is 3, but the step has num_parallel=2"),
        (DEEPSPEED.replace("no_local_rank", "hostfile"), "'--hostfile' isn't among the options of deepspeed"),
        (DEEPSPEED.replace("script.py", "nope.py"), "current.deepspeed.run: entrypoint 'nope.py' was not found in"),
    ):  # fmt: skip
        done = play(tmp_path, given, ok=False)
        assert sentence in done.stderr, done.stderr


def test_torchrun_on_one_node(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    play(tmp_path, """
class F(FlowSpec):
    @step
    def start(self):
        TorchrunSingleNodeMultiGPU().run(entrypoint="script.py", nproc_per_node=2)
        self.next(self.end)
    @step
    def end(self):
        pass
""")  # fmt: skip
    assert sorted(logs(tmp_path, "start")[0].splitlines()) == [
        "[0] script [] 0 0 2 0",
        "[1] script [] 1 1 2 0",
    ]


ALL_REDUCE = """
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(x)
"""


@pytest.mark.torch
def test_pytorch_parallel(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    step = (
        ALL_REDUCE
        + """
self.sum = x.item()
assert os.environ["NODE_RANK"] == str(self.index) and os.environ["NUM_NODES"] == "3"
assert os.environ["PL_TORCH_DISTRIBUTED_BACKEND"] == "gloo"
dist.destroy_process_group()
"""
    )
    play(tmp_path, gang(step, "3", "@pytorch_parallel", "print([i.sum for i in inputs])"))
    assert logs(tmp_path, "j") == ["[6.0, 6.0, 6.0]\n"]
    play(
        tmp_path,
        gang("print(os.environ['MASTER_PORT'])", "2", "@pytorch_parallel(master_port=51877)"),
    )
    assert sorted("".join(logs(tmp_path, "train")).splitlines()) == ["[0] 51877", "[1] 51877"]


@pytest.mark.torch
def test_torchrun_all_reduce(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "script.py").write_text(
        ALL_REDUCE + 'open(f"sum-{dist.get_rank()}", "w").write(str(x.item()))\n'
    )
    step = 'current.torch.run(entrypoint="script.py")'
    play(tmp_path, gang(step, "2", "@torchrun(nproc_per_node=2)"))
    assert [(tmp_path / f"sum-{k}").read_text() for k in range(4)] == ["10.0"] * 4


@pytest.mark.torch
@pytest.mark.parametrize("source", ["stoker", "stoker.flow"])
def test_run_with_accelerate(source: str, tmp_path: Path) -> None:
    """One task of two processes: what rank 0 leaves is what there is."""
    pytest.importorskip("accelerate")
    pytest.importorskip("torch")
    play(tmp_path, f"""
from {source} import run_with_accelerate
class F(FlowSpec):
    @run_with_accelerate(num_processes=2, cpu=True)
    @step
    def start(self):
        import torch
        from accelerate import Accelerator
        one = Accelerator()
        self.sum = one.reduce(torch.tensor([one.process_index + 1.0])).item()
        self.rank = one.process_index
        self.where = (one.num_processes, current.is_parallel, current.task_id)
        one.end_training()
        self.next(self.end)
    @step
    def end(self):
        print(self.sum, self.rank, self.where)
""")  # fmt: skip
    assert logs(tmp_path, "end") == ["3.0 0 (2, False, '1')\n"]


# ---------------------------------------------------------------------------- checkpoints


def test_checkpoint(tmp_path: Path) -> None:
    """A retry begins with what the attempt before saved; references are good in later steps and runs."""
    body = """
class F(FlowSpec):
    @retry(times=2, minutes_between_retries=0)
    @checkpoint
    @step
    def start(self):
        mine = current.checkpoint
        state = os.path.join(mine.directory, "epoch")
        epoch = int(open(state).read()) if mine.is_loaded else 0
        print(epoch, mine.is_loaded, mine.info and (mine.info.name, mine.info.attempt, mine.info.metadata))
        open(state, "w").write(str(epoch + 1))
        self.ref = mine.save(name="epoch", metadata={"epoch": epoch + 1})
        open("other", "w").write("o")
        mine.save("other", latest=False)
        if current.retry_count < 2: raise ValueError("again")
        print([(c["name"], c["attempt"]) for c in mine.list()], len(mine.list(name="epoch", attempt=1)))
        self.next(self.end)
    @checkpoint(load_policy="none")
    @step
    def end(self):
        assert not current.checkpoint.is_loaded
        current.checkpoint.load(self.ref)
        print(open(os.path.join(current.checkpoint.directory, "epoch")).read())
        current.checkpoint.load(self.ref["key"], path="there")
        print(os.listdir("there"), len(current.checkpoint.list(task=self.ref["pathspec"])))
"""
    play(tmp_path, body)
    said = [
        p.read_text().splitlines()
        for p in sorted(tmp_path.glob(".stoker/runs/*/start/1/*/stdout.log"))
    ]
    assert said[0] == ["0 False None"]
    assert said[1] == ["1 True ('epoch', 0, {'epoch': 1})"]
    assert said[2][0] == "2 True ('epoch', 1, {'epoch': 2})"
    names = [(name, k) for k in (2, 1, 0) for name in ("mfchckpt", "epoch")]
    assert said[2][1] == f"{names} 1"
    assert logs(tmp_path, "end") == ["3\n['epoch'] 6\n"]
    assert not list(
        tmp_path.glob(".stoker/runs/*/start/1/*/checkpoint")
    )  # the folders of the attempts
    play(tmp_path, body.replace("@checkpoint\n", '@checkpoint(load_policy="eager")\n'))
    newest = max(
        tmp_path.glob(".stoker/runs/*/spec.json"), key=lambda p: p.stat().st_mtime_ns
    ).parent
    assert (
        (newest / "start/1/1/stdout.log")
        .read_text()
        .splitlines()[0]
        .startswith("3 True ('epoch', 2,")
    )


def test_checkpoint_of_a_gang(tmp_path: Path) -> None:
    """Node 0 saves, all begin with it; it is one task's."""
    step = """
mine = current.checkpoint
epoch = int(open(mine.directory + "/epoch").read()) if mine.is_loaded else 0
print(epoch)
open(mine.directory + "/epoch", "w").write("7")
ref = mine.save()
assert (ref is None) == (self.index > 0)
if current.retry_count == 0:
    if self.index == 0: raise ValueError("again")
    time.sleep(600)
"""
    decorators = "@retry(times=1, minutes_between_retries=0)\n    @checkpoint\n    @parallel"
    play(tmp_path, gang(step, "2", decorators))
    (second,) = tmp_path.glob(".stoker/runs/*/train/2/2")
    assert [(second / f"rank-{k}/stdout.log").read_text() for k in range(2)] == ["7\n", "7\n"]
    assert os.listdir(tmp_path / ".stoker/runs" / second.parts[-4] / "train/2/checkpoints")


def test_model(tmp_path: Path) -> None:
    """Saved in one step, loaded as a folder in another and outside; never taken for a
    checkpoint."""
    play(tmp_path, """
from stoker.flow import model
class F(FlowSpec):
    @model
    @checkpoint
    @step
    def start(self):
        os.makedirs("made/deep")
        open("made/deep/weights", "w").write("w")
        self.mine = current.model.save("made", label="net", metadata={"epochs": 3})
        open("one", "w").write("1")
        self.other = current.model.save("one")
        assert current.checkpoint.list() == []
        self.next(self.end)
    @model(load=["mine", ("other", "there")])
    @step
    def end(self):
        loaded = current.model.loaded
        print(open(loaded["mine"] + "/deep/weights").read(), open("there/one").read(), sorted(loaded))
        print(loaded.info["mine"]["metadata"], loaded.info["mine"]["type"], loaded.info["other"]["name"])
        print(os.listdir(current.model.load(self.other["key"])))
""")  # fmt: skip
    assert logs(tmp_path, "end") == [
        "w 1 ['mine', 'other']\n{'epochs': 3} model F_start\n['one']\n"
    ]
    out = run_python(tmp_path, """
        from stoker.flow import Flow, namespace, load_model
        namespace(None)
        load_model(Flow("F").latest_run["end"].task.data.mine, "outside")
        print(open("outside/deep/weights").read())
    """, name="look.py")  # fmt: skip
    assert out.stdout == "w\n"
    body = """
from stoker.flow import model
class F(FlowSpec):
    @model(load="mine", best_effort_load=BEST)
    @step
    def start(self):
        print(len(current.model.loaded))
        self.next(self.end)
    @step
    def end(self):
        pass
"""
    done = play(tmp_path, body.replace("BEST", "False"), ok=False)
    assert "@model(load='mine'): no step before it sets self.mine" in done.stderr
    play(tmp_path, body.replace("BEST", "True"))


def test_spin_has_the_devices_that_its_step_asks_for(tmp_path: Path) -> None:
    """Leased for as long; a step that asks for none sees none; what isn't there is told, and what others have, too."""
    program = """
import os
from stoker.flow import *
class F(FlowSpec):
    @step
    def start(self):
        print("start sees", repr(os.environ.get("CUDA_VISIBLE_DEVICES")))
        self.next(self.end)
    @resources(gpu=2)
    @step
    def end(self):
        print("end sees", len([d for d in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if d]))
if __name__ == '__main__': F()
"""
    env = {"STOKER_ACCEL": "sim:3xA100", "STOKER_LEASE_DIR": str(tmp_path / "leases")}
    run_python(tmp_path, program, "run", **env)
    spun = run_python(tmp_path, program, "spin", "end", **env)
    assert "] end sees 2\n" in spun.stdout, spun.stdout + spun.stderr
    spun = run_python(tmp_path, program, "spin", "start", **env)
    assert re.search(r"\] start sees (''|'-1')$", spun.stdout, re.M), spun.stdout
    spun = run_python(tmp_path, program, "spin", "end", **{**env, "STOKER_ACCEL": "sim:1xA100"})
    assert (
        "step 'end' asks for 2 GPUs: this machine has 1, which it gets" in spun.stdout + spun.stderr
    )
    assert "] end sees 1\n" in spun.stdout
    spun = run_python(tmp_path, program, "spin", "end", STOKER_ACCEL="none")
    assert "asks for 2 GPUs: this machine has none, it runs on the CPU" in spun.stdout + spun.stderr
    assert "] end sees 0\n" in spun.stdout
    hold = [str(engine()), "launch", "--hold", "2", "--", "sh", "-c", "echo held; read line"]
    with subprocess.Popen(
        hold,
        env=environment(tmp_path / ".stoker", **env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        spun = run_python(tmp_path, program, "spin", "end", ok=False, **env)
        assert holder.stdin is not None
        holder.stdin.close()
    said = spun.stdout + spun.stderr
    assert "2 devices of this machine are requested, but only 1 of its 3 are free" in said, said
    assert spun.returncode == 1 and "Task failed." in spun.stdout
