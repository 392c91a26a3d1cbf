"""Runs, steps, pipelines, the stack and the client's other views."""

import datetime
from typing import Annotated

from facts import fact
from zenml import get_pipeline_context, get_step_context, log_metadata, pipeline, step
from zenml.client import Client
from zenml.enums import StackComponentType

SEEN = "order.txt"


@step(enable_cache=False)
def zebra() -> None:
    with open(SEEN, "w") as out:
        out.write("zebra\n")


@step(enable_cache=False)
def ant() -> None:
    with open("first.txt", "w") as out:
        out.write("ant")


@step(enable_cache=False)
def bee() -> str:
    return open("first.txt").read()


@pipeline
def vw_order():
    zebra()
    bee()
    ant()


@step(enable_cache=False)
def note(name: str, x: int = 0) -> int:
    with open("notes.txt", "a") as out:
        out.write(name + " ")
    return x


@pipeline
def vw_layers():
    b = note("b", id="b")
    a = note("a", id="a")
    note("y", x=a, id="y")
    note("x", x=b, id="x")
    note("c", id="c")


@step(enable_cache=False, extra={"e": 1})
def work(n: int, factor: float = 2.0) -> Annotated[float, "vw_result"]:
    """Multiplies."""
    log_metadata({"rows": 3})
    context = get_step_context()
    print(
        "context", context.pipeline.name, context.pipeline_run.name == "vw_run", context.step_name
    )
    return n * factor


@step(enable_cache=False)
def look() -> str:
    context = get_step_context()
    return f"{context.pipeline.name} {context.step_name} {type(context.pipeline_run.id).__name__} {context.step_run.config.name}"


@pipeline(tags=["vw_tag"], extra={"p": 2}, enable_cache=False)
def vw_main(n: int = 3):
    """Doubles."""
    work(n)
    look()


@step(enable_cache=False)
def fails() -> None:
    raise ValueError("broken")


@pipeline
def vw_failing():
    fails()


@pipeline
def vw_context():
    context = get_pipeline_context()
    work(1 if context.name == "vw_context" else 0)


if __name__ == "__main__":
    client = Client()
    fact("order", lambda: vw_order().steps["bee"].output.load())
    vw_layers()
    fact("layers", lambda: open("notes.txt").read())
    before = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    run = vw_main.with_options(run_name="vw_run")(n=4)
    fact("status", lambda: run.status)
    fact("name", lambda: run.name)
    fact("id", lambda: type(run.id).__name__)
    fact("steps", lambda: list(run.steps))
    fact("pipeline", lambda: run.pipeline.name)
    fact("tags", lambda: [t.name for t in run.tags])
    fact("config parameters", lambda: run.config.parameters)
    fact("config extra", lambda: run.config.extra)
    fact("config name", lambda: run.config.name)
    fact("config cache", lambda: run.config.enable_cache)
    fact("created", lambda: type(run.created).__name__)
    fact("naive", lambda: run.created.tzinfo)
    fact("start", lambda: run.start_time >= before - datetime.timedelta(seconds=5))
    fact("duration", lambda: run.end_time >= run.start_time)
    fact("in_progress", lambda: run.in_progress)
    fact("index", lambda: run.index)
    fact("stack", lambda: run.stack.name)
    fact("user", lambda: run.user.name)
    fact("schedule", lambda: run.schedule)
    fact("client env", lambda: "python_version" in run.client_environment)
    fact("artifacts", lambda: len(run.artifact_versions))
    fact("run hydrated", lambda: run.get_hydrated_version().name)
    fact("equal", lambda: client.get_pipeline_run(run.id) == run)
    fact("by name", lambda: client.get_pipeline_run("vw_run").id == run.id)
    fact("by prefix", lambda: client.get_pipeline_run(str(run.id)[:13]).id == run.id)
    fact("by name prefix", lambda: client.get_pipeline_run("vw_ru").id == run.id)
    fact("missing run", lambda: client.get_pipeline_run("vw_none"))
    one = run.steps["work"]
    fact("step config", lambda: one.config.parameters)
    fact("step extra", lambda: one.config.extra)
    fact("step name", lambda: (one.name, one.config.name))
    fact("step status", lambda: one.status)
    fact("step metadata", lambda: one.run_metadata["rows"])
    fact("step source", lambda: "def work" in one.source_code)
    fact("step docstring", lambda: one.docstring)
    fact("step duration", lambda: type(one.duration).__name__)
    fact("step inputs", lambda: dict(one.inputs))
    fact("step run", lambda: one.pipeline_run_id == run.id)
    fact("step spec", lambda: one.spec.source.attribute)
    fact("step upstream", lambda: one.spec.upstream_steps)
    fact("step cache key", lambda: type(one.cache_key).__name__)
    fact("step parents", lambda: one.parent_step_ids)
    fact("step original", lambda: one.original_step_run_id)
    fact("step type", lambda: str(one.type))
    fact("look", lambda: run.steps["look"].output.load())
    fact("get_run_step", lambda: client.get_run_step(one.id).name)
    fact(
        "list_run_steps",
        lambda: sorted(s.name for s in client.list_run_steps(pipeline_run_id=run.id)),
    )
    fact(
        "list_run_steps name",
        lambda: client.list_run_steps(pipeline_run_id=run.id, name="work").total,
    )
    found = client.get_pipeline("vw_main")
    fact("runs", lambda: [r.name for r in found.runs])
    fact("last_run", lambda: found.last_run.name)
    fact("last_successful", lambda: found.last_successful_run.name)
    fact("last_status", lambda: found.last_run.status)
    fact("num_runs", lambda: found.num_runs if hasattr(found, "num_runs") else len(found.runs))
    fact("get_runs", lambda: len(found.get_runs()))
    fact("pipeline tags", lambda: [t.name for t in found.tags])
    fact("model", lambda: vw_main.model.name)
    fact("missing pipeline", lambda: client.get_pipeline("vw_none"))
    fact(
        "list_pipelines",
        lambda: sorted(p.name for p in client.list_pipelines(name="startswith:vw_")),
    )
    fact("list_runs", lambda: [r.name for r in client.list_pipeline_runs(pipeline_name="vw_main")])
    fact(
        "list_runs status",
        lambda: client.list_pipeline_runs(pipeline_name="vw_main", status="completed").total,
    )
    fact(
        "list_runs page",
        lambda: (lambda p: (p.total, p.index, p.max_size, p.total_pages, len(p.items)))(
            client.list_pipeline_runs(pipeline_name="vw_main", size=5)
        ),
    )
    fact("list_runs tag", lambda: client.list_pipeline_runs(tag="vw_tag").total)
    fact("list_runs contains", lambda: client.list_pipeline_runs(name="contains:w_ru").total)
    fact(
        "list_runs logical",
        lambda: client.list_pipeline_runs(name='oneof:["vw_run","other"]').total,
    )
    fact(
        "list sort",
        lambda: [
            r.name
            for r in client.list_pipeline_runs(pipeline_name="vw_main", sort_by="desc:created")
        ],
    )
    log_metadata({"acc": 1.5}, run_id_name_or_prefix=run.id)
    fact("run metadata", lambda: client.get_pipeline_run(run.id).run_metadata)
    log_metadata({"later": True}, step_name="work", run_id_name_or_prefix=run.id)
    fact(
        "step metadata later",
        lambda: client.get_pipeline_run(run.id).steps["work"].run_metadata["later"],
    )
    log_metadata({"by id": 1}, step_id=one.id)
    fact("step metadata by id", lambda: client.get_run_step(one.id).run_metadata["by id"])
    log_metadata({"art": 1}, artifact_version_id=one.output.id)
    fact(
        "artifact metadata", lambda: client.get_artifact_version(one.output.id).run_metadata["art"]
    )
    fact("failing", lambda: vw_failing())
    failed = client.get_pipeline("vw_failing").last_run
    fact("failed status", lambda: failed.status)
    fact("failed step", lambda: failed.steps["fails"].status)
    fact("failed exception", lambda: failed.steps["fails"].exception_info is not None)
    fact("context", lambda: vw_context().steps["work"].output.load())
    fact("no context", lambda: get_step_context())
    fact("no pipeline context", lambda: get_pipeline_context())
    stack = client.active_stack
    fact("stack name", lambda: stack.name)
    fact(
        "orchestrator",
        lambda: (stack.orchestrator.flavor, stack.orchestrator.type.value, stack.orchestrator.name),
    )
    fact(
        "artifact store",
        lambda: (
            stack.artifact_store.flavor,
            stack.artifact_store.type.value,
            stack.artifact_store.name,
        ),
    )
    fact("store path", lambda: type(stack.artifact_store.path).__name__)
    fact("store exists", lambda: stack.artifact_store.exists(stack.artifact_store.path))
    fact("tracker", lambda: stack.experiment_tracker)
    fact(
        "registry",
        lambda: (
            stack.container_registry,
            stack.step_operator,
            stack.model_registry,
            stack.alerter,
            stack.model_deployer,
            stack.feature_store,
            stack.data_validator,
            stack.annotator,
        ),
    )
    fact("components", lambda: sorted(k.value for k in stack.components))
    fact(
        "stack model",
        lambda: (
            client.active_stack_model.name,
            sorted(k.value for k in client.active_stack_model.components),
        ),
    )
    fact("stacks", lambda: client.list_stacks(name="default").total)
    fact("get_stack", lambda: client.get_stack("default").name)
    fact(
        "component",
        lambda: client.get_stack_component(StackComponentType.ORCHESTRATOR, "default").flavor_name,
    )
    fact("user", lambda: client.active_user.name)
    fact("project", lambda: client.active_project.name)
    secret = client.create_secret("vw_secret", values={"user": "u", "password": "p"})
    fact("secret", lambda: (secret.name, secret.secret_values))
    fact("get_secret", lambda: client.get_secret("vw_secret").secret_values["user"])
    fact("secret twice", lambda: client.create_secret("vw_secret", values={"a": "b"}))
    fact(
        "secret update",
        lambda: sorted(
            client.update_secret("vw_secret", add_or_update_values={"more": "m"}).secret_values
        ),
    )
    fact("list_secrets", lambda: client.list_secrets(name="vw_secret").total)
    client.delete_secret("vw_secret")
    fact("secret gone", lambda: client.get_secret("vw_secret"))
    client.delete_pipeline_run(run.id)
    fact("run gone", lambda: client.get_pipeline_run(run.id))
    client.delete_pipeline("vw_failing")
    fact("pipeline gone", lambda: client.get_pipeline("vw_failing"))
