"""What a version of a model has stays when its runs are removed."""

from typing import Annotated

from facts import fact
from zenml import Model, pipeline, save_artifact, step
from zenml.client import Client


@step
def ld_load() -> Annotated[int, "ld_rows"]:
    return 5


@step(enable_cache=False)
def ld_train(rows: int) -> Annotated[int, "ld_net"]:
    save_artifact(rows, "ld_saved")
    return rows + 1


@pipeline(model=Model(name="ld_model", version="one"))
def ld_first():
    ld_train(ld_load())


@pipeline(model=Model(name="ld_model", version="two"))
def ld_second():
    ld_train(ld_load())


@step(enable_cache=False, model=Model(name="ld_other", version="own"))
def ld_own() -> Annotated[int, "ld_own_net"]:
    return 1


@pipeline(model=Model(name="ld_model", version="three"))
def ld_third():
    ld_train(ld_load())
    ld_own()


def told(name, version):
    found = Client().get_model_version(name, version)
    return (
        sorted((a, *sorted(v)) for a, v in found.data_artifact_ids.items()),
        len(found.pipeline_run_ids),
    )


def links():
    found = Client().list_model_version_artifact_links(size=100)
    return len(found), Client().list_model_version_pipeline_run_links().total


if __name__ == "__main__":
    client = Client()
    runs = [ld_first(), ld_second(), ld_third()]
    every = [("ld_model", "one"), ("ld_model", "two"), ("ld_model", "three"), ("ld_other", "own")]
    for name, version in every:
        fact(f"{name} {version}", lambda n=name, v=version: told(n, v))
    fact("links", links)
    for run in reversed(runs):
        client.delete_pipeline_run(run.id)
    for name, version in every:
        fact(f"{name} {version} then", lambda n=name, v=version: told(n, v))
    fact("links then", links)
    two = client.get_model_version("ld_model", "two")
    fact("loaded", lambda: two.get_artifact("ld_net").load())
    fact("cached one", lambda: two.get_artifact("ld_rows").load())
    fact("runs", lambda: two.pipeline_runs)
    client.delete_model_version_artifact_link(two.id, two.get_artifact("ld_net").id)
    fact("unlinked", lambda: two.get_artifact("ld_net"))
    client.delete_artifact_version(client.get_artifact_version("ld_rows").id)
    fact("deleted", lambda: two.get_artifact("ld_rows"))
