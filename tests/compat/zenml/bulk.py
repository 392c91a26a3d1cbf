"""``bulk_log_metadata``: one call for several objects."""

from typing import Annotated

from facts import fact
from zenml import bulk_log_metadata, pipeline, step
from zenml.client import Client
from zenml.models import (
    ArtifactVersionIdentifier,
    ModelVersionIdentifier,
    PipelineRunIdentifier,
    StepRunIdentifier,
)


@step(enable_cache=False)
def make() -> Annotated[int, "bk_made"]:
    return 1


@pipeline
def bk_run():
    make()


if __name__ == "__main__":
    client = Client()
    first, second = bk_run(), bk_run()
    client.create_model("bk_net")
    version = client.create_model_version("bk_net", name="one")
    bulk_log_metadata(
        {"k": 1},
        pipeline_runs=[PipelineRunIdentifier(id=first.id), PipelineRunIdentifier(name=second.name)],
        step_runs=[StepRunIdentifier(id=first.steps["make"].id)],
        artifact_versions=[ArtifactVersionIdentifier(name="bk_made", version="2")],
        model_versions=[ModelVersionIdentifier(id=version.id)],
    )
    fact("runs", lambda: [client.get_pipeline_run(r.id).run_metadata for r in (first, second)])
    fact("step", lambda: client.get_run_step(first.steps["make"].id).run_metadata)
    fact("other step", lambda: client.get_run_step(second.steps["make"].id).run_metadata)
    fact("artifact", lambda: client.get_artifact_version("bk_made", "2").run_metadata["k"])
    fact("model", lambda: client.get_model_version("bk_net", "one").run_metadata)
    fact("nothing", lambda: bulk_log_metadata({"k": 1}))
    fact("both", lambda: StepRunIdentifier(id=first.id, name="x"))
