"""Metadata set from outside a step, and removals by the client, in a program with a real store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from front_tools import needs_engine, run_python

pytestmark = needs_engine

MADE = """
import json
from typing import Annotated
from stoker import ArtifactConfig, Client, get_step_context, log_metadata, pipeline, save_artifact, step
from stoker._engine.metadata import log_artifact_metadata

@step
def make(n: int) -> Annotated[int, ArtifactConfig(name="number")]:
    log_metadata({"own": 1, "kept": True})
    log_artifact_metadata({"inside": 1}, "number")
    here = get_step_context()
    log_metadata({"by_name": 2}, run_id_name_or_prefix=here.run_id, step_name="make")
    return n

@pipeline
def made(n: int = 3):
    make(n)

if __name__ == "__main__":
    client, run = Client(), made()
"""


def play(folder: Path, body: str) -> object:
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    done = run_python(folder, MADE + lines, STOKER_ACCEL="none")
    return json.loads(done.stdout.splitlines()[-1])


def test_log_metadata_outside(tmp_path: Path) -> None:
    body = """
log_metadata({"of": "run"}, run_id_name_or_prefix=run.id)
log_metadata({"own": 5, "more": [1, 2]}, run_id_name_or_prefix="latest", step_name="make")
log_metadata({"again": 1.5}, step_id=run.steps["make"].id)
log_metadata({"rows": 3}, run_id_name_or_prefix=run.id, step_name="make", artifact_name="number")
saved = save_artifact(b"x", "blob")
save_artifact(b"y", "blob")
log_metadata({"v": 1}, artifact_name="blob", artifact_version=1)
log_metadata({"v": 2}, artifact_name="blob")
log_metadata({"id": 1}, artifact_version_id=client.get_artifact_version("blob", 1).id)
run = client.get_pipeline_run(run.id)
step = run.steps["make"]
print(json.dumps([
    run.run_metadata, step.run_metadata, step.output.run_metadata,
    client.get_artifact_version("blob", 1).run_metadata, client.get_artifact_version("blob").run_metadata,
]))
"""
    of_run, of_step, of_output, first, latest = play(tmp_path, body)  # type: ignore[misc]
    assert of_run == {"of": "run"}
    assert of_step == {"own": 5, "kept": True, "by_name": 2, "more": [1, 2], "again": 1.5}
    assert of_output == {"inside": 1, "rows": 3}
    assert first == {"v": 1, "id": 1} and latest == {"v": 2}


@pytest.mark.parametrize(
    "call, part",
    [
        ("log_metadata({'a': 1})", "name its target"),
        ("log_metadata({'a': 1}, run_id_name_or_prefix='nothing')", "no run 'nothing'"),
        (
            "log_metadata({'a': 1}, run_id_name_or_prefix=run.id, step_name='mike')",
            "no step 'mike'",
        ),
        ("log_metadata({'a': 1}, step_name='make')", "needs the run"),
        ("log_metadata({'a': 1}, artifact_name='nothing')", "no artifact is named 'nothing'"),
        ("log_metadata({'a': 1}, model_name='m')", "keeps no models"),
        ("log_metadata({'a': object()}, run_id_name_or_prefix=run.id)", "no JSON form"),
        ("client.delete_pipeline_run('nothing')", "no run 'nothing'"),
        ("client.delete_pipeline('nothing')", "no pipeline 'nothing'"),
        ("client.delete_artifact_version('nothing')", "no artifact is named 'nothing'"),
    ],
)
def test_what_is_not_there(tmp_path: Path, call: str, part: str) -> None:
    body = f"try:\n    {call}\nexcept Exception as bad:\n    print(json.dumps(str(bad)))"
    assert part in str(play(tmp_path, body))


def test_delete(tmp_path: Path) -> None:
    body = """
again = made()
other = made(n=4)
client.delete_pipeline_run(run.name)
left = [r.id for r in client.list_pipeline_runs()]
cached = client.get_pipeline_run(again.id).steps["make"].output.load()
client.delete_artifact_version("number", 1)
versions = list(client.get_artifact("number").versions)
client.delete_artifact("number")
client.delete_pipeline("made")
print(json.dumps([
    left == [other.id, again.id], cached, versions, len(client.list_artifacts("number")),
    len(client.list_pipeline_runs()), made().steps["make"].is_cached,
]))
"""
    assert play(tmp_path, body) == [True, 3, ["2"], 0, 0, False]
