"""Functions of ``zenml.utils``, ``zenml.constants`` and ``zenml.config`` that programs use."""

import datetime
import os
import uuid

import zenml
from facts import fact
from zenml import pipeline, step
from zenml.artifact_stores import BaseArtifactStore
from zenml.client import Client
from zenml.config.global_config import GlobalConfiguration
from zenml.config.source import Source
from zenml.constants import (
    METADATA_EXPERIMENT_TRACKER_URL,
    PAGE_SIZE_DEFAULT,
    PAGE_SIZE_MAXIMUM,
    handle_bool_env_var,
    handle_float_env_var,
    handle_int_env_var,
)
from zenml.environment import Environment
from zenml.exceptions import LogStoreError, LogStoreUnavailableError, SourceValidationException
from zenml.models import PipelineRunResponse
from zenml.models.v2.core import pipeline_run
from zenml.stack import Stack, StackComponent
from zenml.utils import dict_utils, io_utils, source_utils, string_utils, time_utils, yaml_utils
from zenml.utils.dashboard_utils import get_run_url, get_stack_url
from zenml.utils.enum_utils import StrEnum
from zenml.utils.pagination_utils import depaginate, depaginate_stream
from zenml.utils.uuid_utils import (
    generate_uuid_from_string,
    is_valid_uuid,
    parse_name_or_uuid,
    to_uuid,
)


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Thing:
    """What a source names."""


@step(enable_cache=False)
def one() -> int:
    return 1


@pipeline
def ut_pipeline():
    one()


def files():
    """The files below this folder's `tree`, with what they hold."""
    found = io_utils.find_files("tree", "*.txt")
    return sorted((path, io_utils.read_file_contents_as_string(path)) for path in found)


def refused(call, *kinds):
    try:
        return call()
    except kinds as bad:
        return next(kind.__name__ for kind in kinds if isinstance(bad, kind))


if __name__ == "__main__":
    # files
    io_utils.create_dir_if_not_exists("tree")
    io_utils.create_dir_if_not_exists("tree")
    io_utils.create_dir_recursive_if_not_exists("tree/a/b")
    io_utils.create_file_if_not_exists("tree/x/y/z.txt", "zed")
    io_utils.create_file_if_not_exists("tree/x/y/z.txt", "other")
    io_utils.write_file_contents_as_string("tree/a/b/c.txt", "see")
    fact("files", files)
    fact("not a text", lambda: io_utils.write_file_contents_as_string("tree/n.txt", b"bytes"))
    fact("no file", lambda: io_utils.read_file_contents_as_string("tree/nothing.txt"))
    fact("empty", lambda: (io_utils.create_file_if_not_exists("tree/e"), open("tree/e").read()))
    io_utils.copy_dir("tree/a", "tree/copy/of/a")
    fact("copied", files)
    fact("copy again", lambda: io_utils.copy_dir("tree/a", "tree/copy/of/a"))
    fact("copy over", lambda: io_utils.copy_dir("tree/a", "tree/copy/of/a", overwrite=True))
    io_utils.move("tree/a/b/c.txt", "tree/moved.txt")
    fact("moved", files)
    fact("move over", lambda: io_utils.move("tree/moved.txt", "tree/x/y/z.txt"))
    fact("remote", lambda: [io_utils.is_remote(p) for p in ("s3://b/x", "gs://b", "az://c", "/x")])
    fact("root", lambda: [io_utils.is_root(p) for p in ("/", "/x")])
    fact("above", lambda: (io_utils.get_parent("tree/x/y"), io_utils.get_grandparent("tree/x/y")))
    fact("above nothing", lambda: io_utils.get_parent("tree/nothing"))
    fact("whole", lambda: io_utils.resolve_relative_path("tree") == os.path.realpath("tree"))
    fact("whole remote", lambda: io_utils.resolve_relative_path("s3://b/../c"))
    within = io_utils.is_path_within_directory
    fact("within", lambda: [within(p, "/a/b") for p in ("c", "../c", "/a/b", "/a/bc", "/a/b/d")])

    # YAML and JSON
    yaml_utils.write_yaml("tree/a.yaml", {"b": [1, 2], "a": {"c": None}})
    fact("yaml", lambda: open("tree/a.yaml").read())
    yaml_utils.append_yaml("tree/a.yaml", {"z": "word"})
    fact("yaml read", lambda: yaml_utils.read_yaml("tree/a.yaml"))
    fact("yaml missing", lambda: yaml_utils.read_yaml("tree/nothing.yaml"))
    fact("yaml nowhere", lambda: yaml_utils.write_yaml("tree/nothing/a.yaml", {}))
    fact("is yaml", lambda: [yaml_utils.is_yaml(p) for p in ("a.yaml", "b.YML", "c.json")])
    yaml_utils.write_json("tree/a.json", {"b": 1, "a": [True]}, indent=1)
    fact("json", lambda: (open("tree/a.json").read(), yaml_utils.read_json("tree/a.json")))
    known = uuid.UUID("8d8a6d7c-5f3a-4b0e-8a52-0f6a2d1c9b7e")
    yaml_utils.write_json("tree/u.json", {"id": known}, encoder=yaml_utils.UUIDEncoder)
    fact("json of uuid", lambda: yaml_utils.read_json("tree/u.json"))

    # texts and values
    seconds = (0.1234, 12, 75, 3600, 3661.5, 90061, -5, -7200)
    fact("time", lambda: [string_utils.get_human_readable_time(s) for s in seconds])
    sizes = (0, 1023, 1024, 1536, 5 * 1024**2, 3 * 1024**4)
    fact("size", lambda: [string_utils.get_human_readable_filesize(s) for s in sizes])
    fact("b64", lambda: (string_utils.b64_encode("häl"), string_utils.b64_decode("aMOkbA==")))
    fact("random", lambda: len(string_utils.random_str(12)))
    over = dict_utils.recursive_update
    fact("update", lambda: over({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 9}, "e": {"f": 1}}))
    fact("update none", lambda: over({"a": 1, "b": 2}, {"a": None, "b": 3}, ignore_none=True))
    fact("update kinds", lambda: over({"a": 1, "b": {"c": 1}}, {"a": {"x": 1}, "b": 2}))
    nones = {"a": None, "b": {"c": None, "d": 1}}
    fact("remove none", lambda: dict_utils.remove_none_values(nones))
    fact("remove all none", lambda: dict_utils.remove_none_values(nones, recursive=True))
    fact("uuids", lambda: [is_valid_uuid(v) for v in (str(known), known, "x", 3, known.hex)])
    fact("to uuid", lambda: (to_uuid(str(known)), to_uuid(known)))
    fact("no uuid", lambda: to_uuid("x"))
    fact("name or uuid", lambda: [parse_name_or_uuid(v) for v in (str(known), "name", "", None)])
    fact("uuid of", lambda: generate_uuid_from_string("a word"))
    fact("enum", lambda: (Color.names(), Color.values(), str(Color.RED), Color.BLUE == "blue"))

    # times
    day = datetime.datetime(2025, 1, 2, 3, 4, 5)
    aware = day.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
    fact("utc", lambda: [time_utils.to_utc_timezone(t).isoformat() for t in (day, aware)])
    fact("local", lambda: time_utils.to_local_tz(aware) == aware)
    fact("now", lambda: [time_utils.utc_now(t).tzinfo is None for t in (False, True, day, aware)])
    fact("now aware", lambda: time_utils.utc_now_tz_aware().tzinfo is None)
    spans = (0, 59, 60, 3600, 90061, 172800)
    fact("spans", lambda: [time_utils.seconds_to_human_readable(s) for s in spans])
    fact("expired", lambda: time_utils.expires_in(day, "it is over"))

    # sources
    fact("load", lambda: source_utils.load("json.dumps").__name__)
    fact("load source", lambda: source_utils.load(Source.from_import_path("os.path.join")).__name__)
    fact("load own", lambda: source_utils.load("utilities.Thing") is Thing)
    fact("load nothing", lambda: source_utils.load("json.nothing"))
    fact("load no module", lambda: source_utils.load("nothingatall.x"))
    fact("resolve", lambda: source_utils.resolve(datetime.date).import_path)
    fact("resolve own", lambda: source_utils.resolve(Thing).import_path)
    checked = source_utils.load_and_validate_class
    fact("class", lambda: checked("collections.OrderedDict", dict).__name__)
    fact("other class", lambda: checked("collections.OrderedDict", list))
    valid = source_utils.validate_source_class
    fact("valid", lambda: valid("collections.OrderedDict", dict))
    fact("invalid", lambda: refused(lambda: valid("json.dumps", dict), SourceValidationException))
    fact("root of sources", lambda: os.path.samefile(source_utils.get_source_root(), "."))

    # pages
    for name in ("page a", "page b", "page c"):
        Client().create_tag(name=name)
    named = {"name": "startswith:page ", "sort_by": "name"}
    listed = Client().list_tags
    fact("all pages", lambda: [t.name for t in depaginate(listed, size=1, **named)])
    fact("from page 2", lambda: [t.name for t in depaginate(listed, size=1, page=2, **named)])
    fact("stream", lambda: [t.name for t in depaginate_stream(listed, size=2, **named)])
    sizes = (PAGE_SIZE_DEFAULT, PAGE_SIZE_MAXIMUM, METADATA_EXPERIMENT_TRACKER_URL)
    fact("sizes", lambda: sizes)
    fact("models by module", lambda: pipeline_run.PipelineRunResponse is PipelineRunResponse)

    # variables
    words = ("1", "0", "yes", "no", "True", "false", "maybe", "on", "")
    for word in words:
        os.environ["UT_VARIABLE"] = word
        fact(f"bool {word}", lambda: [handle_bool_env_var("UT_VARIABLE", d) for d in (True, False)])
    fact("bool unset", lambda: [handle_bool_env_var("UT_NOTHING", d) for d in (True, False)])
    os.environ["UT_VARIABLE"] = "12"
    fact("int", lambda: [handle_int_env_var(n, 3) for n in ("UT_VARIABLE", "UT_NOTHING")])
    os.environ["UT_VARIABLE"] = "1.5"
    fact("int of float", lambda: handle_int_env_var("UT_VARIABLE", 3))
    fact("float", lambda: [handle_float_env_var(n, 3.0) for n in ("UT_VARIABLE", "UT_NOTHING")])
    fact("notebook", lambda: Environment.in_notebook())
    fact("python", lambda: Environment.python_version().count("."))
    fact("system", lambda: sorted(Environment.get_system_info()))

    # what a user has
    client, config = Client(), GlobalConfiguration()
    run = ut_pipeline()
    fact("config", lambda: config.version == zenml.__version__)
    fact("folder", lambda: os.path.isdir(config.config_directory))
    fact("active", lambda: config.get_active_stack_id() == client.active_stack_model.id)
    fact("project", lambda: config.get_active_project_id() == client.active_project.id)
    fact("runs", lambda: config.zen_store.get_run(run.id).name == run.name)
    fact("stack", lambda: isinstance(client.active_stack, Stack))
    parts = client.active_stack
    fact("part", lambda: isinstance(parts.orchestrator, StackComponent))
    fact("store", lambda: isinstance(parts.artifact_store, BaseArtifactStore))
    fact("pages", lambda: (get_run_url(run), get_stack_url(client.active_stack_model)))
    fact("errors", lambda: issubclass(LogStoreUnavailableError, LogStoreError))
