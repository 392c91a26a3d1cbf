"""What ZenML's own functional tests look at: hooks around a run and calls of hooks, attempts,
artifacts without versions, and what a program is told that asks for what isn't there."""

import os
import tempfile
from pathlib import Path
from typing import Any, Union

from facts import fact
from pydantic import BaseModel
from typing_extensions import Annotated
from zenml import Model, get_step_context, pipeline, save_artifact, step
from zenml.artifacts.utils import (
    get_artifacts_versions_of_pipeline_run,
    get_producer_step_of_artifact,
)
from zenml.client import Client
from zenml.config import ByteUnit, ResourceSettings
from zenml.config.global_config import GlobalConfiguration
from zenml.config.pipeline_run_configuration import PipelineRunConfiguration
from zenml.config.retry_config import StepRetryConfig
from zenml.constants import ENV_ZENML_ACTIVE_STACK_ID, ENV_ZENML_SERVER
from zenml.exceptions import (
    HookValidationException,
    InitializationException,
    MaterializerInterfaceError,
    StepInterfaceError,
)
from zenml.hooks import run_hook
from zenml.materializers.base_materializer import BaseMaterializer
from zenml.models import ModelRequest
from zenml.steps.step_context import StepContext
from zenml.steps.utils import parse_return_type_annotations, resolve_type_annotation
from zenml.utils.secret_utils import SecretField
from zenml.utils.settings_utils import (
    DOCKER_SETTINGS_KEY,
    RESOURCE_SETTINGS_KEY,
    get_stack_component_setting_key,
)

FOLDER = tempfile.mkdtemp()


def note(word):
    with open(os.path.join(FOLDER, "notes"), "a") as out:
        out.write(word + "\n")


def notes():
    path = os.path.join(FOLDER, "notes")
    if not os.path.exists(path):
        return []
    with open(path) as stream:
        found = stream.read().split()
    os.remove(path)
    return found


def begins(n: int = 3):
    note(f"begins-{n}-{os.environ.get('OF_PIPELINE')}")
    return {"n": n}


def ends():
    note("ends")


def breaks():
    note("breaks")
    raise ValueError("hook")


def add(a: int, b: int) -> int:
    return a + b


def names_outputs() -> tuple[Annotated[int, "count"], list[str]]:
    return 1, ["a"]


def no_output() -> None:
    pass


class Kept(BaseModel):
    token: str = SecretField(default="")


@step
def one() -> int:
    return 1


@step
def asks_state() -> int:
    note("step")
    state = get_step_context().pipeline_state
    return -1 if state is None else state["n"]


@step
def fails() -> None:
    note("fails")
    raise ValueError("of the step")


@step(retry=StepRetryConfig(max_retries=2, delay=0, backoff=1))
def flaky() -> int:
    n = len(os.listdir(FOLDER))
    open(os.path.join(FOLDER, f"attempt-{n}"), "w").close()
    if n < 2:
        raise RuntimeError("again")
    return n


@step(on_success=ends)
def calls_hooks() -> int:
    try:
        run_hook(breaks, name="bad")
    except ValueError:
        pass
    return run_hook(add, 2, 3, store_return=True)


@step(on_failure=ends, on_start=ends, on_end=ends)
def fails_with_hooks() -> None:
    raise ValueError("of the step")


@step
def either(x: Union[int, str]) -> str:
    return type(x).__name__


@step(settings={"resources": ResourceSettings(cpu_count=1)})
def with_resources() -> int:
    return 1


@pipeline(
    enable_cache=False,
    on_init=begins,
    on_init_kwargs={"n": 5},
    on_cleanup=ends,
    environment={"OF_PIPELINE": "yes"},
)
def lives():
    asks_state()
    asks_state(id="again")


@pipeline(enable_cache=False, on_init=begins, on_cleanup=breaks)
def ends_badly():
    asks_state()


@pipeline(enable_cache=False, on_init=breaks, on_cleanup=ends)
def begins_badly():
    asks_state()


@pipeline(enable_cache=False, on_init=begins, on_cleanup=ends)
def fails_within():
    fails()


@pipeline(enable_cache=False)
def no_life():
    asks_state()


@pipeline(enable_cache=False)
def retries():
    flaky()


@pipeline(enable_cache=False)
def hooked():
    calls_hooks()


@pipeline(enable_cache=False)
def hooked_failing():
    fails_with_hooks()


@pipeline(enable_cache=False)
def takes_either(x: Any):
    either(x=x)


@pipeline
def empty():
    pass


@pipeline(enable_cache=False)
def resources():
    with_resources()


@pipeline(enable_cache=False)
def single():
    one()


@pipeline(enable_cache=False, model=Model(name="dated", version="v{date}-{word}"))
def dated():
    one()


def of(run, name):
    return run.steps[name].output.load()


def attempts():
    client = Client()
    some = client.list_run_steps(pipeline_run_id=retries().id, sort_by="version").items
    told = [(s.name, s.version, s.status.value) for s in some]
    errors = [s.exception_info is not None for s in some]
    last = client.list_run_steps(pipeline_run_id=some[0].pipeline_run_id, exclude_retried=True)
    again = client.get_run_step(some[0].id)
    return told, errors, last.total, again.status.value, len(again.outputs), some[0].is_retriable


def invocations(run, order="desc:created"):
    found = Client().list_hook_invocations(pipeline_run_id=run.id, sort_by=order)
    return [(h.hook_type.value, h.name, h.status.value) for h in found]


def hooks():
    client = Client()
    run = hooked()
    fact("hook result", lambda: of(run, "calls_hooks"))
    fact("invocations", lambda: invocations(run))
    found = client.list_hook_invocations(pipeline_run_id=run.id, name="add").items
    fact("hook outputs", lambda: [v.load() for v in found[0].outputs["output"]])
    fact("hook of step", lambda: found[0].step_run_id == run.steps["calls_hooks"].id)
    fact("hook source", lambda: found[0].source)
    fact("step outputs", lambda: {k: len(v) for k, v in run.steps["calls_hooks"].outputs.items()})
    bad = client.list_hook_invocations(name="bad").items
    fact("hook error", lambda: bad[0].exception_info.traceback.strip().splitlines()[-1])
    fact("untracked", lambda: run_hook(add, 1, 2, track=False))
    fact("hook by id", lambda: client.get_hook_invocation(found[0].id).name)
    fact("forgotten", lambda: client.delete_hook_invocation(found[0].id))
    fact("hook gone", lambda: client.get_hook_invocation(found[0].id).name)
    fact("hook name", lambda: run_hook(add, 1, 2, name="1 2"))
    try:
        hooked_failing()
    except RuntimeError:
        pass
    last = client.list_pipeline_runs(sort_by="desc:created")[0]
    fact("of failed step", lambda: sorted(invocations(last)))
    notes()


def life():
    fact("life", lambda: (of(run := lives(), "asks_state"), of(run, "again"), notes()))
    fact("life of kwargs", lambda: of(lives.with_options(on_init_kwargs={"n": 7})(), "asks_state"))
    fact("default", lambda: of(single.with_options(on_init=begins)(), "one"))
    fact("noted", notes)
    config = Client().get_pipeline("lives").last_run.config
    fact("init source", lambda: config.init_hook_source.attribute)
    fact("init kwargs", lambda: config.init_hook_kwargs)
    fact("cleanup source", lambda: config.cleanup_hook_source.attribute)
    fact("no init source", lambda: single().config.init_hook_source)
    fact("ends badly", lambda: (ends_badly().status.value, notes()))
    fact("begins badly", begins_badly)
    fact("begins badly noted", notes)
    fact("fails within", fails_within)
    fact("fails within noted", notes)
    fact("no life", lambda: of(no_life(), "asks_state"))
    fact("wrong init", lambda: single.with_options(on_init=begins, on_init_kwargs={"m": 1}))
    fact("wrong cleanup", lambda: single.with_options(on_cleanup=add))
    notes()


def artifacts():
    client = Client()
    save_artifact(1, "first")
    client.update_artifact("first", new_name="second", add_tags=["t"])
    client.delete_artifact_version("second")
    fact(
        "no versions",
        lambda: (client.get_artifact("second").name, client.get_artifact("second").versions),
    )
    fact("tags stay", lambda: [t.name for t in client.get_artifact("second").tags])
    fact("listed", lambda: client.list_artifacts(name="second").total)
    fact("latest", lambda: client.get_artifact("second").latest_version_name)
    fact("renamed", lambda: client.update_artifact("second", new_name="third").name)
    fact(
        "saved again",
        lambda: (
            save_artifact(2, "third").version,
            [t.name for t in client.get_artifact("third").tags],
        ),
    )
    fact("deleted", lambda: client.delete_artifact("third"))
    fact("gone", lambda: client.get_artifact("third"))
    fact("versions gone", lambda: client.list_artifact_versions(artifact="third").total)


def bad_type():
    class A(BaseMaterializer):
        ASSOCIATED_TYPES = ("a",)


def bad_kind():
    class B(BaseMaterializer):
        ASSOCIATED_TYPES = (int,)
        ASSOCIATED_ARTIFACT_TYPE = "nope"


def is_raised(kind, run, *args, **given):
    """Whether a call raises just what a program that imports this class catches."""
    try:
        run(*args, **given)
    except kind:
        return True
    except Exception as bad:
        return type(bad).__name__
    return "nothing"


def colour():
    @step(colour=1)
    def coloured() -> None:
        pass


def refused():
    folder = Path(tempfile.mkdtemp())
    Client.initialize(folder)
    fact("repository", lambda: is_raised(InitializationException, Client.initialize, folder))
    fact("types", lambda: is_raised(MaterializerInterfaceError, bad_type))
    fact("kind", lambda: is_raised(MaterializerInterfaceError, bad_kind))
    fact("hook", lambda: is_raised(HookValidationException, one.configure, on_success=add))
    fact(
        "no class",
        lambda: is_raised(StepInterfaceError, one.with_options, output_materializers=int),
    )
    wrong = {"nope": int}
    fact(
        "no output",
        lambda: is_raised(StepInterfaceError, one.configure, output_materializers=wrong),
    )
    fact("option", lambda: is_raised(TypeError, one.configure, colour=1))
    fact("option of decorator", lambda: is_raised(TypeError, colour))
    fact("option of pipeline", lambda: is_raised(TypeError, single.with_options, colour=1))
    fact("no steps", empty)
    nonsense = {"nonsense": {}}
    fact("settings", lambda: single.with_options(settings=nonsense)())
    fact("settings of step", lambda: is_raised(ValueError, lambda: odd_settings(nonsense)))


def odd_settings(given):
    @pipeline
    def odd():
        one.with_options(settings=given)()

    odd()


def others():
    fact("either", lambda: (of(takes_either(1), "either"), of(takes_either("a"), "either")))
    fact("neither", lambda: takes_either([]))
    run = resources()
    fact("resources", lambda: run.steps["with_resources"].config.resource_settings.cpu_count)
    fact("step settings", lambda: sorted(with_resources.configuration.settings))
    given = {"steps": {"one": {"parameters": {"x": 5}}}, "run_name": "a"}
    config = PipelineRunConfiguration.model_validate(given)
    fact("config", lambda: (config.steps["one"].parameters, config.steps["one"].enable_cache))
    fact("rest of it", lambda: (config.run_name, config.enable_cache, config.schedule))
    named = dated.with_options(substitutions={"word": "x"})
    named()
    named()
    versions = Client().list_model_versions(model="dated").items
    fact("dated", lambda: [(v.name[:3], v.name[-2:], v.number) for v in versions])


def looked_at():
    """What helpers of ZenML and configurations of runs tell."""
    run = single()
    config = run.steps["one"].config
    fact("materializer", lambda: config.outputs["output"].materializer_source[0].attribute)
    fact("dumped", lambda: (run.config.model_dump()["name"], config.model_dump()["name"]))
    fact("dumped parameters", lambda: config.model_dump()["parameters"])
    found = parse_return_type_annotations(names_outputs)
    fact(
        "outputs", lambda: {k: (o.resolved_annotation, o.has_custom_name) for k, o in found.items()}
    )
    fact("no outputs", lambda: parse_return_type_annotations(no_output))
    fact("of a list", lambda: resolve_type_annotation(list[int]))
    fact("one configuration", lambda: GlobalConfiguration() is GlobalConfiguration())
    fact("user", lambda: type(GlobalConfiguration().user_id).__name__)
    fact("wrong request", lambda: is_raised(ValueError, ModelRequest, name=1))
    fact("keys", lambda: (DOCKER_SETTINGS_KEY, RESOURCE_SETTINGS_KEY))
    orchestrator = Client().active_stack.orchestrator
    fact("key of a component", lambda: get_stack_component_setting_key(orchestrator))
    fact("produced", lambda: [a.name for a in get_artifacts_versions_of_pipeline_run(run)])
    made = run.steps["one"].output
    fact("producer", lambda: get_producer_step_of_artifact(made).name)
    fact("called", lambda: one.call_entrypoint())
    fact("no context", StepContext.get)
    fact("sensitive", lambda: Kept.model_fields["token"].json_schema_extra)
    fact("byte unit", lambda: ByteUnit.GB.value)
    fact("constants", lambda: (ENV_ZENML_ACTIVE_STACK_ID, ENV_ZENML_SERVER))


if __name__ == "__main__":
    fact("attempts", attempts)
    hooks()
    life()
    artifacts()
    refused()
    others()
    looked_at()
