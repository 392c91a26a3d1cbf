"""``import zenml`` gives Stoker, module by module; a missing name raises an error that says so."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from compat_tools import SHIM, run_shimmed
from front_tools import WAIT_S, engine, environment, needs_engine


def test_the_folder_holds_only_the_packages():
    assert sorted(p.name for p in SHIM.iterdir() if p.name != "__pycache__") == [
        "metaflow",
        "zenml",
    ]


IMPORTS = """
from zenml import (
    ArtifactConfig, Client, CachePolicy, DockerSettings, ExecutionMode, ExternalArtifact, Model, ResourceSettings,
    Schedule, get_pipeline_context, get_step_context, load_artifact, log_artifact_metadata, log_metadata,
    log_step_metadata, pipeline, save_artifact, step,
)
from zenml.config import DockerSettings as D, ResourceSettings as R, StepRetryConfig, CachePolicy, Schedule
from zenml.config.docker_settings import DockerBuildConfig, DockerBuildOptions, PythonPackageInstaller
from zenml.config.resource_settings import ResourceSettings
from zenml.config.retry_config import StepRetryConfig
from zenml.config.cache_policy import CachePolicy
from zenml.client import Client
from zenml.steps import step, get_step_context, BaseStep
from zenml.pipelines import pipeline, Pipeline
from zenml.artifacts.artifact_config import ArtifactConfig
from zenml.artifacts.external_artifact import ExternalArtifact
from zenml.artifacts.utils import save_artifact, load_artifact
from zenml.materializers.base_materializer import BaseMaterializer
from zenml.metadata.metadata_types import Uri
from zenml.model.model import Model
from zenml.types import HTMLString, MarkdownString, CSVString, JSONString
from zenml.logger import get_logger
from zenml.enums import ArtifactType, ExecutionStatus
from zenml.exceptions import StepInterfaceError
from zenml.utils.cuda_utils import cleanup_gpu_memory
import zenml, zenml.integrations.huggingface, stoker
assert D is DockerSettings is stoker.DockerSettings and R is ResourceSettings
made = step(lambda: 1)
assert isinstance(made, BaseStep) and isinstance(made, stoker.Step)
assert zenml.__version__.count(".") == 2
get_logger(__name__).info("logged")
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    cleanup_gpu_memory()
    cleanup_gpu_memory(force=True)
assert len(caught) == 1, caught
"""


def test_every_name_resolves(tmp_path):
    assert "logged" in run_shimmed(tmp_path, IMPORTS).stderr


def test_the_table_is_true(tmp_path):
    run_shimmed(
        tmp_path,
        """
    import importlib, zenml
    for module, names in zenml._MODULES.items():
        found = importlib.import_module(module)
        for name in names if isinstance(names, dict) else found.__all__:
            assert getattr(found, name) is not None, (module, name)
        exec(f"from {module} import *")
    """,
    )


@pytest.mark.parametrize(
    "line,sentence",
    [
        (
            "from zenml import ResourceSetings",
            "has no 'ResourceSetings'; did you mean 'ResourceSettings'?",
        ),
        ("from zenml.config import Nope", "Stoker's stand-in for zenml.config has no 'Nope'"),
        ("import zenml.zen_server", "has no module 'zenml.zen_server'"),
    ],
)
def test_what_is_missing_says_so(tmp_path, line, sentence):
    done = run_shimmed(tmp_path, line, ok=False)
    assert done.returncode == 1 and sentence in done.stderr.splitlines()[-1]


def test_unknown_settings_warn(tmp_path):
    done = run_shimmed(
        tmp_path,
        """
    from zenml import step, pipeline, ResourceSettings
    @step(settings={"resources": ResourceSettings(gpus=2), "orchestrator.sagemaker": {"a": 1}})
    def f() -> int:
        return 1
    @pipeline(name="My pipeline")
    def p():
        f()
    assert "resources" not in p.spec()["steps"]["f"]
    assert p.name == "My_pipeline"
    """,
    )
    assert (
        "unknown field 'gpus' is ignored; did you mean 'gpu_class'" in done.stderr
        or "'gpus' is ignored" in done.stderr
    )
    assert "'orchestrator.sagemaker'" in done.stderr
    assert "prog.py:" in done.stderr  # at the user's own line


@pytest.mark.parametrize("what", ["step", "pipeline"])
def test_unknown_options_are_refused_as_in_zenml(tmp_path, what):
    done = run_shimmed(
        tmp_path,
        f"""
    from zenml import {what}
    try:
        @{what}(enable_cash=True)
        def f() -> int:
            return 1
    except TypeError as bad:
        print(bad)
    """,
    )
    assert "unknown option 'enable_cash'; did you mean 'enable_cache'" in done.stdout


@needs_engine
def test_stoker_compat(tmp_path):
    def stoker(*words):
        return subprocess.run(
            [engine(), "compat", *words],
            cwd=tmp_path,
            env=environment(tmp_path / ".stoker"),
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )

    shown = stoker("--path")
    assert shown.returncode == 0, shown.stderr
    assert os.listdir(shown.stdout.strip()) and (SHIM / "zenml").samefile(
        os.path.join(shown.stdout.strip(), "zenml")
    )
    file = tmp_path / "theirs.py"
    file.write_text(
        "from zenml import step, pipeline\n"
        "@step\ndef f(x: int) -> int:\n    return x + 1\n"
        "@pipeline\ndef p():\n    f(f(1))\n"
        "if __name__ == '__main__':\n    print(p().steps['f_2'].output.load())\n"
    )
    done = stoker("--", sys.executable, str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "3"
