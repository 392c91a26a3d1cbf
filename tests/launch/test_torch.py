"""Real PyTorch beside real torchrun and accelerate: the same options and variables, and
collectives that meet."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launch_tools import ENV, PYTHON, binary, launch, python
from test_options import ACCELERATE, DATA, TORCHRUN, options

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


# --- errors ---


def test_record(tmp_path: Path) -> None:
    """PyTorch's own account of an error reaches our file in torchrun's form."""
    script = tmp_path / "fail.py"
    script.write_text("""
import os, sys
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    sys.stderr = open(os.devnull, "w")
    raise ValueError("boom")
main()
""")
    torchrun = Path(PYTHON).with_name("torchrun")
    accounts = []
    for words in ([torchrun, "--nproc-per-node", "1"], [binary(), "launch", "-n", "1"]):
        own = tmp_path / "own.json"
        env = ENV | {"TORCHELASTIC_ERROR_FILE": str(own)}
        done = subprocess.run([*words, script], env=env, capture_output=True, text=True)
        assert done.returncode == 1 and "boom" in done.stderr
        message = json.loads(own.read_text())["message"]
        assert int(message["extraInfo"].pop("timestamp")) > 0
        accounts.append(message)
        own.unlink()
    assert accounts[0] == accounts[1]


# --- the options of both ---


def help_of(*words: str) -> str:
    env = ENV | {"COLUMNS": "100"}
    program = Path(PYTHON).with_name(words[0])
    done = subprocess.run([program, *words[1:], "--help"], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def version(package: str) -> str:
    from importlib.metadata import version

    return version(package).partition("+")[0]


def test_the_recorded_options_are_torchruns() -> None:
    """Python's versions print choices differently: the options count, not the lines."""
    if f"torchrun-{version('torch')}" != TORCHRUN:
        pytest.skip(f"this is torch {version('torch')}; the record is {TORCHRUN}")
    real = {option.words for option in options(help_of("torchrun"))}
    assert real == {option.words for option in options((DATA / f"{TORCHRUN}.txt").read_text())}


def test_the_recorded_options_are_accelerates() -> None:
    pytest.importorskip("accelerate")
    if f"accelerate-{version('accelerate')}" != ACCELERATE:
        pytest.skip(f"this is accelerate {version('accelerate')}; the record is {ACCELERATE}")
    real = {option.words for option in options(help_of("accelerate", "launch"))}
    assert real == {option.words for option in options((DATA / f"{ACCELERATE}.txt").read_text())}


# What accelerate's launcher would give its ranks, without starting them: a line of a folder and words, a line of
# variables. Each is answered by a process of its own, because accelerate changes its environment.
THEIRS = """
import json, os, sys
from accelerate.commands import launch
from accelerate.utils import launch as prepare

prepare.is_fp8_available = lambda: True

def answer(words):
    before = dict(os.environ)
    args = launch.launch_command_parser().parse_args([*words, "true"])
    args, defaults, from_file = launch._validate_launch_command(args)
    fields = list(defaults.deepspeed_config) if defaults else []
    fields += ["mixed_precision"] * from_file
    args.deepspeed_fields_from_accelerate_config = ",".join(fields)
    if args.use_deepspeed and not args.cpu:
        _, made = prepare.prepare_deepspeed_cmd_env(args)
    elif args.cpu or not (args.use_fsdp or args.use_megatron_lm or args.multi_gpu):
        _, made = prepare.prepare_simple_launcher_cmd_env(args)
    else:
        made = prepare.prepare_multi_gpu_env(args)
    return {k: v for k, v in made.items() if before.get(k) != v}

for line in sys.stdin:
    if os.fork() == 0:
        folder, *words = json.loads(line)
        os.chdir(folder)
        print(json.dumps(answer(words)), flush=True)
        os._exit(0)
    if os.wait()[1] != 0:
        print("null", flush=True)
"""
FAMILY = ("ACCELERATE_", "FSDP_", "MEGATRON_LM_", "PARALLELISM_CONFIG_", "KMP_", "CUDA_", "PYTHONP")
Ask = Callable[[Path, list[str]], dict[str, str]]
SIZES = "--parallelism_config_cp_size 2 --parallelism_config_sp_size 2"


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Asks one process for all tests of THEIRS: to import accelerate takes seconds."""
    pytest.importorskip("accelerate")
    env = ENV | {"HF_HOME": str(tmp_path_factory.mktemp("hf"))}  # no config file of this user
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([PYTHON, "-c", THEIRS], env=env, **pipes) as process:

        def one(folder: Path, words: list[str]) -> dict[str, str]:
            assert process.stdin is not None and process.stdout is not None
            print(json.dumps([str(folder), *words]), file=process.stdin, flush=True)
            answer = json.loads(process.stdout.readline())
            assert answer is not None, "its own words are in this test's stderr, or the first one's"
            return dict(answer)

        yield one


def given(prefix: str, *more: str) -> str:
    """A line with every option of a family."""
    text = (DATA / f"{ACCELERATE}.txt").read_text(encoding="utf-8")
    values = {"fp8-override-linear-precision": "true,no,1", "fp8-pad-inner-dim": "False"}
    words = [*more]
    for option in options(text):
        if option.name.startswith(prefix):
            value = values.get(option.name, option.values[-1])
            words += [option.words[0]] if value is None else [option.words[0], value]
    return " ".join(words)


@pytest.mark.parametrize(
    "line",
    [
        "--mixed_precision bf16",
        "--cpu --num_processes 2 --num_cpu_threads_per_process 3",
        "--cpu --debug --enable_cpu_affinity --mixed_precision no",
        "--multi_gpu --num_processes 2 --gpu_ids 1,0",
        given("dynamo-", "--num_processes 1"),
        "--use_fsdp --num_processes 2",
        given("fsdp-", "--use_fsdp --num_processes 2 --debug"),
        "--use_megatron_lm --num_processes 2",
        given("megatron-lm-", "--use_megatron_lm --num_processes 2"),
        "--mixed_precision fp8 --multi_gpu --num_processes 2",
        given("fp8-", "--mixed_precision fp8 --multi_gpu --num_processes 2"),
        "--use_fsdp --fsdp_version 2 --use_parallelism_config --num_processes 2",
        given("parallelism-", "--use_fsdp --fsdp_version 2 --use_parallelism_config", SIZES)
        + " --num_processes 4 "
        + SIZES,
        "--use_deepspeed --num_processes 2",
        "--use_deepspeed --num_processes 2 --zero_stage 3 --offload_optimizer_device CPU "
        "--offload_param_device nvme --gradient_accumulation_steps 4 --gradient_clipping 1 "
        "--zero3_init_flag True --zero3_save_16bit_model false --deepspeed_config_file ds.json "
        "--deepspeed_moe_layer_cls_names A,B --enable_cpu_affinity --dynamo_backend inductor",
        "--fsdp_version 2 --zero_stage 2 --num_processes 1",  # without effect: no --use_…
    ],
)
def test_variables_are_accelerates(line: str, tmp_path: Path, ask: Ask) -> None:
    compare_variables(line.split(), tmp_path, ask)


def compare_variables(words: list[str], tmp_path: Path, ask: Ask) -> None:
    theirs = {k: v for k, v in ask(tmp_path, words).items() if k.startswith(FAMILY)}
    dump = "print(__import__('json').dumps(dict(os.environ)))"
    mine = launch("--no-prefix", "--local-ranks-filter", "0", *words, *python(dump), cwd=tmp_path)
    assert mine.code == 0
    ours = {
        k: v for k, v in json.loads(mine.out).items() if k.startswith(FAMILY) and ENV.get(k) != v
    }
    assert ours == theirs
    if "--num_cpu_threads_per_process" in words:
        assert json.loads(mine.out)["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    "config",
    [
        "distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: all\nmixed_precision: fp16",
        "distributed_type: 'NO'\nnum_processes: 1\nuse_cpu: true\ndebug: true",
        "distributed_type: FSDP\nnum_processes: 2\nmixed_precision: bf16\nfsdp_config: "
        "{fsdp_version: 2, fsdp_offload_params: true, fsdp_min_num_params: 7, "
        "fsdp_state_dict_type: SHARDED_STATE_DICT, fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP}\n"
        "dynamo_config: {dynamo_backend: INDUCTOR, dynamo_mode: default, dynamo_use_dynamic: true}",
        "distributed_type: MEGATRON_LM\nnum_processes: 2\nmegatron_lm_config: "
        "{megatron_lm_tp_degree: 2, megatron_lm_gradient_clipping: 1.0, "
        "megatron_lm_sequence_parallelism: true, megatron_lm_no_load_optim: false}",
        "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config: "
        "{zero_stage: 3, gradient_accumulation_steps: 1, offload_optimizer_device: none, "
        "zero3_init_flag: true, zero3_save_16bit_model: false}",
    ],
)
def test_variables_of_a_config_file(config: str, tmp_path: Path, ask: Ask) -> None:
    (tmp_path / "config.yaml").write_text(config)
    compare_variables(["--config_file", "config.yaml"], tmp_path, ask)


def test_accelerate_computes_in_our_ranks(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    code = """
from accelerate import Accelerator
import torch
a = Accelerator()
total = a.reduce(torch.tensor([float(a.process_index + 1)]))
print(a.num_processes, a.mixed_precision, a.device.type, int(total))
a.end_training()
"""
    line = "--cpu --num_processes 2 --mixed_precision bf16"
    done = launch(*line.split(), *python(code), HF_HOME=str(tmp_path))
    assert done.code == 0, done.err
    assert sorted(done.out.splitlines()) == [f"[{k}] 2 bf16 cpu 3" for k in range(2)]
