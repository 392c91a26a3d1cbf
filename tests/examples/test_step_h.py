"""include/stoker/step.h compiles without warnings as C99 and C++, and writes files as
documented."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STRICT = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wconversion",
    "-Wshadow",
    "-Werror",
    f"-I{ROOT / 'include'}",
]

PROGRAM = r"""
#include <stoker/step.h>
int main(int argc, char **argv)
{
    char big[70000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    stk_step_log_number("lr", stk_step_number("lr", 0.5));
    stk_step_log_text("name \"q\"", stk_step_text("name", "none\n\\"));
    stk_step_log_number("nan", NAN);
    stk_step_log_text("big", big);
    stk_step_log_text("last", "kept");
    printf("%s %s %s\n", stk_step_input("a.b"), stk_step_output("x"), stk_step_output("y"));
    return argc > 1 ? stk_step_fail(argv[1]) : stk_step_done();
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("step")
    (folder / "step.c").write_text(PROGRAM)
    build = ["cc", "-std=c99", "-O2", *STRICT, "-o", folder / "step", folder / "step.c", "-lm"]
    subprocess.run(build, check=True)
    return folder / "step"


def start(program: Path, folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    full = {
        "STOKER_TASK_DIR": str(folder),
        "STOKER_OUTPUT": f"{folder}/out",
        "STOKER_INPUT_a.b": "/data/a",
        **env,
    }
    return subprocess.run([program, *args], env=full, capture_output=True, text=True, cwd=folder)


def test_success(program: Path, tmp_path: Path) -> None:
    done = start(program, tmp_path, STOKER_PARAM_lr="0.125", STOKER_PARAM_name="Ann")
    assert done.returncode == 0
    assert done.stdout == f"/data/a {tmp_path}/out/x {tmp_path}/out/y\n"
    result = json.loads((tmp_path / "result.json").read_text())
    assert result == {
        "stoker": 1,
        "status": "ok",
        "metadata": {"lr": 0.125, 'name "q"': "Ann", "nan": "nan", "last": "kept"},
    }
    assert "metadata 'big' is left out" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_failure(program: Path, tmp_path: Path) -> None:
    done = start(program, tmp_path, 'no "points"\tin it')
    assert done.returncode == 1
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["status"] == "failed"
    assert result["error"]["message"] == 'no "points"\tin it'
    assert result["metadata"]['name "q"'] == "none\n\\"


def test_a_failure_too_long_to_keep_is_still_a_failure(program: Path, tmp_path: Path) -> None:
    assert start(program, tmp_path, "x" * 9000).returncode == 1
    assert json.loads((tmp_path / "result.json").read_text())["status"] == "failed"


def test_a_parameter_that_is_no_number(program: Path, tmp_path: Path) -> None:
    done = start(program, tmp_path, STOKER_PARAM_lr="fast")
    assert done.returncode == 2 and "'lr' is 'fast'" in done.stderr
    assert not (tmp_path / "result.json").exists()


def test_a_folder_that_is_gone(program: Path, tmp_path: Path) -> None:
    done = start(program, tmp_path, STOKER_TASK_DIR="/nonexistent")
    assert done.returncode == 1 and "result.json" in done.stderr


def test_by_hand(program: Path, tmp_path: Path) -> None:
    done = subprocess.run([program], env={}, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "a.b x y\n"
    assert list(tmp_path.iterdir()) == []


def test_compiles_as_other_dialects(tmp_path: Path) -> None:
    (tmp_path / "step.c").write_text(PROGRAM)
    subprocess.run(
        ["cc", "-std=c17", *STRICT, "-c", "step.c", "-o", "c17.o"], cwd=tmp_path, check=True
    )
