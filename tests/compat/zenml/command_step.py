"""Steps that are commands: how they are made, where they are refused, and in dynamic pipelines."""

import functools
import os

import zenml.steps
from facts import fact
from zenml import CommandStep, pipeline, step


def hello():
    print("hello")


def takes(x):
    pass


def plain(func):
    return functools.wraps(func)(lambda: func())


@plain
def decorated():
    pass


def around():
    x = 1

    def inner():
        return x

    return inner


class Telling(CommandStep):
    def entrypoint(self) -> int:
        return 1


@step
def after() -> int:
    return 1


@pipeline
def cs_here():
    CommandStep(["true"])()


@pipeline
def cs_unknown():
    CommandStep(["true"], step_operator="nope")()


@pipeline
def cs_any():
    CommandStep(["true"], step_operator=True)()


@pipeline(dynamic=True)
def cs_dynamic():
    CommandStep(["touch", "made-by-command"], name="touching")()
    return after()


@pipeline(dynamic=True)
def cs_fails():
    CommandStep(["false"])()


@pipeline(dynamic=True, on_success=hello)
def cs_submitted():
    CommandStep(["sh", "-c", "exit 0"]).submit().wait()


def told(run):
    return str(run.status), {name: str(one.status) for name, one in run.steps.items()}


if __name__ == "__main__":
    fact("same", lambda: zenml.steps.CommandStep is CommandStep)
    fact("name", lambda: CommandStep(["true"]).name)
    fact("named", lambda: CommandStep(["true"], name="mine").name)
    fact("text", lambda: CommandStep("echo").configuration.command)
    fact("of function", lambda: CommandStep(hello).configuration.command)
    fact("cached", lambda: CommandStep(["true"], enable_cache=True).configuration.enable_cache)
    fact("empty", lambda: CommandStep([]))
    fact("lambda", lambda: CommandStep(lambda: 1))
    fact("parameters", lambda: CommandStep(takes))
    fact("decorated", lambda: CommandStep(decorated))
    fact("closure", lambda: CommandStep(around()))
    fact("builtin", lambda: CommandStep(print))
    fact("outputs", lambda: Telling(["true"]))
    fact("hooks", lambda: CommandStep(["true"], on_failure=hello))
    fact("hooks later", lambda: CommandStep(["true"]).configure(on_success=hello))
    fact("static", cs_here)
    fact("unknown operator", cs_unknown)
    fact("any operator", cs_any)
    fact("alone", lambda: CommandStep(["true"])())
    fact("entrypoint", lambda: CommandStep(["true"]).entrypoint())
    fact("dynamic", lambda: told(cs_dynamic()))
    fact("dynamic made", lambda: os.path.exists("made-by-command"))
    fact("dynamic fails", lambda: told(cs_fails()))
    fact("submitted", lambda: told(cs_submitted()))
