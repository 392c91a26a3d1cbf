"""The Python blocks of ZenML's two pages on Accelerate run unchanged (tests/data/seeds), including
what they warn of."""

from __future__ import annotations

import importlib.util
import json

import pytest
from compat_tools import SEEDS, run_shimmed
from front_tools import needs_engine

HERE = all(importlib.util.find_spec(name) for name in ("torch", "accelerate"))
needs_torch = pytest.mark.skipif(not HERE, reason="PyTorch and accelerate are not installed")
CUDA = "pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime"
OLD_CUDA = "pytorch/pytorch:1.12.1-cuda11.3-cudnn8-runtime"
# Blocks in the order of the page, the pipeline, its arguments, the image, its requirements, what the step is.
PAGES = {
    "resources": (
        ["train_with_gpus_1", "train_with_gpus_2"],
        "my_gpu_pipeline(lr=1.5)",
        {"parent_image": CUDA, "requirements": ["zenml", "torchvision"]},
        {"cpu_count": 8, "gpu_count": 2, "memory": 16 * 10**9},
        None,
    ),
    "tutorial": (
        ["train_with_gpus_4"],
        "dist_pipeline(weights=[1, 2, 3, 4])",
        None,
        {"gpu_count": 4},
        {"total": 10.0, "ranks": 4, "rank": 0},
    ),
    "reference": (
        ["accelerate_1"],
        "training_pipeline(some_param=10, more=[1, 2, 3, 4])",
        None,
        {"gpu_count": 4},
        {"total": 50.0, "ranks": 4},
    ),
    "image": (
        ["accelerate_1", "accelerate_2"],
        "my_pipeline(10, [1, 2, 3, 4])",
        {"parent_image": OLD_CUDA},
        {"gpu_count": 4},
        None,
    ),
    "requirements": (
        ["accelerate_1", "accelerate_3"],
        "my_pipeline(10, [1, 2, 3, 4])",
        {"parent_image": OLD_CUDA, "requirements": ["accelerate", "torchvision"]},
        {"gpu_count": 4},
        None,
    ),
}


def block(name: str) -> str:
    return (SEEDS / f"{name}.py").read_text()


@pytest.mark.parametrize("page", PAGES)
def test_settings_reach_the_spec(tmp_path, page):
    blocks, call, docker, resources, _ = PAGES[page]
    pipeline, _, arguments = call.partition("(")
    tail = f"import json\nprint(json.dumps({pipeline}.spec({arguments}))"
    spec = json.loads(run_shimmed(tmp_path, "\n".join([*map(block, blocks), tail])).stdout)
    step = spec["steps"]["training_step"]
    if docker is not None:
        assert {k: spec["docker"][k] for k in docker} == docker
    assert step["resources"] == resources
    assert step.get("gang") == (None if page == "resources" else {"ranks": 4})


def test_settings_of_the_last_block(tmp_path):
    text = f"from zenml.config import DockerSettings\nmade = {block('train_with_gpus_5')}"
    done = run_shimmed(tmp_path, f"{text}\nprint(made.requirements)")
    assert done.stdout.strip() == "['zenml', 'accelerate', 'torchvision']"


@needs_engine
@needs_torch
@pytest.mark.torch
@pytest.mark.parametrize("page", ["tutorial", "reference"])
def test_four_ranks_run(tmp_path, page):
    """Without GPUs the requested number of ranks runs on CPUs, and a line says so (policy fit)."""
    blocks, call, _, _, wanted = PAGES[page]
    source = [block("train_with_gpus_3"), *map(block, blocks)]
    source.append(
        "import json\n"
        'if __name__ == "__main__":\n'
        f"    run = {call}\n"
        '    print(json.dumps([run.steps["training_step"].output.load(), run.notes]))\n'
    )
    done = run_shimmed(tmp_path, "\n".join(source))
    value, notes = json.loads(done.stdout.strip().splitlines()[-1])
    assert value == wanted
    assert any("asked for 4 GPUs" in note for note in notes), notes


def test_misuse_is_a_runtime_error(tmp_path):
    """ "Using it as a function inside the pipeline definition is not allowed." """
    source = """
from zenml import step, pipeline
from zenml.integrations.huggingface.steps import run_with_accelerate

@step
def training_step(some_param: int): ...

@pipeline
def training_pipeline(some_param: int):
    run_with_accelerate(training_step, num_processes=4)(some_param=some_param)

training_pipeline.spec(some_param=1)
"""
    done = run_shimmed(tmp_path, source, ok=False)
    said = done.stderr
    assert (
        "RuntimeError: `run_with_accelerate` can't be used as a function inside of a pipe" in said
    )
    assert "    @run_with_accelerate(...)\n    @step\n    def training_step" in said


@needs_torch
@pytest.mark.torch
def test_unknown_options_warn(tmp_path):
    source = """
from zenml import step, pipeline
from zenml.integrations.huggingface.steps import run_with_accelerate

@run_with_accelerate(num_processes=2, use_cpu=True)
@step
def training_step() -> int:
    return 1

@pipeline
def training_pipeline():
    training_step()

print(training_pipeline.spec()["steps"]["training_step"]["gang"])
"""
    done = run_shimmed(tmp_path, source)
    assert done.stdout.strip() == "{'ranks': 2}"
    assert "did you mean 'cpu'? It is ignored" in done.stderr
