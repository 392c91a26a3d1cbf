"""Dynamic pipelines: the body runs with the steps' real values."""

from typing import Annotated, List, Tuple

from facts import fact
from zenml import pipeline, step, unmapped
from zenml.client import Client


@step
def numbers(n: int) -> List[int]:
    return list(range(n))


@step
def double(x: int) -> Annotated[int, "dy_double"]:
    return 2 * x


@step
def add(x: int, y: int) -> int:
    return x + y


@step
def both(x: int) -> Tuple[Annotated[int, "low"], Annotated[int, "high"]]:
    return x - 1, x + 1


@step
def total(xs: List[int]) -> int:
    return sum(xs)


@step
def nothing() -> None:
    pass


@step
def broken(x: int) -> int:
    raise ValueError(f"no {x}")


told = {}


def tell(name, ask):
    """A fact of the body, told after the run."""
    try:
        told[name] = repr(ask())
    except Exception as bad:
        told[name] = "raises " + "<".join(one.__name__ for one in type(bad).__mro__)


@pipeline(dynamic=True, enable_cache=False)
def dy_values(n: int = 3) -> None:
    xs = numbers(n)
    tell("load", lambda: xs.load())
    tell("class", lambda: type(xs).__name__)
    tell("output name", lambda: (xs.output_name, xs.step_name, xs.item_count))
    if len(xs.load()) > 2:
        tell("branch", lambda: double(len(xs.load())).load())
    else:
        nothing()
    result = both(10)
    tell("tuple", lambda: [one.load() for one in result])
    low, high = result
    tell("unpacked", lambda: (low.load(), high.output_name))
    tell("nothing", lambda: nothing())
    value = 0
    while value < 4:
        value = add(value, 2).load()
    tell("loop", lambda: value)
    tell("literal", lambda: total([1, 2, 3]).load())
    tell("list of outputs", lambda: total([low, high]).load())
    tell("keyword id", lambda: double(7, id="dy_named").load())
    tell("chunk", lambda: double(xs.chunk(2)).load())
    tell("chunk out of range", lambda: xs.chunk(9))
    tell("no chunk", lambda: low.chunk(0))


@pipeline(dynamic=True, enable_cache=False)
def dy_futures() -> None:
    one = double.submit(4)
    tell("future", lambda: type(one).__name__)
    tell("future load", lambda: one.load())
    tell("future artifacts", lambda: type(one.artifacts()).__name__)
    tell("future running", lambda: one.running())
    tell("future wait", lambda: one.wait())
    tell("future length", lambda: len(one))
    tell("future id", lambda: one.invocation_id)
    two = both.submit(5)
    tell("of two", lambda: two.load())
    low, high = two
    tell("artifact future", lambda: (type(low).__name__, low.load(), high.result().output_name))
    tell("by index", lambda: two[1].load())
    tell("by slice", lambda: [one.load() for one in two[0:2]])
    tell("by key", lambda: two.get_artifact("high").load())
    tell("no key", lambda: two.get_artifact("other"))
    tell("future as input", lambda: add(one, high).load())
    late = add.submit(double.submit(1), double.submit(2))
    tell("chain", lambda: late.load())
    nil = nothing.submit()
    tell("no outputs", lambda: (len(nil), nil.load()))
    tell("iterate no outputs", lambda: list(nil))
    after = double.submit(3, after=[nil, late])
    tell("after", lambda: after.load())
    tell("list of futures", lambda: total([one, late]).load())


@pipeline(dynamic=True, enable_cache=False)
def dy_map() -> None:
    xs = numbers(3)
    mapped = double.map(xs)
    tell("map", lambda: (type(mapped).__name__, len(mapped), mapped.load()))
    tell("map ids", lambda: [one.invocation_id for one in mapped])
    tell("map item", lambda: mapped[1].load())
    tell("map slice", lambda: [one.load() for one in mapped[1:]])
    tell("map result", lambda: [type(one).__name__ for one in mapped.result()])
    tell("reduce", lambda: total(mapped).load())
    tell("zip", lambda: add.map(x=xs, y=mapped).load())
    tell("unmapped", lambda: add.map(x=xs, y=unmapped(10)).load())
    tell("broadcast", lambda: add.map(x=xs, y=5).load())
    tell("product", lambda: add.product(x=xs, y=mapped).load())
    lows, highs = both.map(xs).unpack()
    tell("unpack", lambda: ([one.load() for one in lows], [one.load() for one in highs]))
    tell("map of submitted", lambda: double.map(numbers.submit(2)).load())


@pipeline(dynamic=True, enable_cache=False)
def dy_nothing_mapped() -> None:
    tell("unmapped only", lambda: total.map(xs=unmapped([1])).load())


@pipeline(dynamic=True, enable_cache=False)
def dy_map_literals() -> None:
    tell("map literals", lambda: double.map([4, 5]).load())


@pipeline(dynamic=True, enable_cache=False)
def dy_list_beside() -> None:
    tell("list", lambda: add.map(x=numbers(3), y=[5, 6, 7]).load())


@pipeline(dynamic=True, enable_cache=False)
def dy_lengths() -> None:
    tell("lengths", lambda: add.map(x=numbers(3), y=numbers(2)).load())


@pipeline(dynamic=True, enable_cache=False)
def dy_empty() -> None:
    tell("map of empty", lambda: double.map(numbers(0)).load())


@pipeline(dynamic=True, enable_cache=False)
def dy_no_list() -> None:
    tell("map not a list", lambda: double.map(double(1)).load())


@pipeline(dynamic=True, enable_cache=False)
def dy_two_in() -> None:
    two = both.submit(5)
    tell("future of two as input", lambda: double(two))


@pipeline(dynamic=True, enable_cache=False)
def dy_no_input() -> None:
    tell("missing input", lambda: double())


@pipeline(dynamic=True, enable_cache=False)
def dy_wrong_input() -> None:
    tell("unknown input", lambda: double(z=1))


@pipeline(enable_cache=False)
def dy_static():
    double(1)


@pipeline(dynamic=True, enable_cache=False)
def dy_in_static() -> None:
    tell("static inside", lambda: dy_static())


WRONG = (
    dy_map_literals,
    dy_list_beside,
    dy_nothing_mapped,
    dy_lengths,
    dy_empty,
    dy_no_list,
    dy_two_in,
    dy_no_input,
)
WRONG = (*WRONG, dy_wrong_input, dy_in_static)


@pipeline(dynamic=True, enable_cache=False)
def dy_caught() -> None:
    try:
        broken(1)
    except Exception as bad:
        told["caught"] = (type(bad).__name__, "no 1" in str(bad))
    future = broken.submit(2)
    tell("failed future", lambda: future.load())
    tell("of failed", lambda: double(future))
    double(3)


@pipeline(dynamic=True, enable_cache=False)
def dy_failed() -> None:
    broken(5)
    told["after failure"] = "reached"


@pipeline(dynamic=True, enable_cache=False)
def dy_raises() -> None:
    double(1)
    raise KeyError("body")


@pipeline(dynamic=True)
def dy_cached() -> None:
    double(21)


@pipeline(dynamic=True, enable_cache=False)
def dy_child(x: int) -> int:
    return double(x)


@pipeline(dynamic=True, enable_cache=False)
def dy_parent() -> None:
    told["child"] = type(dy_child(3)).__name__
    told["child value"] = dy_child(4).load()
    future = dy_child.submit(5)
    tell("child future", lambda: (type(future).__name__, future.result().load()))
    tell("child as input", lambda: double(dy_child(1)).load())
    tell("embedded", lambda: dy_child.embed(6).load())


@pipeline(dynamic=True, enable_cache=False)
def dy_returns() -> Annotated[int, "dy_result"]:
    return double(8)


def last(pipe):
    return Client().list_pipeline_runs(pipeline_name=pipe.name)[0]


if __name__ == "__main__":
    try:
        double.submit(1)
    except Exception as bad:
        told["submit outside"] = type(bad).__name__
    try:
        double.map([1])
    except Exception as bad:
        told["map outside"] = type(bad).__name__
    tell("embed outside", lambda: dy_child.embed(1))
    tell("submit pipeline outside", lambda: dy_child.submit(1))
    run = dy_values()
    fact("run", lambda: type(run).__name__)
    fact("status", lambda: run.status.value)
    fact("steps", lambda: sorted(run.steps))
    fact("step status", lambda: {one.status.value for one in run.steps.values()})
    fact("outputs", lambda: run.steps["both"].outputs["low"][0].load())
    fact("parameters of step", lambda: run.steps["dy_named"].config.parameters)
    fact("inputs of step", lambda: {k: len(v) for k, v in run.steps["dy_named"].inputs.items()})
    fact("input value", lambda: run.steps["dy_named"].inputs["x"][0].load())
    fact("input artifact", lambda: [one.name for one in run.steps["double_2"].inputs["x"]])
    fact("parameters", lambda: run.config.parameters)
    fact("pipeline", lambda: run.pipeline.name)
    fact("found", lambda: Client().get_pipeline_run(run.id).name == run.name)
    fact("runs", lambda: Client().list_pipeline_runs(pipeline_name="dy_values").total)
    fact("versions", lambda: len(Client().list_artifact_versions(name="dy_double")))
    fact("producer", lambda: run.steps["double"].output.run.id == run.id)
    fact("producer step", lambda: run.steps["double"].output.step.name)
    fact("parameter", lambda: dy_values(n=1).config.parameters)
    futures = dy_futures()
    fact("futures status", lambda: futures.status.value)
    fact("futures steps", lambda: sorted(futures.steps))
    maps = dy_map()
    fact("maps status", lambda: maps.status.value)
    fact("maps steps", lambda: sorted(maps.steps))
    for wrong in WRONG:
        tell(f"{wrong.name} ends", lambda wrong=wrong: wrong().status.value)
        fact(f"{wrong.name} status", lambda wrong=wrong: last(wrong).status.value)
    try:
        caught = dy_caught()
        told["caught ends"] = caught.status.value
    except Exception as bad:
        told["caught ends"] = f"raises {type(bad).__name__}"
    caught = last(dy_caught)
    fact("caught status", lambda: caught.status.value)
    fact("caught steps", lambda: {k: v.status.value for k, v in caught.steps.items()})
    fact("failed", lambda: dy_failed())
    failed = last(dy_failed)
    fact("failed status", lambda: (failed.status.value, failed.steps["broken"].status.value))
    fact("body", lambda: dy_raises())
    raised = last(dy_raises)
    fact("body status", lambda: (raised.status.value, raised.steps["double"].status.value))
    dy_cached()
    again = dy_cached()
    fact("cached", lambda: (again.status.value, again.steps["double"].status.value))
    fact("cached value", lambda: again.steps["double"].output.load())
    parent = dy_parent()
    fact("parent steps", lambda: sorted(parent.steps))
    fact("children", lambda: Client().list_pipeline_runs(pipeline_name="dy_child").total)
    returned = dy_returns()
    fact("returned", lambda: {k: v.load() for k, v in returned.outputs.items()})
    for name, value in told.items():
        print(f"FACT {name} = {value}", flush=True)
