"""What a pipeline's body takes from a model is looked up when the step starts."""

from typing import Annotated

from facts import fact
from zenml import Model, get_pipeline_context, log_metadata, pipeline, step


@step(enable_cache=False)
def train(n: int) -> Annotated[int, "lz_weights"]:
    log_metadata({"score": n / 10}, infer_model=True)
    log_metadata({"rows": n}, artifact_name="lz_weights", infer_artifact=True)
    return n


@step(enable_cache=False)
def use(x: int) -> int:
    return x + 1


@step(enable_cache=False)
def tell(score: float) -> float:
    return score


@pipeline(model=Model(name="lz_net", version="first"))
def lz_train():
    train(5)


@pipeline(model=Model(name="lz_net", version="first"))
def lz_use():
    model = get_pipeline_context().model
    use(model.get_artifact("lz_weights"))
    tell(model.run_metadata["score"])
    tell(model.get_artifact("lz_weights").run_metadata["rows"], id="rows")


@pipeline(model=Model(name="lz_net", version="second"))
def lz_both():
    """The artifact is made by the run that uses it."""
    model = get_pipeline_context().model
    train(7, id="made")
    use(model.get_artifact("lz_weights"), after="made")


if __name__ == "__main__":
    lz_train()
    run = lz_use()
    fact("artifact", lambda: run.steps["use"].output.load())
    fact("metadata", lambda: run.steps["tell"].output.load())
    fact("metadata of artifact", lambda: run.steps["rows"].output.load())
    fact("of this run", lambda: lz_both().steps["use"].output.load())
