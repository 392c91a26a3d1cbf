"""What editors see: signatures of steps and pipelines, by mypy and basedpyright, and by help()."""

from __future__ import annotations

import json
import os
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest
from front_tools import PACKAGE

CALLS = Path(__file__).parents[1] / "data/types/calls.py"
BIN = Path(sys.executable).parent


def wrong_lines() -> set[int]:
    lines = CALLS.read_text().splitlines()
    return {i for i, line in enumerate(lines, 1) if line.endswith("# error")}


def test_mypy(tmp_path: Path) -> None:
    done = subprocess.run(
        [BIN / "mypy", "--strict", "--cache-dir", tmp_path, CALLS],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
    )
    found = re.findall(r"calls\.py:(\d+): error", done.stdout)
    assert {int(line) for line in found} == wrong_lines(), done.stdout + done.stderr


def test_basedpyright(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(CALLS.read_text())
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"extraPaths": [str(PACKAGE)], "typeCheckingMode": "standard"})
    )
    done = subprocess.run(
        [BIN / "basedpyright", "--outputjson", "--pythonpath", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)["generalDiagnostics"]
    lines = {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}
    assert lines == wrong_lines(), done.stdout


@pytest.mark.parametrize("doc", ['"""Trains."""', ""])
def test_help_shows_the_signature(doc: str) -> None:
    space: dict[str, object] = {"__name__": "m"}
    text = (
        "from stoker import step, pipeline\n"
        f"@step\ndef train(data: str, lr: float = 0.1) -> float:\n    {doc}\n    return lr\n"
        f"@pipeline\ndef whole(lr: float) -> None:\n    {doc}\n    train('x', lr=lr)\n"
    )
    exec(compile(text, "m.py", "exec", dont_inherit=True), space)
    step = pydoc.render_doc(space["train"], renderer=pydoc.plaintext)
    assert "train(data: str, lr: float = 0.1) -> float" in step
    assert "whole(lr: float)" in pydoc.render_doc(space["whole"], renderer=pydoc.plaintext)
    assert ("Trains." in step) == bool(doc)


def test_checkpoint_is_there() -> None:
    code = "import stoker; print(stoker.checkpoint.save.__module__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("stoker.")


def test_every_public_name_has_an_example() -> None:
    """In its docstring, as Python that parses; of a module anywhere in it."""
    import ast
    import textwrap

    import stoker

    for name in stoker.__all__:
        doc = getattr(stoker, name).__doc__ or ""
        if name == "__version__":
            continue
        if name in stoker._MODULES:
            assert "    " in doc, name
            continue
        assert "Example::\n\n" in doc, f"{name} has no example"
        example = textwrap.dedent(doc.split("Example::\n\n")[1]).strip()
        assert ast.parse(example).body, name
