"""Models, versions, stages, links, metadata and tags."""

from typing import Annotated, Tuple

from facts import fact
from zenml import (
    ArtifactConfig,
    Model,
    add_tags,
    get_step_context,
    log_metadata,
    pipeline,
    remove_tags,
    save_artifact,
    step,
)
from zenml.client import Client
from zenml.enums import ModelStages


@step(enable_cache=False)
def train() -> Tuple[
    Annotated[int, ArtifactConfig(name="md_weights", artifact_type="ModelArtifact")],
    Annotated[str, "md_report"],
]:
    context = get_step_context()
    log_metadata({"accuracy": 0.9}, infer_model=True)
    log_metadata({"loss": 0.1}, artifact_name="md_weights", infer_artifact=True)
    assert context.model.name == "md_net"
    return 42, "fine"


@step(enable_cache=False)
def about() -> str:
    model = get_step_context().model
    return f"{model.name} {model.version} {model.number}"


@pipeline(model=Model(name="md_net", description="a net", tags=["x", "y"], license="MIT"))
def md_train():
    train()
    about(after="train")


@step(enable_cache=False)
def ask() -> str:
    model = get_step_context().model
    return f"{model.version} {model.load_artifact('md_weights')} {model.get_artifact('md_weights').version}"


@pipeline(model=Model(name="md_net", version=ModelStages.PRODUCTION))
def md_predict():
    ask()


@pipeline(model=Model(name="md_net", version="3.0"))
def md_named():
    about()


@step(enable_cache=False, model=Model(name="md_own"))
def own() -> Annotated[int, "md_thing"]:
    return 1


@pipeline
def md_steps():
    own()


if __name__ == "__main__":
    client = Client()
    run = md_train()
    fact("about", lambda: run.steps["about"].output.load())
    version = client.get_model_version("md_net")
    fact("version", lambda: (version.name, version.number, str(version.stage)))
    fact("model", lambda: (version.model.name, version.model.license, version.model.description))
    fact("tags", lambda: sorted(t.name for t in version.tags))
    fact("model tags", lambda: sorted(t.name for t in version.model.tags))
    fact("metadata", lambda: version.run_metadata)
    fact(
        "artifact metadata",
        lambda: {
            k: v for k, v in version.get_artifact("md_weights").run_metadata.items() if k == "loss"
        },
    )
    fact("get_artifact", lambda: version.get_artifact("md_weights").load())
    fact("get_model_artifact", lambda: version.get_model_artifact("md_weights").load())
    fact("get_data_artifact", lambda: version.get_data_artifact("md_report").load())
    fact("not a model", lambda: version.get_model_artifact("md_report"))
    fact("data_artifacts", lambda: {k: sorted(v) for k, v in version.data_artifacts.items()})
    fact("model_artifacts", lambda: {k: sorted(v) for k, v in version.model_artifacts.items()})
    fact("data ids", lambda: sorted(version.data_artifact_ids))
    fact("runs", lambda: [r.id == run.id for r in version.pipeline_runs.values()])
    fact("run's model", lambda: run.model_version.name)
    fact("run config", lambda: run.config.model.name)
    fact("step's model", lambda: run.steps["train"].model_version.number)
    version.set_stage("staging")
    fact("staged", lambda: client.get_model_version("md_net", "staging").number)
    fact("stage enum", lambda: client.get_model_version("md_net", ModelStages.STAGING).stage)
    fact("production missing", lambda: client.get_model_version("md_net", ModelStages.PRODUCTION))
    fact("latest", lambda: client.get_model_version("md_net", ModelStages.LATEST).number)
    version.set_stage(ModelStages.PRODUCTION)
    second = md_train().model_version
    fact("second", lambda: (second.name, second.number))
    fact("stage taken", lambda: second.set_stage("production"))
    second.set_stage("production", force=True)
    fact("forced", lambda: client.get_model_version("md_net", "production").number)
    fact("former", lambda: str(client.get_model_version("md_net", 1).stage))
    fact("by number", lambda: client.get_model_version("md_net", 1).name)
    fact("by name", lambda: client.get_model_version("md_net", "2").number)
    fact("predict", lambda: md_predict().steps["ask"].output.load())
    fact("named", lambda: md_named().steps["about"].output.load())
    fact("named again", lambda: md_named().model_version.name)
    fact("versions", lambda: [v.name for v in client.list_model_versions("md_net")])
    fact("versions total", lambda: client.list_model_versions("md_net").total)
    fact("model versions", lambda: [v.name for v in client.get_model("md_net").versions])
    fact("latest name", lambda: client.get_model("md_net").latest_version_name)
    fact("step model", lambda: md_steps().steps["own"].model_version.name)
    fact("own", lambda: client.get_model_version("md_own").get_artifact("md_thing").load())

    made = client.create_model("md_made", license="Apache", tags=["a"])
    fact("made", lambda: (made.name, made.license, [t.name for t in made.tags]))
    fact("made twice", lambda: client.create_model("md_made"))
    fact("no versions", lambda: client.get_model_version("md_made"))
    first = client.create_model_version("md_made", name="v1", tags=["b"])
    fact("first", lambda: (first.name, first.number, first.model.name))
    fact(
        "update",
        lambda: (
            client.update_model(
                "md_made", description="new", add_tags=["c"], remove_tags=["a"]
            ).description
        ),
    )
    fact("updated tags", lambda: [t.name for t in client.get_model("md_made").tags])
    fact(
        "update version",
        lambda: client.update_model_version("md_made", "v1", name="v2", stage="staging").name,
    )
    fact("list models", lambda: sorted(m.name for m in client.list_models(name="startswith:md_")))
    fact("list size", lambda: client.list_models(size=1, name="startswith:md_").total)
    fact("by prefix", lambda: client.get_model(str(made.id)[:12]).name)
    log_metadata({"k": [1, 2]}, model_name="md_made", model_version="v2")
    fact("logged", lambda: client.get_model_version("md_made", "v2").run_metadata)
    model = Model(name="md_made", version="v2")
    fact("Model.id", lambda: model.id == client.get_model_version("md_made", "v2").id)
    fact("Model.number", lambda: model.number)
    fact("Model.stage", lambda: model.stage.value)
    model.log_metadata({"z": 1})
    fact("Model.run_metadata", lambda: model.run_metadata["z"])
    saved = save_artifact(9, "md_linked")
    from zenml import link_artifact_to_model

    link_artifact_to_model(saved, model)
    fact("linked", lambda: model.get_artifact("md_linked").load())
    model.set_stage("archived", force=True)
    fact("archived", lambda: str(client.get_model_version("md_made", "v2").stage))
    fact("get missing", lambda: client.get_model("md_none"))
    fact("missing version", lambda: client.get_model_version("md_made", "nope"))
    client.delete_model_version(client.get_model_version("md_made", "v2").id)
    fact("version gone", lambda: client.list_model_versions("md_made").total)
    client.delete_model("md_made")
    fact("gone", lambda: client.get_model("md_made"))
    add_tags(tags=["r1", "r2"], run=run.id)
    fact("run tags", lambda: sorted(t.name for t in client.get_pipeline_run(run.id).tags))
    remove_tags(tags=["r1"], run=run.id)
    fact("removed", lambda: sorted(t.name for t in client.get_pipeline_run(run.id).tags))
    add_tags(tags="p1", pipeline="md_train")
    fact("pipeline tags", lambda: [t.name for t in client.get_pipeline("md_train").tags])
    add_tags(tags=["a1"], artifact="md_report")
    fact("artifact tags", lambda: [t.name for t in client.get_artifact("md_report").tags])
    add_tags(tags=["v1"], artifact_name="md_report", artifact_version="1")
    fact(
        "version tags", lambda: [t.name for t in client.get_artifact_version("md_report", "1").tags]
    )
    fact("tag", lambda: (client.get_tag("r2").name, str(client.get_tag("r2").color) != ""))
    fact("list by tag", lambda: client.list_pipeline_runs(tag="r2").total)
    fact("create tag", lambda: str(client.create_tag(name="md_tag", color="red").color.value))
    fact("list tags", lambda: client.list_tags(name="md_tag").total)
