"""A gang of two nodes with real torch: DDP over gloo, each node a pod of its own."""

# ruff: noqa: F401, F811 - the fixture of test_engine
from __future__ import annotations

import json
import sys

import pytest
from cluster import Cluster
from test_engine import Project, project
from test_taken_over import show

# The program collects its garbage at the end: DDP refers to the process group in a circle, and a
# gloo thread that drops a tensor while Python's interpreter ends aborts (pytorch/pytorch#190489).
TRAIN = """
import gc
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.full((8, 4), float(dist.get_rank()))
for _ in range(3):
    optimizer.zero_grad()
    model(x).sum().backward()
    optimizer.step()
weights = [torch.zeros_like(model.module.weight) for _ in range(dist.get_world_size())]
dist.all_gather(weights, model.module.weight.detach())
assert all(torch.equal(weights[0], w) for w in weights)
print("rank", dist.get_rank(), "of", dist.get_world_size(), "node", os.environ["GROUP_RANK"], flush=True)
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), os.path.join(os.environ["STOKER_OUTPUT"], "model"))
del model, optimizer
dist.destroy_process_group()
gc.collect()
"""


def test_ddp_over_two_pods(project: Project, cluster: Cluster) -> None:
    pytest.importorskip("torch", reason="torch is not installed here")
    project.write("train.py", TRAIN)
    document = project.document(
        {
            "train": {"run": [sys.executable, "train.py"], "outputs": ["model"], "gang": {"ranks": 2, "nodes": 2}},
            "use": {"run": [sys.executable, "-c", "import os, torch; print(sorted(torch.load(os.environ['STOKER_INPUT_model'])))"], "inputs": {"model": {"from": "train.model"}}},
        }
    )  # fmt: skip
    done = project("run", document, "--with", "prod")
    assert done.returncode == 0, done.stderr
    shown = show(project)
    assert shown["steps"]["train"]["status"] == "succeeded"
    text = project("logs", "latest/train").stdout
    for rank in range(2):
        assert f"rank {rank} of 4 node 0" in text
    pods = next(name for name in cluster.history if "-train-" in name)
    assert len(list((project.folder.parent / "share").glob("runs/*/train/0/1/end*.json"))) == 2, (
        pods
    )
    assert "['bias', 'weight']" in project("logs", "latest/use").stdout
