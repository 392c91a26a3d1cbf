"""A whole program: a search over hyper-parameters with a step that compares what the others gave, and
the drift of data between two batches."""

import random
from typing import Annotated, Dict, List

from facts import fact
from pydantic import BaseModel
from zenml import ArtifactConfig, Tag, add_tags, get_step_context, log_metadata, pipeline, step
from zenml.client import Client
from zenml.types import HTMLString, MarkdownString


class Trial(BaseModel):
    lr: float
    depth: int
    seed: int = 0


class Outcome(BaseModel):
    trial: Trial
    loss: float
    history: List[float]


@step
def trials(n: int, seed: int) -> Annotated[List[Dict[str, float]], "trials"]:
    """Makes random trials."""
    generator = random.Random(seed)
    return [
        {"lr": round(generator.uniform(0.01, 0.5), 3), "depth": generator.randint(1, 5)}
        for _ in range(n)
    ]


@step
def fit(
    trial: Trial, epochs: int = 3
) -> Annotated[Outcome, ArtifactConfig(name="outcome", tags=["trial"])]:
    """Fits one trial."""
    history = [round(1 / (1 + trial.lr * trial.depth * (epoch + 1)), 5) for epoch in range(epochs)]
    log_metadata({"lr": trial.lr, "depth": trial.depth, "loss": history[-1]})
    if history[-1] < 0.2:
        add_tags(["good"], infer_artifact=True)
    return Outcome(trial=trial, loss=history[-1], history=history)


@step
def best(prefix: str) -> Annotated[Outcome, "best"]:
    """The best outcome of this run."""
    run = Client().get_pipeline_run(get_step_context().pipeline_run.name)
    outcomes = [
        one.outputs["outcome"][0].load()
        for name, one in run.steps.items()
        if name.startswith(prefix)
    ]
    return min(outcomes, key=lambda one: one.loss)


@step
def report(outcome: Outcome) -> Annotated[MarkdownString, "report"]:
    """Tells of it."""
    return MarkdownString(f"# best\n\nlr {outcome.trial.lr}, depth {outcome.trial.depth}")


@pipeline(enable_cache=False, tags=["search", Tag(name="latest_search", exclusive=True)])
def search(lrs: List[float], depths: List[int]):
    """Searches."""
    after = []
    for i, lr in enumerate(lrs):
        for j, depth in enumerate(depths):
            name = f"fit_{i}_{j}"
            fit(Trial(lr=lr, depth=depth), id=name)
            after.append(name)
    report(best("fit_", after=after))


@step(enable_cache=False)
def measure(name: str, shift: float) -> Annotated[Dict[str, float], "statistics"]:
    """Statistics of a batch."""
    generator = random.Random(name)
    values = [generator.gauss(shift, 1) for _ in range(200)]
    mean = sum(values) / len(values)
    log_metadata({"mean": mean, "batch": name})
    return {"mean": mean, "min": min(values), "max": max(values)}


@step(enable_cache=False)
def drift(reference: Dict[str, float], current: Dict[str, float]) -> Annotated[bool, "drifted"]:
    """Whether the batches differ."""
    return abs(reference["mean"] - current["mean"]) > 0.5


@step(enable_cache=False)
def page(drifted: bool) -> Annotated[HTMLString, "drift_page"]:
    """Tells of it."""
    return HTMLString(f"<b>{'drift' if drifted else 'no drift'}</b>")


@pipeline
def watch(shift: float = 0.0):
    """Compares a batch with the first one."""
    reference = measure("a", 0.0, id="reference")
    current = measure("b", shift, id="current")
    page(drift(reference, current))


@step(enable_cache=False)
def compare(old: Dict[str, float], new: Dict[str, float]) -> Annotated[float, "moved"]:
    """How far the mean moved."""
    return round(abs(old["mean"] - new["mean"]), 3)


@pipeline(enable_cache=False)
def compare_with_last(old_version: str):
    """Compares with a stored batch."""
    client = Client()
    compare(client.get_artifact_version("statistics", old_version), measure("c", 2.0))


if __name__ == "__main__":
    client = Client()
    run = search([0.1, 0.5], [1, 4])
    fact("steps", lambda: list(run.steps))
    fact("best", lambda: run.steps["best"].output.load().model_dump())
    fact("report", lambda: run.steps["report"].output.load())
    fact("report type", lambda: run.steps["report"].output.type.value)
    fact("outcomes", lambda: client.list_artifact_versions(artifact="outcome").total)
    fact("good", lambda: client.list_artifact_versions(artifact="outcome", tag="good").total)
    fact("trial tags", lambda: [t.name for t in run.steps["fit_0_0"].output.tags])
    fact("metadata", lambda: sorted(run.steps["fit_1_1"].run_metadata.items()))
    fact(
        "by metadata",
        lambda: sorted(s.name for s in client.list_run_steps(run_metadata="loss:lt:0.5")),
    )
    fact("parameters", lambda: run.config.parameters)
    fact("trial", lambda: run.steps["fit_0_1"].config.parameters)
    second = search([0.2], [2])
    fact(
        "latest",
        lambda: [r.id == second.id for r in client.list_pipeline_runs(tag="latest_search")],
    )
    fact("both", lambda: client.list_pipeline_runs(tag="search").total)
    calm, moved = watch(), watch(shift=3.0)
    fact("drift", lambda: [r.steps["drift"].output.load() for r in (calm, moved)])
    fact("page", lambda: moved.steps["page"].output.load())
    fact("order", lambda: list(calm.steps))
    fact("parents", lambda: moved.steps["drift"].spec.upstream_steps)
    fact(
        "statistics",
        lambda: [a.version for a in client.list_artifact_versions(artifact="statistics")],
    )
    fact("who made it", lambda: client.get_artifact_version("statistics", "3").step.name)
    fact("batches", lambda: client.list_run_steps(run_metadata="batch:b").total)
    third = compare_with_last("1")
    fact("moved", lambda: third.steps["compare"].output.load())
    fact("lazy input", lambda: third.steps["compare"].inputs["old"][0].version)
    fact("trials", lambda: trials.entrypoint(3, 1))
