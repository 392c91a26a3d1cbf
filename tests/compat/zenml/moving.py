"""What programs that move over meet: results of steps without caching, lazy parts of models, tags
and configurations that add up, what a step's inputs are, and which steps come before it."""

from enum import Enum
from typing import Annotated, List, Tuple

import numpy as np
from facts import fact
from zenml import (
    ArtifactConfig,
    Model,
    Tag,
    add_tags,
    get_step_context,
    log_metadata,
    pipeline,
    step,
    unmapped,
)
from zenml.client import Client
from zenml.enums import TaggableResourceTypes

told = []
CONFIG = """
enable_cache: False
tags: [mo_file]
extra: {team: b}
steps:
  mo_number:
    enable_cache: True
"""


class Mode(str, Enum):
    FAST = "fast"
    SLOW = "slow"


@step
def mo_number() -> Annotated[int, "mo_number"]:
    return len(told)


@step
def mo_other(mode: Mode = Mode.SLOW) -> Annotated[np.ndarray, "mo_array"]:
    step_run = get_step_context().step_run
    fact("in step", lambda: (step_run.config.extra, step_run.config.parameters))
    return np.zeros(2)


@pipeline(tags=["mo_code"], extra={"team": "a"})
def mo_cached():
    mo_number()
    mo_other()


@step(enable_cache=False)
def mo_train(n: int) -> Annotated[int, ArtifactConfig(name="mo_net", tags=["mo_of_config"])]:
    log_metadata({"score": n / 10}, infer_model=True)
    return n


@pipeline(model=Model(name="mo_model"))
def mo_training(n: int):
    mo_train(n)


@step(enable_cache=False)
def mo_use(net: int, score: float, extra: int) -> float:
    return net + score + extra


@step(enable_cache=False)
def mo_one() -> int:
    return 1


@pipeline
def mo_using():
    version = Client().get_model_version("mo_model", "latest")
    mo_use(version.get_artifact("mo_net"), version.run_metadata["score"], mo_one())


@step
def mo_tuple() -> Tuple[Annotated[int, "p"], Annotated[int, "q"]]:
    both = (1, 2)
    return both


@pipeline
def mo_tuples():
    mo_tuple()


@step
def mo_list() -> List[int]:
    return [1, 2]


@step
def mo_add(x: int, y: int) -> int:
    return x + y


@step
def mo_sum(xs: List[int]) -> int:
    return sum(xs)


@pipeline(dynamic=True, enable_cache=False)
def mo_dynamic():
    xs, y = mo_list(), mo_one()
    mo_sum(mo_add.map(xs, y=unmapped(y)))
    mo_one(id="mo_last")


@pipeline(model=Model(name="mo_numbered", version="7"))
def mo_numbered():
    mo_one()


@pipeline
def mo_twice():
    mo_one(id="same")
    mo_one(id="same")


if __name__ == "__main__":
    client = Client()
    status = [mo_cached().steps["mo_number"].output.load()]
    told.append("changed")
    fresh = mo_cached.with_options(enable_cache=False)()
    status.append(fresh.steps["mo_number"].output.load())
    again = mo_cached()
    fact("refreshed", lambda: [*status, again.steps["mo_number"].output.load()])
    fact("reused", lambda: [s.status.value for s in again.steps.values()])
    fact("switch", lambda: [s.config.enable_cache for s in fresh.steps.values()])
    with open("moving.yaml", "w") as file:
        file.write(CONFIG)
    run = mo_cached.with_options(config_path="moving.yaml")()
    fact("a step's own switch", lambda: {k: s.status.value for k, s in sorted(run.steps.items())})
    fact("joined tags", lambda: sorted(tag.name for tag in run.tags))
    fact("parameters", lambda: run.steps["mo_other"].config.parameters)
    fact("materializer", lambda: run.steps["mo_other"].output.materializer.import_path)

    mo_training(1)
    mo_training(2)
    run = mo_using()
    used = run.steps["mo_use"]
    fact("used", lambda: used.output.load())
    fact("input types", lambda: {k: v[0].input_type.value for k, v in sorted(used.inputs.items())})
    fact("parameters of late ones", lambda: used.config.parameters)
    fact("no such version", lambda: client.get_model_version("mo_model", "9"))
    fact("no number is made", mo_numbered)
    fact("two ids", mo_twice)
    fact("a returned tuple", lambda: list(mo_tuples().steps["mo_tuple"].outputs))

    run = mo_dynamic()
    fact("before", lambda: {k: sorted(s.spec.upstream_steps) for k, s in sorted(run.steps.items())})

    fact("tag of a config", lambda: client.get_tag("mo_of_config").name)
    fact("color", lambda: client.create_tag("mo_color", color="nocolor"))
    fact("color isn't made", lambda: client.list_tags(name="mo_color").total)
    fact("cascades", lambda: add_tags(tags=[Tag(name="mo_down", cascade=True)], run=run.id))
    fact("two targets", lambda: add_tags(tags=["mo_x"], run=run.id, pipeline="mo_dynamic"))
    add_tags(tags=["mo_kind"], pipeline="mo_dynamic")
    kind = TaggableResourceTypes.PIPELINE
    fact("tags of pipelines", lambda: [tag.name for tag in client.list_tags(resource_type=kind)])
