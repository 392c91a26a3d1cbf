"""Hooks, run configuration files, names of runs, cache policies, secrets of steps, class-based
steps, orders."""

import os
from typing import Annotated

from facts import fact
from zenml import get_step_context, pipeline, step
from zenml.client import Client
from zenml.config import CachePolicy, StepRetryConfig


def note(text):
    with open("hooks.txt", "a") as out:
        out.write(text + ";")


def noted():
    if not os.path.exists("hooks.txt"):
        return ""
    text = open("hooks.txt").read()
    open("hooks.txt", "w").close()
    return text


# ---------------------------------------------------------------------------- hooks


def with_error(exception: BaseException) -> None:
    note(f"failed {type(exception).__name__} {exception}")


def without() -> None:
    note("plain")


def in_context() -> None:
    note("in " + get_step_context().step_name)


def ended(exception=None) -> None:
    note(f"ended {type(exception).__name__}")


def broken() -> None:
    raise RuntimeError("hook")


@step(enable_cache=False, on_failure=with_error, on_success=without)
def fails() -> None:
    raise KeyError("lost")


@step(enable_cache=False, on_success=in_context, on_start=without, on_end=ended)
def works() -> int:
    return 1


@step(enable_cache=False)
def inherits() -> int:
    return 1


@step(enable_cache=False)
def inherits_failing() -> None:
    raise ValueError("x")


@step(enable_cache=False, on_success=broken)
def hook_breaks() -> int:
    return 2


@step(enable_cache=False, on_failure="configs.with_error")
def by_source() -> None:
    raise OSError("gone")


@step(
    enable_cache=False,
    retry=StepRetryConfig(max_retries=2),
    on_failure=with_error,
    on_end=ended,
    on_start=without,
)
def retried() -> None:
    note("try")
    raise ValueError("again")


@pipeline
def cf_fails():
    fails()


@pipeline
def cf_works():
    works()


@pipeline(on_success=without, on_failure=with_error)
def cf_inherits():
    inherits()


@pipeline(on_failure=with_error)
def cf_inherits_failing():
    inherits_failing()


@pipeline(on_success=without)
def cf_own():
    works()


@pipeline
def cf_breaks():
    hook_breaks()


@pipeline
def cf_source():
    by_source()


@pipeline
def cf_retried():
    retried()


# ---------------------------------------------------------------------------- files


@step(enable_cache=False)
def scaled(n: int, factor: float = 2.0) -> Annotated[float, "cf_out"]:
    note(os.environ.get("CF_WORD", "no word"))
    return n * factor


@pipeline
def cf_file(n: int = 3):
    scaled(n)


WHOLE = """
run_name: cf_run_{date}
enable_cache: false
enable_step_logs: true
enable_artifact_metadata: false
enable_artifact_visualization: false
parameters:
  n: 7
tags: [cf_a, cf_b]
extra:
  team: x
model:
  name: cf_model
  version: five
  tags: [z]
environment:
  CF_WORD: said
retry:
  max_retries: 1
substitutions:
  who: me
settings:
  resources:
    cpu_count: 1
    memory: 1GB
steps:
  scaled:
    parameters:
      factor: 3.5
    enable_cache: false
    extra:
      own: y
"""


# ---------------------------------------------------------------------------- caching


@step(cache_policy=CachePolicy(include_step_code=False))
def no_code(x: int) -> int:
    note("ran")
    return x


@step(cache_policy=CachePolicy(ignored_inputs=["x"]))
def ignores(x: int) -> int:
    note("ran")
    return x


@step(cache_policy=CachePolicy(file_dependencies=["depends.txt"]))
def depends(x: int) -> int:
    note("ran")
    return x


def clock() -> str:
    return open("clock.txt").read()


@step(cache_policy=CachePolicy(cache_func=clock))
def by_function(x: int) -> int:
    note("ran")
    return x


@step(cache_policy=CachePolicy(include_step_parameters=False))
def no_parameters(x: int) -> int:
    note("ran")
    return x


@step(cache_policy="default")
def default(x: int) -> int:
    note("ran")
    return x


@step(cache_policy=CachePolicy(expires_after=0))
def expired(x: int) -> int:
    note("ran")
    return x


STEPS = dict(
    no_code=no_code,
    ignores=ignores,
    depends=depends,
    by_function=by_function,
    no_parameters=no_parameters,
    default=default,
    expired=expired,
)


@pipeline
def cf_cache(name: str, x: int):
    STEPS[name](x)


# ---------------------------------------------------------------------------- the rest


@step(enable_cache=False, secrets=["cf_secret"])
def knows() -> str:
    return f"{os.environ.get('CF_USER')} {os.environ.get('CF_WORD2')}"


@pipeline
def cf_secrets():
    knows()


@step(enable_cache=False, environment={"CF_WORD": "step"})
def surrounded() -> str:
    return os.environ["CF_WORD"]


@pipeline(environment={"CF_WORD": "pipeline"})
def cf_environment():
    surrounded()


@step(enable_cache=False)
def first() -> int:
    note("first")
    return 1


@step(enable_cache=False)
def second() -> int:
    note("second")
    return 2


@pipeline
def cf_after():
    b = second(id="z_second")
    first(after=[b], id="a_first")


@pipeline(substitutions={"who": "you"})
def cf_named():
    first()


def try_run(call):
    try:
        return call().status.value
    except Exception as bad:
        return "raises " + type(bad).__mro__[-4].__name__


def noted_of(call):
    return (try_run(call), noted())


if __name__ == "__main__":
    client = Client()
    fact("on_failure", lambda: noted_of(cf_fails))
    fact("on_success", lambda: noted_of(cf_works))
    fact("inherited", lambda: noted_of(cf_inherits))
    fact("inherited failure", lambda: noted_of(cf_inherits_failing))
    fact("own hooks", lambda: noted_of(cf_own))
    fact("hook breaks", lambda: noted_of(cf_breaks))
    fact("by source", lambda: noted_of(cf_source))
    fact("retried", lambda: noted_of(cf_retried))
    fact("configured hook", lambda: noted_of(cf_inherits.with_options(on_success=None)))

    with open("whole.yaml", "w") as out:
        out.write(WHOLE)
    configured = cf_file.with_options(config_path="whole.yaml")
    run = configured()
    fact("file output", lambda: run.steps["scaled"].output.load())
    fact("file word", noted)
    fact("file name", lambda: run.name.startswith("cf_run_20"))
    fact("file tags", lambda: sorted(t.name for t in run.tags))
    fact("file extra", lambda: run.config.extra)
    fact("file step extra", lambda: run.steps["scaled"].config.extra)
    fact("file model", lambda: (run.model_version.model.name, run.model_version.name))
    fact("file parameters", lambda: run.config.parameters)
    fact("file cache", lambda: run.config.enable_cache)
    fact("file logs", lambda: run.config.enable_step_logs)
    fact("file retry", lambda: run.config.retry.max_retries)
    fact("file resources", lambda: run.config.settings["resources"].memory)
    fact("file who", lambda: run.config.substitutions["who"])
    fact("step resources", lambda: run.steps["scaled"].config.resource_settings.cpu_count)
    fact("conflict", lambda: configured(n=8).config.parameters)
    fact("same", lambda: configured(n=7).config.parameters)
    noted()
    with open("wrong.yaml", "w") as out:
        out.write("steps:\n  nothing:\n    enable_cache: false\n")
    fact("unknown step", lambda: try_run(cf_file.with_options(config_path="wrong.yaml")))
    with open("wrong.yaml", "w") as out:
        out.write("parameters:\n  m: 1\n")
    fact("unknown parameter", lambda: try_run(cf_file.with_options(config_path="wrong.yaml")))
    with open("wrong.yaml", "w") as out:
        out.write("enable_cache: maybe\n")
    fact("wrong value", lambda: cf_file.with_options(config_path="wrong.yaml")())
    fact("no file", lambda: cf_file.with_options(config_path="none.yaml")())
    cf_file.write_run_configuration_template("template.yaml")
    with open("template.yaml") as lines:
        written = [line for line in lines if not line.startswith("#")]
    fact("template", lambda: written)
    fact(
        "steps",
        lambda: (
            cf_file.with_options(steps={"scaled": {"parameters": {"factor": 10.0}}})()
            .steps["scaled"]
            .output.load()
        ),
    )
    fact(
        "step_configurations",
        lambda: (
            cf_file.with_options(step_configurations={"scaled": {"parameters": {"factor": 4.0}}})()
            .steps["scaled"]
            .output.load()
        ),
    )
    noted()

    def twice(name, change=lambda: None, x=1):
        cf_cache(name, 1)
        change()
        cf_cache(name, x)
        return noted().count("ran")

    def write(name, text):
        with open(name, "w") as out:
            out.write(text)

    write("depends.txt", "a")
    write("clock.txt", "a")
    fact("cache default", lambda: twice("default"))
    fact("cache no code", lambda: twice("no_code"))
    fact("cache other x", lambda: twice("no_code", x=2))
    fact("cache ignored", lambda: twice("ignores", x=2))
    fact("cache file", lambda: twice("depends", lambda: write("depends.txt", "b")))
    fact("cache same file", lambda: twice("depends"))
    fact("cache function", lambda: twice("by_function", lambda: write("clock.txt", "b")))
    fact("cache same function", lambda: twice("by_function"))
    fact("cache no parameters", lambda: twice("no_parameters", x=2))
    fact("cache expired", lambda: twice("expired"))
    fact("policy", lambda: CachePolicy.default().include_step_code)
    fact("policy text", lambda: CachePolicy.from_string("default").include_artifact_ids)
    fact("policy wrong", lambda: CachePolicy.from_string("maybe"))

    client.create_secret("cf_secret", {"CF_USER": "u", "CF_WORD2": "v"})
    fact("secrets", lambda: cf_secrets().steps["knows"].output.load())
    fact("secret stays out", lambda: os.environ.get("CF_USER"))
    fact("environment", lambda: cf_environment().steps["surrounded"].output.load())
    fact("after", lambda: noted_of(cf_after))
    run = cf_named.with_options(run_name="cf_{who}_{date}")()
    fact("name", lambda: run.name.startswith("cf_you_20"))
    fact("same name", lambda: [cf_named.with_options(run_name="cf_fixed")().name for _ in range(2)])
    fact("default name", lambda: cf_named().name.startswith("cf_named-20"))
    fact("bad name", lambda: cf_named.with_options(run_name="cf_{nothing}")().name)
    fact("other options", lambda: works.with_options(extra={"k": 2}).configuration.extra)
    fact("entrypoint", lambda: works.entrypoint())
    fact("outside", lambda: first())
    fact("configuration", lambda: (works.configuration.enable_cache, works.configuration.name))
    fact("pipeline configuration", lambda: (cf_named.configuration.substitutions, cf_named.name))
    fact("enable_cache", lambda: (works.enable_cache, cf_named.enable_cache))
    fact("copy", lambda: works.copy().name)
    fact("configure", lambda: works.configure(extra={"k": 1}).configuration.extra)
