"""Steps and pipelines that run again: with the inputs that they had, with others, and in part."""

from typing import Annotated

from facts import fact
from zenml import ExternalArtifact, pipeline, step
from zenml.client import Client


@step
def rp_numbers(count: int = 3) -> list:
    return list(range(count))


@step
def rp_times(numbers: list, factor: int = 2) -> list:
    return [n * factor for n in numbers]


@step
def rp_sum(numbers: list) -> Annotated[int, "rp_total"]:
    return sum(numbers)


@pipeline(enable_cache=False)
def rp_pipeline(count: int, factor: int = 2):
    rp_sum(rp_times(rp_numbers(count), factor))


def total(run) -> tuple:
    return run.steps["rp_sum"].output.load(), run.config.parameters


def ran(run, name: str) -> str:
    return str(run.steps[name].status) if name in run.steps else "skipped"


if __name__ == "__main__":
    fact("never ran", lambda: rp_pipeline.replay())
    first = rp_pipeline(count=4)
    second = rp_pipeline(count=5, factor=3)
    fact("runs", lambda: (total(first), total(second)))

    fact("step of run", lambda: rp_sum.replay(pipeline_run=first.id))
    fact("step of pipeline", lambda: rp_sum.replay(pipeline="rp_pipeline"))
    fact("step by id", lambda: rp_times.replay(step_run_id=first.steps["rp_times"].id))
    other = {"numbers": [10, 20]}
    fact("other input", lambda: rp_sum.replay(pipeline_run=first.id, input_overrides=other))
    fact("no such step", lambda: rp_sum.replay(pipeline_run=first.id, invocation_id="rp_nothing"))
    fact("of what", lambda: rp_sum.replay())
    fact("its pipeline", lambda: Client().get_pipeline_run(first.id).pipeline.name)

    fact("latest", lambda: total(rp_pipeline.replay()))
    fact("that one", lambda: total(rp_pipeline.replay(pipeline_run=first.id)))
    fact("by name", lambda: total(rp_pipeline.replay(pipeline_run=first.name)))
    fact(
        "parameters",
        lambda: total(rp_pipeline.replay(first.pipeline.id, input_overrides={"count": 2})),
    )

    skipping = rp_pipeline.replay(pipeline_run=first.id, skip={"rp_numbers"})
    fact("skip", lambda: total(skipping))
    fact(
        "skip two",
        lambda: total(rp_pipeline.replay(pipeline_run=first.id, skip=["rp_numbers", "rp_times"])),
    )
    inputs = {"rp_sum": {"numbers": [1, 2]}}
    fact(
        "input",
        lambda: total(rp_pipeline.replay(pipeline_run=first.id, step_input_overrides=inputs)),
    )
    defaults = {"rp_sum": {"numbers": ExternalArtifact(value=[7])}}
    fact(
        "defaults",
        lambda: total(
            rp_pipeline.replay(pipeline_run=first.id, step_default_input_overrides=defaults)
        ),
    )
    version = first.steps["rp_numbers"].output
    some = {"rp_sum": {"numbers": version}}
    fact(
        "version",
        lambda: total(
            rp_pipeline.replay(
                pipeline_run=second.id, skip_successful_steps=True, step_input_overrides=some
            )
        ),
    )

    @pipeline
    def rp_given():
        rp_sum(version)

    fact("given", lambda: rp_given().steps["rp_sum"].output.load())
    fact("given to a step", lambda: rp_sum(version))
