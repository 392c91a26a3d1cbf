"""Flows, without an engine: parameters, configurations, decorators and what they add to the document, items."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from front_tools import needed  # the package's folder is on the path now

from stoker._code.texts import File
from stoker.flow import (
    Config,
    ConfigValue,
    FlowSpec,
    IncludeFile,
    JSONType,
    Parameter,
    batch,
    card,
    catch,
    config_expr,
    environment,
    kubernetes,
    project,
    pypi,
    resources,
    retry,
    schedule,
    secrets,
    step,
    timeout,
)
from stoker.flow._compile import compile_flow
from stoker.flow._decorators import parse
from stoker.flow._parameters import parameters_of, read_configs, read_parameters
from stoker.flow.exception import (
    BadStepDecoratorException,
    DuplicateStepDecoratorException,
    InvalidDecoratorAttribute,
    MetaflowException,
    ParameterFieldFailed,
    ParameterFieldTypeMismatch,
    UnknownStepDecoratorException,
)
from stoker.materializers import _items as items


class Base(FlowSpec):
    shared = Parameter("shared", default=1)
    replaced = Parameter("replaced", default=1)


class Flow(Base):
    replaced = None
    number = Parameter("number", default=3, help="a number")
    share = Parameter("a-share", type=float, default=1)
    flag = Parameter("flag", default=False)
    text = Parameter("text")
    js = Parameter("js", type=JSONType, default='{"a": 1}')
    words = Parameter("words", default="a b", separator=" ")

    @step
    def start(self) -> None:
        self.next(self.end)

    @step
    def end(self) -> None:
        pass


def values(given: dict[str, Any] | None = None, **variables: str) -> dict[str, Any]:
    return read_parameters(Flow, given or {}, variables)


def test_parameters_of_a_class() -> None:
    names = [one.name for one in parameters_of(Flow)]
    assert names == ["shared", "number", "a-share", "flag", "text", "js", "words"]
    types = [one.type_name for one in parameters_of(Flow)]
    assert types == ["int", "int", "float", "bool", "str", "JSON", "str"]
    assert isinstance(Flow.number, Parameter) and Flow.number.help == "a number"


def test_values_come_from_the_command_line_the_environment_and_defaults() -> None:
    assert values() == {
        "shared": 1,
        "number": 3,
        "share": 1.0,
        "flag": False,
        "text": None,
        "js": {"a": 1},
        "words": ["a", "b"],
    }
    given = values({"number": "7", "a-share": "2", "flag": "yes", "js": "[1]", "words": "x"})
    assert given["number"] == 7 and given["flag"] is True and given["js"] == [1]
    assert given["words"] == ["x"] and type(given["share"]) is float
    assert values(METAFLOW_RUN_NUMBER="9", METAFLOW_RUN_A_SHARE="0.5")["share"] == 0.5
    assert values({"number": 1}, METAFLOW_RUN_NUMBER="9")["number"] == 1


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"number": "x"}, "'number' is int, and 'x' isn't"),
        ({"number": 1.5}, "'number' is int, and 1.5 isn't"),
        ({"flag": "perhaps"}, "'flag' is bool"),
        ({"js": "{"}, "'js' is JSON"),
        ({"numbr": 1}, "no parameter 'numbr'; did you mean 'number'?"),
    ],
)
def test_values_that_cannot_be(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(MetaflowException, match=sentence):
        values(given)


def test_parameters_that_cannot_be() -> None:
    with pytest.raises(MetaflowException, match="'max-workers': an option"):
        Parameter("max-workers")

    class Twice(FlowSpec):
        a = Parameter("Name")
        b = Parameter("name")

    with pytest.raises(MetaflowException, match="'b' and 'a' are parameters of the same name"):
        parameters_of(Twice)

    class Made(FlowSpec):
        good = Parameter(
            "good", default=lambda context: f"{context.flow_name} {context.parameter_name}"
        )
        raises = Parameter("raises", default=lambda context: 1 / 0)
        wrong = Parameter("wrong", type=int, default=lambda context: "1")

    with pytest.raises(
        ParameterFieldFailed, match="'raises': the function of its default raised Zero"
    ):
        read_parameters(Made, {"wrong": 1}, {})
    with pytest.raises(
        ParameterFieldTypeMismatch, match="'wrong': the function of its default returned '1'"
    ):
        read_parameters(Made, {"raises": "x"}, {})
    assert read_parameters(Made, {"raises": "x", "wrong": 1}, {})["good"] == "Made good"


def test_included_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("grün\r\n".encode())

    class Included(FlowSpec):
        text = IncludeFile("text", default=str(tmp_path / "a.txt"))
        raw = IncludeFile("raw", is_text=False)
        parsed = IncludeFile("parsed", parser=len)
        named = IncludeFile("named", parser="json.loads")

    (tmp_path / "b.json").write_text('{"k": [1]}')
    path = str(tmp_path / "a.txt")
    found = read_parameters(
        Included, {"raw": path, "parsed": path, "named": str(tmp_path / "b.json")}, {}
    )
    assert found == {"text": "grün\n", "raw": "grün\r\n".encode(), "parsed": 5, "named": {"k": [1]}}
    with pytest.raises(MetaflowException, match=r"'text': the file '/nowhere' can't be read"):
        read_parameters(Included, {"text": "/nowhere"}, {})


def test_configurations(tmp_path: Path) -> None:
    class Configured(FlowSpec):
        cfg = Config("cfg", default_value={"name": "n", "deep": {"var": 4}, "list": [{"x": 1}]})
        raw = Config("raw", default_value="a;b", parser=lambda text: text.split(";"), plain=True)
        lr = Parameter("lr", default=cfg.deep.var)

        @environment(vars={"A": cfg.name, "B": config_expr("cfg.deep.var + 1")})
        @retry(**cfg.options)
        @step
        def start(self) -> None:
            self.next(self.end)

        @step
        def end(self) -> None:
            pass

    given = {"name": "m", "deep": {"var": 5}, "options": {"times": 7}}
    (tmp_path / "c.json").write_text(json.dumps(given))
    found = read_configs(Configured, {"cfg": str(tmp_path / "c.json")})
    assert found == {"cfg": given, "raw": ["a", "b"]}
    found.update(read_parameters(Configured, {}, {}))
    assert found["lr"] == 5
    start = compile_flow(Configured, found, {}).compiled.spec["steps"]["start"]
    assert start["environment"] == {"A": "m", "B": "6"} and start["retry"]["max_retries"] == 7
    with pytest.raises(MetaflowException, match="'cfg': give --config or --config-value, not both"):
        read_configs(Configured, {"cfg": "x"}, {"cfg": "{}"})
    with pytest.raises(MetaflowException, match="its value is not JSON"):
        read_configs(Configured, {}, {"cfg": "{"})
    value = ConfigValue(given)
    assert value.deep.var == 5 and value["deep"]["var"] == 5 and dict(value.deep) == {"var": 5}
    assert pickle.loads(pickle.dumps(value)) == given and type(value.to_dict()["deep"]) is dict
    for change in (
        lambda: value.__setitem__("a", 1),
        lambda: setattr(value, "a", 1),
        lambda: value.update(a=1),
        lambda: value.deep.pop("var"),
    ):
        with pytest.raises(TypeError, match="can't be changed"):
            change()


def compiled(*decorators: Any, options: dict[str, Any] | None = None) -> dict[str, Any]:
    """The document of a flow whose step `start` is decorated so."""

    def start(self: Any) -> None:
        self.next(self.end)

    start.__qualname__ = "start"
    made = step(start)
    for one in reversed(decorators):
        made = one(made)

    class Decorated(FlowSpec):
        @step
        def end(self) -> None:
            pass

    Decorated.start = made  # type: ignore[attr-defined]
    return compile_flow(Decorated, {}, options or {}).compiled.spec


def start_of(*decorators: Any) -> dict[str, Any]:
    return dict(compiled(*decorators)["steps"]["start"])


REQUESTS = [
    ((resources(cpu=4, memory=32000, gpu=1),), {"cpu_count": 4, "memory": "32000MB", "gpu_count": 1}),
    ((resources(),), None),
    ((resources(cpu=2, memory=500), kubernetes(cpu=1, memory=900)), {"cpu_count": 2, "memory": "900MB"}),
    ((kubernetes(gpu=2, gpu_vendor="amd"),), {"gpu_count": 2, "gpu_vendor": "amd"}),
    ((batch(trainium=16),), {"gpu_count": 16, "gpu_vendor": "aws", "gpu_class": "Trainium"}),
    ((batch(inferentia=1),), {"gpu_count": 1, "gpu_vendor": "aws", "gpu_class": "Inferentia"}),
    ((kubernetes(trainium=2, efa=1),), {"gpu_count": 2, "gpu_vendor": "aws", "gpu_class": "Trainium"}),
    ((kubernetes(tpu=4, tpu_accelerator="v5e", tpu_topology="2x2"),), {"gpu_count": 4, "gpu_vendor": "google"}),
    ((kubernetes(gpu=1, gpu_vendor="intel"),), {"gpu_count": 1, "gpu_vendor": "intel"}),
    ((batch(gpu=0, trainium=1),), {"gpu_count": 1, "gpu_vendor": "aws", "gpu_class": "Trainium"}),
    ((resources(cpu="0.5", memory="10"),), {"cpu_count": 0.5, "memory": "10MB"}),
]  # fmt: skip


@pytest.mark.parametrize(("decorators", "wanted"), REQUESTS)
def test_requests(decorators: Any, wanted: Any) -> None:
    assert start_of(*decorators).get("resources") == wanted


def test_frameworks_are_seen_where_devices_are_asked_for() -> None:
    class Uses(FlowSpec):
        @resources(gpu=1)
        @step
        def start(self) -> None:
            self.helper()
            self.next(self.end)

        def helper(self) -> None:
            import jax  # noqa: F401

        @step
        def end(self) -> None:
            pass

    steps = compile_flow(Uses, {}, {}).compiled.spec["steps"]
    assert steps["start"]["uses"] == ["jax"] and "uses" not in steps["end"]


def shared(x: int) -> int:
    return x + 1


def test_code_of_helpers_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many steps may call it."""

    class Helped(FlowSpec):
        @step
        def start(self) -> None:
            self.x = shared(self.helper())
            self.next(self.middle)

        def helper(self) -> int:
            return shared(2)

        @step
        def middle(self) -> None:
            self.x = shared(self.helper())
            self.next(self.end)

        @step
        def end(self) -> None:
            pass

    looked: list[Any] = []
    find = File._found

    def found(file: File, one: Any) -> Any:
        looked.append(one)
        return find(file, one)

    monkeypatch.setattr(File, "_found", found)
    code = compile_flow(Helped, {}, {}).compiled.code
    assert code is not None
    (helper,) = [n for n, one in enumerate(code["parts"]) if one["name"] == "method 'helper'"]
    assert all(helper in parts for parts in code["steps"].values())
    assert looked.count(Helped.helper) == looked.count(shared) == 1


def test_a_constant_secret_counts_for_the_cache_by_its_digest() -> None:
    def made(secret: str) -> dict[str, str]:
        class Constant(FlowSpec):
            API_KEY = secret
            where = "here"

            @step
            def start(self) -> None:
                pass

        found = compile_flow(Constant, {}, {"cache": True}).compiled.spec["steps"]["start"]["code"]
        return dict(found)

    one, other = made("swordfish"), made("sailfish")
    assert one["constant where"] == "'here'" and "swordfish" not in str(one)
    assert one["constant API_KEY"] != other["constant API_KEY"]


def test_settings_of_decorators() -> None:
    assert start_of(retry(times=2))["retry"] == {"max_retries": 2, "delay": 0.0}
    assert start_of(retry(minutes_between_retries=1.5))["retry"] == {
        "max_retries": 3,
        "delay": 90.0,
    }
    assert start_of(timeout(minutes=1, seconds=2))["timeout"] == 67
    assert start_of(catch(var="x"))["fallback"] is True
    assert start_of(secrets(sources=["A", "environment.B"]))["secrets"] == ["A", "B"]
    inline = secrets(sources=[{"type": "inline", "options": {"env_vars": {"X": "hush"}}}])
    assert "hush" not in json.dumps(compiled(inline))
    assert "hush" not in json.dumps(compiled(card(options={"token": "hush"})))
    kept = start_of(kubernetes(image="i", memory=1, labels={"a": "b"}))
    assert kept["backend"] == {"kubernetes": {"image": "i", "memory": 1, "labels": {"a": "b"}}}
    attached = compiled(retry(times=1), options={"with": ["retry:times=9", "timeout:seconds=1"]})
    assert attached["steps"]["start"]["retry"]["max_retries"] == 1
    assert attached["steps"]["end"]["retry"]["max_retries"] == 9
    assert attached["steps"]["start"]["timeout"] == 6


WRONG = [
    (lambda: start_of(retry(times=-1)), "@retry: times is -1"),
    (lambda: start_of(timeout()), "@timeout: give seconds"),
    (lambda: start_of(resources(gpu=0.5)), "gpu is 0.5; it must be a whole number"),
    (lambda: start_of(resources(memory="4GB")), "memory is '4GB'; it must be a number"),
    (lambda: start_of(kubernetes(gpu_vendor="habana")), "gpu_vendor is 'habana'"),
    (lambda: start_of(batch(gpu=1, trainium=1)), "no machine has both gpu and trainium"),
    (lambda: start_of(kubernetes(tpu=1, gpu=1)), "no machine has both gpu and tpu"),
    (lambda: start_of(batch(swappiness=200)), "swappiness is 200; it must be a whole number from 0 to 100"),
    (lambda: start_of(batch(shared_memory=0)), "shared_memory is 0; it must be a whole number of MB above 0"),
    (lambda: start_of(batch(host_volumes=7)), "host_volumes is 7; it must be a list"),
    (lambda: start_of(batch(gpu=1.5)), "gpu is 1.5; it must be a whole number"),
    (lambda: start_of(kubernetes(use_tmpfs="maybe")), "use_tmpfs is 'maybe'"),
    (lambda: start_of(kubernetes(tolerations={"key": "x"})), "tolerations is .*must be a list of dicts"),
    (lambda: start_of(kubernetes(qos="best")), "qos is 'best'"),
    (lambda: start_of(batch(queu="q")), "@batch has no attribute 'queu'.*did you mean 'queue'?"),
    (lambda: start_of(batch(trainium=1, inferentia=1)), "exclude each other"),
    (lambda: start_of(secrets(sources=["aws-secrets-manager.db/key"])), "STOKER_SECRET_KEY"),
    (lambda: start_of(secrets(sources="A")), "sources is a list"),
    (lambda: start_of(retry(time=1)), "@retry has no attribute 'time'.*did you mean 'times'?"),
    (lambda: retry(lambda self: None), "is not a step: put @step"),
    (lambda: start_of(retry, retry), "has @retry twice"),
    (lambda: parse("retri"), "no decorator 'retri' for steps.*did you mean 'retry'?"),
    (lambda: parse("retry:times"), "'times' says nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "sentence"), WRONG)
def test_decorators_that_cannot_be(make: Any, sentence: str) -> None:
    with pytest.raises(MetaflowException, match=sentence) as caught:
        make()
    kinds = {
        "has no attribute": InvalidDecoratorAttribute,
        "is not a step": BadStepDecoratorException,
        "twice": DuplicateStepDecoratorException,
        "no decorator": UnknownStepDecoratorException,
    }
    for part, kind in kinds.items():
        assert (part in str(caught.value)) == isinstance(caught.value, kind)


def test_with_values_are_json_or_texts() -> None:
    one = parse('environment:vars={"A": 1, "B": "x,y"}')
    assert one.attributes["vars"] == {"A": 1, "B": "x,y"}
    assert parse("kubernetes:image=a:b,gpu=2").given == {"image": "a:b", "gpu": 2}


def test_arguments_of_a_place_are_kept_whole() -> None:
    """All of @batch's and @kubernetes' arguments reach the document, those of --with as those above a step."""
    given = {
        **{"cpu": 2, "gpu": 1, "memory": "4096", "image": "i", "queue": "q", "iam_role": "r"},
        **{"execution_role": "x", "shared_memory": "64", "max_swap": 0, "swappiness": 60, "efa": 1},
        **{"host_volumes": ["/a"], "efs_volumes": ["fs-1"], "use_tmpfs": True, "tmpfs_size": 10},
        **{"aws_batch_tags": {"a": "b"}, "tmpfs_tempdir": False, "tmpfs_path": "/t"},
        **{"ephemeral_storage": 30, "log_driver": "awslogs", "log_options": ["k:v"]},
        **{"executable": "/p", "privileged": False},
    }
    assert start_of(batch(**given))["backend"] == {"batch": given}
    spec = compiled(options={"with": ["batch:queue=x,trainium=2", "kubernetes:gpu=0,namespace=n"]})
    assert spec["steps"]["end"]["backend"] == {
        "batch": {"queue": "x", "trainium": 2},
        "kubernetes": {"gpu": 0, "namespace": "n"},
    }
    pods = {"gpu_type": "A100", "trainium": 1, "efa": 2, "tolerations": [{"key": "x"}]}
    assert start_of(kubernetes(**pods))["backend"]["kubernetes"] == pods


def test_flow_decorators_and_notes() -> None:
    @project(name="proj")
    @schedule(daily=True)
    class Projected(Flow):
        @pypi(packages={"a": "1"})
        @step
        def start(self) -> None:
            self.next(self.end)

    document = compile_flow(
        Projected, {}, {"branch": "b", "flow_options": {"environment": "local"}}
    )
    facts = document.compiled.spec["extra"]["flow"]["facts"]
    assert (
        facts["branch_name"] == "test.b" and facts["project_flow_name"] == "proj.test.b.Projected"
    )
    assert [note.split()[0] for note in document.notes] == ["@schedule", "@pypi"]


ITEMS = [
    [],
    [1, "x", None, {"k": [1.5]}],
    (b"raw", (1, 2), {3}),
    [{"a": object}, range(3)],
    ["y" * 1000] * 50,
]


@pytest.mark.parametrize("value", ITEMS, ids=str)
def test_items(value: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "items")
    entry = items.store(value, path, "xs")
    assert entry["format"] == "items" and entry["meta"] == {"n": len(value)}
    assert items.load(path) == value and type(items.load(path)) is type(value)
    assert [items.read(path, i) for i in range(len(value))] == list(value)
    with pytest.raises(Exception, match=f"has {len(value)} items, there is no item {len(value)}"):
        items.read(path, len(value))


def test_items_that_are_arrays_are_mapped(tmp_path: Path) -> None:
    numpy = needed("numpy")
    path = str(tmp_path / "items")
    arrays = [numpy.full((300, 100), i, dtype="f8") for i in range(3)]
    items.store([*arrays, "small"], path, "xs")
    one = items.read(path, 1)
    assert (one == 1).all() and one.flags.writeable
    one[0, 0] = 9  # private: nobody else sees it
    assert items.read(path, 1)[0, 0] == 1 and items.read(path, 3) == "small"


def test_items_that_are_damaged_or_cannot_be_stored(tmp_path: Path) -> None:
    path = tmp_path / "items"
    items.store([1, 2], str(path), "xs")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(Exception, match="is not a complete file of items"):
        items.load(str(path))
    with pytest.raises(Exception, match=r"item 1 of 'xs': .*can't be pickled"):
        items.store([1, lambda: 0], str(tmp_path / "more"), "xs")


def test_every_name_is_there() -> None:
    import stoker.flow

    for name in stoker.flow.__all__:
        assert getattr(stoker.flow, name) is not None
    assert set(dir(stoker.flow)) == set(stoker.flow.__all__)
