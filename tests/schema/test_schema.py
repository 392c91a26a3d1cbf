"""The schemas and the engine are held to the same documents (`cases/KIND/VERDICT/`).

`valid` and `invalid` bind both. `beyond` holds what a schema can't say: it accepts, the engine
refuses. A task.json is written by the engine and read by workers, so what binds it is the schema and
what real runs write.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from stoker_binary import find_binary

ROOT = Path(__file__).resolve().parents[2]
CASES = Path(__file__).resolve().parent / "cases"
STOKER = str(find_binary())


@lru_cache
def validator(kind: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((ROOT / "schema" / f"{kind}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def stoker(*args: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([STOKER, *args], capture_output=True, text=True, timeout=60, **options)


def document(path: Path) -> Any:
    """The document as Python values; YAML is read by the engine."""
    if path.suffix == ".json":
        return json.loads(path.read_text())
    done = stoker("spec", "convert", str(path))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def cases(*kinds: str) -> list[Any]:
    found = [p for kind in kinds for p in sorted((CASES / kind).glob("*/*"))]
    assert len(found) > 5
    return [pytest.param(p, id=str(p.relative_to(CASES))) for p in found]


@pytest.mark.parametrize("path", cases("pipeline", "result", "task", "stack"))
def test_schema(path: Path) -> None:
    kind, verdict = path.parts[-3:-1]
    errors = [e.message for e in validator(kind).iter_errors(document(path))]
    assert bool(errors) == (verdict == "invalid"), errors


@pytest.mark.parametrize("path", cases("pipeline", "result"))
def test_engine(path: Path) -> None:
    kind, verdict = path.parts[-3:-1]
    done = stoker("spec", "check", "--json", *(["--result"] if kind == "result" else []), str(path))
    answer = json.loads(done.stdout)
    if verdict == "valid":
        assert done.returncode == 0, answer
        assert answer["kind"] == kind
        return
    error = answer["error"]
    newer = path.stem == "version_two"  # a version of Stoker is missing, not a better document
    assert done.returncode == (3 if newer else 2)
    assert error["class"] == ("version" if newer else "spec")
    assert error["file"] == str(path) and error["line"] >= 1 and error["text"]


@pytest.mark.parametrize("path", cases("stack"))
def test_stacks(path: Path, tmp_path: Path) -> None:
    """stoker.yaml has no checker of its own: every command that places steps reads all of it."""
    (tmp_path / "stoker.yaml").write_text(path.read_text())
    (tmp_path / "p.yaml").write_text("stoker: 1\nname: p\nsteps:\n  a: {run: x}\n")
    done = stoker("plan", "--json", "--with", "local", "p.yaml", cwd=tmp_path)
    if path.parent.name == "valid":
        assert done.returncode == 0, done.stdout + done.stderr
        return
    error = json.loads(done.stdout)["error"]
    assert done.returncode == (3 if path.stem == "version_two" else 2)
    assert error["file"] == str(tmp_path / "stoker.yaml") and error["line"] >= 1 and error["text"]


def test_sentence() -> None:
    """The shown form: one line, with the place first and the hint last."""
    done = stoker("spec", "check", "step_unknown.yaml", cwd=CASES / "pipeline" / "invalid")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.strip().removeprefix("stoker: ").removeprefix("error: ") == (
        "step_unknown.yaml:3: step 'a': unknown key 'resorces'; did you mean 'resources'?"
    )


def test_what_is_stored_is_read_again(tmp_path: Path) -> None:
    """YAML, its JSON, and that JSON's JSON are one document."""
    path = CASES / "pipeline" / "valid" / "everything.yaml"
    once = stoker("spec", "convert", str(path)).stdout
    (tmp_path / "once.json").write_text(once)
    assert stoker("spec", "convert", str(tmp_path / "once.json")).stdout == once
    assert stoker("spec", "check", str(tmp_path / "once.json")).returncode == 0
    assert stoker("spec", "convert", "-", input=once).stdout == once


def test_lines() -> None:
    done = stoker("spec", "convert", "--lines", str(CASES / "pipeline" / "valid" / "anchors.yaml"))
    both = json.loads(done.stdout)
    assert both["document"]["steps"]["b"] == {
        "environment": {"B": "y", "A": "x"},
        "run": "x",
        "outputs": ["o"],
    }
    assert both["lines"]["/steps/b"] == 6 and both["lines"]["/steps/b/environment/B"] == 8


def check_run(store: Path, steps: list[str], n_results: int) -> None:
    """All files of the run in `store` are valid by the schemas."""
    (run,) = (store / "runs").iterdir()
    validator("pipeline").validate(json.loads((run / "spec.json").read_text()))
    tasks = sorted(run.glob("*/*/*/task.json"))
    assert [p.parts[-4] for p in tasks] == steps
    for path in tasks:
        validator("task").validate(json.loads(path.read_text()))
    results = list(run.glob("*/*/*/result.json"))
    assert len(results) == n_results
    for path in results:
        validator("result").validate(json.loads(path.read_text()))


def test_what_commands_leave(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("1,2\n")
    (tmp_path / "pipeline.yaml").write_text(
        "stoker: 1\n"
        "name: p\n"
        "parameters: {n: 3}\n"
        "steps:\n"
        "  make:\n"
        "    run: echo $STOKER_PARAM_n > $STOKER_OUTPUT/a; cp $STOKER_INPUT_t $STOKER_OUTPUT/b\n"
        "    inputs: {n: {param: n}, t: {file: table.csv}, v: {value: [1, {x: null}]}}\n"
        "    outputs: [a, b]\n"
        "    resources: {cpu_count: 1, memory: 1GB}\n"
        "  take:\n"
        "    run: test -s $STOKER_INPUT_one\n"
        "    inputs: {one: {from: make.a}, both: {from: [make.a, make.b]}}\n"
        "    extra: {k: 1}\n"
    )
    environment = {**os.environ, "STOKER_STORE": str(tmp_path / "store")}
    done = stoker("run", "pipeline.yaml", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    check_run(tmp_path / "store", ["make", "take"], 0)  # no need of a result.json


PYTHON_PIPELINE = """
from typing import Annotated
from stoker import ArtifactConfig, ResourceSettings, StepRetryConfig, log_metadata, pipeline, step

def note(error=None):
    print("note", error)

@step(retry=StepRetryConfig(max_retries=1, delay=0, backoff=1), on_failure=note)
def load(n: int, names: list = ["a"]) -> tuple[Annotated[list, "xs"], Annotated[bytes, "raw"]]:
    log_metadata({"rows": n})
    return list(range(n)), b"raw"

@step(settings={"resources": ResourceSettings(cpu_count=1, memory="1GB")}, on_success=note)
def total(xs: list) -> Annotated[int, ArtifactConfig(name="sum", tags=["t"])]:
    return sum(xs)

@step
def fails(total: int, raw: bytes) -> None:
    raise ValueError("with a NUL: \\0")

@pipeline(tags=["x"], extra={"k": [1]})
def p(n: int = 5):
    xs, raw = load(n)
    fails(total(xs), raw)

if __name__ == "__main__":
    p()
"""


def test_what_python_steps_leave(tmp_path: Path) -> None:
    (tmp_path / "flow.py").write_text(PYTHON_PIPELINE)
    environment = {
        **os.environ,
        "STOKER_STORE": str(tmp_path / "store"),
        "STOKER_BIN": STOKER,
        "PYTHONPATH": str(ROOT / "python"),
    }
    done = subprocess.run(
        [sys.executable, "flow.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "with a NUL" in done.stderr, done.stderr
    check_run(tmp_path / "store", ["fails", "load", "total"], 3)


def test_what_a_step_with_devices_is_told(tmp_path: Path) -> None:
    """Of a card near some CPUs, with a share of its memory and as a whole."""
    card = {"uuid": "GPU-1", "model": "A100", "memory_bytes": 1 << 34, "cpus": "0-1"}
    (tmp_path / "devices.json").write_text(json.dumps([card]))
    share = {"gpu_count": 1, "gpu_memory": "4GiB"}
    steps = {
        "part": {"run": "true", "resources": share},
        "whole": {"run": "true", "resources": {"gpu_count": 1}},
    }
    (tmp_path / "p.json").write_text(json.dumps({"stoker": 1, "name": "p", "steps": steps}))
    more = {
        "STOKER_ACCEL": f"fake:{tmp_path}/devices.json",
        "STOKER_LEASE_DIR": str(tmp_path / "leases"),
    }
    env = {**os.environ, **more, "STOKER_STORE": str(tmp_path / ".stoker")}
    done = stoker("run", "p.json", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    check_run(tmp_path / ".stoker", ["part", "whole"], 0)
    for path in (tmp_path / ".stoker/runs").glob("*/*/*/*/task.json"):
        [device] = json.loads(path.read_text())["granted"]["devices"]
        assert device["cpus"] == "0-1"
