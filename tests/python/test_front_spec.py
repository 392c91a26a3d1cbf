"""From step and pipeline functions to the spec: outputs, names, arguments, nesting."""

from __future__ import annotations

import asyncio
import dataclasses
import enum
import json
from typing import Any, Dict, List, Optional, Tuple

import pytest
from front_tools import subset
from typing_extensions import Annotated

from stoker import (
    ArtifactConfig,
    ExternalArtifact,
    PipelineInterfaceError,
    StepInterfaceError,
    StokerWarning,
    get_pipeline_context,
    pipeline,
    step,
)


def nothing(*_outputs: object) -> None:
    """For pipelines that are one expression: calls steps and returns nothing."""


def outputs_of(func: Any) -> list[str]:
    return list(step(func).outputs)


def spec_of(body: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
    made = pipeline(name="p")(body).spec(*args, **kwargs)
    json.dumps(made, allow_nan=False)
    return made


# ---------------------------------------------------------------- outputs


def named() -> Annotated[int, "count"]:
    return 1


def several() -> Tuple[Annotated[int, "a"], Annotated[str, "b"]]:
    value = 1, "x"
    return value


def literal_tuple() -> Tuple[int, str]:
    return 1, "x"


def made_tuple() -> Tuple[int, str]:
    return tuple([1, "x"])


def unannotated(x):
    return x


def no_return(x):
    print(x)


def early_return(x):
    if x:
        return
    print(x)


def with_block(x):
    with open(x) as stream:
        return stream.read()


def none_output() -> None:
    return None


def optional_output() -> Optional[int]:
    return None


def configured() -> Annotated[int, ArtifactConfig(name="cfg", tags=["x"])]:
    return 1


def mixed() -> Tuple[Annotated[int, "a"], str]:
    value = (1, "x")
    return value


def generic() -> Dict[str, List[int]]:
    return {}


@pytest.mark.parametrize(
    "func,names",
    [
        (named, ["count"]),
        (several, ["a", "b"]),
        (literal_tuple, ["output_0", "output_1"]),
        (made_tuple, ["output"]),
        (unannotated, ["output"]),
        (no_return, []),
        (early_return, []),
        (with_block, ["output"]),
        (none_output, []),
        (optional_output, ["output"]),
        (configured, ["cfg"]),
        (mixed, ["a", "output_1"]),
        (generic, ["output"]),
    ],
)
def test_outputs(func, names):
    assert outputs_of(func) == names


def test_output_config_travels():
    made = step(configured)
    assert made.entry().output_configs == {"cfg": {"name": "cfg", "tags": ["x"]}}
    assert spec_of(lambda: nothing(made()))["steps"]["configured"]["outputs"] == {
        "cfg": {"tags": ["x"]}
    }


def test_outputs_refused():
    def twice() -> Tuple[Annotated[int, "a"], Annotated[int, "a"]]:
        return 1, 2

    def endless() -> Tuple[int, ...]:
        return 1, 2

    def slash() -> Annotated[int, "a/b"]:
        return 1

    with pytest.raises(StepInterfaceError, match="duplicate output name 'a'"):
        step(twice)
    with pytest.raises(StepInterfaceError, match="variable length"):
        step(endless)
    with pytest.raises(StepInterfaceError, match="'a/b' can't be an output's name"):
        step(slash)


def test_local_types_in_annotations():
    class Local:
        pass

    def give() -> Annotated[Local, "thing"]:
        return Local()

    made = step(give)
    assert list(made.outputs) == ["thing"] and made.outputs["thing"].type is Local


# ---------------------------------------------------------------- names and references


@step
def load(n: int = 3) -> Annotated[list, "data"]:
    return list(range(n))


@step
def train(
    data: list, lr: float = 0.1
) -> Tuple[Annotated[float, "score"], Annotated[dict, "model"]]:
    return lr, {}


@step
def report(x):
    print(x)


@step
def merge(parts: list, label: str = "all") -> int:
    return len(parts)


def test_names_and_references():
    def body():
        data = load()
        score, model = train(data, 0.5)
        train(data=data, lr=1)
        train(data, id="final")
        report(model, after=["train_2", score])
        merge([score, model])

    steps = spec_of(body)["steps"]
    assert list(steps) == ["load", "train", "train_2", "final", "report", "merge"]
    assert steps["train"]["inputs"] == {"data": {"from": "load.data"}, "lr": {"value": 0.5}}
    assert steps["train_2"]["inputs"]["lr"] == {"value": 1}
    assert steps["final"]["inputs"]["lr"] == {"value": 0.1}
    assert steps["report"]["after"] == ["train_2", "train"]
    assert steps["merge"]["inputs"]["parts"] == {"from": ["train.score", "train.model"]}
    assert "outputs" not in steps["report"]
    assert steps["load"]["python"] == f"{__name__}:load"
    assert steps["load"]["source"].split(":")[0].endswith("test_front_spec.py")


def test_ids_avoid_each_other():
    def body():
        load(id="load_2")
        load()
        load()
        load.with_options(name="load_3")()
        load()

    assert list(spec_of(body)["steps"]) == ["load_2", "load", "load_3", "load_3_2", "load_4"]


def test_after_a_step_without_outputs():
    def body():
        first = report(1)
        load(after=first)

    assert spec_of(body)["steps"]["load"]["after"] == ["report"]


@pytest.mark.parametrize(
    "body,sentence",
    [
        (lambda: train(load(), rl=1), "Wrong arguments when calling step 'train'"),
        (lambda: train(load(), l_r=1), "did you mean 'lr'"),
        (lambda: train(1, 2, 3), "Wrong arguments when calling step 'train'"),
        (
            lambda: train(),
            "step 'train' is called without its input 'data'; give it: train(data=...)",
        ),
        (lambda: train(load(), lr="high"), "argument 'lr' is 'high', but the step takes float"),
        (lambda: train(load(), lr=object()), "is not JSON serializable"),
        (lambda: report(report(1)), "which has no output"),
        (lambda: merge([load(), 3]), "mixes step outputs with a int"),
        (lambda: [load(id="x"), load(id="x")], "Duplicate step id 'x'"),
        (lambda: load(id="a b"), "may hold letters"),
        (lambda: report(1, after="nobody"), "after= names step 'nobody'"),
        (lambda: report(1, after=3), "after= takes step names"),
        (lambda: list(load()), "Unable to unpack output 'data' of step 'load'"),
        (lambda: load().load(), "doesn't exist yet"),
    ],
)
def test_calls_refused(body, sentence):
    with pytest.raises(StepInterfaceError) as caught:
        spec_of(body)
    assert sentence in str(caught.value)


def test_artifacts_of_another_pipeline_are_refused():
    kept = []
    spec_of(lambda: kept.append(load()))
    with pytest.raises(StepInterfaceError, match="another call of pipeline 'p'"):
        spec_of(lambda: report(kept[0]))


def test_functions_that_cannot_be_steps():
    def variable(*args):
        return 1

    def reserved(after):
        return 1

    with pytest.raises(StepInterfaceError, match="Variable args or kwargs not allowed"):
        step(variable)
    with pytest.raises(StepInterfaceError, match="'after' is reserved"):
        step(reserved)
    with pytest.raises(StepInterfaceError, match="decorates a function"):
        step(3)
    with pytest.raises(StepInterfaceError, match="step name '<lambda>'"):
        spec_of(lambda: step(lambda: 1)())


def test_dynamic_calls_are_refused():
    with pytest.raises(RuntimeError, match="within a dynamic pipeline"):
        load.submit()
    with pytest.raises(RuntimeError, match="within a dynamic pipeline"):
        load.map([1])
    with pytest.raises(NotImplementedError, match="dynamic=True comes with a later version"):
        pipeline(name="p", dynamic=True)(lambda: None)
    with pytest.raises(ValueError, match="schedule can't be kept"):
        pipeline(name="p")(lambda: None).with_options(schedule=object())


# ---------------------------------------------------------------- literals


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Config:
    depth: int = 2


@pytest.mark.parametrize(
    "value", [(1, 2), {1, 2}, {1: "a"}, float("nan"), Colour.RED, Config(3), b"x", 1 << 80]
)
def test_literals_come_back(value):
    from stoker._worker.fit import fit
    from stoker.materializers._artifact import load as load_value

    document = spec_of(lambda: report(value))["steps"]["report"]["inputs"]["x"]
    again = load_value(json.loads(json.dumps(document)))
    assert type(again) is type(value) and (again == value or value != value)
    assert fit(again, Any) is again


def test_sets_are_written_in_one_order():
    document = spec_of(lambda: report({"b", "a", "c"}))["steps"]["report"]["inputs"]["x"]
    assert document["value"]["v"] == ["a", "b", "c"]


def test_defaults_that_json_cannot_carry_stay_with_python():
    opaque = object()

    def f(path=opaque):
        return path

    assert "inputs" not in spec_of(lambda: nothing(step(f)()))["steps"]["f"]


def test_fit():
    from pathlib import Path

    from stoker._worker.fit import fit

    assert fit([1, 2], Tuple[float, ...]) == (1.0, 2.0)
    assert fit("a", Path) == Path("a")
    assert fit("red", Colour) is Colour.RED
    assert fit({"depth": 4}, Config) == Config(4)
    assert fit([{"depth": 4}], List[Config]) == [Config(4)]
    assert fit(None, Optional[Config]) is None
    assert fit(3, float) == 3.0 and type(fit(3, float)) is float
    assert type(fit(3, Any)) is int
    assert fit((1, 2), list) == [1, 2]


# ---------------------------------------------------------------- pipelines


def test_parameters():
    def body(lr: float, epochs: int = 3, names: Optional[list] = None):
        train(load(epochs), lr)

    made = spec_of(body, 0.5)
    assert made["parameters"] == {
        "lr": {"type": "float", "default": 0.5},
        "epochs": {"type": "int", "default": 3},
        "names": {"type": "json", "default": None},
    }
    assert made["steps"]["load"]["inputs"]["n"] == {"value": 3}
    with pytest.raises(PipelineInterfaceError, match="needs the parameter 'lr'"):
        spec_of(body)
    with pytest.raises(
        PipelineInterfaceError, match="unexpected keyword argument 'epoch'; did you mean 'epochs'"
    ):
        spec_of(body, 1.0, epoch=3)


def test_parameters_from_the_command_line(monkeypatch, capsys):
    def body(lr: float = 0.1, epochs: int = 3, label="x"):
        train(load(epochs), lr)

    def options(**params: str) -> None:
        monkeypatch.setenv("STOKER_RUN_OPTIONS", json.dumps({"params": params}))

    options(lr="2", epochs="7", label="5")
    made = {k: v["default"] for k, v in spec_of(body)["parameters"].items()}
    assert made == {"lr": 2.0, "epochs": 7, "label": "5"}
    assert spec_of(body, epochs=1)["parameters"]["epochs"]["default"] == 1
    assert "--param epochs=7 has no effect: the code gives 1" in capsys.readouterr().err
    options(epoch="7")
    with pytest.raises(PipelineInterfaceError, match="no parameter 'epoch'; did you mean 'epochs'"):
        spec_of(body)
    options(epochs="many")
    with pytest.raises(
        PipelineInterfaceError, match="--param epochs=many: the parameter takes int"
    ):
        spec_of(body)


def test_nested_pipelines_are_inlined():
    @pipeline(enable_cache=False, settings={"resources": {"cpu_count": 4, "memory": "1GB"}})
    def inner(n: int = 2):
        return train(load(n), 0.3)

    @step(settings={"resources": {"cpu_count": 1}})
    def small(x) -> int:
        return 1

    @pipeline(enable_cache=False)
    def outermost():
        @pipeline
        def middle():
            small(inner(5)[0])

        middle()
        load()

    steps = outermost.spec()["steps"]
    assert list(steps) == ["load", "train", "small", "load_2"]
    subset(
        steps["load"], {"cache": {"enabled": False}, "resources": {"cpu_count": 4, "memory": 10**9}}
    )
    assert steps["small"]["inputs"] == {"x": {"from": "train.score"}}
    assert steps["small"]["resources"] == {"cpu_count": 1}
    assert "resources" not in steps["load_2"]


def test_pipeline_without_steps_is_a_warning():
    with pytest.warns(StokerWarning, match="has no steps"):
        assert pipeline(name="p")(lambda: None)() is None


def test_pipeline_context():
    seen = []

    @pipeline(name="ctx", extra={"a": 1}, enable_cache=False)
    def body():
        seen.append(get_pipeline_context())

    body.spec()
    assert (seen[0].name, seen[0].extra, seen[0].enable_cache) == ("ctx", {"a": 1}, False)
    with pytest.raises(RuntimeError, match="No active pipeline context"):
        get_pipeline_context()


def test_pipeline_names():
    with pytest.raises(PipelineInterfaceError, match="pipeline name 'My pipeline'"):
        pipeline(name="My pipeline")(lambda: None)


def test_long_chain_neither_recurses_nor_grows_quadratic():
    @step
    def inc(x: int) -> int:
        return x + 1

    def body(n):
        x = inc(0)
        for _ in range(n - 1):
            x = inc(x)

    import time

    def seconds(n: int) -> float:
        start = time.process_time()
        assert len(spec_of(body, n)["steps"]) == n
        return time.process_time() - start

    seconds(100)
    small, large = seconds(10_000), seconds(100_000)
    assert large < 100 * small  # linear is 10 x, quadratic 100 x on top of that


def test_wide_step():
    def body():
        merge([load(id=f"l{i}") for i in range(10_000)])

    assert len(spec_of(body)["steps"]["merge"]["inputs"]["parts"]["from"]) == 10_000


# ---------------------------------------------------------------- step objects


def test_copies_are_independent():
    other = load.with_options(enable_cache=False, parameters={"n": 9})
    again = load.copy().configure(settings={"resources": {"gpu_count": 1}})
    assert load.layer == {} and load.parameters == {}
    assert other.layer == {"cache": {"enabled": False}}
    steps = spec_of(lambda: [other(), again()])["steps"]
    assert steps["load"]["inputs"] == {"n": {"value": 9}}
    assert steps["load_2"]["resources"] == {"gpu_count": 1}
    replaced = other.configure(merge=False, parameters={}, settings={"resources": {"cpu_count": 1}})
    assert replaced is other and other.parameters == {}


def test_entrypoint_and_metadata():
    assert load.entrypoint(2) == [0, 1]
    assert (load.__name__, load.__module__) == ("load", __name__)
    import inspect
    import pickle

    assert list(inspect.signature(load).parameters) == ["n"]
    assert pickle.loads(pickle.dumps(load)) is load


def test_step_inside_of_a_step_is_a_plain_call(monkeypatch):
    from stoker._worker import context

    monkeypatch.setattr(context, "_current", object())
    assert load(2) == [0, 1]
    with pytest.raises(RuntimeError, match="is called inside of a running step"):
        pipeline(name="p")(lambda: nothing(load()))()


def test_step_alone_as_plain_call(monkeypatch):
    monkeypatch.setenv("ZENML_RUN_SINGLE_STEPS_WITHOUT_STACK", "true")
    assert load(2) == [0, 1]


def test_async_entrypoint():
    @step
    async def slow(x: int) -> int:
        return x

    assert slow.entry().is_async and list(slow.outputs) == ["output"]
    assert asyncio.run(slow.entrypoint(3)) == 3


def test_entries():
    from stoker._worker.resolve import resolve, resolve_callable

    entry = resolve(__name__, "train")
    assert entry.func is train.entrypoint and entry.output_names == ["score", "model"]
    assert entry.importable == (__name__, "train") and entry.annotations == {
        "data": list,
        "lr": float,
    }
    assert resolve(__name__, "named").output_names == ["count"]
    assert resolve_callable(__name__, "Config") is Config

    @step
    def inner() -> int:
        return 1

    assert inner.entry().importable is None
    with pytest.raises(LookupError, match="inside another function"):
        resolve(__name__, inner.__qualname__)
    with pytest.raises(LookupError, match="has no 'absent'"):
        resolve(__name__, "absent")
    with pytest.raises(LookupError, match="is a str, not a function"):
        resolve(__name__, "__name__")


def test_materializers():
    from stoker.materializers import BaseMaterializer

    class Own(BaseMaterializer):
        SKIP_REGISTRATION = True

    class Other(BaseMaterializer):
        SKIP_REGISTRATION = True

    assert step(output_materializers=Own)(several).entry().materializers == {"*": Own}
    made = step(output_materializers={"a": [Own]})(several)
    assert made.entry().materializers == {"a": Own}
    changed = made.with_options(output_materializers={"b": Other})
    assert changed.entry().materializers == {"a": Own, "b": Other}
    with pytest.raises(StepInterfaceError, match="names 'c', no output"):
        step(output_materializers={"c": Own})(several)
    with pytest.raises(ValueError, match="can't be loaded"):
        step(output_materializers="no.such.Thing")(several)


def test_external_artifacts():
    artifact = ExternalArtifact(value=object())

    @pipeline
    def body():
        report(artifact)
        report(x=artifact)

    compiled = body.compile()
    assert [(e.key, e.artifact) for e in compiled.externals] == [("x", artifact), ("x", artifact)]
    assert compiled.externals[0].inputs is compiled.spec["steps"]["report"]["inputs"]
    with pytest.raises(ValueError, match="either id or name"):
        ExternalArtifact(id="a", name="b")


def test_worker_importing_the_file_starts_nothing(monkeypatch):
    import sys
    import types

    from stoker._base.errors import InWorkerError

    monkeypatch.setitem(sys.modules, "__mp_main__", types.ModuleType("__mp_main__"))
    with pytest.raises(InWorkerError, match='put the call under `if __name__ == "__main__":`'):
        pipeline(name="p")(lambda: nothing(load()))()
    with pytest.raises(InWorkerError, match="step 'load'"):
        load()
    monkeypatch.setitem(
        sys.modules, "__mp_main__", sys.modules["__main__"]
    )  # as multiprocessing does
    assert pipeline(name="p")(lambda: nothing(load())).spec()
