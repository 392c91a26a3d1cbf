"""What ZenML's client tells after something has changed: components of stacks, pipelines that haven't
run, the stack of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from front_tools import WAIT_S, engine, environment, needs_engine

COMPONENTS = """
from zenml.client import Client

client = Client()
make, change = client.create_stack_component, client.update_stack_component
make("k8s", "kubernetes", "orchestrator", {"kubernetes_namespace": "ml"})
make("s3", "s3", "artifact_store", {"path": "s3://bucket/prefix"})
for name in ("one", "two"):
    client.create_stack(name, {"orchestrator": "k8s", "artifact_store": "s3"})
client.activate_stack("one")
id = client.get_stack_component("orchestrator", "k8s").created
print(change("k8s", "orchestrator", configuration={"kubernetes_namespace": "lab"}).configuration)
print(open("stoker.yaml").read())
print(change("k8s", "orchestrator", name="cluster").name, client.active_stack.orchestrator.name)
print([one.name for one in client.list_stack_components(type="orchestrator")])
before = open("stoker.yaml").read()
for words in ({"configuration": {"pending": "never"}}, {"configuration": {"token": "x"}}):
    try:
        change("cluster", "orchestrator", **words)
    except Exception as bad:
        print(type(bad).__name__)
print(open("stoker.yaml").read() == before)
print(client.get_stack_component("orchestrator", "cluster").configuration)
"""
COMPONENTS_TOLD = """\
{'kubernetes_namespace': 'lab'}
stacks:
  "one": {"backend": "kubernetes", "options": {"kubernetes_namespace": "lab"}, \
"store": "s3://bucket/prefix"}  # by zenml stack register
  "two": {"backend": "kubernetes", "options": {"kubernetes_namespace": "lab"}, \
"store": "s3://bucket/prefix"}  # by zenml stack register

cluster cluster
['default', 'cluster']
StackValidationError
ValueError
True
{'kubernetes_namespace': 'lab'}
"""
KEPT = """
from zenml import pipeline, step
from zenml.client import Client

@step
def one() -> int:
    return 1

@pipeline
def kept():
    one()

@pipeline
def ran():
    one()

if __name__ == "__main__":
    client = Client()
    ran()
    kept.create_snapshot(name="first")
    found = client.get_pipeline("kept")
    print([one.name for one in client.list_pipelines()], found.num_runs, found.latest_run_id)
    print(found.latest_run_status, found.created == found.updated, found.tags)
    try:
        found.last_run
    except RuntimeError as bad:
        print(bad)
    client.delete_pipeline("kept")
    print([one.name for one in client.list_pipelines()], list(client.list_snapshots()))
"""
RUNS = """
import sys
from zenml import pipeline, step
from zenml.client import Client

@step
def one() -> int:
    return 1

@pipeline
def ran():
    one()

client = Client()
client.activate_stack("here")
first = ran()
client.activate_stack("default")
second = ran()
print([client.get_pipeline_run(one.id).stack.name for one in (first, second)], first.stack.name)
"""
LINKED = """
from zenml import Model, pipeline, step
from zenml.client import Client

@step
def one() -> int:
    return 1

@step
def fails(x: int) -> int:
    raise ValueError("no")

@pipeline(model=Model(name="net", version="v"))
def ran():
    fails(one())

if not Client().list_pipeline_runs(size=1).total:
    try:
        ran()
    except Exception:
        pass
version = Client().get_model_version("net", "v")
print(list(version.data_artifact_ids), list(version.pipeline_run_ids) != [])
"""
DUMPED = """
import json
from typing import Annotated

from zenml import get_step_context, pipeline, save_artifact, step
from zenml.client import Client


@step
def make() -> Annotated[int, "number"]:
    context = get_step_context()
    context.add_output_metadata({"rows": 3})
    context.add_output_tags(["good"])
    print("in step", context.get_output_metadata(), context.get_output_tags())
    return 1


@pipeline
def dumped():
    make()


if __name__ == "__main__":
    client = Client()
    for name in ("a1", "a2"):
        run = dumped.with_options(run_name=name)()
    print(sorted(run.model_dump()), run.model_dump()["body"]["status"].value)
    print(json.loads(run.steps["make"].model_dump_json())["metadata"]["source_code"][:5])
    print(json.loads(run.config.model_dump_json())["name"])
    print(client.list_pipeline_runs().model_dump()["items"][0]["name"])
    secret = client.create_secret("hidden", {"key": "unseen"})
    print("unseen" in secret.model_dump_json(), "unseen" in repr(secret.model_dump()))
    print(client.update_secret("hidden", update_private=True).private)
    for ask in (
        lambda: client.update_secret("hidden", remove_values=["none"]),
        lambda: client.get_pipeline_run("a"),
    ):
        try:
            print(ask())
        except KeyError:
            print("KeyError")
    save_artifact(1, "unused")
    client.prune_artifacts()
    print(sorted(one.name for one in client.list_artifacts()))
    client.prune_artifacts(only_versions=False)
    print([one.name for one in client.list_artifacts()])
    print(make.source_object.__name__)
"""
DUMPED_TOLD = """\
['body', 'id', 'metadata', 'name', 'permission_denied', 'resources'] completed
@step
dumped
a2
False False
True
KeyError
KeyError
['number', 'unused']
['number']
make
"""


def told(folder: Path, source: str) -> str:
    (folder / "prog.py").write_text(source)
    done = subprocess.run(
        [str(engine()), "compat", "--", sys.executable, "prog.py"],
        cwd=folder,
        env=environment(folder / ".stoker", XDG_CONFIG_HOME=str(folder / "config")),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_engine
def test_a_component_changes_in_the_stacks_that_have_it(tmp_path: Path) -> None:
    """And a change that `stoker.yaml` can't take leaves all as it was."""
    assert told(tmp_path, COMPONENTS) == COMPONENTS_TOLD


@needs_engine
def test_a_pipeline_is_known_by_its_snapshot(tmp_path: Path) -> None:
    assert told(tmp_path, KEPT).splitlines() == [
        "['ran', 'kept'] 0 None",
        "None True []",
        "pipeline 'kept' has no runs",
        "['ran'] []",
    ]


@needs_engine
def test_a_run_tells_the_stack_that_it_had(tmp_path: Path) -> None:
    (tmp_path / "stoker.yaml").write_text("stacks:\n  here: {backend: local}\n")
    assert told(tmp_path, RUNS).splitlines() == ["['here', 'default'] here"]


@needs_engine
def test_a_model_keeps_what_a_removed_run_gave_it(tmp_path: Path) -> None:
    """Also of a failed run, and where Stoker's own command removes it."""
    assert told(tmp_path, LINKED).splitlines() == ["['ran::one::output'] True"]
    done = subprocess.run(
        [str(engine()), "rm", "latest"],
        env=environment(tmp_path / ".stoker"),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    text = LINKED.replace("if not Client().list_pipeline_runs(size=1).total:", "if False:")
    assert told(tmp_path, text).splitlines() == ["['ran::one::output'] False"]


@needs_engine
def test_responses_are_mappings_and_what_else_the_client_answers(tmp_path: Path) -> None:
    lines = told(tmp_path, DUMPED).splitlines()
    assert [line for line in lines if "in step" in line] == ["in step {'rows': 3} ['good']"]
    assert [line for line in lines if "in step" not in line] == DUMPED_TOLD.splitlines()
