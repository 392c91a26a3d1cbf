"""Named and versioned artifacts: steps' outputs, the client, save, load, register."""

import os
from typing import Annotated, Tuple

from facts import fact
from zenml import ArtifactConfig, load_artifact, pipeline, save_artifact, step
from zenml.client import Client
from zenml.enums import ArtifactType, ExecutionStatus


@step
def five() -> Annotated[int, "nm_five"]:
    return 5


@step
def also_five() -> Annotated[int, "nm_five"]:
    return 5


@step
def plain() -> int:
    return 1


@step
def two() -> Tuple[Annotated[int, "nm_left"], str]:
    return 7, "x"


@step
def take(a: int, b: int) -> None:
    pass


@pipeline(enable_cache=False)
def nm_first():
    a = five()
    b = also_five()
    plain()
    two()
    take(a, b)


@step(enable_cache=False)
def configured() -> Annotated[
    str, ArtifactConfig(name="nm_conf", version="cat", tags=["t1", "t2"], run_metadata={"k": 1})
]:
    return "v"


@step(enable_cache=False)
def typed() -> Annotated[int, ArtifactConfig(name="nm_typed", artifact_type=ArtifactType.MODEL)]:
    return 3


@step(enable_cache=False)
def numbered() -> Annotated[int, ArtifactConfig(name="nm_conf")]:
    return 4


@step(enable_cache=False)
def ten() -> Annotated[int, ArtifactConfig(name="nm_conf", version=10)]:
    return 4


@pipeline
def nm_second():
    configured()
    typed()


@pipeline
def nm_third():
    numbered()


@pipeline
def nm_fourth():
    ten()


@step(enable_cache=False)
def inside() -> None:
    save_artifact([1, 2], "nm_inside", version="a")


@pipeline
def nm_inside():
    inside()


@step(enable_cache=False)
def use(x: int) -> int:
    return x * 10


@pipeline
def nm_lazy():
    use(Client().get_artifact_version("nm_five"))


@step(enable_cache=False)
def number(n: int) -> Annotated[int, "nm_grown"]:
    return n


@pipeline
def nm_grow(n: int):
    number(n)


@pipeline
def nm_order():
    """The version that is the latest when the step starts."""
    number(99)
    use(Client().get_artifact_version("nm_grown"), after="number")


@step(enable_cache=True)
def cached() -> Annotated[int, "nm_cached"]:
    return 11


@pipeline
def nm_cached_pipeline():
    cached()


if __name__ == "__main__":
    client = Client()
    run = nm_first()
    steps = run.steps
    out = steps["five"].output
    fact("name", lambda: out.name)
    fact(
        "versions",
        lambda: sorted([steps["five"].output.version, steps["also_five"].output.version]),
    )
    fact("version type", lambda: type(out.version).__name__)
    fact("ids differ", lambda: steps["five"].output.id != steps["also_five"].output.id)
    fact("id type", lambda: type(out.id).__name__)
    fact("default name", lambda: steps["plain"].output.name)
    fact("default key", lambda: list(steps["plain"].outputs))
    fact("two keys", lambda: sorted(steps["two"].outputs))
    fact("two names", lambda: sorted(v[0].name for v in steps["two"].outputs.values()))
    fact("outputs is a list", lambda: type(steps["five"].outputs["nm_five"]).__name__)
    fact("no outputs", lambda: dict(steps["take"].outputs))
    fact("output of none", lambda: steps["take"].output)
    fact("output of two", lambda: steps["two"].output)
    fact("inputs", lambda: {k: v[0].name for k, v in steps["take"].inputs.items()})
    fact("input load", lambda: steps["take"].inputs["a"][0].load())
    fact("input is the output", lambda: steps["take"].inputs["a"][0].id == steps["five"].output.id)
    fact("artifact name", lambda: out.artifact.name)
    fact("artifact latest", lambda: client.get_artifact("nm_five").latest_version_name)
    fact("artifact versions", lambda: sorted(client.get_artifact("nm_five").versions))
    fact("artifact custom name", lambda: out.artifact.has_custom_name)
    fact("default custom name", lambda: steps["plain"].output.artifact.has_custom_name)
    fact("data_type", lambda: str(out.data_type.import_path))
    fact("type", lambda: out.type)
    fact("save_type", lambda: out.save_type)
    fact("materializer", lambda: str(out.materializer.import_path))
    fact("step", lambda: out.step.name)
    fact("run", lambda: out.run.id == run.id)
    fact("producer", lambda: out.producer_pipeline_run_id == run.id)
    fact("uri exists", lambda: os.path.exists(out.uri))
    fact("load", lambda: out.load())
    fact("get", lambda: client.get_artifact_version("nm_five").version)
    fact("get by version", lambda: client.get_artifact_version("nm_five", "1").version)
    fact("get by int", lambda: client.get_artifact_version("nm_five", 1).version)
    fact("get by id", lambda: client.get_artifact_version(out.id).id == out.id)
    fact("get by id text", lambda: client.get_artifact_version(str(out.id)).id == out.id)
    fact("get by prefix", lambda: client.get_artifact_version(str(out.id)[:13]).id == out.id)
    fact("get missing", lambda: client.get_artifact_version("nm_none"))
    fact("get missing version", lambda: client.get_artifact_version("nm_five", "77"))
    fact("list total", lambda: client.list_artifact_versions(artifact="nm_five").total)
    fact("list", lambda: [a.version for a in client.list_artifact_versions(artifact="nm_five")])
    fact(
        "list desc",
        lambda: [
            a.version
            for a in client.list_artifact_versions(artifact="nm_five", sort_by="desc:created")
        ],
    )
    fact("list size", lambda: len(client.list_artifact_versions(artifact="nm_five", size=1)))
    fact("list size total", lambda: client.list_artifact_versions(artifact="nm_five", size=1).total)
    fact(
        "list version", lambda: client.list_artifact_versions(artifact="nm_five", version="2").total
    )
    fact("artifacts", lambda: sorted(a.name for a in client.list_artifacts(name="startswith:nm_f")))
    fact("load_artifact", lambda: load_artifact("nm_five"))
    fact("load_artifact version", lambda: load_artifact("nm_five", version="1"))
    fact("load_artifact missing", lambda: load_artifact("nm_none"))

    run = nm_second()
    conf = run.steps["configured"].output
    fact("config name", lambda: (conf.name, conf.version))
    fact("config tags", lambda: sorted(t.name for t in conf.tags))
    fact("config metadata", lambda: {k: v for k, v in conf.run_metadata.items() if k == "k"})
    fact("config type", lambda: run.steps["typed"].output.type)
    fact("auto after text", lambda: nm_third().steps["numbered"].output.version)
    fact("int version", lambda: nm_fourth().steps["ten"].output.version)
    fact("auto after int", lambda: nm_third().steps["numbered"].output.version)
    fact("same version again", lambda: nm_fourth())
    fact("all versions", lambda: sorted(client.get_artifact("nm_conf").versions))

    saved = save_artifact({"a": 1}, "nm_saved")
    fact("saved", lambda: (saved.name, saved.version, saved.load(), saved.save_type))
    fact("saved again", lambda: save_artifact({"a": 1}, "nm_saved").version)
    fact("saved version", lambda: save_artifact(5, "nm_saved", version="x", tags=["q"]).version)
    fact("saved tags", lambda: [t.name for t in client.get_artifact_version("nm_saved", "x").tags])
    fact("saved twice", lambda: save_artifact(6, "nm_saved", version="x"))
    fact("saved latest", lambda: client.get_artifact_version("nm_saved").version)
    fact("saved run", lambda: saved.producer_pipeline_run_id)
    fact("saved step", lambda: saved.step)

    run = nm_inside()
    fact("inside", lambda: client.get_artifact_version("nm_inside").load())
    fact("inside step", lambda: client.get_artifact_version("nm_inside").step.name)
    fact("inside outputs", lambda: list(run.steps["inside"].outputs))
    fact("inside saved", lambda: run.steps["inside"].outputs["nm_inside"][0].version)

    run = nm_lazy()
    fact("lazy", lambda: run.steps["use"].output.load())
    fact("lazy input", lambda: run.steps["use"].inputs["x"][0].name)
    nm_grow(1)
    run = nm_order()
    fact("lazy when it starts", lambda: run.steps["use"].output.load())

    first, second = nm_cached_pipeline(), nm_cached_pipeline()
    fact("cached status", lambda: second.steps["cached"].status == ExecutionStatus.CACHED)
    fact("cached run status", lambda: second.status.value)
    fact("cached id", lambda: second.steps["cached"].output.id == first.steps["cached"].output.id)
    fact("cached version", lambda: second.steps["cached"].output.version)
    fact(
        "cached origin",
        lambda: second.steps["cached"].original_step_run_id == first.steps["cached"].id,
    )
    fact("cached producer", lambda: second.steps["cached"].output.run.id == first.id)
    fact("cached versions", lambda: list(client.get_artifact("nm_cached").versions))
    client.delete_artifact_version(client.get_artifact_version("nm_saved", "x").id)
    fact("deleted", lambda: client.get_artifact_version("nm_saved", "x"))
    client.update_artifact_version(saved.id, add_tags=["later"])
    fact("updated tags", lambda: [t.name for t in client.get_artifact_version(saved.id).tags])
    fact(
        "update artifact",
        lambda: [t.name for t in client.update_artifact("nm_saved", add_tags=["whole"]).tags],
    )
    fact("rename", lambda: client.update_artifact("nm_saved", new_name="nm_renamed").name)
    fact("renamed", lambda: client.get_artifact_version("nm_renamed").name)
