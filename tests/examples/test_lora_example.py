"""examples/lora: killed twice in the middle and resumed, as a pipeline and as a flow, it learns what an undisturbed run
learns."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from stoker_binary import find_binary
from waiting import WAIT_S, wait_for

ROOT = Path(__file__).resolve().parents[2]
STOKER = str(find_binary())
TRAIN = [sys.executable, "examples/lora/train.py"]
pytestmark = [pytest.mark.torch, pytest.mark.slow]


class Project:
    """A copy of the example with a store of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, folder / ".stoker"
        shutil.copytree(ROOT / "examples/lora", folder / "examples/lora")
        (folder / "leases").mkdir()
        drop = ("STOKER_", "OMP_")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(drop)}
        self.env |= {"STOKER_ACCEL": "none", "STOKER_BIN": STOKER}
        self.env |= {"PYTHONPATH": str(ROOT / "python"), "STOKER_STORE": str(self.store)}
        self.env |= {"STOKER_LEASE_DIR": str(folder / "leases")}

    def begin(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def result(self, program: subprocess.Popen[str], status: int = 0) -> str:
        out, err = program.communicate(timeout=3 * WAIT_S)
        assert program.returncode == status, out + err
        return out + err

    def run(self, *words: str) -> str:
        return self.result(self.begin(*words))

    def told(self, *words: str) -> Any:
        return json.loads(self.run(STOKER, *words, "--json"))

    def files(self, pattern: str) -> list[Path]:
        return list(self.folder.glob(f".stoker/runs/*/finetune/*/{pattern}"))


class Undisturbed(NamedTuple):
    project: Project
    text: str
    loss: str


def loss_in(text: str) -> str:
    found = re.search(r"loss (\d\.\d{6})", text)
    assert found, text
    return found[1]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    pytest.importorskip("torch")
    project = Project(tmp_path_factory.mktemp("lora"))
    text = project.run(*TRAIN)
    return Undisturbed(project, text, loss_in(text))


def kill_twice(project: Project, program: subprocess.Popen[str], logs: str) -> None:
    """First one of the ranks, which is a failure of the attempt, and then the whole engine."""

    def saved(n: int) -> bool:
        names = [p.name for p in project.files(f"checkpoints/[!.]*.{'[0-9]' * 6}")]
        return any(int(name.rpartition(".")[2]) >= n for name in names)

    wait_for(lambda: saved(2), why="two checkpoints")
    (said,) = [p.read_text() for p in project.files(f"1/{logs}")]
    os.kill(int(said.split()[1].rstrip(",")), signal.SIGKILL)
    (second,) = wait_for(lambda: starts(project)[1:], why="the second attempt")
    wait_for(lambda: saved(second // 10 + 1), why="one further checkpoint")
    (run,) = project.store.glob("runs/*")
    os.kill(int((run / "lock").read_text().split()[0]), signal.SIGKILL)
    program.communicate(timeout=WAIT_S)
    assert program.returncode != 0


def starts(project: Project) -> list[int]:
    """The steps with which rank 0 of each attempt began."""
    ends = [re.search(r"begins with step (\d+)", p.read_text()) for p in
            sorted(project.files("[0-9]*/rank-0/stdout.log"))]  # fmt: skip
    return [int(found[1]) for found in ends if found]


def check_resumed(project: Project, undisturbed: Undisturbed, text: str) -> None:
    assert loss_in(text) == undisturbed.loss
    first, second, third = starts(project)
    assert 0 == first < second < third and second % 10 == third % 10 == 0
    [shown] = project.told("metrics", "latest/finetune")
    assert shown["metric"] == "loss" and shown["n"] == 100  # one curve, and no step of it twice


def test_it_learns(undisturbed: Undisturbed) -> None:
    text = undisturbed.text
    assert 0.3 < float(undisturbed.loss) < 1.5
    assert re.search(r"^please, the ", text, re.M)
    assert "rank 1 of 2 on cpu, begins with step 0" in text
    assert "asked for 2 GPUs: this machine has none" in text
    project = undisturbed.project
    page = Path(project.run(STOKER, "card", "latest").strip()).read_text()
    assert "finetune" in page and "<path" in page
    [run] = project.told("runs", "--where", "finetune.unseen<1.5")
    assert run["metrics"]["finetune.unseen"] == pytest.approx(0.7, abs=0.5)


def test_a_pipeline_killed_and_resumed(undisturbed: Undisturbed, tmp_path: Path) -> None:
    project = Project(tmp_path)
    kill_twice(project, project.begin(*TRAIN), "rank-1/stdout.log")
    check_resumed(project, undisturbed, project.run(STOKER, "resume"))


def test_a_flow_killed_and_resumed(undisturbed: Undisturbed, tmp_path: Path) -> None:
    """Both dialects learn the same."""
    project = Project(tmp_path)
    words = [sys.executable, "examples/lora/flow.py", "run", "--lrs", "[0.01]"]
    kill_twice(project, project.begin(*words), "rank-1/stdout.log")
    check_resumed(project, undisturbed, project.run(STOKER, "resume"))
    page = project.run(sys.executable, "examples/lora/flow.py", "card", "get", "choose")
    assert "Fine-tuned with LoRA" in page and "<th" in page


def test_a_sweep(undisturbed: Undisturbed) -> None:
    project = undisturbed.project
    project.run(STOKER, "run", "examples/lora/train.py:sweep", "-p", "steps=10")
    steps = project.told("show", "latest")["steps"]
    assert steps["pretrain"]["status"] == "cached"
    assert "finetune[rank=2, lr=0.003]" in {step["title"] for step in steps.values()}
    table = steps["compare"]["outputs"]["summary"]["value"].splitlines()
    losses = [float(line.split("|")[3]) for line in table[2:6]]
    assert losses == sorted(losses) and losses[0] < losses[-1]


def test_a_real_model(tmp_path: Path) -> None:
    """A GPT-2 that transformers has written, with random weights and a vocabulary of bytes."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    project = Project(tmp_path)
    home = tmp_path / "gpt2"
    letters = {c: i for i, c in enumerate(sorted(map(chr, range(32, 127))))}
    bare = tokenizers.Tokenizer(tokenizers.models.BPE(letters, []))
    transformers.PreTrainedTokenizerFast(tokenizer_object=bare).save_pretrained(home)
    config = transformers.GPT2Config(
        vocab_size=len(letters), n_positions=64, n_embd=32, n_layer=2, n_head=2
    )
    transformers.GPT2LMHeadModel(config).save_pretrained(home)
    text = project.run(STOKER, "run", TRAIN[1], "-p", f"model={home}", "-p", "steps=20")
    shown = project.told("metrics", "latest/finetune")[0]
    assert shown["n"] == 20 and shown["last"] < shown["max"], text
