"""The command ``zenml``: what its lists tell, and what it changes."""

import json
import subprocess
from typing import Annotated

from facts import fact
from zenml import Model, pipeline, step
from zenml.client import Client


@step(enable_cache=False)
def make(n: int = 1) -> Annotated[int, "co_out"]:
    return n


@pipeline(model=Model(name="co_model"), tags=["co_run"])
def co_pipeline():
    make()


def zenml(*words):
    return subprocess.run(["zenml", *words], capture_output=True, text=True)


def listed(*words):
    """The names in a list, and how many there are."""
    done = zenml(*words, "--output", "json")
    found = json.loads(done.stdout)
    return sorted(str(one.get("name")) for one in found["items"]), found["pagination"]["total"]


def told(*words):
    done = zenml(*words)
    return done.stdout + done.stderr


def ends(*words):
    return zenml(*words).returncode != 0


if __name__ == "__main__":
    client = Client()
    co_pipeline()
    co_pipeline()
    fact("version", lambda: "0.98.0" in told("version"))
    fact("init", lambda: ends("init"))
    fact("status", lambda: "default" in told("status"))
    fact("pipelines", lambda: listed("pipeline", "list"))
    fact("runs", lambda: listed("pipeline", "runs", "list")[1])
    fact("runs filtered", lambda: listed("pipeline", "runs", "list", "--tag", "co_run")[1])
    fact("runs of size 1", lambda: len(listed("pipeline", "runs", "list", "--size", "1")[0]))
    fact("artifacts", lambda: listed("artifact", "list"))
    fact("artifact versions", lambda: listed("artifact", "version", "list")[1])
    fact("models", lambda: listed("model", "list"))
    fact("model versions", lambda: listed("model", "version", "list", "--model", "co_model")[1])
    fact("stacks", lambda: listed("stack", "list"))
    fact("orchestrators", lambda: listed("orchestrator", "list"))
    fact("trackers", lambda: ends("experiment-tracker", "list"))
    fact("describe", lambda: "ORCHESTRATOR" in told("stack", "describe").upper())
    fact("active", lambda: "'default'" in told("stack", "get"))
    fact("set", lambda: ends("stack", "set", "default"))
    fact("set none", lambda: ends("stack", "set", "none"))
    fact("secret create", lambda: ends("secret", "create", "co_secret", "--user=u", "--word=w"))
    fact("secret", lambda: client.get_secret("co_secret").secret_values)
    fact("secret update", lambda: ends("secret", "update", "co_secret", "--word=x"))
    fact("updated", lambda: client.get_secret("co_secret").secret_values["word"])
    fact("secret get", lambda: "word" in told("secret", "get", "co_secret"))
    fact("secret delete", lambda: ends("secret", "delete", "co_secret", "-y"))
    fact("secrets", lambda: client.list_secrets().total)
    fact("register", lambda: ends("model", "register", "-n", "co_made", "-l", "MIT", "-t", "a"))
    fact(
        "made",
        lambda: (client.get_model("co_made").license, client.get_model("co_made").tags[0].name),
    )
    fact(
        "stage",
        lambda: ends("model", "version", "update", "co_model", "1", "-s", "production", "-f"),
    )
    fact("staged", lambda: client.get_model_version("co_model", "production").number)
    fact("delete", lambda: ends("model", "delete", "co_made", "-y"))
    fact("gone", lambda: client.get_model("co_made"))
    fact("tag", lambda: ends("artifact", "version", "update", "co_out", "-v", "1", "-t", "good"))
    fact("tagged", lambda: [t.name for t in client.get_artifact_version("co_out", "1").tags])
    fact("run", lambda: ends("pipeline", "run", "commands.co_pipeline"))
    fact("ran", lambda: client.get_pipeline("co_pipeline").num_runs)
    fact("run none", lambda: ends("pipeline", "run", "commands.nothing"))
    fact("prune", lambda: ends("artifact", "prune", "-y"))
    fact("left", lambda: client.list_artifact_versions(artifact="co_out").total)
    fact("delete pipeline", lambda: ends("pipeline", "delete", "co_pipeline", "-y"))
    fact("pipelines left", lambda: client.list_pipelines().total)
    fact("schedules", lambda: ends("pipeline", "schedule", "list"))
    fact("nonsense", lambda: ends("nonsense"))
    fact("pages", lambda: client.list_models(name="none").total_pages)
