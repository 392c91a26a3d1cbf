"""The command ``zenml``: help, groups without a command, and what is refused."""

import subprocess
from typing import Annotated

from facts import fact
from zenml import Model, pipeline, step
from zenml.client import Client


@step(enable_cache=False)
def make() -> Annotated[int, "gr_out"]:
    return 1


@pipeline(model=Model(name="gr_model"), tags=["gr_used"])
def gr_pipeline():
    make()


@step(experiment_tracker="gr_none", enable_cache=False)
def tracked():
    pass


@pipeline
def gr_tracked():
    tracked()


def zenml(*words):
    return subprocess.run(["zenml", *words], capture_output=True, text=True)


def ends(text):
    return zenml(*text.split()).returncode


if __name__ == "__main__":
    client = Client()
    gr_pipeline()
    for words in (
        *("stack --help", "pipeline runs --help", "orchestrator --help", "version --help"),
        *("stack", "model version", "none", "secret none", "analytics opt-out"),
        *("logging set-verbosity INFO", "secret create gr_empty", "secret create gr_a --name=x"),
        *("secret create gr_b --a=b", "secret export gr_b", "secret create gr_c -v @gr_b.yaml"),
        *("tag register -n gr_tag -c red", "tag register -n gr_tag", "tag update gr_tag -n gr_new"),
        "artifact version describe gr_out",
        *(
            "artifact version describe gr_none",
            "model data_artifacts gr_model",
            "model runs gr_model",
        ),
        *("model model_artifacts gr_none",),
    ):
        fact(words, lambda words=words: ends(words))
    fact("exported", lambda: open("gr_b.yaml").read().replace('"', "").split())
    fact("imported", lambda: client.get_secret("gr_c").secret_values)
    fact("color", lambda: str(client.get_tag("gr_new").color))
    fact("registered", lambda: ends("experiment-tracker register gr_tracker --flavor=mlflow"))
    fact("tracker", gr_tracked)
    fact("exclusive", lambda: client.get_pipeline("gr_pipeline").last_run.tags[0].exclusive)
