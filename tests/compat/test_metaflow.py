"""``import metaflow`` is Stoker: names, the documentation's GPU flow, the tutorials of the real package."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from compat_tools import metaflow_python, run_shimmed
from front_tools import ROOT, WAIT_S, engine, environment, needs_engine

DATA = ROOT / "tests" / "data" / "metaflow"

IMPORTS = """
from metaflow import (FlowSpec, step, Parameter, JSONType, IncludeFile, Config, config_expr, current, resources, retry,
    timeout, catch, environment, secrets, kubernetes, batch, parallel, card, pypi, conda, project, schedule, trigger,
    Flow, Run, Step, Task, DataArtifact, Metaflow, namespace, get_namespace, default_namespace, metadata,
    get_metadata, Runner, NBRunner)
from metaflow.client import Flow as F
from metaflow.client.core import Run as R
from metaflow.exception import MetaflowException, MetaflowNotFound, MetaflowInternalError
from metaflow.decorators import StepDecorator, FlowDecorator
from metaflow.parameters import JSONTypeClass
from metaflow.plugins.timeout_decorator import TimeoutException
from metaflow.plugins.catch_decorator import FailureHandledByCatch
from metaflow.plugins.parallel_decorator import ParallelDecorator
from metaflow.runner.metaflow_runner import ExecutingRun
from metaflow.metaflow_version import get_version
from metaflow.util import get_username
import metaflow, metaflow.flowspec, stoker.flow
assert metaflow.FlowSpec is stoker.flow.FlowSpec is metaflow.flowspec.FlowSpec and F is Flow and R is Run
assert metaflow.__version__ == get_version() == "2.19.39" and issubclass(MetaflowNotFound, MetaflowException)
assert metaflow.plugins.retry_decorator.RetryDecorator.name == "retry"
"""


def test_every_name_resolves(tmp_path):
    run_shimmed(tmp_path, IMPORTS)


def test_the_table_is_true(tmp_path):
    run_shimmed(
        tmp_path,
        """
    import importlib, metaflow
    for module, names in metaflow._MODULES.items():
        found = importlib.import_module(module)
        for name in found.__all__:
            assert getattr(found, name) is not None, (module, name)
        exec(f"from {module} import *")
    assert not hasattr(metaflow, "cache")
    """,
    )


@pytest.mark.parametrize(
    "line,sentence",
    [
        ("from metaflow import FlowSpek", "has no 'FlowSpek'; did you mean 'FlowSpec'?"),
        ("from metaflow.exception import Nope", "stand-in for metaflow.exception has no 'Nope'"),
        ("import metaflow.plugins.argo", "has no module 'metaflow.plugins.argo'"),
        ("from metaflow import S3", "S3 comes with a later version of Stoker"),
        ("from metaflow import StepMutator", "decorators of one's own come with a later version"),
    ],
)
def test_what_is_missing_says_so(tmp_path, line, sentence):
    done = run_shimmed(tmp_path, line, ok=False)
    assert done.returncode == 1 and sentence in done.stderr.splitlines()[-1]


def compat(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """``stoker compat -- python WORDS``."""
    done = subprocess.run(
        [str(engine()), "compat", "--", sys.executable, *words],
        cwd=folder,
        env={**environment(folder / ".stoker"), "METAFLOW_USER": "tester", **env},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@needs_engine
def test_the_documentations_gpu_flow(tmp_path):
    """Runs on a laptop, as its page says; a note names resources that the machine lacks."""
    shutil.copy(DATA / "gpu_flow.py", tmp_path)
    code = "import os\ndef my_gpu_routine():\n    print('gpus', os.environ.get('CUDA_VISIBLE_DEVICES'))\n"
    (tmp_path / "my_script.py").write_text(code)
    done = compat(tmp_path, "gpu_flow.py", "run")
    assert "gpus" in done.stdout
    shown = subprocess.run(
        [str(engine()), "show", "latest", "--json"],
        env=environment(tmp_path / ".stoker"),
        capture_output=True,
        text=True,
    )
    run = json.loads(shown.stdout)
    asked = {"cpu_count": 4, "memory": "32000MB", "gpu_count": 1}
    spec = json.loads((tmp_path / ".stoker" / "runs" / run["run"] / "spec.json").read_text())
    assert spec["steps"]["start"]["resources"] == asked
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        assert (
            "step 'start' asked for 1 GPU: this machine has none, so it runs on the CPU"
            in done.stderr
        )


# ---------------------------------------------------------------------------- tutorials

LOOK = """
import json, sys
from metaflow import Flow, namespace
namespace(None)
told = {}
for name in sys.argv[1:]:
    run = Flow(name).latest_run
    data = {a.id: a.data for a in run.end_task if a.id[0] != "_" and a.id not in ("name", "movie_data")}
    for one in ("playlist", "bonus", "genres"):  # shuffled, or drawn
        if one in data:
            data[one] = len(data[one]) if one == "bonus" else sorted(data[one])
    told[name] = [run.successful, {s.id: len(list(s)) for s in run}, sorted(data.items())]
print(json.dumps(told, sort_keys=True))
"""
EPISODES = [
    ("00-helloworld/helloworld.py", "HelloFlow"),
    ("01-playlist/playlist.py", "PlayListFlow"),
    ("02-statistics/stats.py", "MovieStatsFlow"),
    ("03-playlist-redux/playlist.py", "PlayListFlow"),
]


@needs_engine
@pytest.mark.slow
def test_tutorials(tmp_path):
    """Episodes 00 to 03 of the real package, pulled, run unchanged by both, with equal results."""
    python = metaflow_python()
    folder = tmp_path / "real"
    folder.mkdir()
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("METAFLOW", "PYTHONPATH"))}
    env = {**kept, "HOME": str(tmp_path), "METAFLOW_USER": "tester"}

    def real(*words: str) -> str:
        done = subprocess.run([python, *words], cwd=folder, env=env, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    real("-m", "metaflow.cmd.main_cli", "tutorials", "pull")
    ours = shutil.copytree(folder / "metaflow-tutorials", tmp_path / "ours")
    (tmp_path / "look.py").write_text(LOOK)
    look = str(tmp_path / "look.py")
    for file, flow in EPISODES:
        theirs_said = real(f"metaflow-tutorials/{file}", "run")
        ours_said = compat(ours, file, "run").stdout
        for line in ("Playlist for movies in genre 'Sci-Fi'", "Metaflow says: Hi!", "Pick 5:"):
            assert (line in theirs_said) == (line in ours_said), line
        assert json.loads(real(look, flow)) == json.loads(compat(ours, look, flow).stdout)
