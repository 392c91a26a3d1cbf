"""`stoker compat --check`: what programs use of zenml and metaflow, without running them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from stoker_binary import find_binary

PROGRAM = """
import zenml
from zenml import Model, pipeline, step, wait
from zenml.client import Client
from zenml.nothing import x
from metaflow import FlowSpec, nonsense
from .zenml import own
raise SystemExit("it ran")

@step(experiment_tracker="mlflow", colour=1, enable_cache=False)
def a():
    client = Client()
    client.list_models()
    client.create_service_connector("x")
    Client().active_stack
    zenml.step
    zenml.nope

@pipeline(dynamic=True, on_init=a)
def p():
    wait()

@pipeline(on_init=a)
def q():
    pass
"""
VERDICTS = {
    ("zenml", 2): "runs",
    ("zenml.Model", 3): "runs",
    ("zenml.wait", 3): "differs",
    ("zenml.nothing.x", 5): "missing",
    ("metaflow.FlowSpec", 6): "runs",
    ("metaflow.nonsense", 6): "missing",
    ("@step(experiment_tracker=…)", 10): "differs",
    ("@step(colour=…)", 10): "missing",
    ("@step(enable_cache=…)", 10): "runs",
    ("Client.list_models", 13): "runs",
    ("Client.create_service_connector", 14): "missing",
    ("Client.active_stack", 15): "differs",
    ("zenml.step", 16): "runs",
    ("zenml.nope", 17): "missing",
    ("@pipeline(dynamic=…)", 19): "differs",
    ("@pipeline(on_init=…)", 19): "runs",
    ("@pipeline(on_init=…)", 23): "runs",
}


def check(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [find_binary(), "compat", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def test_every_use_has_its_verdict(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = check(tmp_path, "--json", "--check", "program.py")
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    found = {(use["name"], use["line"]): use["verdict"] for use in told["uses"]}
    assert {use: found.get(use) for use in VERDICTS} == VERDICTS
    assert all(use["why"] for use in told["uses"] if use["verdict"] != "runs")
    assert not any("own" in use["name"] for use in told["uses"])


def test_people_read_what_is_missing_first(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    lines = check(tmp_path, "--check", "program.py").stdout.splitlines()
    heads = [line for line in lines if not line.startswith(" ")]
    assert heads[:3] == ["isn't there:", "differs:", "runs:"]
    assert "  zenml.nothing.x  (program.py:5)" in lines
    assert heads[3].startswith("1 file: ")


def test_a_folder_is_read_whole_without_its_environments(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", ".venv/c.py", "env/lib/d.py", "site-packages/e.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("from zenml import step\n")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    done = check(tmp_path, "--json", "--check", ".")
    assert done.returncode == 0, done.stderr
    assert [use["file"] for use in json.loads(done.stdout)["uses"]] == ["./a.py", "./sub/b.py"]


@pytest.mark.parametrize("text", [b"def (", b"\xff\xfe\x00", b"x = 1\0"])
def test_a_file_that_is_no_python_is_named_and_the_others_are_read(
    tmp_path: Path, text: bytes
) -> None:
    (tmp_path / "bad.py").write_bytes(text)
    (tmp_path / "good.py").write_text("from zenml import step\n")
    done = check(tmp_path, "--check", "bad.py", "good.py")
    assert done.returncode == 2 and "bad.py" in done.stderr, done.stderr
    assert "zenml.step" in done.stdout and "Traceback" not in done.stderr


def test_wrong_words_are_refused(tmp_path: Path) -> None:
    assert "takes files and folders" in check(tmp_path, "--check").stderr
    done = check(tmp_path, "--check", "none.py")
    assert done.returncode == 2 and "there is no 'none.py'" in done.stderr
    assert check(tmp_path, "--path", "--check", "x.py").returncode == 2


def test_a_program_without_either_says_so(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import json\n")
    done = check(tmp_path, "--check", "plain.py")
    assert done.returncode == 0 and "no use of zenml or metaflow" in done.stdout
