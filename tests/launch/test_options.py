"""`stoker launch` knows every option of torchrun and of `accelerate launch`: it does what they mean,
or says what they mean and what there is instead.

tests/data/launch holds both --help texts; test_torch.py checks that they are true.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

import pytest
from launch_tools import ENV, PYTHON, Launch, binary, launch, python, shell

DATA = Path(__file__).resolve().parents[1] / "data" / "launch"
TORCHRUN, ACCELERATE = "torchrun-2.13.0", "accelerate-1.15.0"

REFUSED = {  # the word that its sentence must have
    "logs-specs": "--log-dir",
    "tpu": "torch_xla",
    "tpu-cluster": "Kubernetes",
    "tpu-use-sudo": "pod of TPUs",
    "vm": "~/.config/stoker/nodes",
    "env": "environment",
    "main-training-function": "torch_xla",
    "downcast-bf16": "XLA_DOWNCAST_BF16",
    "deepspeed-hostfile": "~/.config/stoker/nodes",
    "deepspeed-exclusion-filter": "~/.config/stoker/nodes",
    "deepspeed-inclusion-filter": "~/.config/stoker/nodes",
    "aws-access-key-id": "AWS Batch",
    "aws-secret-access-key": "AWS Batch",
    "mpirun-hostfile": "~/.config/stoker/nodes",
}
REFUSED_VALUES = {
    ("numa-binding", "node"): "--no-bind",
    ("numa-binding", "socket"): "--no-bind",
    ("numa-binding", "core-complex"): "--no-bind",
    ("rdzv-backend", "etcd-v2"): "--rdzv",
    ("event-log-handler", "console"): "gang.json",
    ("deepspeed-multinode-launcher", "pdsh"): "stoker launch",
}
VALUES = {  # where "1" is none
    "rdzv-backend": ["c10d", "static"],
    "rdzv-endpoint": ["localhost:0", "localhost:29400"],
    "rdzv-conf": ["join_timeout=5,read_timeout=3", "is_host=true", "timeout=900"],
    "nproc-per-node": ["auto", "cpu", "gpu", "xpu", "2"],
    "nnodes": ["1", "1:1"],
    "event-log-handler": ["null"],
    "monitor-interval": ["0.5", "3"],
    "tee": ["0", "3", "0:1"],
    "redirects": ["0", "2", "0:3"],
    "local-ranks-filter": ["0", "0,1"],
    "node-rank": ["0"],
    "machine-rank": ["0"],
    "master-addr": ["localhost", "127.0.0.1"],
    "main-process-ip": ["localhost"],
    "master-port": ["0"],
    "main-process-port": ["0"],
    "local-addr": ["127.0.0.1"],
    "signals-to-handle": ["SIGTERM,SIGINT,SIGUSR1"],
    "deepspeed-multinode-launcher": ["standard"],
    "config-file": ["config.yaml"],
    "fp8-override-linear-precision": ["true,false,true"],
    "fp8-pad-inner-dim": ["true", "false"],
    "fp8-enable-fsdp-float8-all-gather": ["true", "false"],
}
NEEDS = {"use-parallelism-config": ["--use-fsdp", "--fsdp-version", "2"]}
PROGRAMS = {"module": ["site"], "run-path": ["empty.py"]}


class Option(NamedTuple):
    words: tuple[str, ...]  # as the help spells it
    values: tuple[str | None, ...]

    @property
    def name(self) -> str:
        return max(self.words, key=len)[2:].replace("_", "-")


def options(text: str) -> list[Option]:
    """The options that a --help explains."""
    found = []
    for line in re.findall(r"^  (-.+)$", text, re.M):
        head = re.split(r" {2,}", line)[0]
        words = tuple(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", head))
        choices = re.search(r"\{(.*?)\}", head)
        takes = re.search(r"[A-Z{]", re.sub(r"(?<![\w-])--?[A-Za-z][\w-]*", "", head))
        name = max(words, key=len)[2:].replace("_", "-")
        if name == "help":
            continue
        if takes is None:
            found.append(Option(words, (None,)))
        elif choices is not None:
            found.append(Option(words, tuple(choices[1].split(","))))
        else:
            found.append(Option(words, tuple(VALUES.get(name, ["1"]))))
    return found


ALL = [
    pytest.param(option, id=f"{of.partition('-')[0]} {option.name}")
    for of in (TORCHRUN, ACCELERATE)
    for option in options((DATA / f"{of}.txt").read_text(encoding="utf-8"))
]


def test_the_helps_are_read_whole() -> None:
    """As many as their usage lines name."""
    for of in (TORCHRUN, ACCELERATE):
        text = (DATA / f"{of}.txt").read_text(encoding="utf-8")
        usage = text.partition("\n\n")[0]
        named = set(re.findall(r"\[(--?[\w-]+)", usage)) - {"-h"}
        explained = {word for option in options(text) for word in option.words}
        assert named <= explained and len(options(text)) == len(named)
    assert {name for name, _ in REFUSED_VALUES} | set(REFUSED) | set(VALUES) <= {
        param.values[0].name for param in ALL
    }


def spellings(option: Option) -> list[str]:
    long = [word for word in option.words if word.startswith("--")]
    twins = ["--" + word[2:].replace(a, b) for word in long for a, b in ("_-", "-_")]
    return list(dict.fromkeys([*option.words, *twins]))


@pytest.mark.parametrize("option", ALL)
def test_every_option(option: Option, tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "config.yaml").write_text("distributed_type: 'NO'\nnum_processes: 1\n")
    program = PROGRAMS.get(option.name, ["true"])
    needs = NEEDS.get(option.name, [])
    for word in spellings(option):
        for value in option.values:
            words = [word] if value is None else [word, value]
            done = launch(*words, *needs, "--", *program, cwd=tmp_path, TMPDIR=str(tmp_path))
            hint = REFUSED.get(option.name) or REFUSED_VALUES.get((option.name, value or ""))
            if hint is None:
                assert done.code == 0, words
            else:
                assert done.code == 2 and f"--{option.name}" in done.err, words
                assert "has no meaning here: " in done.err and hint in done.err, words


@pytest.mark.parametrize(("name", "value"), REFUSED_VALUES)
def test_values_without_meaning(name: str, value: str) -> None:
    done = launch(f"--{name}", value, *shell("exit 0"))
    assert done.code == 2 and f"--{name} {value} has no meaning here: " in done.err
    assert REFUSED_VALUES[name, value] in done.err


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("--mixed_precision fp15", "fp15"),
        ("--dynamo_mode fast", "fast"),
        ("--zero_stage two --use_deepspeed", "two"),
        ("--gradient_clipping x --use_deepspeed", "x"),
        ("--fp8_pad_inner_dim perhaps", "perhaps"),
        ("--fp8_override_linear_precision true,false", "true,false"),
        ("--monitor_interval often", "often"),
        ("--cpu --multi_gpu", "--multi-gpu"),
        ("--multi_gpu --num_processes 1", "--multi-gpu"),
        ("--use_parallelism_config", "--fsdp-version 2"),
        ("--num_processes 3 --num_machines 2", "--num-processes 3"),
        ("--num_processes 2 -n 2", "--num-processes"),
        ("--no_python -m", "--no-python"),
        ("-t 4", "-t, --tee: '4'"),
        ("-r 0:3,x", "-r, --redirects: '0:3,x'"),
        ("-r 1:3", "local rank 1"),
        ("--local-ranks-filter a", "'a'"),
        ("--signals-to-handle SIGKILL", "'SIGKILL'"),
        ("--signals-to-handle TERM", "'TERM'"),
        ("--rdzv-conf colour=red", "join_timeout"),
        ("--rdzv-conf join_timeout=soon", "'soon'"),
        ("--rdzv-conf join_timeout", "KEY=VALUE"),
        ("--nnodes 1:2", "--rdzv HOST:PORT"),
        ("--nnodes 2:1", "'2:1'"),
        ("--nnodes 2 --node-rank 1", "--rdzv HOST:PORT"),
    ],
)
def test_wrong_values_are_named(words: str, named: str) -> None:
    done = launch(*words.split(), *shell("exit 0"))
    assert done.code == 2 and done.out == "" and named in done.err


# --- how many, and what runs ---


def test_how_many(tmp_path: Path) -> None:
    count = shell("echo $WORLD_SIZE")
    assert launch(*count).out == "[0] 1\n"
    cpus = sorted(launch("--nproc-per-node", "cpu", *count).out.splitlines())
    assert cpus == sorted(launch("--nproc-per-node", "auto", *count).out.splitlines())
    assert cpus[0] == f"[0] {len(cpus)}"
    devices = [{"uuid": f"GPU-{k}", "memory_gb": 8} for k in range(3)]
    (tmp_path / "devices.json").write_text(json.dumps({"devices": devices}))
    fake = {"STOKER_ACCEL": f"fake:{tmp_path / 'devices.json'}"}
    for word in ("auto", "gpu"):
        assert len(launch("--nproc_per_node", word, *count, **fake).out.splitlines()) == 3
    assert len(launch("--multi_gpu", *count, **fake).out.splitlines()) == 3
    assert len(launch("--multi_gpu", "--num_processes", "2", *count, **fake).out.splitlines()) == 2


def test_who_runs_a_file(tmp_path: Path) -> None:
    script = tmp_path / "show.py"
    script.write_text("#!/bin/sh\nexec echo sh $0\n")
    script.chmod(0o755)
    assert launch(script).out == f"[0] sh {script}\n"
    script.write_text("import sys; print('python', sys.argv[1:], sys.path[0] == sys.argv[-1])")
    folder = str(tmp_path)
    assert launch(script, folder).out == f"[0] python [{folder!r}] True\n"
    assert launch("--run-path", script, folder).out == f"[0] python [{folder!r}] False\n"
    bare = launch("--no-python", script)  # a shell reads what names no interpreter
    assert bare.code != 0 and "Syntax error" in bare.err


# --- variables, devices, signals ---


def test_role_and_run_id() -> None:
    show = shell("echo $ROLE_NAME $TORCHELASTIC_RUN_ID $TORCHELASTIC_SIGNALS_TO_HANDLE")
    words = ("--role", "trainer", "--rdzv_id", "run7", "--signals-to-handle", "SIGTERM,SIGUSR1")
    assert launch(*words, *show).out == "[0] trainer run7 SIGTERM,SIGUSR1\n"


def test_virtual_local_rank() -> None:
    show = shell("echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES")
    some = launch("-n", "2", "--virtual-local-rank", *show, CUDA_VISIBLE_DEVICES="4,7")
    assert sorted(some.out.splitlines()) == ["[0] 0 0 4", "[1] 1 0 7"]
    free = launch("-n", "2", "--virtual_local_rank", *show)
    assert sorted(free.out.splitlines()) == ["[0] 0 0 0", "[1] 1 0 1"]
    few = launch("-n", "2", "--virtual-local-rank", *show, CUDA_VISIBLE_DEVICES="4")
    assert few.code != 0 and "local rank 1 has no device" in few.err and few.out == ""


def test_gpu_ids() -> None:
    show = shell("echo $CUDA_VISIBLE_DEVICES")
    assert launch("--gpu_ids", "1,3", "--num_processes", "1", *show).out == "[0] 1,3\n"
    assert launch("--gpu_ids", "all", "--num_processes", "1", *show).out == "[0] \n"


def test_signals_that_end_the_ranks() -> None:
    words = ("--signals-to-handle", "SIGTERM,SIGUSR1")
    code = (
        "signal.signal(10, lambda *_: (print('ended'), sys.exit(0)))\nprint('up')\ntime.sleep(3000)"
    )
    p = subprocess.Popen(
        [binary(), "launch", *words, *python(code)], env=ENV, stdout=subprocess.PIPE, text=True
    )
    assert p.stdout is not None and p.stdout.readline() == "[0] up\n"
    p.send_signal(10)
    assert p.communicate(timeout=120)[0] == "[0] ended\n" and p.returncode == 0


# --- where output goes ---

BOTH = shell("echo out $RANK; echo err $RANK >&2")


def logs(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.log"))
    }


@pytest.mark.parametrize(
    ("words", "out", "err", "files"),
    [
        ("", [0, 1], [0, 1], ["0/stderr", "0/stdout", "1/stderr", "1/stdout"]),
        ("-r 3", [], [], ["0/stderr", "0/stdout", "1/stderr", "1/stdout"]),
        ("-t 3", [0, 1], [0, 1], ["0/stderr", "0/stdout", "1/stderr", "1/stdout"]),
        ("--redirects 1", [], [0, 1], ["0/stdout", "1/stdout"]),
        ("--redirects 0:3,1:2", [1], [], ["0/stderr", "0/stdout", "1/stderr"]),
        ("--tee 2", [0, 1], [0, 1], ["0/stderr", "1/stderr"]),
        ("-r 3 -t 0:1", [0], [], ["0/stderr", "0/stdout", "1/stderr", "1/stdout"]),
        ("--local-ranks-filter 1", [1], [1], ["0/stderr", "0/stdout", "1/stderr", "1/stdout"]),
        ("--local_ranks_filter=0 --redirects 2", [0], [], ["0/stderr", "1/stderr"]),
        ("-r 0", [0, 1], [0, 1], []),
    ],
)
def test_tee_redirects_and_filter(
    words: str, out: list[int], err: list[int], files: list[str], tmp_path: Path
) -> None:
    done = launch("-n", "2", "--log-dir", tmp_path, *words.split(), *BOTH)
    assert sorted(done.out.splitlines()) == [f"[{k}] out {k}" for k in out]
    assert sorted(done.err.splitlines()) == [f"[{k}] err {k}" for k in err]
    kept = logs(tmp_path)
    assert list(kept) == [f"rank-{name}.log" for name in files]
    for name, text in kept.items():
        assert text == f"{'err' if 'stderr' in name else 'out'} {name[5]}\n"


def test_logs_without_a_folder(tmp_path: Path) -> None:
    done = launch("-n", "2", "-t", "1", *BOTH, TMPDIR=str(tmp_path))
    (folder,) = tmp_path.glob("stoker-launch-*")
    assert f"the ranks' logs are in {folder}" in done.err
    assert list(logs(folder)) == ["rank-0/stdout.log", "rank-1/stdout.log"]


def test_a_failure_is_told_though_stderr_is_redirected(tmp_path: Path) -> None:
    done = launch("-r", "3", "--log-dir", tmp_path, *python("raise ValueError('boom')"))
    assert done.code == 1 and done.out == "" and "(ValueError: boom)" in done.sentence


def test_duplicate_filters(tmp_path: Path) -> None:
    code = "print('an apple'); print('a, b'); print('pear'); print('orange', file=sys.stderr)"
    words = ("--duplicate-stdout-filters", "apple,a,, b", "--duplicate_stderr_filters", "or")
    done = launch("--log-dir", tmp_path, *words, *python(code))
    assert done.out.count("\n") == 3
    assert (tmp_path / "filtered_stdout.log").read_text() == "[0] an apple\n[0] a, b\n"
    assert (tmp_path / "filtered_stderr.log").read_text() == "[0] orange\n"


# --- several nodes by the standard line ---


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("", 0))
        port: int = held.getsockname()[1]
    return port


def together(lines: list[list[str]]) -> list[Launch]:
    """Launchers at once; how each ended."""
    done: list[Launch | None] = [None] * len(lines)

    def run(i: int) -> None:
        done[i] = launch(*lines[i])

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(lines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [one for one in done if one is not None]


def test_the_standard_line_of_several_nodes() -> None:
    """The same words on each node; nobody says which it is."""
    words = "--nnodes=3 --nproc_per_node=2 --rdzv_id=100 --rdzv_backend=c10d --rdzv_endpoint"
    show = shell("echo $RANK $WORLD_SIZE $NODE_RANK $GROUP_WORLD_SIZE $TORCHELASTIC_RUN_ID")
    line = [*words.split(), f"localhost:{free_port()}", *show]
    done = together([line] * 3)
    assert [one.code for one in done] == [0, 0, 0] and [one.err for one in done] == [""] * 3
    seen = sorted(out for one in done for out in one.out.splitlines())
    assert seen == [f"[{rank}] {rank} 6 {rank // 2} 3 100" for rank in range(6)]


def test_is_host_and_local_addr() -> None:
    port = free_port()
    show = shell("echo $NODE_RANK $MASTER_ADDR")

    def line(is_host: str, addr: str) -> list[str]:
        conf = f"is_host={is_host},join_timeout=60"
        words = ["--nnodes", "2", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf", conf]
        return [*words, "--local-addr", addr, *show]

    done = together([line("false", "127.0.0.2"), line("true", "127.0.0.3")])
    assert [one.out for one in done] == ["[1] 1 127.0.0.3\n", "[0] 0 127.0.0.3\n"]


def test_join_timeout() -> None:
    words = ["--nnodes", "2", "--rdzv-endpoint", f"localhost:{free_port()}"]
    done = launch(*words, "--rdzv-conf", "join_timeout=1", *shell("echo never"))
    assert done.code == 3 and done.out == "" and "node 1 is missing" in done.err


def test_accelerates_line_of_several_nodes() -> None:
    port = free_port()
    words = "--num_machines 2 --num_processes 4 --main_process_ip localhost --same_network"
    show = shell("echo $RANK $WORLD_SIZE $MASTER_PORT $ACCELERATE_MIXED_PRECISION")
    line = [*words.split(), "--main_process_port", str(port), "--mixed_precision", "bf16"]
    done = together([[*line, "--machine_rank", str(k), *show] for k in range(2)])
    seen = sorted(out for one in done for out in one.out.splitlines())
    assert seen == [f"[{rank}] {rank} 4 {port} bf16" for rank in range(4)]


# --- accelerate's variables (test_torch.py compares them with accelerate's own) ---


def test_accelerates_variables() -> None:
    show = python("print(*sorted(k for k in os.environ if k.startswith(('ACCELERATE', 'FSDP'))))")
    assert launch(*show).out == "[0] \n"
    fsdp = launch("--use_fsdp", *show)
    assert "FSDP_SHARDING_STRATEGY" in fsdp.out and "ACCELERATE_USE_FSDP" in fsdp.out
    assert "ACCELERATE_USE_CPU" not in fsdp.out
    threads = launch("--num_cpu_threads_per_process", "3", *shell("echo $OMP_NUM_THREADS"))
    assert threads.out == "[0] 3\n"


CONFIG = """
compute_environment: LOCAL_MACHINE
debug: false
distributed_type: FSDP
downcast_bf16: 'no'
enable_cpu_affinity: false
fsdp_config:
  fsdp_sharding_strategy: SHARD_GRAD_OP
  offload_params: true
gpu_ids: null
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 2
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""


def test_a_config_file(tmp_path: Path) -> None:
    """As `accelerate config` writes it; the command line wins."""
    file = tmp_path / "config.yaml"
    file.write_text(CONFIG)
    show = shell(
        "echo $WORLD_SIZE $ACCELERATE_USE_FSDP $FSDP_SHARDING_STRATEGY $FSDP_OFFLOAD_PARAMS "
        "$ACCELERATE_MIXED_PRECISION"
    )
    both = launch("--no-prefix", "--config_file", file, *show)
    assert both.out == "2 true SHARD_GRAD_OP true bf16\n" * 2
    words = ["--mixed_precision", "fp16", "-n", "1", "--fsdp_offload_params", "false"]
    mine = launch("--no-prefix", *words, "--config_file", file, *show)
    assert mine.out == "1 true SHARD_GRAD_OP false fp16\n"


@pytest.mark.parametrize(
    ("text", "line", "named"),
    [
        ("num_proceses: 2", 1, "'num_proceses'"),
        ("num_processes: 2\nfsdp_config: {colour: red}", 2, "'colour'"),
        ("num_processes: [2]", 1, "'num_processes'"),
        ("compute_environment: AMAZON_SAGEMAKER", 1, "'compute_environment'"),
        ("distributed_type: XLA", 0, "torch_xla"),
        ("distributed_type: OTHER", 0, "'OTHER'"),
        ("mpirun_config: {mpirun_hostfile: hosts}", 0, "~/.config/stoker/nodes"),
        ("tpu_use_cluster: true", 0, "pod of TPUs"),
        ("num_processes: many", 0, "'many'"),
    ],
)
def test_a_wrong_config_file(text: str, line: int, named: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    done = launch("--config_file", file, *shell("exit 0"))
    assert done.code == 2 and named in done.err
    assert line == 0 or f"{file}:{line}: " in done.err


def test_python_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "who.py").write_text("import sys; print(sys.executable)")
    venv = {"PATH": f"{Path(PYTHON).parent}:/usr/bin:/bin"}
    assert launch("who.py", cwd=tmp_path, **venv).out == f"[0] {PYTHON}\n"
