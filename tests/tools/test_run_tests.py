"""The test runner counts real reports, and crashes as failures."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import run_tests

CMOCKA_GOOD = (
    "[==========] Running 3 test(s).\n[==========] 3 test(s) run.\n[  PASSED  ] 3 test(s).\n"
)
CMOCKA_BAD = "[==========] 3 test(s) run.\n[  PASSED  ] 2 test(s).\n[  FAILED  ] tests: 1 test(s), listed below:\n"


def test_a_failed_program_says_why_above_a_long_report() -> None:
    output = "0x1 != 0x2\nx_test.c:7: error: Failure!\n[  FAILED  ] test_a\n" + "leak\n" * 3000
    (shown,) = run_tests.count_program("x", 1, output).shown
    assert "x_test.c:7" in shown and len(shown) < 7000


@pytest.mark.parametrize(
    ("status", "output", "passed", "failed"),
    [
        (0, CMOCKA_GOOD, 3, 0),
        (1, CMOCKA_BAD, 2, 1),
        (-6, CMOCKA_GOOD, 3, 1),  # aborted after its report, say by a sanitizer
        (-11, "", 0, 1),
        (0, "", 1, 0),
        (0, "seed 1\n12 passed, 0 failed\n", 12, 0),
        (1, "12 passed, 3 failed\n", 12, 3),
        (0, "12 passed, 0 failed, 2 skipped\n", 12, 0),
        (124, "[  PASSED", 0, 1),
    ],
)
def test_count_of_a_program(status: int, output: str, passed: int, failed: int) -> None:
    result = run_tests.count_program("x", status, output)
    assert (result.passed, result.failed) == (passed, failed)
    assert bool(result.shown) == bool(failed)


def test_what_a_program_skips_is_counted() -> None:
    result = run_tests.count_program("x", 0, "12 passed, 0 failed, 2 skipped\n")
    assert result.skipped == 2
    assert run_tests.count_program("x", 0, "12 passed, 0 failed\n").skipped == 0


def test_a_command_that_hangs_is_ended() -> None:
    status, output = run_tests.run(["sleep", "60"], 0.2)
    assert status == 124 and "ended after" in output


def test_a_command_that_is_not_there_is_a_failure() -> None:
    status, output = run_tests.run(["/nonexistent/tool"], 5)
    assert status == 127 and "/nonexistent/tool" in output


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(SystemExit, match="no suite 'nonsense'"):
        run_tests.plan(["nonsense"])


def test_threads_are_found_by_their_symbol() -> None:
    assert run_tests.has_threads(str(run_tests.ROOT / "build/share_test"))
    assert not run_tests.has_threads(str(run_tests.ROOT / "build/spec_test"))


def test_threads_are_looked_at_by_all_and_not_by_fast() -> None:
    suites = [name for name, _ in run_tests.plan(["all"])]
    assert "tsan" in suites and "asan" in suites
    assert "tsan" not in [name for name, _ in run_tests.plan(["fast"])]
    marked = [f for f in run_tests.folders() if run_tests.has_mark(f, "tsan")]
    assert "cli" in marked and "remote" in marked and "compat" not in marked


def test_what_each_start_of_a_test_imports_is_compiled_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_tests, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    files = [tmp_path / name for name in ("python/stoker/a.py", "tests/fakes/b.py")]
    for file in files:
        file.parent.mkdir(parents=True)
        file.touch()
    run_tests.compile_front()
    assert all(Path(importlib.util.cache_from_source(str(file))).exists() for file in files)


def test_folders_run_beside_the_suites_that_run_one_after_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four folders and the first of the others meet; of the others no two do."""
    meeting, alone, order = threading.Barrier(5, timeout=120), threading.Lock(), []

    def folder() -> run_tests.Result:
        meeting.wait()
        return run_tests.Result(passed=1)

    def other(name: str) -> run_tests.Result:
        assert alone.acquire(blocking=False)
        order.append(name)
        if len(order) == 1:
            meeting.wait()
        alone.release()
        return run_tests.Result(passed=1)

    suites = [(name, folder) for name in ("cli", "compat", "container", "python")]
    others = ("crash", "tsan", "lint", "wheel", "unit")
    suites += [(name, lambda name=name: other(name)) for name in others]
    monkeypatch.setattr(run_tests, "plan", lambda words: list(suites))
    monkeypatch.setattr(run_tests, "compile_front", lambda: None)
    monkeypatch.setattr(run_tests.signal, "signal", lambda number, handler: None)
    monkeypatch.setenv("PATH", "/usr/bin")
    assert run_tests.run_all(["all"]) == 0
    assert order == ["lint", "wheel", "unit", "crash", "tsan"]
    assert capsys.readouterr().out.endswith("9 passed, 0 failed\n")


def test_one_suite_at_a_time_has_the_private_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second would wait for the lock of their folder, silently, for as long as the first lasts."""

    def run(*words: object) -> tuple[int, str]:
        held.append(run_tests.ENGINES.locked())
        return 0, ""

    held: list[bool] = []
    monkeypatch.setattr(run_tests, "run", run)
    run_tests.pytest("container", "tsan", {"A": "b"})
    run_tests.crash()
    run_tests.pytest("cli", "tsan")
    assert held == [True, True, False]


def test_what_needs_the_engines_waits_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the runs with ThreadSanitizer, too."""
    seen: list[str] = []
    nothing = lambda *words: run_tests.Result()  # noqa: E731
    monkeypatch.setattr(run_tests, "sees_races", nothing)
    monkeypatch.setattr(run_tests, "programs", nothing)
    monkeypatch.setattr(run_tests, "pytest", lambda folder, *_: seen.append(folder) or nothing())
    run_tests.tsan()
    assert seen[-1] == "container" and len(seen) > 3


def test_every_suite_runs_once() -> None:
    """None of `fast` is missing in `all`; each folder that isn't for a release is there."""
    every = [name for name, _ in run_tests.plan(["all"])]
    assert len(every) == len(set(every))
    assert set(every) >= {name for name, _ in run_tests.plan(["fast"])}
    assert set(every) >= set(run_tests.folders()) - run_tests.BY_NAME


UNSTEADY = """
import pathlib
import pytest

@pytest.mark.parametrize("at", ["first", "a/b [é]"])
def test_unsteady(at):
    seen = pathlib.Path(__file__).with_name(at.partition("/")[0])
    was_here = seen.exists()
    seen.touch()
    assert was_here

def test_good():
    pass
"""


def tried_twice(folder: Path, monkeypatch: pytest.MonkeyPatch, more: str = "") -> run_tests.Result:
    (folder / "tests/odd").mkdir(parents=True)
    (folder / "tests/odd/test_odd.py").write_text(UNSTEADY + more)
    real = run_tests.run
    monkeypatch.setattr(run_tests, "run", lambda words, s, env: real(words, s, env, folder))
    total = run_tests.pytest("odd", "not gpu")
    assert total.failed >= 2 and total.passed == 1
    run_tests.second_try(total)
    return total


def test_what_fails_beside_others_runs_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    total = tried_twice(tmp_path, monkeypatch)
    assert (total.passed, total.failed) == (3, 0)
    told = capsys.readouterr().out
    assert told.count("failed beside others, passes alone: tests/odd/test_odd.py::test_uns") == 2


def test_what_fails_twice_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    total = tried_twice(tmp_path, monkeypatch, "\ndef test_bad():\n    assert 0\n")
    assert (total.passed, total.failed) == (3, 1)


def test_many_failures_are_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = "\n@pytest.mark.parametrize('n', range(9))\ndef test_bad(n):\n    assert 0\n"
    total = tried_twice(tmp_path, monkeypatch, many)
    assert (total.passed, total.failed) == (1, 11)
