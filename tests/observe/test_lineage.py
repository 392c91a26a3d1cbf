"""OpenLineage's events of a run: in a file, and at a receiver, judged by OpenLineage's own classes."""

from __future__ import annotations

import json
import re
import sys
import typing
from pathlib import Path
from typing import Any

import attr
import openlineage.client.facet_v2 as facets
import pytest
from cli_tools import Cli
from openlineage.client.generated import base as events
from receivers import Receiver

STEPS: dict[str, Any] = {
    "make": {
        "run": "cat $STOKER_INPUT_data > $STOKER_OUTPUT/x",
        "inputs": {"data": {"file": "data.txt"}},
        "outputs": ["x"],
    },
    "use": {
        "run": "cp $STOKER_INPUT_a $STOKER_OUTPUT/y",
        "inputs": {"a": {"from": "make.x"}},
        "outputs": ["y"],
    },
    "bad": {"run": "echo no >&2; exit 3", "inputs": {"a": {"from": "use.y"}}},
}


def facet_class(url: str) -> Any:
    name = url.rpartition("/")[2]
    for module in vars(facets).values():
        if isinstance(module, type(sys)) and hasattr(module, name):
            return getattr(module, name)
    raise AssertionError(f"{url} is no facet that openlineage-python has")


def fields_of(kind: Any) -> dict[str, Any]:
    return {f.name.lstrip("_"): f for f in attr.fields(kind)}


def made(kind: Any, value: Any) -> Any:
    """The value as an object of OpenLineage's: every member is one of the class's, none is missing, and the
    class's own checks pass."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (list, typing.List):
        return [made(args[0], one) for one in value]
    if args and type(None) in args:
        return made(next(a for a in args if a is not type(None)), value)
    if not attr.has(kind if isinstance(kind, type) else object):
        return value
    kind = attr.resolve_types(kind)
    fields = fields_of(kind)
    given = {}
    for key, member in value.items():
        assert key.lstrip("_") in fields, f"{kind.__name__} has no '{key}'"
        field = fields[key.lstrip("_")]
        if key.lower().endswith("facets"):
            given[key] = {name: made_facet(one) for name, one in member.items()}
        elif field.init:
            given[field.name.lstrip("_")] = made(field.type, member)
    return kind(**given)


def made_facet(value: dict[str, Any]) -> Any:
    kind = facet_class(value["_schemaURL"])
    assert re.match(
        r"https://openlineage\.io/spec/facets/\d+-\d+-\d+/\w+\.json#/\$defs/", value["_schemaURL"]
    )
    assert value["_producer"].startswith("urn:stoker:")
    return made(kind, value)


def check(event: dict[str, Any]) -> Any:
    assert (
        event["schemaURL"] == "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
    )
    return made(events.RunEvent, {**event, "eventType": events.EventType[event["eventType"]]})


def kinds(found: list[Any]) -> list[tuple[str, str]]:
    return sorted((e["job"]["name"], e["eventType"]) for e in found)


@pytest.mark.parametrize("way", ["file", "http"])
def test_a_run(cli: Cli, receiver: Receiver, way: str) -> None:
    cli.write("data.txt", "1 2 3")
    file = cli.folder / "events.jsonl"
    cli.env["STOKER_OPENLINEAGE"] = str(file) if way == "file" else receiver.url
    cli.env["OPENLINEAGE_API_KEY"] = "k3y-of-mine"
    done = cli.run(STEPS)
    assert done.code == 1 and "lacks" not in done.err
    found = receiver.bodies
    if way == "file":
        found = [json.loads(line) for line in file.read_text().splitlines()]
        assert "k3y-of-mine" not in file.read_text()
    else:
        path, headers, _ = receiver.asked[0]
        assert path == "/api/v1/lineage" and headers["content-type"] == "application/json"
        assert headers["authorization"] == "Bearer k3y-of-mine"
    assert kinds(found) == [
        ("p", "FAIL"),
        ("p", "START"),
        ("p.bad", "FAIL"),
        ("p.bad", "START"),
        ("p.make", "COMPLETE"),
        ("p.make", "START"),
        ("p.use", "COMPLETE"),
        ("p.use", "START"),
    ]
    for event in found:
        check(event)
    last = {e["job"]["name"]: e for e in found if e["eventType"] != "START"}
    run = last["p"]["run"]["runId"]
    for name in ("p.make", "p.use", "p.bad"):
        assert last[name]["run"]["facets"]["parent"]["run"]["runId"] == run
    assert last["p.make"]["inputs"][0]["namespace"] == "file"
    assert last["p.make"]["inputs"][0]["name"] == str(cli.folder / "data.txt")
    (output,) = last["p.make"]["outputs"]
    (used,) = last["p.use"]["inputs"]
    assert output["name"] == used["name"] == "p.make.x"
    digest = done.steps["make"]["outputs"]["x"]["digest"]
    versions = {d["facets"]["version"]["datasetVersion"] for d in (output, used)}
    assert versions == {digest}
    assert output["outputFacets"]["outputStatistics"]["size"] == 5
    assert last["p.bad"]["run"]["facets"]["errorMessage"]["message"] == "exit status 3"


def test_a_run_from_the_cache_begins_and_ends(cli: Cli, receiver: Receiver) -> None:
    cli.write("data.txt", "1 2 3")
    steps = {name: STEPS[name] for name in ("make", "use")}
    cli.run(steps)
    again = cli.run(steps, env={"STOKER_OPENLINEAGE": f"{receiver.url}/own/path"})
    assert set(again.statuses.values()) == {"cached"}
    assert {path for path, _, _ in receiver.asked} == {"/own/path"}
    assert kinds(receiver.bodies) == [
        (name, kind) for name in ("p", "p.make", "p.use") for kind in ("COMPLETE", "START")
    ]
    ids = {e["run"]["runId"] for e in receiver.bodies}
    assert len(ids) == 3


FLOW = """
from stoker.flow import FlowSpec, step

class F(FlowSpec):
    @step
    def start(self):
        self.x = [1, 2]
        self.next(self.work, foreach="x")
    @step
    def work(self):
        self.y = self.input
        self.next(self.join)
    @step
    def join(self, inputs):
        self.z = sum(i.y for i in inputs)
        self.next(self.end)
    @step
    def end(self):
        print(self.z)

if __name__ == "__main__":
    F()
"""


def test_a_flow(cli: Cli) -> None:
    cli.write("flow.py", FLOW)
    cli.write("stoker.yaml", "openlineage: logs/lineage.jsonl\n")
    (cli.folder / "logs").mkdir()
    done = cli("run", "flow.py", "run")
    assert done.code == 0, done.err
    found = [json.loads(t) for t in (cli.folder / "logs/lineage.jsonl").read_text().splitlines()]
    for event in found:
        check(event)
    ends = [e for e in found if e["eventType"] == "COMPLETE"]
    join = next(e for e in ends if e["job"]["name"] == "F.join")
    assert {i["name"] for i in join["inputs"]} >= {"F.work.y"}
    assert sum(e["job"]["name"] == "F.work" for e in ends) == 2


@pytest.mark.parametrize("trouble", ["refused", "answers 500", "silent", "file"])
def test_a_receiver_in_trouble_costs_the_run_nothing(
    cli: Cli, receiver: Receiver, trouble: str
) -> None:
    url = receiver.url
    if trouble == "refused":
        url = "http://127.0.0.1:9"
    elif trouble == "answers 500":
        receiver.status = 500
    elif trouble == "silent":
        receiver.hold.clear()
    else:
        url = str(cli.folder / "missing" / "file")
    steps = {f"s{i}": {"run": "true"} for i in range(20)}
    done = cli.run(steps, env={"STOKER_OPENLINEAGE": url})
    assert done.code == 0 and done.err.count("OpenLineage lacks events of this run") == 1
    assert all(s["ended_ms"] - s["started_ms"] < 5000 for s in done.steps.values())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("ftp://x/y", "is neither an http(s) URL nor the path of a file"),
        ("http://me:s3cret-word@x/y", "has credentials in its URL"),
    ],
)
@pytest.mark.parametrize("where", ["variable", "file"])
@pytest.mark.parametrize("name", ["openlineage", "opentelemetry"])
def test_refused(cli: Cli, value: str, said: str, where: str, name: str) -> None:
    if where == "file":
        cli.write("stoker.yaml", f"{name}: '{value}'\n")
    else:
        cli.env[f"STOKER_{name.upper()}"] = value
    done = cli("run", cli.document({"a": {"run": "true"}}))
    assert done.code == 2 and said in done.err and "s3cret-word" not in done.err
    assert not Path(cli.store).exists()


def test_off(cli: Cli) -> None:
    """The variable wins over the file, also to turn it off."""
    cli.write("stoker.yaml", "openlineage: lineage.jsonl\n")
    assert cli.run({"a": {"run": "true"}}, env={"STOKER_OPENLINEAGE": "off"}).code == 0
    assert not (cli.folder / "lineage.jsonl").exists()
