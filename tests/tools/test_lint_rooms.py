"""The lint finds each kind of violation, and none in the tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import lint_rooms  # noqa: E402


def tree(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / "src" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return tmp_path


def test_the_tree_is_clean() -> None:
    assert lint_rooms.check_sources(ROOT) + lint_rooms.check_sleeps(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "model/plan/plan.c",
            '#include "sys/file.h"\n',
            "src/model/plan/plan.c:1: room 'model/plan' includes 'sys/file.h'",
        ),
        (
            "model/sched/sched.c",
            '\n#include "store/store.h"\n',
            "src/model/sched/sched.c:2: room 'model/sched'",
        ),
        (
            "base/err.c",
            '#include "cli/cli.h"\n',
            "room 'base' includes 'cli/cli.h'; it may include only: tbl",
        ),
        (
            "run/exec/exec.c",
            '#  include "show/report.h"\n',
            "room 'run/exec' includes 'show/report.h'",
        ),
        ("store/store.c", '#include "../base/err.h"\n', "is relative"),
        ("attic/attic.c", "int x;\n", "src/attic is no room"),
        ("base/long.c", "\n" * 801, "src/base/long.c:801: 801 lines"),
        ("store/a.c", "while ((e = readdir(dir)) != NULL) {\n", "use sys/dir.h"),
        (
            "away/agent/a.c",
            "    DIR *dir = opendir(path);\n",
            "opendir takes a failure for the end",
        ),
    ],
)
def test_a_break_is_found(tmp_path: Path, name: str, text: str, sentence: str) -> None:
    found = lint_rooms.check_sources(tree(tmp_path, name, text))
    assert len(found) == 1 and sentence in found[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cli/cli.c", '#include "run/exec/exec.h"\n#include <stdio.h>\n'),
        ("model/plan/plan.c", '#include "model/spec/spec.h"\n// #include "sys/file.h"\n'),
        ("base/just.c", "\n" * 800),
        ("sys/dir.c", "    DIR *dir = opendir(path);\n"),
        ("model/sched/sched_test.c", '#include "sys/file.h"\n'),  # a test may look anywhere
    ],
)
def test_what_is_allowed_passes(tmp_path: Path, name: str, text: str) -> None:
    assert lint_rooms.check_sources(tree(tmp_path, name, text)) == []


def test_a_symbol_without_prefix_is_found(tmp_path: Path) -> None:
    source = tmp_path / "x.c"
    source.write_text("int stk_good(void) { return 1; }\nint helper(void) { return 2; }\n")
    subprocess.run(["cc", "-c", str(source), "-o", str(tmp_path / "x.o")], check=True)
    subprocess.run(["ar", "rc", str(tmp_path / "x.a"), str(tmp_path / "x.o")], check=True)
    found = lint_rooms.check_symbols(tmp_path / "x.a")
    assert len(found) == 1 and "'helper'" in found[0] and found[0].startswith("x.o:1:")


def test_a_call_upstairs_is_found(tmp_path: Path) -> None:
    (tmp_path / "run.c").write_text("int stk_up(void) { return 1; }\n")
    (tmp_path / "plan.c").write_text("int stk_up(void);\nint stk_plan(void) { return stk_up(); }\n")
    for source, member in (("run.c", "src_run_run.c.o"), ("plan.c", "src_model_plan_plan.c.o")):
        subprocess.run(["cc", "-c", source, "-o", member], check=True, cwd=tmp_path)
        subprocess.run(["ar", "rc", "x.a", member], check=True, cwd=tmp_path)
    found = lint_rooms.check_symbols(tmp_path / "x.a")
    assert len(found) == 1 and "room 'model/plan' uses stk_up of room 'run'" in found[0]


def test_a_file_a_clock_or_a_process_in_the_model_is_found(tmp_path: Path) -> None:
    impure = (
        "fopen",
        "time",
        "fork",
        "getenv",
        "clock_gettime",
        "_exit",
        "__read_chk",
        "memfd_create",
    )
    pure = ("strlen", "snprintf", "__snprintf_chk", "malloc", "__stack_chk_fail", "qsort")
    for source in ("src_model_plan_plan", "src_store_store"):
        calls = "".join(f"extern char {name}[]; {name}[0] = 1;" for name in (*impure, *pure))
        (tmp_path / f"{source}.c").write_text(f"void stk_{source}(void) {{ {calls} }}\n")
        object_file = f"{source}.c.o"
        subprocess.run(
            ["cc", "-c", "-fno-builtin", "-w", f"{source}.c", "-o", object_file],
            check=True,
            cwd=tmp_path,
        )
        subprocess.run(["ar", "rc", "x.a", object_file], check=True, cwd=tmp_path)
    found = lint_rooms.check_symbols(tmp_path / "x.a")
    assert {line.rpartition(" ")[2] for line in found} == {*impure}, found
    assert all(line.startswith("src_model_plan_plan.c.o:1: model is pure") for line in found)


def test_exit_status_and_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lint_rooms.main(["--root", str(tree(tmp_path, "base/a.c", "int x;\n"))]) == 0
    assert (
        lint_rooms.main(["--root", str(tree(tmp_path, "base/b.c", '#include "sys/file.h"\n'))]) == 1
    )
    assert "src/base/b.c:1:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("def f():\n    SLEEP(0.5)\n    assert done\n", 1),
        ("for i in range(50):\n    SLEEP(0.1)\n", 1),
        ('PROGRAM = """\nx = 1; SLEEP(1)\n"""\n', 1),
        ("SLEEP(5)\nSLEEP(59)\n", 2),
        ("while True:\n    def f():\n        SLEEP(1)\n", 1),
        ("while not done():\n    SLEEP(0.1)\n", 0),
        ("while not done(\n    1\n):\n    assert time() < end\n    if x:\n        SLEEP(0.1)\n", 0),
        ('PROGRAM = "while not os.path.exists(x): SLEEP(0.01)"\n', 0),
        ("SLEEP(60)\nSLEEP(600)\n", 0),
        ("SLEEP(1)  # sleeps: a token expires by the clock\n", 0),
        ("# sleeps: to kill at different moments\nSLEEP(0.01 * i)\n", 0),
    ],
)
def test_a_test_waits_for_events(tmp_path: Path, text: str, n: int) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_x.py").write_text(text.replace("SLEEP", "time.sleep"))
    found = lint_rooms.check_sleeps(tmp_path)
    assert len(found) == n and all("tests/test_x.py:" in line for line in found), found
