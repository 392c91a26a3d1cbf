"""Code that runs in images is written for Python 3.7; without such an interpreter, its source is
checked."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from front_tools import PACKAGE, WAIT_S, needed

FRONT = PACKAGE / "stoker"
OLDEST = (3, 7)
# Newer names that an old interpreter never comes to.
KNOWN = {
    ("launch.py", "os.memfd_create"): "starts engines, which no worker does",
    ("layers.py", "typing.TypedDict"): "under TYPE_CHECKING",
    (
        "_items.py",
        "pickle.dumps(buffer_callback)",
    ): "of flows, whose tasks need the front and its Python",
    ("_items.py", "pickle.loads(buffers)"): "as above",
    ("_util.py", "functools.cached_property"): "as above",
    ("_config.py", "functools.cache"): "as above",
    ("_extensions.py", "functools.cache"): "as above",
    ("_tools.py", "importlib.metadata"): "makes environments, which no worker does",
    ("_parsers.py", "tomllib"): "within a try that says what is missing",
    ("outputs.py", "typing.get_type_hints(include_extras)"): "within a try that has another way",
    ("reads.py", "sys.addaudithook"): "asked for first",
}
FILES = sorted(FRONT.rglob("*.py"))

FLOW = """
from stoker import pipeline, step

@step
def add(a: int, b: float) -> float:
    return a + b

if __name__ == "__main__":
    pipeline(lambda: add(1, 2.0))()
"""

SHOW = """
import json, sys
sys.argv[1:1] = []
before = set(sys.modules)
from stoker._worker.__main__ import main
status = main(sys.argv[1:])
names = sorted(name for name in set(sys.modules) - before)
print(json.dumps({"status": status, "modules": names}))
"""


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(FRONT)))
def test_grammar(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST)


def test_library() -> None:
    """All used names of the standard library exist in 3.7, but for ZenML's programs, which need a
    newer Python themselves."""
    needed("vermin")
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "vermin"),
            "-t=3.7-",
            "--no-tips",
            "-vvv",
            "--format",
            "parsable",
            *(str(path) for path in FILES if path.parent.name != "_zen"),
        ],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    lines = re.findall(r"^(/\S+?):(\d*):\d*:[^:]*:3\.(\d+):(.*)$", done.stdout, re.M)
    assert len(lines) > 1000, done.stderr or done.stdout[-2000:]
    newer = set()
    for file, line, minor, what in lines:
        if int(minor) > OLDEST[1] and line and what:
            newer.add((Path(file).name, what.split("'")[1] if "'" in what else what))
    assert newer == set(KNOWN)


def loaded(folder: Path) -> list[str]:
    """Modules that the worker loads for one step, by the interpreter as the image would start it."""
    (folder / "flow.py").write_text(FLOW)
    attempt = folder / "runs" / "r" / "add" / "0" / "1"
    (attempt / "out").mkdir(parents=True)
    task = {
        "stoker": 1, "run": "r", "pipeline": "p", "step": "add", "task": 0, "attempt": 1, "last_attempt": True,
        "store": str(folder), "kind": "python", "entry": "__main__:add", "isolation": "spawn",
        "inputs": {"a": {"value": 1}, "b": {"value": 2.0}}, "outputs": ["output"], "asked": {},
        "granted": {"devices": []}, "hooks": {}, "rank": 0, "world": 1, "extra": {},
    }  # fmt: skip
    (attempt / "task.json").write_text(json.dumps(task))
    done = subprocess.run(
        [sys.executable, "-S", "-E", "-s", "-c", f"import sys; sys.path.insert(0, {str(PACKAGE)!r})\n" + SHOW,
         str(attempt), "--main", str(folder / "flow.py")],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )  # fmt: skip
    result = json.loads((attempt / "result.json").read_text())
    assert result["status"] == "ok" and result["outputs"]["output"]["value"] == 3.0, done.stderr
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["status"] == 0
    return list(answer["modules"])


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="which of its own it loads differs")
def test_modules(tmp_path: Path) -> None:
    """What an image's Python must have is listed where the worker is."""
    names = loaded(tmp_path)
    tops = {name.split(".")[0] for name in names} & set(sys.stdlib_module_names)
    public = sorted(name for name in tops if not name.startswith("_"))
    sys.path.insert(0, str(PACKAGE))
    from stoker._worker.attempt import STANDARD_MODULES

    assert set(public) <= set(STANDARD_MODULES), sorted(set(public) - set(STANDARD_MODULES))
    assert list(STANDARD_MODULES) == sorted(STANDARD_MODULES)
