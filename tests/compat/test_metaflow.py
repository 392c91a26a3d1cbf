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
    get_metadata, Runner, NBRunner, profile, parallel_map, parallel_imap_unordered, exit_hook, yaml_parser,
    requirements_txt_parser, pyproject_toml_parser, conda_environment_yml_parser, user_step_decorator, FlowMutator)
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
        if module.startswith("metaflow._vendor."):
            continue  # other packages
        found = importlib.import_module(module)
        for name in found.__all__:
            unset = module == "metaflow.metaflow_config"  # a setting may be None
            assert getattr(found, name) is not None or unset, (module, name)
        exec(f"from {module} import *")
    assert not hasattr(metaflow, "cache")
    """,
    )


@pytest.mark.parametrize(
    "line,sentence",
    [
        ("from metaflow import FlowSpek", "has no 'FlowSpek'; did you mean 'FlowSpec'?"),
        (
            "from metaflow import metaflow_ray",
            "@metaflow_ray isn't there: `pip install --no-deps metaflow-ray` brings it",
        ),
        ("from metaflow.exception import Nope", "stand-in for metaflow.exception has no 'Nope'"),
        ("import metaflow.plugins.airflow", "has no module 'metaflow.plugins.airflow'"),
        (
            "from metaflow import test_step_decorator",
            "has no 'test_step_decorator'; Stoker doesn't have this part: remove it, or run the program without "
            "`stoker compat`",
        ),
    ],
)
def test_what_is_missing_says_so(tmp_path, line, sentence):
    done = run_shimmed(tmp_path, line, ok=False)
    assert done.returncode == 1 and sentence in done.stderr.splitlines()[-1]


VENDORED = """
import sys
import metaflow._vendor.packaging.version as version
from metaflow._vendor import packaging
import packaging.version
assert packaging.version is version and metaflow_vendor() is packaging
sys.path[:] = [one for one in sys.path if "site-packages" not in one]
for name in ("yaml", "click"):
    sys.modules.pop(name, None)
    try:
        __import__(f"metaflow._vendor.{name}")
    except ModuleNotFoundError as bad:
        print(bad)
""".replace("metaflow_vendor()", "sys.modules['metaflow']._vendor.packaging")


def test_copies_of_other_packages(tmp_path):
    """What Metaflow has in ``_vendor`` is the installed package, or says how to install it."""
    said = run_shimmed(tmp_path, VENDORED).stdout.splitlines()
    assert [one.rpartition(": ")[2] for one in said] == ["pip install pyyaml", "pip install click"]


def test_decorators_from_texts(tmp_path):
    """``extract_step_decorator_from_decospec``, as real Metaflow answers."""
    (tmp_path / "own.py").write_text(
        "from metaflow import UserStepDecorator\nclass count(UserStepDecorator): pass\n"
    )
    source = """
from metaflow.decorators import UnknownStepDecoratorException, extract_step_decorator_from_decospec as extract
from metaflow.exception import MetaflowException
for one in ("retry", "retry:times=1", "own.count", "own.count:first=2", "own.none", "nowhere.x", "none"):
    try:
        made, said = extract(one)
        print(one, int(made.attributes["times"]) if "retry" in one else type(made).__name__, said)
    except MetaflowException as bad:
        print(one, isinstance(bad, UnknownStepDecoratorException))
"""
    said = run_shimmed(tmp_path, source).stdout
    assert said == (
        "retry 3 False\nretry:times=1 1 True\nown.count count False\nown.count:first=2 count True\n"
        "own.none True\nnowhere.x False\nnone True\n"
    )


def test_settings(tmp_path):
    """Names of metaflow_config: from the environment, the file of METAFLOW_HOME, or their defaults."""
    home = tmp_path / "home"
    home.mkdir()
    told = {"METAFLOW_DATASTORE_SYSROOT_S3": "s3://b/x", "METAFLOW_S3_WORKER_COUNT": "8"}
    (home / "config_own.json").write_text(json.dumps(told))
    done = run_shimmed(
        tmp_path,
        """
    from metaflow.metaflow_config import (CARD_NO_WARNING, DATATOOLS_CLIENT_PARAMS, DATATOOLS_S3ROOT, DEFAULT_DATASTORE,
        S3_RETRY_COUNT, S3_WORKER_COUNT, UI_URL)
    from metaflow.metaflow_config_funcs import from_conf, init_config
    print(CARD_NO_WARNING, DATATOOLS_CLIENT_PARAMS, DATATOOLS_S3ROOT, DEFAULT_DATASTORE, S3_RETRY_COUNT,
        S3_WORKER_COUNT, UI_URL, from_conf("OWN", 1.5), sorted(init_config().values()))
    """,
        METAFLOW_HOME=str(home),
        METAFLOW_PROFILE="own",
        METAFLOW_S3_RETRY_COUNT="3",
        METAFLOW_DATATOOLS_CLIENT_PARAMS='{"a": 1}',
    )
    assert (
        done.stdout.split("\n")[0]
        == "False {'a': 1} s3://b/x/data local 3 8 None 1.5 ['8', 's3://b/x']"
    )


@needs_engine
def test_names_that_a_program_keeps_out_of_merges(tmp_path):
    """What a program adds to INTERNAL_ARTIFACTS_SET is no conflict of branches, nor merged."""
    source = """
from metaflow import FlowSpec, step
from metaflow.flowspec import INTERNAL_ARTIFACTS_SET
INTERNAL_ARTIFACTS_SET.add("own")
class F(FlowSpec):
    @step
    def start(self):
        self.next(self.a, self.b)
    @step
    def a(self):
        self.own = self.left = 1
        self.next(self.join)
    @step
    def b(self):
        self.own = 2
        self.next(self.join)
    @step
    def join(self, inputs):
        self.merge_artifacts(inputs)
        print("has", self.left, hasattr(self, "own"))
        self.next(self.end)
    @step
    def end(self): pass
if __name__ == "__main__": F()
"""
    (tmp_path / "flow.py").write_text(source)
    done = compat(tmp_path, "flow.py", "run")
    assert "has 1 False" in done.stdout, done.stderr


@needs_engine
def test_a_missing_part_is_not_to_be_installed(tmp_path):
    """A step that imports it fails with one sentence; no package of that name exists."""
    (tmp_path / "flow.py").write_text(
        "from metaflow import FlowSpec, step\nclass F(FlowSpec):\n    @step\n    def start(self):\n"
        "        import metaflow.plugins.airflow\n        self.next(self.end)\n    @step\n    def end(self): pass\n"
        "if __name__ == '__main__': F()\n"
    )
    done = subprocess.run(
        [str(engine()), "compat", "--", sys.executable, "flow.py", "run"],
        cwd=tmp_path,
        env=environment(tmp_path / ".stoker"),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 1 and "pip install" not in done.stderr
    assert "has no module 'metaflow.plugins.airflow'; Stoker doesn't have this part" in done.stderr


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


@needs_engine
def test_the_metaflow_command(tmp_path):
    """`metaflow` under `stoker compat`: what is there, or what takes its place; Metaflow isn't installed."""

    def told(*words, **env):
        return subprocess.run(
            [str(engine()), "compat", "--", "metaflow", *words],
            cwd=tmp_path,
            env={**environment(tmp_path / ".stoker"), "METAFLOW_USER": "tester", **env},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )

    (tmp_path / "flow.py").write_text(CHECKPOINT)
    compat(tmp_path, "flow.py", "run")
    env = {"METAFLOW_SERVICE_AUTH_KEY": "hush", "METAFLOW_HOME": str(tmp_path)}
    rows = told("status", **env).stdout.splitlines()
    assert "namespace: user:tester" in rows[1] and f"store: {tmp_path}/.stoker" in rows
    assert "flow: C, runs: 1" in rows
    assert "setting: METAFLOW_SERVICE_AUTH_KEY=(hidden) (environment)" in rows
    assert "setting: METAFLOW_USER=tester (environment)" in told("configure", "show", **env).stdout
    assert "stoker.yaml" in told("configure").stdout and told("configure", "aws").returncode == 1
    assert told("tutorials", "list").returncode == 0 and "Usage: metaflow" in told().stdout
    wrong = told("confgure")
    assert wrong.returncode == 2 and "did you mean 'configure'?" in wrong.stderr


CHECKPOINT = """
from metaflow import Checkpoint, FlowSpec, checkpoint, step
class C(FlowSpec):
    @checkpoint
    @step
    def start(self):
        with Checkpoint() as made:
            open(made.directory + "/weights", "w").write("one")
            self.first = made.save(metadata={"epoch": 1})
            open(made.directory + "/weights", "w").write("two")
            self.second = made.save(name="best")
        self.names = [one["name"] for one in Checkpoint().list()]
        self.next(self.end)
    @step
    def end(self):
        Checkpoint().load(self.first, path="got")
        self.text = open("got/weights").read()
        self.refused = []
        for path in (None, "got"):
            try:
                Checkpoint().save(path)
            except Exception as bad:
                self.refused.append(str(bad)[:50])
if __name__ == "__main__":
    C()
"""


@needs_engine
def test_checkpoints_by_hand(tmp_path):
    """`Checkpoint`: in steps, and outside of them those of a task."""
    (tmp_path / "flow.py").write_text(CHECKPOINT)
    (tmp_path / "look.py").write_text(
        "from metaflow import Checkpoint, Flow, namespace\nnamespace(None)\nrun = Flow('C').latest_run\n"
        "print(run.data.text, run.data.refused)\n"
        "start = run['start'].task\nprint(start.data.names)\n"
        "found = Checkpoint().list(task=start, name='best')\n"
        "print([(one['pathspec'] == start.pathspec, one['attempt']) for one in found])\n"
        "with Checkpoint() as made:\n    made.load(found[0]); print(open(made.directory + '/weights').read())\n"
        "for bad in (lambda: Checkpoint().list(), lambda: Checkpoint().save('look.py')):\n"
        "    try: bad()\n    except Exception as error: print(type(error).__name__)\n"
    )
    compat(tmp_path, "flow.py", "run")
    rows = compat(tmp_path, "look.py").stdout.splitlines()
    assert rows[0] == (
        "one ['give a path, or use `with Checkpoint() as …`, whic', "
        "'Checkpoint.save saves for the task of a step with ']"
    )
    assert rows[1:] == [
        "['best', 'mfchckpt']",
        "[(True, 0)]",
        "two",
        "ValueError",
        "MetaflowException",
    ]
