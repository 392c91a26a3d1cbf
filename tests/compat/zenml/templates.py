"""Names of artifacts with placeholders: ``{date}``, ``{time}`` and substitutions."""

import datetime
from typing import Annotated, Tuple

from facts import fact
from zenml import ArtifactConfig, pipeline, step
from zenml.client import Client


@step
def dated() -> Annotated[int, "tp_{date}_rows"]:
    return 1


@step
def timed() -> Annotated[int, "tp_{time}"]:
    return 2


@step(substitutions={"who": "step"})
def own() -> Annotated[int, ArtifactConfig(name="tp_{who}_{where}")]:
    return 3


@step
def two() -> Tuple[Annotated[int, "tp_{where}_a"], Annotated[int, "tp_plain"]]:
    return 4, 5


@step
def take(x: int, y: int) -> None:
    pass


@pipeline(substitutions={"where": "here", "who": "pipeline"}, enable_cache=False)
def tp_names():
    take(dated(), own())
    timed()
    two()


if __name__ == "__main__":
    today = datetime.datetime.now(datetime.timezone.utc).strftime("%Y_%m_%d")
    run = tp_names()
    steps = run.steps
    fact("date", lambda: steps["dated"].output.name == f"tp_{today}_rows")
    fact("date key", lambda: list(steps["dated"].outputs) == [f"tp_{today}_rows"])
    fact("time", lambda: len(steps["timed"].output.name))
    fact("own", lambda: steps["own"].output.name)
    fact("two", lambda: sorted(steps["two"].outputs))
    fact("load", lambda: steps["two"].outputs["tp_here_a"][0].load())
    fact("inputs", lambda: steps["take"].inputs["y"][0].name)
    fact("get", lambda: Client().get_artifact_version("tp_step_here").load())
    fact("again", lambda: tp_names().steps["own"].output.version)
