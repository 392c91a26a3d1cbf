"""The Python blocks of ZenML's GPU pages run unchanged (tests/data/seeds)."""

from __future__ import annotations

import json

import pytest
from compat_tools import SEEDS, run_shimmed
from front_tools import needs_engine

IMAGE = "pytorch/pytorch:1.12.1-cuda11.3-cudnn8-runtime"
STEP = "scale_compute_1.py"
# Names that a block uses without importing them, as on the page.
PRELUDES = {
    "gpu_hardware_1.py": "from zenml import DockerSettings, pipeline",
    "gpu_hardware_2.py": "from zenml import DockerSettings, pipeline",
    "scale_compute_2.py": "from zenml.config import DockerSettings",
    "scale_compute_3.py": "from zenml.config import DockerSettings\nfrom zenml import pipeline",
}
REQUIREMENTS = {
    "gpu_hardware_2.py": ["zenml==0.20.5", "torchvision"],
    "scale_compute_3.py": ["zenml==0.39.1", "torchvision"],
}


def program(block: str, tail: str) -> str:
    texts = [(SEEDS / STEP).read_text(), PRELUDES[block], (SEEDS / block).read_text()]
    return "\n\n".join([*texts, "import json", tail])


def test_every_block_is_tested():
    of_accelerate = {*SEEDS.glob("train_with_gpus_*.py"), *SEEDS.glob("accelerate_*.py")}
    assert {p.name for p in {*SEEDS.glob("*.py")} - of_accelerate} == {STEP, *PRELUDES}


@pytest.mark.parametrize("block", PRELUDES)
def test_settings_reach_the_spec(tmp_path, block):
    done = run_shimmed(tmp_path, program(block, "print(json.dumps(my_pipeline.spec()))"))
    spec = json.loads(done.stdout)
    docker = {"parent_image": IMAGE}
    if block in REQUIREMENTS:
        docker["requirements"] = REQUIREMENTS[block]
    assert spec["docker"] == docker
    assert spec["steps"]["training_step"]["resources"] == {
        "cpu_count": 8,
        "gpu_count": 2,
        "memory": 8 * 10**9,
    }
    assert done.stderr == ""


@needs_engine
@pytest.mark.parametrize("block", PRELUDES)
def test_blocks_run(tmp_path, block):
    """On a machine without two GPUs the step runs without GPUs, and a line says so (policy fit)."""
    tail = (
        'if __name__ == "__main__":\n'
        "    run = my_pipeline(lr=4)\n"
        '    print(json.dumps([run.steps["training_step"].output.load(), run.notes]))\n'
    )
    done = run_shimmed(tmp_path, program(block, tail))
    value, notes = json.loads(done.stdout.strip().splitlines()[-1])
    assert value == 8.0
    said = done.stderr + done.stdout
    assert "container" in said and "docker" in said.lower(), said
    assert any("GPU" in note for note in notes), notes
