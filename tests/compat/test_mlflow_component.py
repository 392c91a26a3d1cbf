"""Components that a ZenML program registers: configured, refused, without a password in the store."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from front_tools import WAIT_S, engine, environment, needs_engine

PROGRAM = """
import os
from zenml.client import Client
from zenml.integrations.mlflow.mlflow_utils import get_tracking_uri

client = Client()
print("before", client.active_stack.experiment_tracker.name, get_tracking_uri())
made = client.create_stack_component(
    name="lab",
    flavor="mlflow",
    component_type="experiment_tracker",
    configuration={
        "tracking_uri": "http://lab:5000",
        "tracking_username": "ann",
        "tracking_password": "s3cret-word",
    },
)
tracker = client.active_stack.experiment_tracker
print("after", tracker.name, get_tracking_uri(), tracker.local_path)
tracker.configure_mlflow()
print("password", os.environ["MLFLOW_TRACKING_PASSWORD"] == "s3cret-word")
print("shown", "s3cret-word" in repr((tracker, tracker.config, vars(made), tracker.configuration)))
for kind, flavor, more in (
    ("experiment_tracker", "mlflow", {"tracking_uri": "ftp://x"}),
    ("experiment_tracker", "mlflow", {"tracking_url": "http://x"}),
    ("experiment_tracker", "wandb", {}),
    ("alerter", "slack", {}),
):
    try:
        client.create_stack_component("x", flavor, kind, more)
    except Exception as bad:
        print("refused", type(bad).__name__, bad)
try:
    client.create_stack_component("lab", "mlflow", "experiment_tracker", {})
except Exception as bad:
    print("refused", type(bad).__name__, bad)
"""
SEVERAL = """
from zenml import pipeline, step
from zenml.client import Client

client = Client()
kind = "experiment_tracker"
def listed():
    return [one.name for one in client.list_stack_components(type=kind)]
for name in ("first", "second"):
    uri = {"tracking_uri": f"sqlite:///{name}.db"}
    made = client.create_stack_component(name, "mlflow", kind, uri)
    assert made == client.get_stack_component(kind, name), name
print(listed(), list(client.active_stack.experiment_trackers))

@step(experiment_tracker="first", enable_cache=False)
def tracks() -> str:
    import mlflow
    return mlflow.get_tracking_uri()

@pipeline
def tracked():
    tracks()

if __name__ == "__main__":
    print(tracked().steps["tracks"].output.load())
    client.delete_stack_component("second", kind)
    print(listed())
    for name in ("second", "default"):
        try:
            client.delete_stack_component(name, kind if name == "second" else "orchestrator")
        except Exception as bad:
            print("refused", type(bad).__name__, bad.args[0])
"""
AWAY = """
import zenml.integrations.mlflow
from zenml import pipeline, step

far = {"STOKER_STORE": "/nonexistent/.stoker"}  # as on another machine

@step(enable_cache=False, experiment_tracker="x", environment=far)
def lost() -> str:
    return ""

@step(enable_cache=False, experiment_tracker="x",
      environment={**far, "MLFLOW_TRACKING_URI": "sqlite:///far.db"})
def tracks() -> str:
    import mlflow
    return mlflow.get_tracking_uri() + " " + mlflow.active_run().info.run_name

@pipeline
def away():
    lost()
    tracks()

if __name__ == "__main__":
    try:
        away()
    except Exception as bad:
        print(bad)
    from zenml.client import Client
    run = Client().get_pipeline("away").last_run
    print(run.steps["tracks"].output.load() == "sqlite:///far.db " + run.name)
"""


def compat(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(engine()), "compat", "--", *words],
        cwd=folder,
        env=environment(folder / ".stoker", XDG_CONFIG_HOME=str(folder / "config"), **more),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )


@needs_engine
def test_several(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SEVERAL)
    done = compat(tmp_path, sys.executable, "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "['second', 'first'] ['second', 'first']",
        "sqlite:///first.db",
        "['first']",
        "refused KeyError there is no experiment tracker 'second'",
        "refused IllegalOperationError orchestrator 'default' isn't a registered one, so it stays",
    ]


@needs_engine
def test_where_the_store_is_not_the_environment_names_the_tracker(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(AWAY)
    done = compat(tmp_path, sys.executable, "program.py")
    assert done.returncode == 0, done.stderr
    assert (
        "'x': the step runs where the store isn't, so it needs MLFLOW_TRACKING_URI" in done.stdout
    )
    assert done.stdout.endswith("True\n")


@needs_engine
def test_the_command(tmp_path: Path) -> None:
    def zenml(*words: str) -> str:
        done = compat(tmp_path, "zenml", *words)
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    uri = "--tracking_uri=sqlite:///a.db"
    assert zenml("experiment-tracker", "register", "lab", "--flavor=mlflow", uri).startswith("made")
    assert "lab " in zenml("experiment-tracker", "list")
    assert "sqlite:///a.db" in zenml("experiment-tracker", "describe", "lab")
    assert "experiment_tracker: lab" in zenml("stack", "list")
    assert "needs --flavor, one of mlflow" in zenml("experiment-tracker", "register", "x")
    told = zenml("orchestrator", "register", "x", "--flavor=airflow")
    assert "take no orchestrator of flavor 'airflow'" in told
    named = ("-o", "default", "-a", "default", "-e", "lab")
    assert "registered" in zenml("stack", "register", "s", *named)
    assert "is in stack s" in zenml("experiment-tracker", "delete", "lab", "-y")
    assert "Deleted" in zenml("stack", "delete", "s", "-y")
    assert zenml("experiment-tracker", "delete", "lab", "-y").startswith("deleted")
    assert "0 items" in zenml("experiment-tracker", "list")


@needs_engine
def test_registered(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = compat(tmp_path, sys.executable, "program.py", MLFLOW_TRACKING_URI="sqlite:///own.db")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:4] == [
        "before mlflow sqlite:///own.db",
        "after lab http://lab:5000 None",
        "password True",
        "shown False",
    ]
    refused = [line.split()[1] for line in lines[4:]]
    assert refused == [
        *("ValueError", "ValueError", "NotImplementedError", "NotImplementedError"),
        "EntityExistsError",
    ]
    kept = [p.read_bytes() for p in (tmp_path / ".stoker").rglob("*") if p.is_file()]
    assert kept and not any(b"s3cret-word" in data for data in kept)
