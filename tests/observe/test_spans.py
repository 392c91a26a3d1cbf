"""OpenTelemetry's spans of a run: in a file, and at a receiver, read by opentelemetry-proto."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cli_tools import Cli
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from receivers import Receiver

STEPS: dict[str, Any] = {
    "make": {"run": "echo 5 > $STOKER_OUTPUT/x", "outputs": ["x"]},
    "use": {"run": "cat $STOKER_INPUT_a", "inputs": {"a": {"from": "make.x"}}},
    "bad": {"run": "exit 3", "after": ["make"], "retry": {"max_retries": 1, "delay": 0}},
}


def in_base64(value: Any) -> Any:
    """OTLP's JSON has ids in hex, where JSON of protobuf has base64."""
    if isinstance(value, list):
        return [in_base64(one) for one in value]
    if not isinstance(value, dict):
        return value
    made = {key: in_base64(one) for key, one in value.items()}
    for key in ("traceId", "spanId", "parentSpanId"):
        if key in made:
            made[key] = base64.b64encode(bytes.fromhex(made[key])).decode()
    return made


def spans_of(requests: list[Any]) -> tuple[list[Any], dict[str, str]]:
    """The spans, and the attributes of their resource. An unknown member is an error."""
    spans, resource = [], {}
    for request in requests:
        parsed = ParseDict(in_base64(request), ExportTraceServiceRequest())
        for one in parsed.resource_spans:
            resource = {a.key: a.value.string_value for a in one.resource.attributes}
            for scope in one.scope_spans:
                assert scope.scope.name == "stoker"
                spans += scope.spans
    return spans, resource


def attributes(span: Any) -> dict[str, Any]:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


@pytest.mark.parametrize("way", ["file", "http"])
def test_a_run(cli: Cli, receiver: Receiver, way: str) -> None:
    file = cli.folder / "spans.jsonl"
    cli.env |= {"OTEL_SERVICE_NAME": "lab", "OTEL_EXPORTER_OTLP_HEADERS": "x-a=b%20c,x-d=e"}
    cli.env["STOKER_OPENTELEMETRY"] = "spans.jsonl" if way == "file" else receiver.url
    done = cli.run(STEPS, name="named.json")
    assert done.code == 1 and "lacks" not in done.err
    requests = receiver.bodies
    if way == "file":
        requests = [json.loads(line) for line in file.read_text().splitlines()]
    else:
        path, headers, _ = receiver.asked[0]
        assert path == "/v1/traces" and headers["content-type"] == "application/json"
        assert headers["x-a"] == "b c" and headers["x-d"] == "e"
    spans, resource = spans_of(requests)
    assert resource["service.name"] == "lab" and resource["host.name"]
    by_name = {s.name: s for s in spans}
    tries = [s for s in spans if s.name == "bad"]
    root = by_name["p"]
    assert sorted(s.name for s in spans) == ["bad", "bad", "make", "p", "use"]
    assert [attributes(s)["stoker.attempt"] for s in tries] == [1, 2]
    assert len({s.span_id for s in spans}) == 5 and len({s.trace_id for s in spans}) == 1
    assert all(len(s.span_id) == 8 and len(s.trace_id) == 16 for s in spans)
    assert not root.parent_span_id
    assert all(s.parent_span_id == root.span_id for s in spans if s is not root)
    for span in spans:
        assert root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= root.end_time_unix_nano
    assert [link.span_id for link in by_name["use"].links] == [by_name["make"].span_id]
    assert root.status.code == 2 and by_name["make"].status.code == 1
    assert tries[0].status.message == "exit status 3"
    assert attributes(tries[0].events[0])["exception.message"] == "exit status 3"
    known = attributes(by_name["make"])
    assert known["stoker.step"] == "make" and known["stoker.cpu_s"] >= 0
    started = done.steps["make"]["started_ms"] * 1_000_000
    assert by_name["make"].start_time_unix_nano == started


def test_a_resumed_run_is_one_trace(cli: Cli, receiver: Receiver) -> None:
    cli.env["STOKER_OPENTELEMETRY"] = f"{receiver.url}/collector/v1/traces"
    cli.write("stop", "")
    cli.run({"a": {"run": "true"}, "b": {"run": "test ! -e stop", "after": ["a"]}})
    (cli.folder / "stop").unlink()
    done = cli("resume", "latest")
    assert done.code == 0, done.err
    assert {path for path, _, _ in receiver.asked} == {"/collector/v1/traces"}
    spans, _ = spans_of(receiver.bodies)
    assert len({s.trace_id for s in spans}) == 1
    assert len({s.span_id for s in spans if s.name == "p"}) == 2
    assert [s.status.code for s in spans if s.name == "p"] == [2, 1]


PROGRAM = """
from stoker import pipeline, step

@step
def make() -> int:
    return 20

@pipeline
def p():
    make()

if __name__ == "__main__":
    p()
"""


def test_a_python_file_and_stoker_yaml(cli: Cli) -> None:
    """The file's path is relative to stoker.yaml, wherever the run starts."""
    cli.write("stoker.yaml", "opentelemetry: spans.jsonl\n")
    cli.write("below/run.py", PROGRAM)
    done = cli("run", "below/run.py")
    assert done.code == 0, done.err
    text = (cli.folder / "spans.jsonl").read_text()
    spans, _ = spans_of([json.loads(line) for line in text.splitlines()])
    assert {s.name for s in spans} == {"make", "p"}
