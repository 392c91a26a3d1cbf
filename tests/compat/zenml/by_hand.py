"""What tests of ZenML programs call by hand: materializers, helpers of utils, repositories, and
which exceptions come of a wrong call."""

import datetime
import json
import os
import tempfile
import uuid
from pathlib import Path

from facts import fact
from pydantic import BaseModel
from typing_extensions import Annotated
from zenml import (
    Model,
    get_pipeline_context,
    get_step_context,
    log_artifact_metadata,
    log_metadata,
    pipeline,
    register_artifact,
    save_artifact,
    step,
)
from zenml.client import Client
from zenml.config.source import Source
from zenml.enums import ExecutionMode, StackComponentType
from zenml.exceptions import StepContextError, StepInterfaceError
from zenml.io import fileio
from zenml.materializers import BuiltInMaterializer, PydanticMaterializer, UUIDMaterializer
from zenml.materializers.base_materializer import BaseMaterializer
from zenml.materializers.built_in_materializer import (
    BuiltInContainerMaterializer,
    BytesMaterializer,
)
from zenml.materializers.materializer_registry import materializer_registry
from zenml.metadata.metadata_types import Uri, get_metadata_type
from zenml.utils import dict_utils, secret_utils, settings_utils, string_utils, typing_utils
from zenml.utils.env_utils import substitute_env_variable_placeholders, temporary_environment
from zenml.utils.json_utils import pydantic_encoder
from zenml.utils.pydantic_utils import update_model
from zenml.utils.singleton import SingletonMetaClass


class Point(BaseModel):
    x: int = 0


class Whole(BaseMaterializer):
    ASSOCIATED_TYPES = (int,)


class Lonely(metaclass=SingletonMetaClass):
    pass


class Plain:
    pass


@step
def plus(x: int) -> int:
    """Adds one."""
    return x + 1


@step
def takes(x: Plain) -> None:
    pass


@step
def fails() -> int:
    raise ValueError("of the step")


@step
def half() -> Annotated[float, "half"]:
    log_metadata({"acc": 0.5}, infer_artifact=True)
    return 0.5


@step
def double(x: float) -> float:
    return 2 * x


@step
def unclear() -> tuple[Annotated[int, "a"], Annotated[int, "b"]]:
    try:
        get_step_context().get_output_artifact_uri()
    except StepContextError:
        pass
    try:
        get_pipeline_context()
    except RuntimeError as bad:
        assert str(bad).startswith("Inside a step use")
    assert get_step_context().get_output_materializer("a").uri
    log_artifact_metadata({"d": 1})
    return 1, 2


@pipeline(enable_cache=False)
def calls(x: object):
    plus(x)


@pipeline(enable_cache=False)
def unpacks():
    _, _ = plus(1)


@pipeline(enable_cache=False)
def given():
    takes(x=Plain())


@pipeline(enable_cache=False)
def waits():
    plus(1, after="nobody")


@pipeline(enable_cache=False, execution_mode=ExecutionMode.FAIL_FAST)
def fast(which: str):
    fails() if which == "fails" else unclear()


@pipeline(enable_cache=False)
def late():
    half()
    double(Client().get_artifact_version("half").run_metadata["acc"], after=["half"])


@pipeline(enable_cache=False)
def quiet():
    plus.with_options(enable_step_logs=False)(1)


def kept(materializer, value):
    """What it reads after it has written a value."""
    store = Client().active_stack.artifact_store.path
    os.makedirs(store, exist_ok=True)
    one = materializer(tempfile.mkdtemp(dir=store))
    one.save(value)
    return one.load(type(value))


def kinds_of(run, *args):
    """The first of these classes of which a call raises an error."""
    try:
        run(*args)
    except Exception as bad:
        known = (RuntimeError, ValueError, KeyError, StepInterfaceError)
        return next(kind.__name__ for kind in known if isinstance(bad, kind))
    return "nothing"


def wrong_hook():
    plus.with_options(on_success=lambda a, b: None)


def by_hand():
    fact("scalars", lambda: [kept(BuiltInMaterializer, v) for v in (1, 1.5, True, "s", None)])
    fact("containers", lambda: kept(BuiltInContainerMaterializer, {"a": [1, 2]}))
    fact("bytes", lambda: kept(BytesMaterializer, b"x"))
    fact("uuid", lambda: kept(UUIDMaterializer, uuid.UUID(int=1)))
    fact("model", lambda: kept(PydanticMaterializer, Point(x=3)))
    fact("length", lambda: BuiltInContainerMaterializer("/x").extract_metadata([1, 2])["length"])
    fact("file", lambda: (kept(BuiltInMaterializer, 1), BuiltInMaterializer.__name__))
    fact("its types", lambda: [t.__name__ for t in BuiltInMaterializer.ASSOCIATED_TYPES])
    fact("keeps its own", lambda: materializer_registry[int].__name__)


def helpers():
    fact("references", lambda: [secret_utils.is_secret_reference(t) for t in ("{{a.b}}", "a")])
    fact("reference", lambda: tuple(secret_utils.parse_secret_reference("{{a.b}}")))
    keys = ("docker", "orchestrator.local", "nope")
    fact("setting keys", lambda: [settings_utils.is_valid_setting_key(k) for k in keys])
    fact("template", lambda: string_utils.format_name_template("a_{x}", substitutions={"x": "1"}))
    fact("no key", lambda: string_utils.format_name_template("a_{x}"))
    fact("optional", lambda: typing_utils.is_optional(int | None))
    fact("bytes of a dict", lambda: dict_utils.dict_to_bytes({"a": 1}))
    odd = {"p": Point(), "u": uuid.UUID(int=0), "d": datetime.date(2020, 1, 1), "f": Path("/a")}
    fact("encoded", lambda: json.dumps(odd, default=pydantic_encoder))
    fact("updated", lambda: update_model(Point(x=1), {"x": 2}))
    fact("one only", lambda: (Lonely() is Lonely(), Lonely._exists()))
    fact("metadata types", lambda: [get_metadata_type(v).value for v in (1, "a", Uri("x"), {})])
    with temporary_environment({"BY_HAND": "2"}):
        fact("placeholder", lambda: substitute_env_variable_placeholders(["${BY_HAND}"]))
    fact("restored", lambda: os.environ.get("BY_HAND"))
    fact("source type", lambda: Source.from_import_path("a.b.C").type.value)
    fact("no source", lambda: Source.from_import_path("a").attribute)
    fact("enum", lambda: StackComponentType.ORCHESTRATOR.value in StackComponentType.values())
    file = os.path.join(tempfile.mkdtemp(), "a")
    Path(file).write_text("hi")
    fact("size", lambda: (fileio.size(file), fileio.stat(file).st_size))


def repositories():
    folder = Path(tempfile.mkdtemp()).resolve()
    fact("none", lambda: (Client.is_repository_directory(folder), Client.find_repository(folder)))
    Client.initialize(folder)
    fact("made", lambda: (Client.is_repository_directory(folder), (folder / ".zen").exists()))
    fact("found", lambda: Client.find_repository(folder) == folder)
    fact("root", lambda: Client(folder).root == folder)
    fact("twice", lambda: Client.initialize(folder))
    fact("one client", lambda: (Client() is Client(), Client().zen_store is Client().zen_store))


def wrong_calls():
    fact("wrong type", lambda: kinds_of(calls, "wrong"))
    fact("unpacked", lambda: kinds_of(unpacks))
    fact("no JSON", lambda: kinds_of(given))
    fact("after nobody", lambda: kinds_of(waits))
    fact("wrong hook", wrong_hook)
    fact("fail fast", lambda: fast("fails"))
    fact("unclear output", lambda: fast("unclear"))
    fact("outside of the store", lambda: register_artifact(tempfile.mkdtemp(), "t").name)
    save_artifact(1, "m")
    fact("no version", lambda: log_metadata({"a": 1}, artifact_name="m"))


if __name__ == "__main__":
    by_hand()
    helpers()
    repositories()
    wrong_calls()
    fact(
        "source", lambda: (plus.docstring, "Adds one" in plus.source_code, plus.resolve().attribute)
    )
    fact("late metadata", lambda: late().steps["double"].output.load())
    fact("no logs", lambda: quiet().steps["plus"].log_collection)
    model = Model(name="m", version="v")
    model._get_or_create_model_version()
    fact("no artifacts", model.delete_all_artifacts)
