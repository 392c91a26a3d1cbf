"""What the client answers besides runs, artifacts and models: filters, tags, links, flavors, links
of models, pruning, settings."""

import datetime
from pathlib import Path
from typing import Annotated

from facts import fact
from zenml import Model, Tag, add_tags, log_metadata, pipeline, save_artifact, step
from zenml.client import Client
from zenml.enums import MetadataResourceTypes, StackComponentType, TaggableResourceTypes
from zenml.models import RunMetadataResource, TagResource


@step(enable_cache=False)
def train(lr: float) -> Annotated[float, "cl_loss"]:
    log_metadata({"lr": lr, "deep": {"a": 1}, "word": "yes"})
    return lr * 2


@pipeline(model=Model(name="cl_net", version="1.0"))
def cl_train(lr: float = 0.1):
    train(lr)


@step(enable_cache=False)
def other() -> Annotated[int, "cl_other"]:
    return 1


@pipeline(enable_cache=False)
def cl_other_pipeline():
    other()


@step(enable_cache=False)
def tagged() -> Annotated[int, "cl_tagged"]:
    add_tags(tags=["cl_inside"])
    add_tags(tags=["cl_out"], infer_artifact=True)
    return 1


@pipeline(tags=[Tag(name="cl_only", exclusive=True), Tag(name="cl_down", cascade=True), "cl_plain"])
def cl_exclusive():
    tagged()


def names(page):
    return sorted(one.name for one in page)


if __name__ == "__main__":
    client = Client()
    first = cl_train.with_options(run_name="cl_one")(0.1)
    second = cl_train.with_options(run_name="cl_two")(0.5)
    third = cl_other_pipeline.with_options(run_name="cl_three")()
    log_metadata({"acc": 0.9, "note": "good", "big": 10}, run_id_name_or_prefix=first.id)
    log_metadata({"acc": 0.5, "note": "bad", "flag": True}, run_id_name_or_prefix=second.id)
    runs = client.list_pipeline_runs

    # filters
    fact("in", lambda: names(runs(name='oneof:["cl_one","cl_two"]')))
    fact("notoneof", lambda: names(runs(name='notoneof:["cl_one"]')))
    fact("notcontains", lambda: names(runs(name="notcontains:one")))
    fact("notequals", lambda: names(runs(name="notequals:cl_one")))
    fact("endswith", lambda: names(runs(name="endswith:two")))
    fact("isnull", lambda: names(runs(model_version_id="isnull:")))
    fact("isnotnull", lambda: names(runs(model_version_id="isnotnull:")))
    fact("list", lambda: names(runs(name=["startswith:cl_", "notcontains:two"])))
    fact("unknown op", lambda: names(runs(name="fits:x")))
    fact("in of names", lambda: names(runs(name='in:["cl_one"]')))
    fact("oneof not json", lambda: names(runs(name="oneof:cl_one")))
    fact("id in", lambda: names(runs(id=f'oneof:["{first.id}","{third.id}"]')))
    fact("id startswith", lambda: names(runs(id=f"startswith:{str(first.id)[:13]}")))
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    soon = (now + datetime.timedelta(days=1)).strftime("%Y-%m-%d %H:%M:%S")
    past = (now - datetime.timedelta(days=1)).strftime("%Y-%m-%d %H:%M:%S")
    fact("created in", lambda: names(runs(created=f"in:{past},{soon}")))
    fact("created gt", lambda: names(runs(created=f"gt:{past}")))
    fact("created lt", lambda: names(runs(created=f"lt:{past}")))
    fact("created datetime", lambda: names(runs(created=client.get_pipeline_run("cl_one").created)))
    fact("bad date", lambda: names(runs(created="gt:yesterday")))
    fact("metadata", lambda: names(runs(run_metadata="acc:0.9")))
    fact("metadata list", lambda: names(runs(run_metadata=["acc:0.9", "note:good"])))
    fact("metadata gt", lambda: names(runs(run_metadata="acc:gt:0.6")))
    fact("metadata lte", lambda: names(runs(run_metadata="acc:lte:0.5")))
    fact("metadata number", lambda: names(runs(run_metadata="big:gt:9")))
    fact("metadata contains", lambda: names(runs(run_metadata="note:contains:oo")))
    fact("metadata startswith", lambda: names(runs(run_metadata="note:startswith:b")))
    fact("metadata missing", lambda: names(runs(run_metadata="none:1")))
    fact("metadata word", lambda: names(runs(run_metadata="acc")))
    fact("metadata bool", lambda: names(runs(run_metadata="flag:true")))
    fact("step metadata", lambda: client.list_run_steps(run_metadata="word:yes").total)
    fact("step metadata number", lambda: client.list_run_steps(run_metadata="lr:gt:0.2").total)
    fact("unlisted", lambda: names(runs(unlisted=True)))
    fact("status in", lambda: names(runs(status='oneof:["completed","failed"]')))
    fact("model", lambda: names(runs(model="cl_net")))
    fact("model version", lambda: names(runs(model_version_id=first.model_version.id)))
    fact("pipeline", lambda: names(runs(pipeline="cl_train")))
    fact("sort", lambda: [r.name for r in runs(sort_by="name")])
    fact("sort asc", lambda: [r.name for r in runs(sort_by="asc:created")])
    fact("sort default", lambda: [r.name for r in runs()])
    fact("sort unknown", lambda: [r.name for r in runs(sort_by="nothing")])
    fact("sort order", lambda: [r.name for r in runs(sort_by="up:name")])
    fact("unknown filter", lambda: runs(nonsense=1))
    fact("page 0", lambda: runs(page=0))
    fact("page 9", lambda: len(runs(page=9).items))
    fact("size 0", lambda: runs(size=0))
    fact("or", lambda: names(runs(name="cl_one", status="failed", logical_operator="or")))
    fact("user", lambda: names(runs(user=client.active_user.id)))
    fact("stack", lambda: names(runs(stack="default")))
    fact("stack id", lambda: len(runs(stack_id=client.active_stack_model.id)))
    fact("in progress", lambda: names(runs(in_progress=False)))
    fact("index", lambda: names(runs(pipeline="cl_train", index=2)))
    fact("versions of a model", lambda: client.list_artifact_versions(model="cl_net").total)
    fact("versions by run", lambda: client.list_artifact_versions(pipeline_run="cl_one").total)
    fact("versions by name", lambda: client.list_artifact_versions(name="cl_loss").total)
    fact("version number", lambda: client.list_artifact_versions(version_number="gt:1").total)
    fact("unused", lambda: client.list_artifact_versions(only_unused=True).total)
    fact("custom", lambda: client.list_artifacts(has_custom_name=False).total)
    fact("steps by name", lambda: client.list_run_steps(name="train").total)
    fact("steps by model", lambda: client.list_run_steps(model="cl_net").total)
    fact("model versions", lambda: [v.name for v in client.list_model_versions(model="cl_net")])
    fact("stage", lambda: client.list_model_versions(model="cl_net", stage="production").total)

    # links
    version = client.get_model_version("cl_net", "1.0")
    links = client.list_model_version_artifact_links(model_version_id=version.id)
    fact("links", lambda: (links.total, sorted(one.artifact_version.version for one in links)))
    fact("link", lambda: links[0].model_version == version.id)
    fact(
        "data links",
        lambda: (
            client.list_model_version_artifact_links(
                model_version_id=version.id, only_data_artifacts=True
            ).total
        ),
    )
    fact(
        "model links",
        lambda: (
            client.list_model_version_artifact_links(
                model_version_id=version.id, only_model_artifacts=True
            ).total
        ),
    )
    fact(
        "run links",
        lambda: sorted(
            one.pipeline_run.name
            for one in client.list_model_version_pipeline_run_links(model_version_id=version.id)
        ),
    )
    gone = first.steps["train"].output.id
    client.delete_model_version_artifact_link(version.id, gone)
    fact(
        "link gone",
        lambda: client.list_model_version_artifact_links(model_version_id=version.id).total,
    )
    fact("still there", lambda: client.get_artifact_version(gone).version)
    client.delete_all_model_version_artifact_links(version.id, only_links=True)
    fact("links gone", lambda: client.get_model_version("cl_net", "1.0").data_artifacts)

    # tags
    run = cl_exclusive.with_options(run_name="cl_tags1")()
    fact("run tags", lambda: sorted(t.name for t in run.tags))
    fact("cascaded", lambda: sorted(t.name for t in run.steps["tagged"].output.tags))
    again = cl_exclusive.with_options(run_name="cl_tags2")()
    fact(
        "exclusive moved", lambda: sorted(t.name for t in client.get_pipeline_run("cl_tags1").tags)
    )
    fact("exclusive here", lambda: sorted(t.name for t in again.tags))
    fact("exclusive", lambda: client.get_tag("cl_only").exclusive)
    fact("tagged count", lambda: client.get_tag("cl_only").tagged_count)
    fact("plain count", lambda: client.get_tag("cl_plain").tagged_count)
    fact("made exclusive", lambda: client.update_tag("cl_plain", exclusive=True))
    fact("same color", lambda: str(client.update_tag("cl_plain", color="blue").color.value))
    fact("renamed", lambda: client.update_tag("cl_plain", name="cl_renamed").name)
    fact("run has it", lambda: sorted(t.name for t in client.get_pipeline_run("cl_tags2").tags))
    fact("not exclusive", lambda: client.create_tag("cl_only", exclusive=False))
    saved = save_artifact(1, "cl_saved")
    resource = TagResource(id=saved.id, type=TaggableResourceTypes.ARTIFACT_VERSION)
    fact("attach", lambda: client.attach_tag("cl_attached", [resource]))
    fact("attached", lambda: [t.name for t in client.get_artifact_version(saved.id).tags])
    fact("detach", lambda: client.detach_tag("cl_attached", [resource]))
    fact("detached", lambda: client.get_artifact_version(saved.id).tags)
    fact(
        "attach run",
        lambda: client.attach_tag(
            "cl_attached", [TagResource(id=first.id, type=TaggableResourceTypes.PIPELINE_RUN)]
        ),
    )
    fact("attached run", lambda: [t.name for t in client.get_pipeline_run(first.id).tags])
    client.delete_tag("cl_attached")
    fact("tag gone", lambda: [t.name for t in client.get_pipeline_run(first.id).tags])
    fact("delete missing", lambda: client.delete_tag("cl_attached"))

    # metadata
    fact(
        "create_run_metadata",
        lambda: client.create_run_metadata(
            {"later": 1},
            [RunMetadataResource(id=first.id, type=MetadataResourceTypes.PIPELINE_RUN)],
        ),
    )
    fact("run metadata", lambda: client.get_pipeline_run(first.id).run_metadata["later"])
    fact(
        "of a version",
        lambda: client.create_run_metadata(
            {"z": 2},
            [RunMetadataResource(id=saved.id, type=MetadataResourceTypes.ARTIFACT_VERSION)],
        ),
    )
    fact("version metadata", lambda: client.get_artifact_version(saved.id).run_metadata["z"])

    # pruning
    save_artifact(2, "cl_unused")
    third_output = third.steps["other"].output.id
    client.delete_pipeline_run(third.id)
    fact("orphan", lambda: client.get_artifact_version(third_output).name)
    client.prune_artifacts()
    fact("pruned", lambda: client.get_artifact_version("cl_unused"))
    fact("kept", lambda: client.get_artifact_version("cl_tagged").name)

    # the rest
    flavors = client.get_flavors_by_type(StackComponentType.ORCHESTRATOR)
    fact("flavors", lambda: [f.name for f in flavors if f.name in ("local", "kubernetes")])
    fact(
        "flavor",
        lambda: (
            client.get_flavor_by_name_and_type(
                "local", StackComponentType.ARTIFACT_STORE
            ).type.value
        ),
    )
    fact(
        "no flavor", lambda: client.get_flavor_by_name_and_type("nope", StackComponentType.ALERTER)
    )
    fact(
        "list_flavors",
        lambda: sorted(f.name for f in client.list_flavors(type="image_builder", name="local")),
    )
    fact("settings", lambda: client.get_settings().active)
    fact("schedules", lambda: client.list_schedules().total)
    fact("schedule", lambda: client.get_schedule("none"))
    fact("templates", lambda: client.list_run_templates().total)
    fact("builds", lambda: client.list_builds().total)
    fact("repositories", lambda: client.list_code_repositories().total)
    fact("repository", lambda: client.get_code_repository("none"))
    fact("services", lambda: client.list_services().total)
    fact("deployments", lambda: client.list_deployments().total)
    fact("connectors", lambda: client.list_service_connectors().total)
    fact("accounts", lambda: client.list_service_accounts().total)
    fact("snapshots", lambda: client.list_snapshots().total)
    fact("users", lambda: [u.name for u in client.list_users()])
    fact("get_user", lambda: client.get_user("default").name)
    fact("projects", lambda: [p.name for p in client.list_projects()])
    fact("get_project", lambda: client.get_project("default").name)
    fact("set_active_project", lambda: client.set_active_project("default").name)
    fact("other project", lambda: client.set_active_project("other"))
    fact("uses_local_configuration", lambda: client.uses_local_configuration)
    fact("is_repository_directory", lambda: client.is_repository_directory(Path("/")))
    client.create_secret("cl_secret", {"a": "b"}, private=True)
    fact(
        "private secret",
        lambda: client.get_secret_by_name_and_private_status("cl_secret", True).name,
    )
    fact("public secret", lambda: client.get_secret_by_name_and_private_status("cl_secret", False))
    fact("private secrets", lambda: names(client.list_secrets_by_private_status(True)))
    fact(
        "update_step_run",
        lambda: (
            type(
                client.update_step_run(
                    second.steps["train"].id, cache_expires_at=now
                ).cache_expires_at
            ).__name__
        ),
    )
    fact(
        "components",
        lambda: sorted(c.type.value for c in client.list_stack_components(name="default")),
    )
    fact("component by type", lambda: client.list_stack_components(type="orchestrator").total)
    fact("missing component", lambda: client.get_stack_component(StackComponentType.ALERTER, "x"))
    fact("stack missing", lambda: client.get_stack("none"))
