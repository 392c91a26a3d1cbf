"""Class-based steps, steps made in functions, and what steps and pipelines tell of themselves."""

from typing import Annotated

from facts import fact
from zenml import get_step_context, pipeline, step
from zenml.client import Client
from zenml.steps import BaseStep


class Adder(BaseStep):
    """Adds."""

    def entrypoint(self, x: int, by: int = 1) -> Annotated[int, "cs_sum"]:
        return x + by


@step
def begin() -> int:
    return 2


@pipeline(enable_cache=False)
def cs_classes():
    first = Adder()(begin())
    second = Adder(name="adds_ten")(first, by=10)
    Adder(name="more")(second, by=100)


@pipeline(enable_cache=False)
def cs_options():
    Adder(name="named", extra={"k": 1})(x=5)
    Adder().configure(parameters={"by": 7})(x=1, id="configured")


@step(enable_cache=False)
def who() -> str:
    context = get_step_context()
    return f"{context.step_name} {context.pipeline.name}"


@pipeline
def cs_who():
    who(id="first")
    who(id="second")
    who.with_options(extra={"a": 1})()
    who()


if __name__ == "__main__":
    client = Client()
    run = cs_classes()
    fact("steps", lambda: list(run.steps))
    fact("sum", lambda: run.steps["Adder"].output.load())
    fact("ten", lambda: run.steps["adds_ten"].output.load())
    fact("more", lambda: run.steps["more"].output.load())
    fact("artifact", lambda: run.steps["Adder"].output.name)
    fact("source", lambda: run.steps["Adder"].spec.source.attribute)
    fact("docstring", lambda: run.steps["Adder"].docstring)
    run = cs_options()
    fact("names", lambda: list(run.steps))
    fact("extra", lambda: run.steps["named"].config.extra)
    fact("configured", lambda: run.steps["configured"].output.load())
    fact("called", lambda: Adder().entrypoint(1, 2))
    fact("step name", lambda: (Adder().name, Adder(name="other").name))
    fact("instance", lambda: isinstance(Adder(), BaseStep))
    fact("decorated", lambda: isinstance(begin, BaseStep))
    fact("subclass", lambda: issubclass(Adder, BaseStep))
    run = cs_who()
    fact("who", lambda: {name: s.output.load() for name, s in run.steps.items()})
    fact("invocations", lambda: sorted(run.steps))
    fact("abstract", lambda: BaseStep())
