"""Servers of models that ZenML's programs start: they outlive a run, and no process of theirs is lost."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from compat_tools import end_servers
from front_tools import WAIT_S, engine, environment, needs_engine

SERVE_S = 3 * WAIT_S  # two servers, each of which imports MLflow twice
OUTLIVES = """
import os, sys
from stoker._zen import daemons, mlflow_services
from zenml import pipeline, step
import zenml.integrations.mlflow.model_deployers

@step(enable_cache=False)
def start() -> str:
    log = os.path.abspath("daemon.log")
    daemon = daemons.start(["sh", "-c", "echo $WORD; sleep 600 & wait"], {"WORD": "hello"}, log)
    return f"{daemon.pid} {daemon.began}"

@pipeline
def starting():
    start()

pid, _, began = starting().steps["start"].output.load().partition(" ")
daemon = daemons.Daemon(int(pid), began)
print("alive", daemon.is_alive(), open("daemon.log").read().strip())
print("another", daemons.Daemon(os.getpid(), began).is_alive())
print("ends", daemon.end(20, False), daemon.is_alive())
left = [pid for pid in os.listdir("/proc") if pid.isdigit() and b"sleep\\x00600" in read(pid)]
print("left", [pid for pid in left if os.getpgid(int(pid)) == daemon.pid])
"""
READ = """
def read(pid):
    try:
        return open(f"/proc/{pid}/cmdline", "rb").read()
    except OSError:
        return b""
"""
DEPLOYS = """
import sys
import mlflow
import numpy
from zenml import pipeline, step
from zenml.client import Client
from zenml.integrations.mlflow.services import MLFlowDeploymentService
from zenml.integrations.mlflow.steps import mlflow_model_deployer_step

class Times(mlflow.pyfunc.PythonModel):
    def __init__(self, factor):
        self.factor = factor

    def predict(self, context, model_input, params=None):
        return [float(row[0]) * self.factor for row in numpy.asarray(model_input)]

@step(enable_cache=False, experiment_tracker="mlflow")
def train(factor: int) -> int:
    mlflow.pyfunc.log_model(name="model", python_model=Times(factor), pip_requirements=[])
    return factor

@pipeline
def deploying(factor: int):
    mlflow_model_deployer_step(model=train(factor), timeout=300)

for factor in map(int, sys.argv[1:]):
    service = deploying(factor).steps["mlflow_model_deployer_step"].output.load()
    print(service.uuid, service.status.pid, service.prediction_url, flush=True)
print([str(one.id) for one in Client().list_services()])
"""
FAILS = """
import mlflow
from zenml.client import Client
from zenml.integrations.mlflow.model_deployers import MLFlowModelDeployer
from zenml.integrations.mlflow.services import MLFlowDeploymentConfig

deployer = MLFlowModelDeployer.get_active_model_deployer()
try:
    deployer.deploy_model(MLFlowDeploymentConfig(model_name="m", model_uri="/no/model"), timeout=300)
except RuntimeError as bad:
    print("fails", bad)
print(Client().list_services(), deployer.find_model_server())
"""
# A web server stands in for MLflow's: it has a file "ping".
STANDS_IN = """
import os, sys
from zenml.client import Client
from zenml.integrations.mlflow.model_deployers import MLFlowModelDeployer
from zenml.integrations.mlflow.services import MLFlowDeploymentConfig
from stoker._zen import daemons, mlflow_services, services

really, made = daemons.start, []

def start(command, env, log):
    port = command[command.index("--port") + 1]
    made.append(really([sys.executable, "-m", "http.server", "-b", "127.0.0.1", port], env, log))
    return made[-1]

def deploy(**more):
    asked = MLFlowDeploymentConfig(model_name="m", model_uri="/the/model", **more)
    return deployer.deploy_model(asked, timeout=300)

daemons.start = start
open("ping", "w").close()
deployer = MLFlowModelDeployer("mlflow", {"service_path": os.path.abspath("logs")})
"""
PLACED = """
first, again = deploy(), deploy()
(found,) = deployer.find_model_server()
print(first.uuid == again.uuid == found.uuid, len(made), os.listdir("logs") == [str(first.uuid)])
print(found.status.log_file == os.path.abspath(f"logs/{found.uuid}/service.log"))
print("GET /ping" in "".join(deployer.get_model_server_logs(found.uuid)))
deployer.delete_model_server(found.uuid)
print(os.listdir("logs"), made[0].is_alive())
mine = deploy(root_runtime_path=os.path.abspath("mine"))
print(os.listdir("mine") == [str(mine.uuid)])
"""
RAISES = """
def raising(what):
    def call(*args, **more):
        raise what("no luck")
    return call

for place, name, what in (
    (services, "update", OSError),
    (mlflow_services.MLFlowDeploymentEndpoint, "is_active", ValueError),
    (mlflow_services.MLFlowDeploymentEndpoint, "is_active", KeyboardInterrupt),
):
    kept = getattr(place, name)
    setattr(place, name, raising(what))
    try:
        deploy()
    except BaseException as bad:
        print(type(bad).__name__, bad)
    setattr(place, name, kept)
    print(daemons._wait(lambda: not made[-1].is_alive(), 60), Client().list_services())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    end_servers(tmp_path / ".stoker")


def run(folder: Path, *words: str, ok: bool = True) -> str:
    done = subprocess.run(
        [str(engine()), "compat", "--", *words],
        cwd=folder,
        env=environment(folder / ".stoker", XDG_CONFIG_HOME=str(folder / "config")),
        capture_output=True,
        text=True,
        timeout=SERVE_S,
    )
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout if ok else done.stderr


def runs(folder: Path, source: str, *words: str) -> list[str]:
    (folder / "prog.py").write_text(source)
    return run(folder, sys.executable, "prog.py", *words).splitlines()


def lives(pid: str) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def predicted(url: str, value: float) -> float:
    data = json.dumps({"instances": [[value]]}).encode()
    asked = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(asked, timeout=WAIT_S) as answer:
        return float(json.load(answer)["predictions"][0])


@needs_engine
def test_a_daemon_that_a_step_starts_outlives_the_run(folder: Path) -> None:
    lines = runs(folder, READ + OUTLIVES)
    assert lines == ["alive True hello", "another False", "ends True False", "left []"]


@needs_engine
def test_a_deployed_model_goes_on_until_another_takes_its_place(folder: Path) -> None:
    first, second, listed = runs(folder, DEPLOYS, "2", "5")
    old, (id, pid, url) = first.split(), second.split()
    assert old[0] != id and listed == str([id])
    assert not lives(old[1]), "the earlier server has ended"
    assert url.startswith("http://127.0.0.1:")
    assert predicted(url, 3) == 15, "it goes on without the program that started it"

    zenml = ("zenml", "model-deployer", "models")
    (one,) = json.loads(run(folder, *zenml, "list", "-o", "json"))["items"]
    assert (one["uuid"], one["status"], one["model_name"]) == (id, "active", "model")
    assert run(folder, *zenml, "get-url", id).strip() == url
    assert ["DAEMON_PID", pid] in map(str.split, run(folder, *zenml, "describe", id).splitlines())
    assert "Uvicorn running" in run(folder, *zenml, "logs", id)
    run(folder, *zenml, "stop", id)
    assert not lives(pid)
    assert "isn't running" in run(folder, *zenml, "get-url", id, ok=False)
    run(folder, *zenml, "delete", id)
    assert json.loads(run(folder, *zenml, "list", "-o", "json"))["items"] == []
    assert "no model server" in run(folder, *zenml, "stop", id, ok=False)


@needs_engine
def test_a_server_that_ends_is_an_error_with_its_last_words(folder: Path) -> None:
    text = "\n".join(runs(folder, FAILS))
    assert "fails model 'm' isn't served: the server of model 'm' ended" in text
    assert "No such artifact: 'model'" in text and text.endswith("[] []")


@needs_engine
def test_service_path_is_part_of_a_servers_record(folder: Path) -> None:
    lines = runs(folder, STANDS_IN + PLACED)
    assert lines == ["True 1 True", "True", "True", "[] False", "True"]


@needs_engine
def test_no_server_is_left_where_the_start_raises(folder: Path) -> None:
    lines = runs(folder, STANDS_IN + RAISES)
    why = "RuntimeError model 'm' isn't served: no luck"
    assert lines == [why, "True []", why, "True []", "KeyboardInterrupt no luck", "True []"]
