"""Processes within a node of a flow's step: torchrun, DeepSpeed, PyTorch and accelerate."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from front_tools import needed, needs_engine
from test_flow_parallel import gang, play
from test_flow_run import logs

pytestmark = needs_engine

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
    needed("torch")
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
    needed("torch")
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
    needed("accelerate")
    needed("torch")
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
