"""``@run_with_accelerate`` beside the real accelerate: the environment, the ranks' communication, the parser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from front_tools import PACKAGE, ROOT, WAIT_S, engine, needed, needs_engine, run_python
from front_tools import (
    environment as front_environment,
)
from play_engine import make_attempt, result_of
from ports import free_port
from waiting import wait_for

needed("accelerate")
needed("torch")
pytestmark = [pytest.mark.torch, needs_engine]

GPU = {"vendor": "nvidia", "index": 0, "uuid": "GPU-1", "model": "H100"}
FSDP = {"use_fsdp": True, "fsdp_offload_params": "true", "fsdp_auto_wrap_policy": "SIZE_BASED_WRAP"}
CONFIG = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_machines: 1
num_processes: 2
use_cpu: false
fsdp_config:
  fsdp_sharding_strategy: SHARD_GRAD_OP
  fsdp_cpu_ram_efficient_loading: false
dynamo_config:
  dynamo_backend: INDUCTOR
"""
GROUPS: dict[str, dict[str, Any]] = {
    "cpu": {"cpu": True, "mixed_precision": "bf16", "num_cpu_threads_per_process": 3},
    "multi_gpu": {"multi_gpu": True, "debug": True, "enable_cpu_affinity": True},
    "gpu_ids": {"multi_gpu": True, "gpu_ids": "1,0", "mixed_precision": "fp16"},
    "dynamo": {"multi_gpu": True, "dynamo_backend": "inductor", "dynamo_use_fullgraph": True},
    "fsdp": {**FSDP, "fsdp_version": "1", "fsdp_sharding_strategy": "SHARD_GRAD_OP"},
    "fsdp 2": {**FSDP, "fsdp_version": "2", "use_parallelism_config": True},
    "megatron": {"use_megatron_lm": True, "megatron_lm_tp_degree": 2},
    "deepspeed": {"use_deepspeed": True, "zero_stage": 3, "gradient_clipping": 0.5},
    "config file": {"config_file": "config.yaml"},
}
# torchrun's own, and what differs between any two processes.
OTHERS = ("TORCH", "MASTER_", "ROLE_", "GROUP_", "LOCAL_", "STOKER_", "PYTHON", "PYTEST_")
THREADS = {"MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS"}  # as OMP's
ALSO = {
    *THREADS,
    "RANK",
    "WORLD_SIZE",
    "NODE_RANK",
    "_",
    "PWD",
    "SHLVL",
    "TORCHELASTIC_USE_AGENT_STORE",
}


def environment(folder: Path, **more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELERATE_", "STOKER_"))}
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join([str(PACKAGE), str(folder)]),
        "HF_HOME": str(folder / "hf"),
        "CUDA_VISIBLE_DEVICES": "0,1",
        "OMP_NUM_THREADS": "1",
        "STOKER_ALLOW_CPU_BUILD": "1",
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # what importing stoker sets
        "STOKER_BIN": str(engine()),
        **more,
    }


def of_accelerate(said: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in said.items() if not k.startswith(OTHERS) and k not in ALSO}


def deepspeed_in(folder: Path) -> None:
    """As far as accelerate's launcher looks at it: it is installed, and where its hosts' variables would go."""
    (folder / "deepspeed/launcher").mkdir(parents=True)
    (folder / "deepspeed/__init__.py").touch()
    (folder / "deepspeed/launcher/__init__.py").touch()
    (folder / "deepspeed/launcher/runner.py").write_text("DEEPSPEED_ENVIRONMENT_NAME = 'x'\n")
    (folder / "deepspeed-0.99.0.dist-info").mkdir()
    (folder / "deepspeed-0.99.0.dist-info/METADATA").write_text("Name: deepspeed\nVersion: 0.99.0")


# `accelerate launch` for each line of a folder, its variables and words, in a process of its own; then its exit status
# is in the file `ended`.
LAUNCHER = """
import json, os, signal, sys, traceback
from accelerate.commands import launch

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    if os.fork() == 0:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        folder, env, sys.argv = json.loads(line)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        log = os.open("log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        status = 1
        try:
            launch.main()
            status = 0
        except SystemExit as end:
            status = end.code or 0
        except BaseException:
            traceback.print_exc()
        with open("ended", "w") as file:
            print(status, file=file)
        os._exit(0)
"""
Launcher = Callable[[Path, dict[str, Any], int], dict[str, str]]


@pytest.fixture(scope="module")
def by_accelerate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Variables of a rank of the real accelerate, whose import takes seconds: one process does it for all."""
    home = tmp_path_factory.mktemp("accelerate")
    deepspeed_in(home)
    words = [sys.executable, "-c", LAUNCHER]
    pipes: Any = {"stdin": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=home, env=environment(home), **pipes) as process:

        def launch(folder: Path, options: dict[str, Any], rank: int) -> dict[str, str]:
            (folder / "script.py").write_text(
                "import json, os\n"
                "path = 'env-' + os.environ.get('RANK', '0') + '.json'\n"
                "json.dump(dict(os.environ), open(path, 'w'))\n"
            )
            words = ["launch"]
            for name, value in {"num_processes": 2, "main_process_port": 0, **options}.items():
                words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
            line = json.dumps([str(folder), environment(folder), [*words, "script.py"]])
            assert process.stdin is not None
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            ended = folder / "ended"
            wait_for(lambda: ended.exists() and ended.read_text().endswith("\n"))
            assert ended.read_text() == "0\n", (folder / "log").read_text()
            name = f"env-{rank}.json" if (folder / f"env-{rank}.json").exists() else "env-0.json"
            said: dict[str, str] = json.loads((folder / name).read_text())
            return said

        yield launch


def run_gang(
    folder: Path,
    program: str,
    decorator: str,
    ranks: int = 2,
    granted: Any = (),
    more: Any = (),
    nodes: int = 1,
    **task: Any,
) -> Path:
    """A step ``prog.train`` on ranks, by a worker that gets only its attempt directory (and the variables `more`)."""
    head = "from stoker import *\nfrom typing import Any\nimport os\n"
    (folder / "prog.py").write_text(f"{head}{decorator}\n{textwrap.dedent(program)}")
    directory = make_attempt(
        folder,
        "train",
        entry="prog:train",
        gang={"ranks": ranks, "restarts": 0, "nodes": nodes},
        granted={"devices": list(granted)},
        outputs=["output"],
        **task,
    )
    with open(directory / "log", "w") as log:
        subprocess.run(
            [sys.executable, "-m", "stoker._worker", str(directory)],
            cwd=folder,
            env=environment(folder, **dict(more)),
            stdout=log,
            stderr=log,
            timeout=WAIT_S,
        )
    return directory


def output_of(directory: Path) -> Any:
    from stoker.materializers import _artifact

    result = result_of(directory)
    assert result["status"] == "ok", (directory / "log").read_text()
    entry = result["outputs"]["output"]
    if "path" in entry:
        entry["path"] = str(directory / entry["path"])
    return _artifact.load(entry)


@pytest.mark.parametrize("group", GROUPS)
def test_environment_is_accelerates_own(
    tmp_path: Path, group: str, by_accelerate: Launcher
) -> None:
    options = GROUPS[group]
    deepspeed_in(tmp_path)
    (tmp_path / "config.yaml").write_text(CONFIG)
    real = by_accelerate(tmp_path, options, 0)
    program = """
    @step
    def train() -> Any:
        return dict(os.environ)
    """
    granted = [] if options.get("cpu") else [GPU, GPU]
    directory = run_gang(
        tmp_path, program, f"@run_with_accelerate(num_processes=2, **{options!r})", granted=granted
    )
    ours, theirs = of_accelerate(output_of(directory)), of_accelerate(real)
    assert len([name for name in theirs if name.startswith("ACCELERATE_")]) > 3
    assert ours == theirs


NODE_GROUPS = ("cpu", "multi_gpu", "fsdp", "megatron", "deepspeed")


@pytest.mark.parametrize("group", NODE_GROUPS)
def test_environment_on_two_machines_is_accelerates_own(
    tmp_path: Path, group: str, by_accelerate: Launcher
) -> None:
    """Both machines are this one: real ``accelerate launch --num_machines 2 --machine_rank K`` beside Stoker's nodes."""
    options = GROUPS[group]
    if group == "deepspeed":
        options = {**options, "deepspeed_multinode_launcher": "standard"}
    folders = [tmp_path / str(k) for k in (0, 1)]
    for folder in folders:
        folder.mkdir()
        deepspeed_in(folder)
    place = {"main_process_ip": "127.0.0.1", "main_process_port": free_port(), "num_machines": 2}
    program = """
    @step
    def train() -> Any:
        import json
        with open(f"ours-{os.environ['RANK']}.json", "w") as stream:
            json.dump(dict(os.environ), stream)
        return 1
    """
    granted = [] if options.get("cpu") else [GPU, GPU]
    decorator = f"@run_with_accelerate(num_processes=4, num_machines=2, **{options!r})"
    rdzv = f"127.0.0.1:{free_port()}"

    def theirs(k: int) -> dict[str, str]:
        more = {**place, "num_processes": 4, "machine_rank": k}
        return of_accelerate(by_accelerate(folders[k], {**options, **more}, 2 * k))

    def ours(k: int) -> dict[str, str]:
        node = {"STOKER_GANG_NODE": str(k), "STOKER_GANG_RDZV": rdzv, "STOKER_GANG_KEY": "x"}
        directory = run_gang(folders[k], program, decorator, 2, granted, node, 2)
        assert "Traceback" not in (log := (directory / "log").read_text()), log
        return of_accelerate(json.loads((folders[k] / f"ours-{2 * k}.json").read_text()))

    with ThreadPoolExecutor(2) as pool:
        real = list(pool.map(theirs, (0, 1)))
        made = list(pool.map(ours, (0, 1)))
    for k in (0, 1):
        assert len([name for name in real[k] if name.startswith("ACCELERATE_")]) > 3
        assert made[k].pop("GLOO_SOCKET_IFNAME") == "lo"  # ours alone: the way to the other node
        assert made[k] == real[k]


def test_default_config_file_never_counts(tmp_path: Path) -> None:
    (tmp_path / "hf/accelerate").mkdir(parents=True)
    (tmp_path / "hf/accelerate/default_config.yaml").write_text(CONFIG)
    program = "from stoker._definition.accelerate import environment\nprint(environment({}, 2, 2))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    assert "'ACCELERATE_MIXED_PRECISION': 'no'" in done.stdout
    assert "FSDP" not in done.stdout


@pytest.mark.parametrize(
    "options", ["cpu=True", "multi_gpu=True", "use_fsdp=True, mixed_precision='fp16'", ""]
)
def test_ranks_find_each_other_on_cpus(tmp_path: Path, options: str) -> None:
    """Without devices every way of accelerate's runs on CPUs, by gloo: as many ranks as were asked."""
    program = """
    @step
    def train(data: Any) -> Any:
        import torch
        from accelerate import Accelerator
        accelerator = Accelerator()
        mine = torch.tensor(data["weights"][accelerator.process_index])
        total = accelerator.reduce(mine, "sum").item()
        log_metadata({"total": total, "rank": accelerator.process_index})
        kind = torch.distributed.get_backend()
        return [total, accelerator.num_processes, kind, accelerator.device.type]
    """
    inputs = {"data": {"value": {"weights": [1.5, 2.5]}}}
    directory = run_gang(
        tmp_path, program, f"@run_with_accelerate(num_processes=2, {options})", inputs=inputs
    )
    assert output_of(directory) == [4.0, 2, "gloo", "cpu"]
    assert result_of(directory)["metadata"] == {"total": 4.0, "rank": 0}


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ("use_fsdp=True", "use_fsdp"),
        ("config_file='config.yaml'", "distributed_type FSDP of the config file"),
        ("config_file='config.yaml', cpu=True", "distributed_type FSDP of the config file"),
        ("multi_gpu=True", None),
        ("cpu=True", None),
    ],
)
def test_sharding_without_devices_is_told(tmp_path: Path, options: str, asked: str | None) -> None:
    """Accelerate has none on CPUs: the model is whole on each rank, which the log and the run say."""
    (tmp_path / "config.yaml").write_text(CONFIG.split("dynamo_config")[0])
    program = """
    @step
    def train() -> Any:
        import torch
        from accelerate import Accelerator
        model = torch.nn.Linear(2, 2)
        made, _ = Accelerator().prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
        return type(made).__name__
    """
    options = options.replace("config.yaml", str(tmp_path / "config.yaml"))
    if "cpu" in options:  # fresh interpreters instead of forks
        wait = "threading.Thread(target=threading.Event().wait, daemon=True).start()"
        program = textwrap.dedent(program) + f"import threading\n{wait}\n"
    decorator = f"@run_with_accelerate(num_processes=2, {options})"
    directory = run_gang(tmp_path, program, decorator)
    assert output_of(directory) == "DistributedDataParallel"
    said = f"run_with_accelerate: {asked} needs devices, and this step has none"
    warnings = result_of(directory).get("warnings", [])
    assert [one.split(":")[0] for one in warnings] == (["run_with_accelerate"] if asked else [])
    assert all(said in one for one in warnings)
    assert ((directory / "log").read_text().count(said) == 1) == bool(asked)


def test_failing_rank_ends_a_collective(tmp_path: Path) -> None:
    program = """
    @step
    def train() -> Any:
        import torch
        torch.distributed.init_process_group("gloo")
        if torch.distributed.get_rank() == 1:
            raise ValueError("bad shard")
        torch.distributed.all_reduce(torch.ones(1))
    """
    directory = run_gang(tmp_path, program, "@torchrun(nproc_per_node=2)")
    error = result_of(directory)["error"]
    assert error["type"] == "ValueError"
    assert error["message"].startswith("rank 1 of 2: bad shard")
    assert "rank 1" in json.loads((directory / "gang.json").read_text())["text"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("num_proceses=2", "no option 'num_proceses'; did you mean 'num_processes'?"),
        ("use_cpu=True", "no option 'use_cpu'; did you mean 'cpu'?"),
        ("mixed_precision='bf61'", "takes no, fp16, bf16, fp8; did you mean 'bf16'?"),
        ("cpu=True, use_fsdp=True", "options 'cpu' and 'use_fsdp' exclude each other"),
        ("cpu='yes'", "option 'cpu' is 'yes', but accelerate takes True or False"),
        ("num_cpu_threads_per_process=1.5", "but accelerate takes an int"),
        ("zero_stage=True", "but accelerate takes an int"),
        ("module=True", "has no meaning here"),
    ],
)
def test_options_are_checked_by_the_parser(tmp_path: Path, options: str, words: str) -> None:
    program = f"""
    from stoker import pipeline, run_with_accelerate, step
    @run_with_accelerate({options})
    @step
    def train() -> None: ...
    @pipeline
    def one():
        train()
    one.spec()
    """
    done = run_python(tmp_path, program, ok=False)
    assert done.returncode != 0
    assert "prog.py:9: step 'train': run_with_accelerate: " in done.stderr
    assert words in done.stderr


def test_accelerates_own_refusals_are_the_steps_error(tmp_path: Path) -> None:
    program = """
    @step
    def train() -> Any: ...
    """
    decorator = "@run_with_accelerate(num_processes=2, multi_gpu=True, use_fsdp=True)"
    directory = run_gang(tmp_path, program, decorator, granted=[GPU, GPU])
    assert "You can only use one of" in result_of(directory)["error"]["message"]
    assert not (directory / "gang.json").exists()


def test_missing_accelerate_is_said(tmp_path: Path) -> None:
    program = """
    @step
    def train() -> Any: ...
    import sys
    sys.modules["accelerate"] = None
    """
    directory = run_gang(tmp_path, program, "@run_with_accelerate(num_processes=2)")
    error = result_of(directory)["error"]
    assert (error["class"], error["module"]) == ("import", "accelerate")
    assert "pip install accelerate" in error["message"]


def test_two_ranks_train_what_one_does(tmp_path: Path) -> None:
    """examples/ranks: real data, real torch, accelerate and gloo, through the engine."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/ranks/train.py")],
        cwd=tmp_path,
        env=front_environment(tmp_path / ".stoker"),
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(
        r"test accuracy: (0\.\d+) trained by one process, (0\.\d+) by two", done.stdout
    )
    assert found is not None, done.stdout
    one, two = map(float, found.groups())
    assert one > 0.93
    assert one == two


VALUES = """
from typing import Annotated, Any, Tuple
import pandas as pd
import torch
from stoker import pipeline, run_with_accelerate, step

@step
def load() -> pd.DataFrame:
    return pd.DataFrame({"x": [1.0, 2.0, 3.0], "y": [2.0, 4.0, 6.0]})

@step
def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Linear(1, 1)

@run_with_accelerate(num_processes=2, cpu=True)
@step
def fit(
    model: torch.nn.Module, data: pd.DataFrame, options: dict, rounds: int = 1
) -> Tuple[Annotated[torch.nn.Module, "fitted"], Annotated[pd.DataFrame, "losses"], Annotated[dict, "facts"]]:
    from accelerate import Accelerator
    accelerator = Accelerator()
    x, y = (torch.tensor(data[c].values, dtype=torch.float32)[:, None] for c in "xy")
    optimizer = torch.optim.SGD(model.parameters(), lr=options["lr"])
    ready, optimizer = accelerator.prepare(model, optimizer)
    losses = []
    for _ in range(rounds):
        loss = ((ready(x) - y) ** 2).mean()
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    facts = {"ranks": accelerator.num_processes, ("a", 1): {2, 3}}
    return accelerator.unwrap_model(ready), pd.DataFrame({"loss": losses}), facts

@pipeline
def one():
    fit(model(), load(), {"lr": 0.05}, rounds=20)

if __name__ == "__main__":
    done = one().steps["fit"].outputs
    losses = done["losses"].load()
    print(type(done["fitted"].load()).__name__, len(losses), losses.loss[0] > 10 * losses.loss[19])
    print(done["facts"].load() == {"ranks": 2, ("a", 1): {2, 3}})
"""


def test_frames_models_and_dicts_in_and_out(tmp_path: Path) -> None:
    """Positional and by keyword, as the engine hands them to ranks and takes them from rank 0."""
    needed("pandas")
    done = run_python(tmp_path, VALUES)
    assert done.stdout.splitlines()[-2:] == ["Linear 20 True", "True"], done.stdout


def test_every_option_of_accelerate_is_known() -> None:
    """Each long option of the installed accelerate's launcher is taken, or refused with the reason."""
    from accelerate.commands.launch import launch_command_parser

    from stoker._base.errors import SettingsError
    from stoker._definition import accelerate

    refused = set()
    n = 0
    for action in launch_command_parser()._actions:
        names = [text[2:] for text in action.option_strings if text.startswith("--")]
        value: Any = "1"
        if action.nargs == 0 or action.type is bool:
            value = True
        elif action.choices is not None:
            value = next(iter(action.choices))
        elif action.type in (int, float):
            value = action.type(1)
        for name in names:
            n += 1
            try:
                assert accelerate.checked("x", {name.replace("-", "_"): value}), name
            except SettingsError as exc:
                assert "has no meaning here" in str(exc), name
                refused.add(action.dest)
    assert n > 80
    assert refused == set(accelerate._NOT_HERE) - {"training_script", "training_script_args"}
