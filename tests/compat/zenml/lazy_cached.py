"""A step that takes a stored artifact from a pipeline's body is cached by what it got."""

from facts import fact
from zenml import pipeline, save_artifact, step
from zenml.client import Client


@step(enable_cache=False)
def make(n: int) -> None:
    save_artifact(n, "lc_made")


@step
def use(x: int) -> int:
    return x + 1


@pipeline(enable_cache=True)
def lc_latest():
    use(Client().get_artifact_version("lc_five"))


@pipeline(enable_cache=True)
def lc_first():
    use(Client().get_artifact_version("lc_five", version="first"))


@pipeline(enable_cache=True)
def lc_both(n: int):
    """The run saves what its next step looks up."""
    make(n)
    use(Client().get_artifact_version("lc_made"), after="make")


def told(run):
    step = run.steps["use"]
    return str(step.status), step.output.load()


if __name__ == "__main__":
    save_artifact(5, "lc_five", version="first")
    fact("new", lambda: told(lc_latest()))
    fact("same", lambda: told(lc_latest()))
    save_artifact(6, "lc_five")
    fact("changed", lambda: told(lc_latest()))
    fact("same again", lambda: told(lc_latest()))
    save_artifact(6, "lc_five")
    fact("equal", lambda: told(lc_latest()))
    fact("by version", lambda: told(lc_first()))
    save_artifact(7, "lc_five")
    fact("by version again", lambda: told(lc_first()))
    fact("made", lambda: told(lc_both(1)))
    fact("made alike", lambda: told(lc_both(1)))
    fact("made otherwise", lambda: told(lc_both(2)))
