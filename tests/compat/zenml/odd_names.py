"""Names of artifacts with characters other than letters and digits."""

from typing import Annotated

from facts import fact
from zenml import load_artifact, pipeline, save_artifact, step
from zenml.client import Client


@step(enable_cache=False)
def spaced() -> Annotated[int, "my data"]:
    return 1


@step(enable_cache=False)
def colon() -> Annotated[int, "a:b/c"]:
    return 2


@step(enable_cache=False)
def umlaut() -> Annotated[int, "größe é"]:
    return 3


@pipeline
def nm_other():
    spaced()
    colon()
    umlaut()


if __name__ == "__main__":
    c = Client()
    run = nm_other()
    fact("outputs", lambda: sorted(k for s in run.steps.values() for k in s.outputs))
    fact("names", lambda: sorted(a.name for a in run.artifact_versions))
    fact("get", lambda: c.get_artifact_version("my data").load())
    fact("get colon", lambda: c.get_artifact_version("a:b/c").load())
    fact("get umlaut", lambda: c.get_artifact_version("größe é").version)
    fact("save", lambda: save_artifact(5, "with space").name)
    fact("save slash", lambda: save_artifact(5, "with/slash").name)
    fact("load", lambda: load_artifact("with space"))
    fact("again", lambda: save_artifact(5, "with space").version)
    fact("version", lambda: save_artifact(5, "with space", version="v 1/2").version)
    fact("empty", lambda: save_artifact(5, ""))
    fact(
        "tags", lambda: [t.name for t in c.update_artifact_version("a:b/c", add_tags=["x y"]).tags]
    )
    fact("rename", lambda: c.update_artifact("with/slash", new_name="with: colon").name)
    fact("renamed", lambda: load_artifact("with: colon"))
    fact("used", lambda: c.delete_artifact_version("a:b/c"))
    fact("delete", lambda: c.delete_artifact_version("with space", "v 1/2"))
    fact("deleted", lambda: c.get_artifact_version("with space", "v 1/2"))
    fact("listed", lambda: sorted(a.name for a in c.list_artifacts(name="contains:with")))
