"""Classes of ``zenml.models``, and the store below the client, which takes filters and requests."""

import zenml.models
from facts import fact
from zenml import Model, log_metadata, pipeline, step
from zenml.client import Client
from zenml.enums import StoreType
from zenml.models import (
    ArtifactUpdate,
    ArtifactVersionFilter,
    BaseFilter,
    BaseRequest,
    ComponentRequest,
    ComponentUpdate,
    ModelFilter,
    ModelRequest,
    ModelVersionFilter,
    ModelVersionRequest,
    ModelVersionUpdate,
    Page,
    PipelineFilter,
    PipelineRunFilter,
    PipelineRunResponseBody,
    PipelineSnapshotFilter,
    ProjectScopedFilter,
    RunMetadataRequest,
    RunMetadataResource,
    RunTemplateFilter,
    ScheduleFilter,
    SecretFilter,
    SecretRequest,
    SecretUpdate,
    StackFilter,
    StackRequest,
    StackUpdate,
    StepRunFilter,
    TagFilter,
    TagRequest,
    TagUpdate,
)
from zenml.models import __all__ as public


@step(enable_cache=False)
def train(lr: float) -> float:
    log_metadata({"lr": lr})
    return lr * 2


@pipeline(model=Model(name="sc_net", version="v1"), tags=["sc_tag"])
def sc_train(lr: float = 0.1):
    train(lr)


def names(page):
    return [one.name for one in page]


RESPONSES = {
    kind: getattr(zenml.models, kind)
    for kind in (
        *("ArtifactResponse", "ArtifactVersionResponse", "BaseIdentifiedResponse"),
        *("BaseResponse", "ComponentResponse", "ModelResponse", "ModelVersionResponse"),
        *("PipelineResponse", "PipelineRunResponse", "ProjectResponse", "ProjectScopedResponse"),
        *("SecretResponse", "StackResponse", "StepRunResponse", "TagResponse", "UserResponse"),
        "UserScopedResponse",
    )
}


def kinds(thing):
    return [name for name, kind in RESPONSES.items() if isinstance(thing, kind)]


def refused(**given):
    try:
        return PipelineRunFilter(**given)
    except ValueError:
        return "ValueError"


if __name__ == "__main__":
    client = Client()
    first = sc_train.with_options(run_name="sc_one")(0.1)
    sc_train.with_options(run_name="sc_two")(0.5)
    client.create_secret("sc_secret", {"a": "1"})
    store = client.zen_store
    fact("all there", lambda: [name for name in public if not hasattr(zenml.models, name)])

    # which class what has
    for name, thing in {
        "run": first,
        "step": first.steps["train"],
        "pipeline": first.pipeline,
        "artifact version": first.steps["train"].output,
        "artifact": first.steps["train"].output.artifact,
        "model": client.get_model("sc_net"),
        "model version": client.get_model_version("sc_net", "v1"),
        "tag": client.get_tag("sc_tag"),
        "secret": client.get_secret("sc_secret"),
        "user": client.active_user,
        "project": client.active_project,
        "stack": client.active_stack_model,
        "component": client.list_stack_components()[0],
    }.items():
        fact(f"kinds of {name}", lambda thing=thing: kinds(thing))
    fact("body", lambda: isinstance(first.get_body(), PipelineRunResponseBody))
    fact("page", lambda: isinstance(client.list_pipeline_runs(), Page))
    fact(
        "filter is",
        lambda: [issubclass(PipelineRunFilter, k) for k in (BaseFilter, ProjectScopedFilter)],
    )
    fact("request is", lambda: issubclass(ModelRequest, BaseRequest))

    # filters
    some = PipelineRunFilter(name="contains:sc_", size=1, page=2, sort_by="desc:created")
    fact("fields", lambda: (some.name, some.size, some.page, some.sort_by, some.status))
    fact("defaults", lambda: [getattr(PipelineRunFilter(), k) for k in ("sort_by", "page", "size")])
    fact("operator", lambda: PipelineRunFilter(logical_operator="or").logical_operator.value)
    fact("unknown field", lambda: PipelineRunFilter(nothing=1))
    fact("unknown order", lambda: refused(sort_by="nothing"))
    fact("page 0", lambda: refused(page=0))
    fact("of nothing", lambda: ScheduleFilter(name="x").name)
    for kind in (ArtifactVersionFilter, ModelFilter, PipelineFilter, StepRunFilter, TagFilter):
        fact(f"id of {kind.__name__}", lambda kind=kind: kind().id)

    # the store
    fact("type", lambda: store.type == StoreType.SQL)
    fact("is local", lambda: store.is_local_store())
    fact("info", lambda: store.get_store_info().version)
    fact("runs", lambda: names(store.list_runs(PipelineRunFilter(name="contains:sc_"))))
    fact("second page", lambda: names(store.list_runs(some)))
    fact(
        "runs by keyword",
        lambda: (
            store.list_runs(runs_filter_model=PipelineRunFilter(pipeline_name="sc_train")).total
        ),
    )
    fact("run by id", lambda: store.get_run(first.id).name)
    fact("run by id and hydrate", lambda: store.get_run(run_id=first.id, hydrate=True).name)
    fact("steps", lambda: names(store.list_run_steps(StepRunFilter(pipeline_run_id=first.id))))
    fact("pipelines", lambda: names(store.list_pipelines(PipelineFilter(name="sc_train"))))
    fact(
        "versions",
        lambda: (
            store.list_artifact_versions(
                ArtifactVersionFilter(artifact="sc_train::train::output")
            ).total
        ),
    )
    fact("models", lambda: names(store.list_models(ModelFilter(name="sc_net"))))
    fact(
        "model versions",
        lambda: names(store.list_model_versions(ModelVersionFilter(model="sc_net"))),
    )
    fact("secrets", lambda: names(store.list_secrets(SecretFilter(name="sc_secret"))))
    fact("tags", lambda: names(store.list_tags(TagFilter(name="sc_tag"))))
    fact("schedules", lambda: store.list_schedules(ScheduleFilter()).total)
    fact("make tag", lambda: store.create_tag(TagRequest(name="sc_made", color="red")).color.value)
    made = client.get_tag("sc_made")
    fact("change tag", lambda: store.update_tag(made.id, TagUpdate(name="sc_changed")).name)
    fact(
        "make model",
        lambda: (
            store.create_model(ModelRequest(name="sc_other", project=client.active_project.id)).name
        ),
    )
    fact("drop model", lambda: store.delete_model(client.get_model("sc_other").id))
    fact("no run", lambda: store.get_run(client.active_project.id))
    fact("no tag", lambda: store.get_tag(client.active_project.id))

    # what requests make and change
    change = store.update_secret
    secret = store.create_secret(SecretRequest(name="sc_word", values={"a": "1", "b": "1"}))
    fact("change value", lambda: change(secret.id, SecretUpdate(values={"a": "2"})).name)
    fact("changed value", lambda: client.get_secret("sc_word").secret_values)
    fact("drop value", lambda: change(secret.id, SecretUpdate(values={"b": None})).name)
    fact("left values", lambda: client.get_secret("sc_word").secret_values)
    fact("rename secret", lambda: change(secret.id, SecretUpdate(name="sc_new")).name)
    fact("renamed secret", lambda: names(client.list_secrets(name="startswith:sc_")))
    artifact = first.steps["train"].output.artifact
    fact(
        "tag artifact",
        lambda: names(store.update_artifact(artifact.id, ArtifactUpdate(add_tags=["sc_a"])).tags),
    )
    fact(
        "rename artifact",
        lambda: store.update_artifact(artifact.id, ArtifactUpdate(name="sc_artifact")).name,
    )
    fact("renamed artifact", lambda: client.get_artifact_version("sc_artifact").load())
    mine = {"project": client.active_project.id}
    net = client.get_model("sc_net").id
    made = store.create_model_version(ModelVersionRequest(name="v2", model=net, **mine))
    fact("model version", lambda: (made.name, made.number, made.model.name))
    fact("model version by id", lambda: store.get_model_version(made.id).name)
    fact(
        "change model version",
        lambda: (
            store.update_model_version(
                model_version_id=made.id,
                model_version_update_model=ModelVersionUpdate(stage="staging", force=True),
            ).stage
        ),
    )
    fact("model version by stage", lambda: client.get_model_version("sc_net", "staging").name)
    told = RunMetadataRequest(
        resources=[RunMetadataResource(id=first.id, type="pipeline_run")],
        values={"sc_word": 3},
        types={"sc_word": "int"},
        **mine,
    )
    fact("metadata", lambda: store.create_run_metadata(told))
    fact("has metadata", lambda: client.get_pipeline_run(first.id).run_metadata["sc_word"])
    asked = {"name": "sc_c", "type": "container_registry", "flavor": "default"}
    part = store.create_stack_component(ComponentRequest(configuration={"uri": "a.b/c"}, **asked))
    fact("component", lambda: (part.name, part.type.value, part.configuration))
    fact("component by id", lambda: store.get_stack_component(part.id).name)
    new = ComponentUpdate(name="sc_d", configuration={"uri": "d.e/f"})
    fact("change component", lambda: store.update_stack_component(part.id, new).configuration)
    parts = {kind.value: [one.id] for kind, [one] in client.get_stack("default").components.items()}
    parts = {kind: parts[kind] for kind in ("orchestrator", "artifact_store")}
    stack = store.create_stack(StackRequest(name="sc_stack", components=parts))
    fact("stack", lambda: stack.name)
    registry = client.get_stack_component("container_registry", "sc_d").id
    more = StackUpdate(components={**parts, "container_registry": [registry]})
    fact(
        "change stack",
        lambda: (
            {*parts, "container_registry"}
            - {kind.value for kind in store.update_stack(stack.id, more).components}
        ),
    )
    fact("rename stack", lambda: store.update_stack(stack.id, StackUpdate(name="sc_other")).name)
    fact("drop stack", lambda: store.delete_stack(client.get_stack("sc_other").id))
    fact("drop component", lambda: store.delete_stack_component(registry))

    # fields of filters
    fact("all snapshots", lambda: store.list_snapshots(PipelineSnapshotFilter()).total)
    fact("named snapshots", lambda: client.list_snapshots().total)
    for given in (
        *({"runnable": False}, {"deployable": True}, {"deployed": True}, {"stack": "default"}),
        *({"schedule_id": mine["project"]}, {"source_snapshot_id": mine["project"]}),
        {"build_id": mine["project"]},
    ):
        fact(
            f"snapshots by {next(iter(given))}",
            lambda given=given: store.list_snapshots(PipelineSnapshotFilter(**given)).total,
        )
    for given in (
        *({"templatable": True}, {"root_runs_only": True}, {"stack_component": "default"}),
        *({"trigger_id": mine["project"]}, {"parent_run_id": mine["project"]}),
        {"triggered_by_step_run_id": mine["project"]},
    ):
        fact(
            f"runs by {next(iter(given))}",
            lambda given=given: store.list_runs(PipelineRunFilter(**given)).total,
        )
    for given in ({"exclude_retried": True}, {"cache_expired": True}, {"cache_expired": False}):
        fact(
            f"steps by {given}",
            lambda given=given: store.list_run_steps(StepRunFilter(**given)).total,
        )
    here = client.get_stack_component("orchestrator", "default").id
    for given in ({"component_id": here}, {"component": "default"}, {"description": "none"}):
        fact(
            f"stacks by {next(iter(given))}",
            lambda given=given: store.list_stacks(StackFilter(**given)).total,
        )
    fact("templates by stack", lambda: store.list_run_templates(RunTemplateFilter(stack="x")).total)
