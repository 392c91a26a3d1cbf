"""Runs as MLflow, W&B and TensorBoard have them, by the readers of each."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cli_tools import PYTHON, ROOT, WAIT_S, Cli, wait_for
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

PROGRAM = """
from stoker import log_metadata, log_metrics, pipeline, step

@step
def train(lr: float, words: str) -> dict:
    for i in range(5):
        log_metrics({"loss": 1 / (i + 1), "lr": lr}, step=i * 10)
    log_metadata({"accuracy": 0.75, "note": "good"})
    return {"w": [1, 2, 3]}

@step
def report(model: dict) -> int:
    return len(model["w"])

@pipeline
def sweep(lr: float = 0.5, words: str = "a b"):
    report(train(lr, words))

if __name__ == "__main__":
    sweep()
"""
COMMANDS: dict[str, Any] = {
    "train": {
        "run": "for i in 0 1 2; do echo '{\"step\":'$i',\"loss\":0.'$i'}' >> $STOKER_METRICS; done; "
        "echo hello > $STOKER_OUTPUT/model",
        "outputs": ["model"],
    },
    "bad": {"run": "exit 3", "after": ["train"]},
}


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow takes seconds to make its tables."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def mlflow(cli: Cli, empty_store: Path) -> MlflowClient:
    shutil.copy(empty_store, cli.folder / "mlflow.db")
    cli.env |= {
        "MLFLOW_TRACKING_URI": f"sqlite:///{cli.folder}/mlflow.db",
        "STOKER_TRACKERS": "mlflow",
    }
    return MlflowClient(cli.env["MLFLOW_TRACKING_URI"])


def runs_of(client: MlflowClient, experiment: str, status: str = "FINISHED") -> list[Any]:
    """Its runs once they have that status: the run's end doesn't wait for a slow tracker for ever."""

    def ended() -> list[Any]:
        found = client.get_experiment_by_name(experiment)
        runs = list(client.search_runs([found.experiment_id])) if found else []
        return runs if all(run.info.status == status for run in runs) else []

    return wait_for(ended, why=f"no run of {experiment} is {status}")


def history(client: MlflowClient, run: Any, key: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)]


def files_of(client: MlflowClient, run: Any, folder: str) -> list[str]:
    return [f.path for f in client.list_artifacts(run.info.run_id, folder)]


def test_mlflow(cli: Cli, mlflow: MlflowClient) -> None:
    cli.write("sweep.py", PROGRAM)
    done = cli("run", "sweep.py", "-p", "lr=0.25", "--run-name", "first")
    assert done.code == 0 and "lacks" not in done.err
    (run,) = runs_of(mlflow, "sweep")
    assert run.info.run_name == "first"
    assert run.data.params == {"lr": "0.25", "words": "a b"}
    assert run.data.tags["stoker.run"] == done.shown["run"]
    losses = [(i * 10, 1 / (i + 1)) for i in range(5)]
    assert history(mlflow, run, "train/loss") == losses
    assert run.data.metrics["train/accuracy"] == 0.75
    assert files_of(mlflow, run, "train") == ["train/output.json"]
    folder = mlflow.download_artifacts(run.info.run_id, "train/output.json", str(cli.folder))
    assert json.loads(Path(folder).read_text()) == {"w": [1, 2, 3]}


def test_mlflow_failed_resumed(cli: Cli, mlflow: MlflowClient) -> None:
    cli.write("stop", "")
    steps = {**COMMANDS, "bad": {"run": "test ! -e stop", "after": ["train"]}}
    assert cli.run(steps).code == 1
    (run,) = runs_of(mlflow, "p", "FAILED")
    assert "bad" in run.data.tags["stoker.error"]
    (cli.folder / "stop").unlink()
    assert cli("resume", "latest").code == 0
    (run,) = runs_of(mlflow, "p")
    assert history(mlflow, run, "train/loss") == [(0, 0.0), (1, 0.1), (2, 0.2)]


def test_a_cached_step_has_its_metrics(cli: Cli, mlflow: MlflowClient) -> None:
    steps = {"train": COMMANDS["train"]}
    cli.run(steps, env={"STOKER_TRACKERS": "off"})
    assert cli.run(steps).statuses == {"train": "cached"}
    (run,) = runs_of(mlflow, "p")
    assert history(mlflow, run, "train/loss") == [(0, 0.0), (1, 0.1), (2, 0.2)]
    assert files_of(mlflow, run, "train") == ["train/model"]


def test_mlflow_live_and_killed(cli: Cli, mlflow: MlflowClient) -> None:
    """Values are there while the step runs; a run whose engine is killed doesn't look as if it ran."""
    wait = 'echo \'{"step":1,"loss":0.5}\' >> $STOKER_METRICS; exec sleep 100'
    engine = cli.start("run", cli.document({"train": {"run": wait}}))

    def seen() -> Any:
        found = mlflow.get_experiment_by_name("p")
        some = mlflow.search_runs([found.experiment_id]) if found else []
        return some and some[0].data.metrics and some[0]

    run = wait_for(seen, why="the metric to be in MLflow")
    assert run.info.status == "RUNNING" and run.data.metrics == {"train/loss": 0.5}
    engine.send_signal(signal.SIGKILL)
    wait_for(lambda: mlflow.get_run(run.info.run_id).info.status == "KILLED")


FLOW = """
from stoker import log_metrics
from stoker.flow import FlowSpec, Parameter, step

class F(FlowSpec):
    lr = Parameter("lr", default=0.5)
    @step
    def start(self):
        self.x = [1, 2]
        self.next(self.work, foreach="x")
    @step
    def work(self):
        log_metrics({"loss": self.input}, step=3)
        self.next(self.join)
    @step
    def join(self, inputs):
        self.next(self.end)
    @step
    def end(self):
        pass

if __name__ == "__main__":
    F()
"""


def test_a_flow_in_mlflow(cli: Cli, mlflow: MlflowClient) -> None:
    del cli.env["STOKER_TRACKERS"]
    cli.write("stoker.yaml", "trackers: mlflow\n")
    cli.write("flow.py", FLOW)
    done = cli("run", "flow.py", "run", "--lr", "0.125")
    assert done.code == 0, done.err
    (run,) = runs_of(mlflow, "F")
    assert run.data.params["lr"] == "0.125"
    losses = [v for k, v in run.data.metrics.items() if k.startswith("work/")]
    assert sorted(losses) == [1, 2]


def test_ranks(cli: Cli, mlflow: MlflowClient) -> None:
    code = "from stoker import log_metrics; import os; r = int(os.environ['RANK']); "
    code += "log_metrics({'loss': r}, step=0, all_ranks=True)"
    step = {"run": [PYTHON, "-c", code], "gang": {"ranks": 2}}
    done = cli.run({"train": step})
    assert done.code == 0, done.err
    (run,) = runs_of(mlflow, "p")
    assert run.data.metrics == {"train/loss": 0, "train/rank-1/loss": 1}


def test_tensorboard(cli: Cli) -> None:
    cli.write("sweep.py", PROGRAM)
    done = cli("run", "sweep.py", "-p", "lr=0.25", STOKER_TRACKERS="tensorboard")
    assert done.code == 0 and "lacks" not in done.err
    many = EventMultiplexer().AddRunsFromDirectory(str(cli.store / "tensorboard")).Reload()
    run = done.shown["run"]
    loss = [(e.step, e.value) for e in many.Scalars(f"{run}/train", "loss")]
    assert loss == [(i * 10, pytest.approx(1 / (i + 1))) for i in range(5)]
    plugin = many.SummaryMetadata(run, "_hparams_/session_start_info").plugin_data
    from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data

    kept = parse_session_start_info_plugin_data(plugin.content).hparams
    assert kept["lr"].number_value == 0.25 and kept["words"].string_value == "a b"


def see_on_screen(command: list[str], folder: Path, wanted: list[str]) -> None:
    """Waits until a program has shown all of this on a terminal."""
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ |= {"TERM": "xterm-256color", "WANDB_MODE": "offline"}
        os.execv(command[0], command)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
    answers = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b]11;?": b"\x1b]11;rgb:0000/0000/0000\x07"}
    shown = b""
    try:

        def text() -> str:
            nonlocal shown
            if select.select([fd], [], [], 0.1)[0]:
                part = os.read(fd, 65536)
                shown += part
                for question, answer in answers.items():
                    if question in part:
                        os.write(fd, answer)
            return re.sub(r"\x1b\[[0-9;?>]*[ -/]*[@-~]", "", shown.decode("utf-8", "replace"))

        wait_for(lambda: all(re.search(one, text()) for one in wanted), why=text)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(fd)


def test_wandb_offline(cli: Cli) -> None:
    """No account, no network: W&B's own viewer shows the run, its sync would upload it."""
    cli.env |= {"STOKER_TRACKERS": "wandb", "WANDB_MODE": "offline", "WANDB_API_KEY": "k" * 40}
    cli.write("sweep.py", PROGRAM)
    done = cli("run", "sweep.py", "-p", "lr=0.25", "--run-name", "first")
    assert done.code == 0 and "lacks" not in done.err
    (folder,) = (cli.folder / "wandb").glob("offline-run-*")
    program = str(Path(sys.executable).parent / "wandb")
    wanted = ["train/loss", "first", "sweep", r"lr\s+0\.25"]
    see_on_screen([program, "leet", "run", str(folder)], cli.folder, wanted)
    would = subprocess.run(
        [program, "sync", "--dry-run", str(folder)],
        env={**os.environ, "WANDB_API_KEY": "k" * 40},
        capture_output=True,
        text=True,
    )
    assert f"run-{done.shown['run']}.wandb" in would.stdout + would.stderr
    for log in cli.store.rglob("trackers.log"):
        assert "k" * 40 not in log.read_text()


# --- trackers in trouble ---


@pytest.mark.parametrize("tracker", ["mlflow", "wandb", "tensorboard"])
def test_not_installed(cli: Cli, tracker: str) -> None:
    """One sentence, and the run goes on."""
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", cli.folder / "bare"], check=True)
    python = str(cli.folder / "bare/bin/python")
    done = cli("run", "--python", python, cli.document(COMMANDS), STOKER_TRACKERS=tracker)
    assert done.statuses["train"] == "succeeded"
    said = [line for line in done.err.splitlines() if "isn't installed" in line]
    assert len(said) == 1 and f"pip install {tracker}" in said[0] and python in said[0]


def test_what_is_missing_is_said_while_a_step_runs(cli: Cli) -> None:
    said = cli.folder / "said"
    step = {"run": "while ! grep -q lacks said; do sleep 0.1; done"}
    with said.open("w") as stream:
        name = cli.document({"train": step})
        engine = cli.start("run", name, stderr=stream, env={"STOKER_OPENLINEAGE": "/none/x"})
        assert engine.wait(WAIT_S) == 0


@pytest.fixture
def silent() -> Iterator[str]:
    """A server that takes requests and never answers."""
    hold = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            hold.wait(120)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    hold.set()
    server.shutdown()
    server.server_close()


def test_a_tracker_that_is_down(cli: Cli, mlflow: MlflowClient) -> None:
    cli.env["MLFLOW_TRACKING_URI"] = "http://me:s3cret-word@127.0.0.1:9"
    done = cli.run(COMMANDS)
    assert done.statuses == {"train": "succeeded", "bad": "failed"}
    assert done.err.count("MLflow lacks parts of this run, which goes on") == 1
    (log,) = cli.store.rglob("trackers.log")
    assert "s3cret-word" not in done.err + done.out + log.read_text()
    assert "127.0.0.1" in log.read_text()


def test_a_slow_tracker_holds_up_no_step(cli: Cli, mlflow: MlflowClient, silent: str) -> None:
    cli.env["MLFLOW_TRACKING_URI"] = f"http://{silent}"
    engine = cli.start("run", cli.document({f"s{i}": {"run": "true"} for i in range(20)}))
    wait_for(lambda: cli("runs", "--json").out.count('"succeeded"') >= 1)
    steps = cli.json("show", "latest")["steps"]
    assert all(s["ended_ms"] - s["started_ms"] < 5000 for s in steps.values())
    engine.send_signal(signal.SIGINT)  # doesn't wait for it either
    start = time.monotonic()
    engine.wait(10)
    assert time.monotonic() - start < 10


def test_a_name_that_is_none(cli: Cli) -> None:
    done = cli.run({"a": {"run": "true"}}, env={"STOKER_TRACKERS": "mlflow,aim"})
    assert done.code == 2 and "STOKER_TRACKERS names 'aim'; a tracker is mlflow, wandb" in done.err
    cli.write("stoker.yaml", "trackers: [mlflw]\n")
    done = cli.run({"a": {"run": "true"}})
    assert done.code == 2 and "did you mean 'mlflow'" in done.err


def test_the_names_stand_everywhere() -> None:
    schema = json.loads((ROOT / "schema/stack.schema.json").read_text())
    table = (ROOT / "src/tbl/trackers.def").read_text()
    modules = {p.stem[3:] for p in (ROOT / "python/stoker/_trackers").glob("to_*.py")}
    assert set(re.findall(r"^X\((\w+)\)", table, re.MULTILINE)) == modules
    assert set(schema["$defs"]["tracker"]["enum"]) == modules
