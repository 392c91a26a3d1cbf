"""Steps of many processes: the decorators' settings, and ranks in attempt directories, forked and executed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any, Tuple

import pytest
from front_tools import PACKAGE, WAIT_S, engine, needs_engine, run_python
from play_engine import make_attempt, result_of

from stoker import ExternalArtifact, pipeline, run_with_accelerate, step, torchrun
from stoker._base.errors import SettingsError
from stoker.materializers import BaseMaterializer


def only_step(of: Any, **arguments: Any) -> dict[str, Any]:
    @pipeline
    def one() -> None:
        of(**arguments)

    return next(iter(one.spec()["steps"].values()))


@pytest.mark.parametrize(
    ("decorate", "gang"),
    [
        (torchrun, {"ranks": "gpus"}),
        (torchrun(nproc_per_node=3), {"ranks": 3}),
        (torchrun(nproc_per_node="auto"), {"ranks": "gpus"}),
        (
            torchrun(nproc_per_node=2, master_port=4321, max_restarts=1),
            {"ranks": 2, "port": 4321, "restarts": 1},
        ),
        (run_with_accelerate, {"ranks": "gpus"}),
        (run_with_accelerate(cpu=True, num_processes=4), {"ranks": 4}),
        (
            run_with_accelerate(num_processes=2, main_process_port=0, max_restarts=2),
            {"ranks": 2, "restarts": 2},
        ),
    ],
)
def test_gang_setting(decorate: Any, gang: dict[str, Any]) -> None:
    @decorate
    @step
    def train(lr: float) -> float:
        return lr

    spec = only_step(train, lr=0.1)
    assert spec["gang"] == gang
    assert spec.get("uses", []) == (["torch"] if train.launch.kind == "accelerate" else [])
    assert "resources" not in spec


@pytest.mark.parametrize(
    ("said", "gang"),
    [
        (2, {"ranks": 2}),
        ("gpus", {"ranks": "gpus"}),
        ({"ranks": 4, "hang": "10m"}, {"ranks": 4, "hang": "10m"}),
        (False, False),
    ],
)
def test_gang_without_a_decorator(said: Any, gang: Any) -> None:
    assert only_step(step(name="x", gang=said)(lambda: None))["gang"] == gang
    assert only_step(step(name="x", settings={"gang": said})(lambda: None))["gang"] == gang


def test_a_run_configuration_changes_the_ranks() -> None:
    @torchrun(nproc_per_node=2, max_restarts=1)
    @step
    def train() -> None: ...

    assert only_step(train.with_options(gang={"ranks": 8}))["gang"] == {"ranks": 8, "restarts": 1}
    with pytest.raises(SettingsError, match="unknown key 'rank'; did you mean 'ranks'"):
        train.with_options(gang={"rank": 8})


def test_gpu_ways_ask_for_gpus() -> None:
    @run_with_accelerate(num_processes=4, multi_gpu=True)
    @step
    def train() -> None: ...

    @run_with_accelerate(num_processes=4, multi_gpu=True)
    @step(settings={"resources": {"gpu_count": 8}})
    def own() -> None: ...

    assert only_step(train)["resources"] == {"gpu_count": 4}
    assert only_step(own)["resources"] == {"gpu_count": 8}


def test_options_are_part_of_the_key(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"

    def code(**options: Any) -> Any:
        @run_with_accelerate(**options)
        @step
        def train() -> None: ...

        return only_step(train)

    config.write_text("num_processes: 3\nmain_process_port: 4000\n")
    one = code(config_file=str(config))
    assert one["gang"] == {"ranks": 3, "port": 4000}
    config.write_text('{"num_processes": 3, "main_process_port": 4001}')
    assert code(config_file=str(config))["code"] != one["code"]
    assert code(num_processes=2)["code"] == code(num_processes=2)["code"]
    assert code(num_processes=2)["code"] != code(num_processes=3)["code"]


@pytest.mark.parametrize(
    ("decorate", "words"),
    [
        (lambda s: torchrun(nproc_per_node=0)(s), "nproc_per_node is 0"),
        (lambda s: torchrun(nproc_per_node=1025)(s), 'from 1 to 1024, "gpu" or "auto"'),
        (lambda s: torchrun(max_restarts=1001)(s), "must be an int from 0 to 1000"),
        (lambda s: torchrun(nprocs_per_node=2)(s), "did you mean 'nproc_per_node'"),
        (lambda s: run_with_accelerate(num_processes="four")(s), "num_processes is 'four'"),
        (lambda s: run_with_accelerate(config_file="/nowhere.yaml")(s), "'/nowhere.yaml' can't be"),
    ],
)
def test_wrong_options(decorate: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        decorate(step(lambda: None))


def test_all_ranks_and_materializers_dont_go_together() -> None:
    class Mine(BaseMaterializer):
        pass

    with pytest.raises(SettingsError, match="leave one of them out"):
        torchrun(all_ranks=True)(step(name="x", output_materializers=Mine)(lambda: 1))


def test_machines() -> None:
    def gang_of(decorate: Any) -> Any:
        return decorate(step(lambda: None)).layer["gang"]

    assert gang_of(torchrun(nnodes="2:2", nproc_per_node=3)) == {"ranks": 3, "nodes": 2}
    assert gang_of(torchrun(nnodes=1)) == {"ranks": "gpus"}
    # accelerate counts the processes of all machines, a gang those of each
    assert gang_of(run_with_accelerate(num_machines=2, num_processes=8)) == {"ranks": 4, "nodes": 2}
    for wrong, words in (
        (torchrun(nnodes="1:2"), "nnodes is '1:2'; it must be a number of machines"),
        (torchrun(nnodes=0), "nnodes is 0; it must be"),
        (run_with_accelerate(num_machines=2, num_processes=3), "make it a multiple of 2"),
    ):
        with pytest.raises(SettingsError, match=words):
            wrong(step(lambda: None))


def test_misuse_is_a_runtime_error() -> None:
    with pytest.raises(RuntimeError, match="'plain' is no step"):

        @run_with_accelerate(num_processes=2)
        def plain() -> None: ...

    @torchrun
    @step
    def train() -> None: ...

    with pytest.raises(RuntimeError, match="launched by `torchrun` already"):
        run_with_accelerate(train)

    @step
    def other() -> None: ...

    @pipeline
    def wraps() -> None:
        run_with_accelerate(other, num_processes=2)()

    with pytest.raises(RuntimeError, match="inside of a pipeline; decorate step 'other'"):
        wraps.spec()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lr": 0.1, "amp": True, "off": False, "none": None}, ["--lr", "0.1", "--amp"]),
        ({"sizes": [1, 2]}, ["--sizes", "1", "2"]),
        (["-v", 3], ["-v", "3"]),
        (None, []),
    ],
)
def test_words_of_a_script(tmp_path: Path, given: Any, words: list[str]) -> None:
    script = tmp_path / "train.py"
    script.touch()
    made = torchrun(entrypoint=script, entrypoint_args=given)(step(name="x")(lambda: None))
    assert made.launch.options == {"entrypoint": str(script), "entrypoint_args": words}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"entrypoint": "nowhere.py"},
            "entrypoint 'nowhere.py' was not found in",
        ),
        ({"entrypoint": print}, "it must be the path of a script"),
        ({"entrypoint": __file__, "entrypoint_args": "--lr 1"}, "must be a list of words or a map"),
        ({"entrypoint_args": ["x"]}, "entrypoint_args need a script"),
        ({"entry_point": "x.py"}, "did you mean 'entrypoint'"),
    ],
)
def test_wrong_scripts(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        torchrun(**options)(step(name="x")(lambda: None))


# ---------------------------------------------------------------------------- ranks

PROGRAM = """
import os, sys, signal
from typing import Annotated, Any, Tuple
from stoker import get_step_context, log_metadata, step, torchrun

@torchrun(nproc_per_node=2)
@step
def plain(a: Any, b: int) -> Tuple[Annotated[str, "who"], Annotated[Any, "got"]]:
    rank = int(os.environ["RANK"])
    print("rank", rank, "speaks", flush=True)
    log_metadata({"rank": rank})
    forked = "stoker._worker.server" in sys.modules
    return f"rank {rank} of {os.environ['WORLD_SIZE']}", {"a": a, "b": b, "forked": forked}

@torchrun(nproc_per_node=3, all_ranks=True)
@step
def everybody() -> Any:
    return {"rank": int(os.environ["RANK"]), "kind": {1, 2}}

@torchrun(nproc_per_node=2)
@step
def fails() -> int:
    if os.environ["RANK"] == "1":
        raise ValueError("rank 1 has enough")
    signal.pause()

def made():
    secret = 41
    @torchrun(nproc_per_node=2, all_ranks=True)
    @step
    def closure(x: int) -> int:
        return secret + x + int(os.environ["RANK"])
    return closure
"""
RUN = """
import sys, json
sys.path.insert(0, {folder!r})
import prog
from stoker._worker import attempt, server
from stoker._worker.resolve import resolve
entry = {entry}
{before}
attempt.run_attempt({directory!r}, entry, main_file=None)
raise SystemExit("still here")
"""


def run_gang(tmp_path: Path, name: str, ranks: int, before: str = "", **task: Any) -> Path:
    (tmp_path / "prog.py").write_text(PROGRAM)
    directory = make_attempt(
        tmp_path, name, entry=f"prog:{name}", gang={"ranks": ranks, "restarts": 0}, **task
    )
    entry = "prog.made().entry()" if name == "closure" else f"resolve('prog', '{name}')"
    program = RUN.format(
        folder=str(tmp_path), entry=entry, directory=str(directory), before=textwrap.dedent(before)
    )
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(PACKAGE), str(tmp_path)]),
        "STOKER_BIN": str(engine()),
    }
    with open(directory / "log", "w") as log:
        subprocess.run(
            [sys.executable, "-c", program], env=env, stdout=log, stderr=log, timeout=WAIT_S
        )
    return directory


THREAD = "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()"


@needs_engine
@pytest.mark.parametrize(("before", "forked"), [("", True), (THREAD, False)])
def test_rank_0_speaks_for_the_step(tmp_path: Path, before: str, forked: bool) -> None:
    """Forked, or fresh interpreters where another thread makes forking unfit."""
    inputs = {"a": {"value": [1, {"x": None}]}, "b": {"value": 7}}
    directory = run_gang(tmp_path, "plain", 2, before=before, inputs=inputs, outputs=["who", "got"])
    log = (directory / "log").read_text()
    assert "[0] rank 0 speaks" in log and "[1] rank 1 speaks" in log
    result = result_of(directory)
    assert result["status"] == "ok", log
    assert result["outputs"]["who"]["value"] == "rank 0 of 2"
    got = {"a": [1, {"x": None}], "b": 7, "forked": forked}
    assert result["outputs"]["got"]["value"] == got
    assert result["metadata"] == {"rank": 0}
    other = json.loads((directory / "rank-1/result.json").read_text())
    assert other["status"] == "ok" and "outputs" not in other


@needs_engine
@pytest.mark.parametrize("before", ["", THREAD])
def test_all_ranks(tmp_path: Path, before: str) -> None:
    directory = run_gang(tmp_path, "everybody", 3, before=before, outputs=["output"])
    from stoker.materializers import _artifact

    entry = result_of(directory)["outputs"]["output"]
    if "path" in entry:
        entry["path"] = str(directory / entry["path"])
    assert _artifact.load(entry) == [{"rank": k, "kind": {1, 2}} for k in range(3)]


@needs_engine
def test_closures_are_forked(tmp_path: Path) -> None:
    for before in ("", THREAD):
        folder = tmp_path / (before[:6] or "plain")
        folder.mkdir()
        directory = run_gang(
            folder, "closure", 2, before=before, inputs={"x": {"value": 1}}, outputs=["output"]
        )
        assert result_of(directory)["outputs"]["output"]["value"] == [42, 43]


@needs_engine
def test_failing_rank_fails_the_step(tmp_path: Path) -> None:
    directory = run_gang(tmp_path, "fails", 2, outputs=["output"])
    result = result_of(directory)
    error = result["error"]
    assert result["status"] == "failed"
    assert error["type"] == "ValueError"
    assert error["message"].startswith("rank 1 of 2: rank 1 has enough; 1 other rank was ended")
    assert 'raise ValueError("rank 1 has enough")' in error["traceback"]
    assert error["where"].endswith("prog.py:24")


def test_stack_on_request(tmp_path: Path) -> None:
    """A rank that gets SIGUSR1 writes its stack, and continues."""
    from stoker._worker.ranks import Rank

    program = f"""
    import os, signal, sys
    sys.path.insert(0, {str(PACKAGE)!r})
    from stoker._worker.ranks import Rank
    Rank({str(tmp_path / "rank-0")!r}, 0, 1).begin({{}})
    def in_a_collective():
        os.kill(os.getpid(), signal.SIGUSR1)
    in_a_collective()
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=WAIT_S)
    assert "in_a_collective" in (tmp_path / "rank-0/stack.txt").read_text()
    assert Rank.__doc__


def test_positional_arguments_and_artifacts_reach_the_spec() -> None:
    @run_with_accelerate(num_processes=2)
    @step
    def train(lr: float, data: Any, model: Any = None) -> Tuple[Annotated[Any, "m"]]:
        return model

    @pipeline
    def one() -> None:
        train(0.5, ExternalArtifact(value={"x": object}), model=3)

    inputs = next(iter(one.spec()["steps"].values()))["inputs"]
    assert list(inputs) == ["lr", "data", "model"]


# ---------------------------------------------------------------------------- through the engine

WHOLE = """
import os
from pathlib import Path
from typing import Any
from stoker import pipeline, step, torchrun
from .sibling import shifted

def failed(error):
    Path("hooks").open("a").write(f"failed: {error}\\n")

@step
def make() -> Any:
    return {"objects": [complex(1, 2), {3}]}

@torchrun(nproc_per_node=2, all_ranks=True)
@step
def everybody(data: Any, by: int) -> Any:
    return shifted(data["objects"][0], by + int(os.environ["RANK"]))

@torchrun(nproc_per_node=2, max_restarts=1)
@step(on_failure=failed)
def fails(n: int) -> int:
    print("round", os.environ["TORCHELASTIC_RESTART_COUNT"])
    if os.environ["RANK"] == str(n):
        raise KeyError("shard")
    import signal
    signal.pause()

@pipeline
def good():
    everybody(make(), 10)

@pipeline
def bad(n: int):
    fails(n)
"""


@needs_engine
@pytest.mark.parametrize("failing", [0, 1])
def test_gangs_through_the_engine(tmp_path: Path, failing: int) -> None:
    """A package with relative imports; objects as arguments; restarts; the failure hook runs once, at the end."""
    package = tmp_path / "project"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "sibling.py").write_text("def shifted(value, by):\n    return value + by\n")
    (package / "flow.py").write_text(WHOLE)
    program = f"""
    from project.flow import bad, good
    from stoker import PipelineFailed
    if __name__ == "__main__":
        print(good().steps["everybody"].output.load())
        try:
            bad({failing})
        except PipelineFailed as exc:
            print(exc)
            print(exc.traceback)
    """
    done = run_python(tmp_path, program)
    assert "[(11+2j), (12+2j)]" in done.stdout
    assert f"rank {failing} of 2: key 'shard' not found; 1 other rank was ended" in done.stdout
    assert 'raise KeyError("shard")' in done.stdout
    hooks = (tmp_path / "hooks").read_text().splitlines()
    assert len(hooks) == 1
    assert f"rank {failing} of 2" in hooks[0]


SCRIPT = """
import json, os, sys
from beside import doubled
from stoker import get_step_context
if __name__ == "__main__":
    rank = int(os.environ["RANK"])
    if "--fail" in sys.argv and rank == 1: sys.exit(4)
    said = [sys.argv[1:], os.environ["WORLD_SIZE"], doubled(get_step_context().inputs["n"])]
    json.dump(said, open(f"said-{rank}", "w"))
    sys.exit(0)
"""
OF_SCRIPT = """
import json, sys
from stoker import PipelineFailed, pipeline, step, torchrun
args = {"fail": "--fail" in sys.argv, "lr": 0.5}
@torchrun(entrypoint="train.py", entrypoint_args=args, nproc_per_node=2)
@step
def train(n: int) -> list:
    return [json.load(open(f"said-{k}")) for k in range(2)] if args["fail"] is False else []
@pipeline
def one():
    train(21)
if __name__ == "__main__":
    try:
        run = one()
        print(run.steps["train"].status, run.steps["train"].output.load())
    except PipelineFailed as exc:
        print(exc)
"""


@needs_engine
def test_a_script_on_ranks(tmp_path: Path) -> None:
    """What it wrote is what the step's function returns; its content is part of the key; its failure the step's."""
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "beside.py").write_text("def doubled(n):\n    return 2 * n\n")
    said = "[[['--lr', '0.5'], '2', 42], [['--lr', '0.5'], '2', 42]]"
    assert f"completed {said}" in run_python(tmp_path, OF_SCRIPT).stdout
    assert f"cached {said}" in run_python(tmp_path, OF_SCRIPT).stdout
    (tmp_path / "train.py").write_text(SCRIPT + "# changed\n")
    assert f"completed {said}" in run_python(tmp_path, OF_SCRIPT).stdout
    out = run_python(tmp_path, OF_SCRIPT.replace('"--fail" in sys.argv', "True")).stdout
    assert "rank 1 of 2: 'train.py' called sys.exit(4)" in out


OUTLIVES = """
import os, socket, threading, time
from stoker import pipeline, step, torchrun

def serve(listener):
    while True:
        listener.accept()[0].sendall(b"served")

@torchrun(nproc_per_node=3)
@step(enable_cache=False)
def train() -> str:
    rank, place = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if rank == 0:  # as PyTorch's store: a thread of rank 0
        listener = socket.create_server(place)
        threading.Thread(target=serve, args=[listener], daemon=True).start()
        return "rank 0's"
    if rank == 2:
        return  # leaves at once
    time.sleep(1)  # sleeps: rank 0 would have gone by now
    with socket.create_connection(place) as connection:
        assert connection.recv(6) == b"served"

@pipeline
def one():
    train()

if __name__ == "__main__":
    print(one().steps["train"].output.load())
"""


@needs_engine
def test_rank_0_ends_last(tmp_path: Path) -> None:
    """Its process hosts the rendezvous of the others; with torchrun the agent does, and scripts
    rely on that."""
    assert "rank 0's" in run_python(tmp_path, OUTLIVES).stdout
