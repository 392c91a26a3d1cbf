"""Classes of ``zenml.models``, and the store below the client, which takes filters and requests."""

import zenml.models
from facts import fact
from zenml import Model, log_metadata, pipeline, step
from zenml.client import Client
from zenml.enums import StoreType
from zenml.models import (
    ArtifactVersionFilter,
    BaseFilter,
    BaseRequest,
    ModelFilter,
    ModelRequest,
    ModelVersionFilter,
    Page,
    PipelineFilter,
    PipelineRunFilter,
    PipelineRunResponseBody,
    ProjectScopedFilter,
    ScheduleFilter,
    SecretFilter,
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
