"""Every attribute of every response that reads local state: whether it is there, and what it is.

The attributes come from ZenML's own classes (``asked.py``, which `make record-zenml` writes).
"""

import datetime
import enum
import uuid
from typing import Annotated, Any, Tuple

from asked import ASKED
from facts import fact
from zenml import Model, get_step_context, log_metadata, pipeline, save_artifact, step
from zenml.client import Client
from zenml.config import StepRetryConfig
from zenml.enums import StackComponentType


def told(value: Any, deep: int = 2) -> Any:
    """A value as both sides can tell it: texts, times and ids by their type, others by value;
    objects by their class if it is a response."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, (str, uuid.UUID, float, datetime.datetime, datetime.timedelta)):
        return "str" if isinstance(value, str) else type(value).__name__
    if isinstance(value, dict):
        shown = {str(getattr(k, "value", k)): told(v, deep - 1) for k, v in value.items()}
        return dict(sorted(shown.items())) if deep else "dict"
    if isinstance(value, (list, tuple, set, frozenset)):
        if not deep:
            return "list"
        return sorted({str(told(one, deep - 1)) for one in value})
    if callable(value):
        return "callable"
    name = type(value).__name__
    return name if name.endswith("Response") else "object"


@step(enable_cache=False, extra={"e": 1}, retry=StepRetryConfig(max_retries=1))
def make(n: int = 3) -> Tuple[Annotated[int, "at_number"], Annotated[dict, "at_table"]]:
    """Makes."""
    log_metadata({"rows": 3})
    return n, {"a": 1}


@step
def begin() -> int:
    return 3


@step
def use(x: int, factor: float = 2.0) -> float:
    """Uses."""
    return x * factor


@step(enable_cache=False)
def fails() -> None:
    raise ValueError("broken")


@pipeline(
    tags=["at_tag"],
    extra={"p": 2},
    model=Model(name="at_model", description="a model", license="MIT", tags=["m"]),
)
def at_main(n: int = 3):
    """Is asked."""
    x, _ = make(n)
    use(x)


@pipeline
def at_cached():
    use(begin())


@pipeline(enable_cache=False)
def at_failing():
    fails()


@step(enable_cache=False)
def inside() -> dict:
    context = get_step_context()
    return {
        f"{kind}.{name}": say(getattr(context, kind), name)
        for kind, of in (("pipeline_run", "PipelineRunResponse"), ("step_run", "StepRunResponse"))
        for name in (
            "id",
            "name",
            "status",
            "config",
            "start_time",
            "end_time",
            "tags",
            "run_metadata",
        )
        if name in ASKED[of]
    }


@pipeline
def at_inside():
    inside()


def say(thing: Any, name: str) -> Any:
    try:
        return told(getattr(thing, name))
    except Exception as bad:
        return "raises " + type(bad).__name__


def ask(title: str, thing: Any, kind: str) -> None:
    for name in ASKED[kind]:
        fact(f"{title}.{name}", lambda name=name: told(getattr(thing, name)))


if __name__ == "__main__":
    client = Client()
    run = at_main.with_options(run_name="at_run")(n=4)
    at_main()
    at_cached()
    again = at_cached()
    try:
        at_failing()
    except Exception as bad:
        print(type(bad))
    failed = client.get_pipeline("at_failing").last_run
    log_metadata({"acc": 0.5}, run_id_name_or_prefix=run.id)
    log_metadata({"m": 1}, artifact_version_id=run.steps["make"].outputs["at_number"][0].id)
    saved = save_artifact({"k": [1]}, "at_saved", tags=["s"])
    client.create_tag("at_alone", color="red")
    client.create_secret("at_secret", values={"k": "v"})
    ask("run", client.get_pipeline_run("at_run"), "PipelineRunResponse")
    ask("failed run", failed, "PipelineRunResponse")
    one = client.get_pipeline_run("at_run").steps
    ask("step", one["make"], "StepRunResponse")
    ask("step use", one["use"], "StepRunResponse")
    ask("cached run", again, "PipelineRunResponse")
    ask("cached step", again.steps["use"], "StepRunResponse")
    ask("failed step", failed.steps["fails"], "StepRunResponse")
    ask("run config", run.config, "PipelineConfiguration")
    ask("step config", one["make"].config, "StepConfiguration")
    ask("step spec", one["use"].spec, "StepSpec")
    ask("source", one["use"].spec.source, "Source")
    ask("pipeline", client.get_pipeline("at_main"), "PipelineResponse")
    ask("artifact", client.get_artifact("at_number"), "ArtifactResponse")
    ask("version", client.get_artifact_version("at_number", "1"), "ArtifactVersionResponse")
    ask("saved", client.get_artifact_version("at_saved"), "ArtifactVersionResponse")
    ask("model", client.get_model("at_model"), "ModelResponse")
    ask("model version", client.get_model_version("at_model", 1), "ModelVersionResponse")
    ask("declared model", client.get_model("at_model").versions[0], "Model")
    ask("tag", client.get_tag("at_alone"), "TagResponse")
    ask("secret", client.get_secret("at_secret"), "SecretResponse")
    ask("stack", client.active_stack_model, "StackResponse")
    ask("active stack", client.active_stack, "Stack")
    ask("orchestrator", client.active_stack.orchestrator, "StackComponent")
    store = client.get_stack_component(StackComponentType.ARTIFACT_STORE, "default")
    ask("store", store, "ComponentResponse")
    ask("user", client.active_user, "UserResponse")
    ask("project", client.active_project, "ProjectResponse")
    ask("page", client.list_models(), "Page")
    found = at_inside().steps["inside"].output.load()
    for name in sorted(found):
        fact(f"inside {name}", lambda name=name: found[name])
