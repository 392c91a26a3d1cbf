"""Real PyTorch beside real torchrun: the same variables, and collectives that meet."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from launch_tools import ENV, PYTHON, binary, launch, python

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

DUMP = """
import json, os, sys
text = json.dumps(dict(os.environ))
open(os.path.join(sys.argv[1], os.environ["RANK"]), "w").write(text)
"""


def variables(folder: Path, *words: str | Path) -> list[dict[str, str]]:
    """What each of two ranks has more than, or other than, this test's environment."""
    folder.mkdir()
    file = folder / "dump.py"
    file.write_text(DUMP)
    subprocess.run([*words, file, folder], env=ENV, check=True, capture_output=True)
    ranks: list[dict[str, Any]] = [json.loads((folder / str(k)).read_text()) for k in range(2)]
    return [{k: v for k, v in rank.items() if ENV.get(k) != v and k != "_"} for rank in ranks]


def test_variables_are_torchruns(tmp_path: Path) -> None:
    torchrun = Path(PYTHON).with_name("torchrun")
    theirs = variables(
        tmp_path / "theirs", torchrun, "--nproc-per-node", "2", "--master-port", "29577"
    )
    ours = variables(
        *(tmp_path / "ours", binary(), "launch", "-n", "2", "--port", "29578"),
        *("--log-dir", tmp_path / "logs", "--", PYTHON),
    )
    for rank in range(2):
        a, b = theirs[rank], ours[rank]
        # With it rank 0 waits for a store that torchrun's agent hosts; without an agent all hang.
        assert a.pop("TORCHELASTIC_USE_AGENT_STORE") == "True"
        # Ours on top: NODE_RANK is accelerate's; the others do what torchrun's -u does, and show where a crash was.
        assert b.pop("NODE_RANK") == "0" and b.pop("STOKER_RANK_DIR") == str(
            tmp_path / f"logs/rank-{rank}"
        )
        assert b.pop("PYTHONUNBUFFERED") == b.pop("PYTHONFAULTHANDLER") == "1"
        # PyTorch's flight recorder leaves its account with the rank's logs.
        stem = str(tmp_path / f"logs/rank-{rank}/flight-")
        assert b.pop("TORCH_FR_DUMP_TEMP_FILE") == stem
        assert b.pop("TORCH_NCCL_DEBUG_INFO_PIPE_FILE") == stem
        # A port, an id and a path of its own; threads are the host's CPUs split (torchrun: 1).
        assert (a.pop("MASTER_PORT"), b.pop("MASTER_PORT")) == ("29577", "29578")
        assert a.pop("TORCHELASTIC_RUN_ID") and b.pop("TORCHELASTIC_RUN_ID")
        assert a.pop("TORCHELASTIC_ERROR_FILE") and b.pop("TORCHELASTIC_ERROR_FILE")
        cpus = len(os.sched_getaffinity(0))
        assert a.pop("OMP_NUM_THREADS") == "1"
        assert b.pop("OMP_NUM_THREADS") == str(max(1, cpus // 2))
        assert a == b


@pytest.mark.parametrize("ranks", [2, 4])
def test_all_reduce(ranks: int) -> None:
    code = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.tensor([float(RANK + 1)])
dist.all_reduce(x)
print(dist.get_world_size(), int(x.item()))
dist.destroy_process_group()
"""
    done = launch("-n", str(ranks), *python(code))
    total = ranks * (ranks + 1) // 2
    assert done.code == 0
    assert sorted(done.out.splitlines()) == [f"[{k}] {ranks} {total}" for k in range(ranks)]


def test_a_rank_dies_in_a_collective() -> None:
    code = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if RANK == 1: os._exit(3)
dist.barrier()
time.sleep(60)
"""
    done = launch("-n", "2", *python(code))
    assert done.code == 3
    assert done.sentence == "rank 1 failed: exit status 3; 1 other rank was ended because of it"


@pytest.mark.parametrize(
    "code, left",
    [
        ("dist.all_reduce(torch.ones(1))", True),
        ("dist.distributed_c10d._get_default_store().get('x')", True),
        ("raise ValueError('mine')", False),
    ],
    ids=["reduce", "store", "its own fault"],
)
def test_rank_zero_ends_before_the_others(code: str, left: bool, tmp_path: Path) -> None:
    """Its process has the store: a rank that needs it later fails, and the sentence says why."""
    joined = tmp_path / "joined"
    text = f"""
import torch, torch.distributed as dist
dist.init_process_group("gloo")
if RANK == 0:
    while not os.path.exists({str(joined)!r}):
        time.sleep(0.01)
    os._exit(0)
open({str(joined)!r}, "w").close()
time.sleep(1)  # sleeps: rank 0 is told as ended by now
{code}
"""
    done = launch("-n", "2", "--json", *python(text))
    assert done.code == 1
    assert done.sentence.startswith("rank 1 failed: exit status 1 (")
    hint = "; rank 0 had ended before it with exit status 0, and with it what it hosts"
    assert (hint in done.sentence) == left
    # PyTorch marks the lines of a traceback by rank; the last one is what went wrong.
    words = done.sentence.partition("(")[2]
    assert words.startswith("ValueError: mine)" if not left else ("RuntimeError", "torch.dist"))
    told = done.err.partition("the end of rank 1's stderr:\n")[2]
    assert told.startswith("    Traceback") and "[rank1]" not in told
