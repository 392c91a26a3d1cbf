"""Episodes 05 and 06 of Metaflow's tutorials, the files of its own package: steps in pods, results read by the client."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from front_tools import cannot
from kube_driver import ROOT
from test_acceptance import project  # noqa: F401
from test_pipelines import STOKER, Project, carried  # noqa: F401

pytestmark = pytest.mark.slow
PACKAGE = "build/metaflow/lib/python*/site-packages/metaflow/tutorials"
STEPS = ("start", "hello", "end")
LOOK = """
import json, sys
from metaflow import Flow, namespace
namespace(None)
run = Flow(sys.argv[1]).latest_run
data = {a.id: a.data for task in run[sys.argv[2]] for a in task}
print(json.dumps([run.successful, data[sys.argv[3]]], sort_keys=True))
"""


@pytest.fixture
def episodes(project: Project) -> Path:  # noqa: F811
    """The tutorials in the project's folder."""
    found = sorted(ROOT.glob(PACKAGE))
    if not found:
        cannot("Metaflow is not installed in build/metaflow (`make build/metaflow/pyvenv.cfg`)")
    for episode in found[0].iterdir():
        if episode.is_dir():
            shutil.copytree(episode, project.folder / episode.name)
    (project.folder / "look.py").write_text(LOOK)
    return project.folder


def played(project: Project, *words: str) -> str:  # noqa: F811
    done = subprocess.run(
        [STOKER, "compat", "--", sys.executable, *words],
        cwd=project.folder,
        env={**project.env, "METAFLOW_USER": "tester"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_hello_cloud(project: Project, episodes: Path) -> None:  # noqa: F811
    """05: the step with @kubernetes and @retry is a pod, the others run here."""
    said = played(project, "05-hello-cloud/hello-cloud.py", "run")
    assert "Metaflow says: Hi from the cloud!" in said, said
    places = [project.step(name)["granted"].get("backend", "local") for name in STEPS]
    assert places == ["local", "kubernetes", "local"], places
    look = played(project, "look.py", "HelloCloudFlow", "hello", "message")
    assert json.loads(look) == [True, "Hi from the cloud!"]
    project.nothing_left()


def test_statistics_redux(project: Project, episodes: Path) -> None:  # noqa: F811
    """06: every step of episode 02 in pods gives what it gives here."""
    file, look = "02-statistics/stats.py", ("look.py", "MovieStatsFlow", "join", "genre_stats")
    played(project, file, "run")
    here = json.loads(played(project, *look))
    played(project, file, "run", "--with", "kubernetes", "--max-workers", "4")
    assert project.step("join")["granted"]["backend"] == "kubernetes"
    assert json.loads(played(project, *look)) == here and here[0] is True and len(here[1]) > 10
    project.nothing_left()
