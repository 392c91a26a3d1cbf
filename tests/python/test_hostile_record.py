"""Values that can't be kept come through every door as a sentence, and what is kept can be read again: parameters and
items of a foreach from Python files, flows, YAML and the command line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from front_tools import WAIT_S, engine, environment, needs_engine, run_python

pytestmark = needs_engine

EDGE = 1 << 63
# Python's spelling → whether it can be kept. A path is what os.fsdecode makes of a name that isn't UTF-8.
VALUES: dict[str, bool] = {
    "2**53 + 1": True,
    "2**63 - 1": True,
    "-2**63": True,
    "2**63": False,
    "-2**63 - 1": False,
    "10**5000": False,
    "1e308": True,
    "float('nan')": False,
    "float('inf')": False,
    "''": True,
    "'x' * 1_000_000": True,
    "'\\U0001f600'": True,
    "'a\\0b'": True,
    "'\\ud800'": False,
    "'\\udcff/x'": False,
    "{'k': '\\ud800'}": False,
    "{'\\ud800': 1}": False,
    "[1, [2**63]]": False,
    "[1, [2**63 - 1]]": True,
}
PIPELINE = """
    import sys
    sys.set_int_max_str_digits(0) if hasattr(sys, "set_int_max_str_digits") else None
    from typing import Any
    from stoker import pipeline, step

    @step(enable_cache=False)
    def look(value: Any) -> str:
        open("ran", "a").write("x")
        return ascii(value)[:100]

    {how}

    if __name__ == "__main__":
        {call}
"""
HOWS = {
    "a parameter of the pipeline": (
        "@pipeline\n    def p(value: Any):\n        look(value)",
        "p(VALUE)",
    ),
    "a parameter of a step": ("@pipeline\n    def p():\n        look(VALUE)", "p()"),
}
FLOW = """
    import sys
    sys.set_int_max_str_digits(0) if hasattr(sys, "set_int_max_str_digits") else None
    from stoker.flow import FlowSpec, step

    class F(FlowSpec):
        @step
        def start(self):
            self.items = [1, VALUE]
            self.next(self.look, foreach="items")
        @step
        def look(self):
            self.said = ascii(self.input)[:100]
            self.next(self.join)
        @step
        def join(self, inputs):
            self.said = [one.said for one in inputs]
            self.next(self.end)
        @step
        def end(self):
            open("ran", "a").write(repr(self.said))

    if __name__ == "__main__":
        F()
"""


def stoker(folder: Path, *words: str | bytes) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(engine()), *words],
        cwd=folder,
        env=environment(folder / ".stoker"),
        capture_output=True,
        timeout=WAIT_S,
    )


def is_whole(folder: Path) -> None:
    """However it ended, its record can be read."""
    if not (folder / ".stoker/store.db").exists():
        return
    checked = stoker(folder, "store", "verify")
    assert checked.returncode == 0, checked.stdout
    if not json.loads(stoker(folder, "runs", "--json").stdout):
        return
    for words in (["show", "latest"], ["show", "latest", "--json"], ["logs", "latest"]):
        done = stoker(folder, *words)
        assert done.returncode == 0, done.stderr
        assert b"damaged" not in done.stdout + done.stderr
        if words[-1] == "--json":
            json.loads(done.stdout)


def is_told(done: subprocess.CompletedProcess[str]) -> None:
    """A sentence, and no traceback of our code."""
    said = done.stdout + done.stderr
    assert "stoker" in said or "step" in said or "parameter" in said, said[-2000:]
    last = said.strip().splitlines()[-1]
    assert "python/stoker/" not in last and "damaged" not in said, said[-2000:]


@pytest.mark.parametrize("how", HOWS)
def test_pipelines(tmp_path: Path, how: str) -> None:
    made, call = HOWS[how]
    for i, (value, can) in enumerate(VALUES.items()):
        folder = tmp_path / str(i)
        folder.mkdir()
        source = PIPELINE.replace("{how}", made).replace("{call}", call).replace("VALUE", value)
        done = run_python(folder, source, ok=False)
        if can:
            assert done.returncode == 0, (value, done.stderr[-2000:])
        elif done.returncode != 0:
            is_told(done)
        else:  # as an artifact, which holds more than JSON does
            assert (folder / "ran").exists(), value
        is_whole(folder)


def test_flows(tmp_path: Path) -> None:
    for i, (value, can) in enumerate(VALUES.items()):
        folder = tmp_path / str(i)
        folder.mkdir()
        done = run_python(folder, FLOW.replace("VALUE", value), "run", ok=False)
        if can or done.returncode == 0:
            assert done.returncode == 0, (value, done.stderr[-2000:])
            assert (folder / "ran").exists()
        else:
            is_told(done)
        is_whole(folder)


YAML = """
stoker: 1
name: p
parameters: {a: {type: json, default: VALUE}}
steps: {one: {run: "echo $STOKER_PARAM_a", inputs: {a: {param: a}}}}
"""
WORDS = {
    str(EDGE - 1): True, str(-EDGE): True, str(EDGE): False, "1e400": False, ".nan": False, ".inf": False,
    '"a\\ud800b"': False, '"\\ud83d\\ude00"': None, '"\\0"': None, "[1, [18446744073709551616]]": False,
}  # fmt: skip


def test_yaml(tmp_path: Path) -> None:
    for i, (value, can) in enumerate(WORDS.items()):
        folder = tmp_path / str(i)
        folder.mkdir()
        (folder / "p.yaml").write_text(YAML.replace("VALUE", value))
        done = stoker(folder, "run", "p.yaml")
        if can is not None:
            assert (done.returncode == 0) == can, (value, done.stderr)
        if done.returncode != 0:
            assert done.returncode == 2 and b"p.yaml" in done.stderr, (value, done.stderr)
        is_whole(folder)


ITEMS = {
    "[1, 9223372036854775807, -9223372036854775808]": True,
    "[1, 9223372036854775808]": None,
    "[1, 1e999]": False,
    "[1, NaN]": False,
    '["\\ud83d\\ude00", "", "a"]': True,
    '["\\ud800"]': None,
    '["\\377"]': False,  # a byte, by printf
    '["a\\u0000b"]': None,
    '[{"k": ["x"]}]': True,
    "[" * 5000 + "]" * 5000: False,
}


def test_items_of_a_document(tmp_path: Path) -> None:
    """A command says them. They stay in its output, the record has their number: it is whole, whatever they are."""
    for i, (items, can) in enumerate(ITEMS.items()):
        folder = tmp_path / str(i)
        folder.mkdir()
        data = items.replace("\\377", "\xff").encode("latin-1")
        (folder / "items").write_bytes(data)
        last = {"run": "true", "join": True}
        steps = {
            "all": {"run": 'cp items "$STOKER_OUTPUT/todo"', "outputs": ["todo"], "foreach": "todo", "next": "one"},
            "one": {"run": "echo x >> ran", "next": "last", "resources": {"cpu_count": 1}},
            "last": last,
        }  # fmt: skip
        (folder / "p.json").write_text(json.dumps({"stoker": 1, "name": "p", "steps": steps}))
        done = stoker(folder, "run", "p.json")
        if can is not None:
            assert (done.returncode == 0) == can, (items[:50], done.stderr)
        assert (folder / "ran").exists() == (done.returncode == 0), items[:50]
        is_whole(folder)


@pytest.mark.parametrize("before", [True, False])
def test_the_command_line_of_a_python_file(tmp_path: Path, before: bool) -> None:
    source = PIPELINE.replace("{how}", HOWS["a parameter of the pipeline"][0])
    source = source.replace("{call}", "p('1')").replace("value: Any)", "value: str)")
    (tmp_path / "prog.py").write_text(textwrap.dedent(source))
    for value, can in ((b"value=\xff", False), (b"value=x", True), ("value=日本".encode(), True)):
        option = [b"--param", value]
        words = [b"run", *option, b"prog.py"] if before else [b"run", b"prog.py", *option]
        done = stoker(tmp_path, *words)
        assert (done.returncode == 0) == can, done.stderr
        assert can or done.returncode == 0 or b"Traceback" not in done.stderr, done.stderr
        is_whole(tmp_path)


def test_a_folder_that_is_not_utf8(tmp_path: Path) -> None:
    """The program lies in it; the store is elsewhere."""
    odd = os.fsencode(tmp_path) + b"/x\xffy"
    os.mkdir(odd)
    source = PIPELINE.replace("{how}", HOWS["a parameter of a step"][0]).replace("{call}", "p()")
    with open(odd + b"/prog.py", "w") as stream:
        stream.write(textwrap.dedent(source.replace("VALUE", "__file__")))
    done = subprocess.run(
        [sys.executable, b"prog.py"],
        cwd=odd,
        env=environment(tmp_path / ".stoker"),
        capture_output=True,
        timeout=WAIT_S,
    )
    assert done.returncode != 0 and b"UTF-8" in done.stderr, done.stderr[-2000:]
    is_whole(tmp_path)
