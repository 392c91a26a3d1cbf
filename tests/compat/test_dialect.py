"""Features of ZenML programs beyond the core names: each of these runs unchanged under ZenML
0.98."""

from __future__ import annotations

from compat_tools import run_shimmed
from front_tools import needs_engine

IMPORTS = """
from zenml import StepContext, Tag, add_tags, log_model_metadata
from zenml.config.resource_settings import ByteUnit
from zenml.enums import ModelStages, VisualizationType
from zenml.hooks import alerter_failure_hook, alerter_success_hook
from zenml.integrations.constants import HUGGINGFACE, PYTORCH
from zenml.integrations.kubernetes.flavors import KubernetesOrchestratorSettings
from zenml.integrations.kubernetes.flavors import KubernetesStepOperatorSettings
from zenml.integrations.kubernetes.pod_settings import KubernetesPodSettings
pods = KubernetesPodSettings(node_selectors={"a": "b"})
assert KubernetesStepOperatorSettings(pod_settings=pods).pod_settings.node_selectors == {"a": "b"}
from zenml.integrations.mlflow.flavors.mlflow_experiment_tracker_flavor import (
    MLFlowExperimentTrackerSettings,
)
from zenml.io import fileio
from zenml.materializers import BuiltInMaterializer, CloudpickleMaterializer
from zenml.materializers.cloudpickle_materializer import CloudpickleMaterializer as Same
from zenml.models import PipelineRunResponse
from zenml.steps.step_context import get_step_context
assert PYTORCH == "pytorch" and Same is CloudpickleMaterializer
fileio.makedirs("a/b")
with fileio.open("a/b/c.txt", "w") as f:
    f.write("x")
assert fileio.exists("a/b/c.txt") and fileio.listdir("a") == ["b"]
settings = MLFlowExperimentTrackerSettings(nested=True)
from zenml import step
import warnings
warnings.simplefilter("ignore")
@step(settings={"experiment_tracker": settings}, on_failure=alerter_failure_hook)
def s() -> int: return 1
from zenml.integrations.pytorch.materializers import PyTorchModuleMaterializer
from zenml.integrations.sklearn.materializers.sklearn_materializer import SklearnMaterializer
from zenml.materializers.base_materializer import BaseMaterializer
assert issubclass(SklearnMaterializer, BaseMaterializer) and s.with_options(
    output_materializers=PyTorchModuleMaterializer
)
try:
    from zenml.integrations.pytorch.materializers import NoSuchMaterializer
except ImportError as bad:
    assert "stand-in" in str(bad)
from zenml.integrations.evidently.metrics import EvidentlyMetricConfig
from zenml.integrations.slack.alerters.slack_alerter import SlackAlerter
from zenml.integrations.slack.flavors import SlackAlerterSettings
from zenml.integrations.whylogs.steps import get_whylogs_profiler_step
SlackAlerterSettings(slack_channel_id="c")
for use in (lambda: EvidentlyMetricConfig.metric("m"), SlackAlerter, get_whylogs_profiler_step):
    try:
        use()
    except NotImplementedError as bad:
        assert "Stoker has no integration of" in str(bad)
    else:
        raise AssertionError(use)
"""


def test_more_names(tmp_path):
    run_shimmed(tmp_path, IMPORTS)


@needs_engine
def test_habits(tmp_path):
    run_shimmed(
        tmp_path,
        """
from typing import Any
import warnings
from zenml import Model, Tag, add_tags, get_pipeline_context, get_step_context, pipeline, step
from zenml.client import Client
from zenml.materializers import CloudpickleMaterializer
warnings.simplefilter("ignore")

@step
def lax(rate: float, flag: bool, other: bool) -> str:
    return repr((rate, flag, other))

@step
def about(x: str) -> str:
    add_tags("seen", infer_artifact=True)
    context = get_step_context()
    return f"{context.model.name} {context.model.version} {context.step_run.config.parameters}"

@step(output_materializers=CloudpickleMaterializer)
def made() -> Any:
    return {"a": [1, {2, 3}]}

@pipeline(model=Model(name="net", version="two"), tags=[Tag(name="t")], enable_cache=False)
def p():
    assert get_pipeline_context().model.name == "net"
    about(lax("0.5", 1, "no"))
    made()
    step(name="my step ü")(lambda: 3)()

if __name__ == "__main__":
    run = p()
    assert run.steps["lax"].output.load() == "(0.5, True, False)"
    assert run.steps["about"].output.load() == "net two {}"
    assert run.steps["about"].inputs["x"][0].load() == "(0.5, True, False)"
    assert [tag.name for tag in run.steps["about"].output.tags] == ["seen"]
    assert run.steps["made"].output.load() == {"a": [1, {2, 3}]}
    assert run.steps["my step ü"].output.load() == 3
    client = Client()
    assert client.list_pipeline_runs(pipeline_id=run.pipeline.id)[0].id == run.id
    assert [p.name for p in client.list_pipelines(name="p")] == ["p"]
    assert [tag.name for tag in run.tags] == ["t"]
""",
    )
