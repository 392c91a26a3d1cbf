"""Values and names that Python or a text can't simply write: huge numbers, bytes that aren't UTF-8, byte order marks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from front_tools import environment

from stoker._base.errors import SettingsError
from stoker._definition.layers import load_run_config
from stoker.materializers import _json

HUGE = 10**5000 + 7
FILE = """
import sys
from stoker import pipeline, step

@step
def make(x: int) -> int:
    return -x

@step
def use(y: int) -> None:
    print("bits", y.bit_length())

@pipeline
def p(x: int = 1):
    use(make(x))

if __name__ == "__main__":
    p(x=10**5000)
"""
FLOW = """
from stoker.flow import FlowSpec, Parameter, step

class F(FlowSpec):
    n = Parameter("n", default=1, type=int)
    @step
    def start(self):
        self.x = 10**5000
        self.next(self.end)
    @step
    def end(self):
        print("bits", self.x.bit_length(), self.n.bit_length())

if __name__ == "__main__":
    F()
"""


def run(folder: bytes, *words: str | bytes) -> subprocess.CompletedProcess[str]:
    env = environment(Path(os.fsdecode(folder)) / ".stoker")
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        errors="replace",
    )


@pytest.mark.parametrize(
    "value",
    [HUGE, -HUGE, 2**63, -(2**63) - 1, 10**599, 10**4400],
    ids=lambda value: str(value.bit_length()),
)
def test_whole_numbers_of_any_length(value: int) -> None:
    assert _json.decode(_json.encode({"x": [value]})) == {"x": [value]}


def test_what_older_stores_hold_is_read() -> None:
    assert _json.decode({"!py": "int", "v": "-9223372036854775809"}) == -9223372036854775809


def test_a_huge_number_through_steps(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(FILE)
    done = run(os.fsencode(tmp_path), "f.py")
    assert done.returncode == 0, done.stderr
    logs = [*tmp_path.glob(".stoker/runs/*/use/*/*/stdout.log")]
    assert [log.read_text() for log in logs] == [f"bits {(10**5000).bit_length()}\n"]


def test_a_huge_number_through_a_flow(tmp_path: Path) -> None:
    (tmp_path / "f.py").write_text(FLOW)
    done = run(os.fsencode(tmp_path), "f.py", "run", "--n", "9" * 5000)
    assert done.returncode == 0, done.stderr
    logs = [*tmp_path.glob(".stoker/runs/*/end/*/*/stdout.log")]
    bits = f"bits {(10**5000).bit_length()} {(10**5000 - 1).bit_length()}\n"
    assert [log.read_text() for log in logs] == [bits]
    done = run(os.fsencode(tmp_path), "f.py", "run", "--n", "9" * 5000 + "x")
    assert done.returncode != 0 and "is not of type int" in done.stderr + done.stdout


def test_words_and_folders_that_are_not_utf8_are_named(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/d\xff"
    os.mkdir(folder)
    for here in (os.fsencode(tmp_path), folder):
        with open(here + b"/f.py", "w") as file:
            file.write(FILE)
    done = run(os.fsencode(tmp_path), "f.py", b"\xff\xfe")
    assert done.returncode != 0
    assert r"argument 1 of the program, b'\xff\xfe', is not UTF-8" in done.stderr
    done = run(folder, "f.py")
    assert done.returncode != 0
    assert "the current folder" in done.stderr and "is not UTF-8" in done.stderr
    assert not [*tmp_path.glob(".stoker/runs/*")]  # nothing has begun


def test_a_byte_order_mark_in_a_run_configuration(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"name": "n"}')
    assert load_run_config(str(path)) == {"name": "n"}
    path.write_bytes(b"\xef\xbb\xbf" + b"{")
    with pytest.raises(SettingsError):
        load_run_config(str(path))
