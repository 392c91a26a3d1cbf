"""Runs the test suites and counts the tests that ran; the last line is `N passed, N failed`.

    run_tests.py fast | all | gpu | SUITE…

Suites: `lint`; `unit`, `asan`, `sim`, `fuzz`, `lease` (C programs that meson lists, by meson suite; asan is `unit` built with
sanitizers); `tsan` (C programs of `unit` that have threads, and the whole runs marked tsan, built with
ThreadSanitizer); `crash` and `vm` (scripts); and one per folder of tests/ that holds test_*.py. `fast` leaves out what is marked slow or torch and the
folders in FURTHER, crash and tsan; `all` is everything but real GPUs. A C program is counted by its own report (cmocka's, or a last
line `N passed, N failed`), else as one test. Whatever crashes, times out or can't start counts as failed.

`fast` and `all` use every CPU at once. Of their Python tests the few that fail run again at the end, alone, and count by
that; both outputs are shown, and the names of those that pass then: a machine that starves is no fault of the product's.

Temporary files are in a folder of this run's own and go with it: disks of machines that test are small.
"""

from __future__ import annotations

import compileall
import ctypes
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Iterable

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
SILENT_S = 900  # from one test's end to the next
FURTHER = {"crash", "wheel", "container", "kubernetes", "batch", "slurm", "ssh", "remote", "share"}
LONGEST = [
    "container",
    "compat",
    "kubernetes",
    "python",
    "cli",
    "slurm",
    "ssh",
    "remote",
    "launch",
    "examples",
    "share",
    "batch",
    "crossings",
]  # started first, because they take longest
BY_NAME = {"release"}  # folders of tests/ that only their name asks for
# Folders of tests/, which wait more than they compute, and time nothing; one of them is all other suites, one after
# another, because these use every CPU.
AT_ONCE = 5
FEW = 10  # more failed tests than these are a fault, and no second try is made
ENGINES = threading.Lock()  # held by who uses the private engines of tests/container
PRINTING = threading.Lock()
ADDR_NO_RANDOMIZE = 0x0040000
SIM_SEEDS_ALL = "5000"
LEASE_STARTS_ALL = "20000"
CRASH_KILLS = 100
TIDY = 'printf "%s\\0" "$@" | xargs -0 -n 16 -P "$(nproc)" clang-tidy --quiet -p build'
VM_TIMEOUT_S = 5000  # the machine sets its own limits


@dataclass
class Tests:
    """Failed tests of a folder, by pytest's names, and how they ran."""

    folder: str
    marks: str
    env: dict[str, str] | None
    names: list[str]


@dataclass
class Result:
    """The result of a suite: counts, and the output to show if something failed."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    shown: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)  # by the suite itself, worth a line
    bad: list[Tests] = field(default_factory=list)

    def add(self, other: Result) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.shown += other.shown
        self.said += other.said
        self.bad += other.bad


def run(
    command: list[str], timeout_s: float, env: dict[str, str] | None = None, folder: Path = ROOT
) -> tuple[int, str]:
    """Exit status and output of a command without a terminal or stdin.

    It is ended, with 124, when it has said nothing for `timeout_s`: a busy machine makes a suite longer,
    and the time from one test to the next hardly.
    """
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        return 127, f"{command[0]}: {error}"
    output = b""
    with process:
        assert process.stdout is not None
        while select.select([process.stdout], [], [], timeout_s)[0]:
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                return process.wait(), output.decode("utf-8", "replace")
            output += piece
        process.kill()
    return 124, output.decode(
        "utf-8", "replace"
    ) + f"\nended after {timeout_s:.0f} s without a word"


def count_program(name: str, status: int, output: str) -> Result:
    """The result of one C test program, from its exit status and report."""
    passed = sum(int(n) for n in re.findall(r"^\[  PASSED  \] (\d+) test", output, re.M))
    failed = sum(int(n) for n in re.findall(r"^\[  FAILED  \] \w*:? ?(\d+) test", output, re.M))
    own = re.search(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?\s*\Z", output, re.M)
    if own:
        passed, failed = passed + int(own[1]), failed + int(own[2])
    elif passed == failed == 0 and status == 0:
        passed = 1
    if status != 0 and failed == 0:
        failed = 1
    result = Result(passed, failed, int(own[3] or 0) if own else 0)
    if failed:
        result.shown.append(f"--- {name}: exit status {status}\n{told(output)}")
    return result


def told(output: str) -> str:
    """What cmocka says of each test that failed, and the end: a sanitizer's report may be long."""
    lines = output.splitlines()
    bad = [i for i, line in enumerate(lines) if line.startswith(("[  FAILED  ] ", "[  ERROR   ] "))]
    words = [line for i in bad for line in lines[max(i - 3, 0) : i + 3]]
    return "\n".join([*words[:60], "…", output[-6000:]]) if len(output) > 6000 else output


def programs(
    build: str,
    suite: str,
    env: dict[str, str] | None = None,
    is_wanted: Callable[[str], bool] = lambda program: True,
) -> Result:
    """Runs the wanted test programs of a meson suite, one for each CPU at once."""
    meson = next(
        (m for m in ("/usr/bin/meson", shutil.which("meson")) if m and os.path.exists(m)), None
    )
    if meson is None or not (ROOT / build).is_dir():
        return Result(failed=1, shown=[f"--- {suite}: {build}/ is not built (make deps-test)"])
    status, listing = run([meson, "introspect", "--tests", build], 60)
    if status != 0:
        return Result(failed=1, shown=[f"--- {suite}: meson introspect\n{listing}"])
    tests = [t for t in json.loads(listing) if any(s.split(":")[-1] == suite for s in t["suite"])]
    tests = [t for t in tests if is_wanted(t["cmd"][0])]

    def one(test: dict) -> Result:
        # Meson, too, starts them in the build folder: paths in __FILE__ are relative to it.
        folder = ROOT / (test["workdir"] or build)
        status, output = run(
            test["cmd"], test["timeout"] or 120, {**test["env"], **(env or {})}, folder
        )
        return count_program(f"{build}: {test['name']}", status, output)

    total = Result()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for result in pool.map(one, tests):
            total.add(result)
    return total


def pytest(
    folder: str, marks: str, env: dict[str, str] | None = None, names: Iterable[str] = ()
) -> Result:
    """Runs the tests of one folder that have the marks, all or those of the names; the counts come from pytest's report."""
    with tempfile.TemporaryDirectory() as tmp:
        report = Path(tmp) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            *(names or [f"tests/{folder}"]),
            "-m",
            marks,
            f"--junitxml={report}",
            # tsan has a folder's tests run beside the folder's own
            f"--basetemp={Path(tempfile.gettempdir()) / folder}{'-' if env else ''}",
        ]
        with ENGINES if folder == "container" else nullcontext():
            status, output = run(command, SILENT_S, env)
        result = Result()
        if report.exists():
            root = ET.parse(report).getroot()
            if bad := [name_of(case) for case in root.iter("testcase") if has_failed(case)]:
                result.bad.append(Tests(folder, marks, env, list(dict.fromkeys(bad))))
            for suite in root.iter("testsuite"):
                count = {
                    k: int(suite.get(k, 0)) for k in ("tests", "failures", "errors", "skipped")
                }
                result.failed += count["failures"] + count["errors"]
                result.skipped += count["skipped"]
                said = suite.iterfind("properties/property[@name='said']")
                result.said += [one.get("value", "") for one in said]
                result.passed += (
                    count["tests"] - count["failures"] - count["errors"] - count["skipped"]
                )
        if status not in (0, 5) and result.failed == 0:
            result.failed += 1  # pytest failed; 5 means that no test has the marks
        if result.failed:
            result.shown.append(f"--- tests/{folder}: exit status {status}\n{output[-20000:]}")
        return result


def has_failed(case: ET.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def name_of(case: ET.Element) -> str:
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def second_try(total: Result) -> None:
    """Runs the failed tests again, if they are few, and counts those that pass now as passed."""
    if sum(len(tests.names) for tests in total.bad) > FEW:
        return
    for tests in total.bad:
        name = f"{tests.folder} again"
        _, result, seconds = timed(name, lambda t=tests: pytest(t.folder, t.marks, t.env, t.names))
        report(name, result, seconds)
        still = {test for one in result.bad for test in one.names}
        passed = [test for test in tests.names if test not in still][: result.passed]
        total.passed += len(passed)
        total.failed -= len(passed)
        for test in passed:
            print(f"{'':<12} failed beside others, passes alone: {test}", flush=True)


def has_threads(program: str) -> bool:
    """Whether the program or its libraries call pthread_create; true if that is unknown."""
    status, symbols = run(["nm", "-u", program], 60)
    return status != 0 or re.search(r"\bU pthread_create\b", symbols) is not None


def sees_races(env: dict[str, str]) -> Result:
    """Whether ThreadSanitizer finds the race of tests/tsan; if not, its silence means nothing."""
    program = ROOT / "build-tsan/tests/tsan/tsan_race"
    status, output = run([str(program)], 60, env)
    if status == 66 and "data race" in output:
        return Result(passed=1)
    return Result(failed=1, shown=[f"--- tsan: {program}: no race, exit status {status}\n{output}"])


def tsan() -> Result:
    """ThreadSanitizer's build: what has threads, and whole runs. Each of its reports is a failure."""
    libc = ctypes.CDLL(None)
    before = libc.personality(0xFFFFFFFF)
    libc.personality(before | ADDR_NO_RANDOMIZE)  # it fails with some random addresses
    options = "die_after_fork=0"
    try:
        with tempfile.TemporaryDirectory() as reports:
            os.chmod(reports, 0o1777)
            env = {
                "TSAN_OPTIONS": f"{options}:log_path={reports}/tsan",  # of every process of a run
                "STOKER_BIN": str(ROOT / "build-tsan/src/cli/stoker"),
            }
            total = sees_races({"TSAN_OPTIONS": options})
            total.add(programs("build-tsan", "unit", env, has_threads))
            marked = by_length(f for f in folders() if has_mark(f, "tsan"))
            for folder in reversed(marked):  # that of the engines last
                total.add(pytest(folder, "tsan", env))
            for report in sorted(Path(reports).iterdir()):
                total.failed += 1
                total.shown.append(
                    f"--- {report.name}\n{report.read_text(errors='replace')[:20000]}"
                )
            return total
    finally:
        libc.personality(before)


def crash() -> Result:
    """STOKER_CRASH_N kills and their resumes; ten times what a kill takes is its time limit."""
    kills = int(os.environ.get("STOKER_CRASH_N", CRASH_KILLS))
    command = [sys.executable, "tests/crash/crash.py", "--kills", str(kills)]
    if os.environ.get("STOKER_CRASH_PAGE"):
        command += ["--write", os.environ["STOKER_CRASH_PAGE"]]
    with ENGINES:
        status, output = run(command, max(SILENT_S, 20 * kills))
    result = count_program("crash", status, output)
    result.said = re.findall(r"^(?:\| |\w+ is skipped: ).*", output, re.M)
    return result


def machine() -> Result:
    """Control groups v2 in a virtual machine, if KVM boots it; with STOKER_VM_SLOW also without
    KVM."""
    slow = ["--slow"] if os.environ.get("STOKER_VM_SLOW") else []
    status, output = run([sys.executable, "tests/vm/vm.py", *slow], VM_TIMEOUT_S)
    result = count_program("vm", status, output)
    result.skipped = sum(int(n) for n in re.findall(r", (\d+) skipped in ", output))
    if result.passed + result.failed == 0:
        result.skipped = 1
        result.shown.append(f"--- vm: {output.strip().splitlines()[0]}")
    return result


def is_product(file: str) -> bool:
    return f"{ROOT}/src/" in file and re.search(r"(?<!_test)\.c$", file) is not None


def lint() -> Result:
    """Each check is one test."""
    c_files = [
        str(p) for top in ("src", "include", "tests") for p in sorted((ROOT / top).rglob("*.[ch]"))
    ]
    checks = {
        "rooms": [sys.executable, "tools/lint_rooms.py"],
        "figures": [sys.executable, "tools/figures.py", "--check"],
        "clang-format": [str(BIN / "clang-format"), "--dry-run", "-Werror", *c_files],
        "ruff": [str(BIN / "ruff"), "check", "."],
        "ruff format": [str(BIN / "ruff"), "format", "--check", "."],
        "mypy": [str(BIN / "mypy")],
        "import-linter": [str(BIN / "lint-imports"), "--no-cache", "--no-logo"],
        "clang-tidy": ["sh", "-c", TIDY, "sh", *(f for f in c_files if is_product(f))],
    }
    total = Result()
    for name, program in (
        ("import-linter", (BIN / "lint-imports").exists()),
        ("clang-tidy", shutil.which("clang-tidy")),
    ):
        if not program:
            del checks[name]
            total.skipped += 1
            total.said.append(
                f"{name} is not there: its checks are skipped; `make lint` installs it"
            )
    for name, command in checks.items():
        status, output = run(command, SILENT_S)
        if status == 0:
            total.passed += 1
        else:
            total.failed += 1
            total.shown.append(f"--- lint {name}\n{output[-6000:]}")
    return total


def folders() -> list[str]:
    return sorted(p.name for p in (ROOT / "tests").iterdir() if any(p.glob("test_*.py")))


def by_length(names: Iterable[str]) -> list[str]:
    """The longest first."""
    return sorted(names, key=lambda n: LONGEST.index(n) if n in LONGEST else len(LONGEST))


def has_mark(folder: str, mark: str) -> bool:
    tests = (ROOT / "tests" / folder).glob("test_*.py")
    return any(f"pytest.mark.{mark}" in p.read_text() for p in tests)


def plan(words: list[str]) -> list[tuple[str, Callable[[], Result]]]:
    """The suites that the command line asks for, in order."""
    fast = words == ["fast"]
    everything = words == ["all"]
    if words == ["gpu"]:
        return [
            ("unit", lambda: programs("build", "unit")),
            *((f"gpu: {f}", lambda f=f: pytest(f, "gpu")) for f in folders()),
        ]
    sim_env = (
        {"STOKER_SIM_SEEDS": SIM_SEEDS_ALL}
        if everything and "STOKER_SIM_SEEDS" not in os.environ
        else {}
    )
    lease_env = {} if fast else {"STOKER_LEASE_STARTS": LEASE_STARTS_ALL}
    suites: dict[str, Callable[[], Result]] = {
        "lint": lint,
        "unit": lambda: programs("build", "unit"),
        "asan": lambda: programs("build-asan", "unit"),
        "sim": lambda: programs("build", "sim", sim_env),
        "fuzz": lambda: programs("build-asan", "fuzz"),
        "lease": lambda: programs("build", "lease", lease_env),
    }
    if not fast:
        suites["tsan"] = tsan
        suites["crash"] = crash
    if "vm" in words:  # only by name, because it installs QEMU and builds a Debian
        suites["vm"] = machine
    marks = "not slow and not torch and not gpu" if fast else "not gpu"
    for folder in folders():
        if folder in BY_NAME and folder not in words:
            continue
        if not (fast and folder in FURTHER):
            previous = suites.get(folder)
            mine = lambda f=folder: pytest(f, marks)  # noqa: E731
            suites[folder] = mine if previous is None else lambda a=previous, b=mine: both(a, b)
    if fast or everything:
        return list(suites.items())
    unknown = [w for w in words if w not in suites]
    if unknown or not words:
        sys.exit(
            f"run_tests: no suite {' '.join(unknown)!r}; there are: fast all gpu {' '.join(suites)}"
        )
    return [(w, suites[w]) for w in words]


def both(first: Callable[[], Result], second: Callable[[], Result]) -> Result:
    result = first()
    result.add(second())
    return result


def timed(name: str, suite: Callable[[], Result]) -> tuple[str, Result, float]:
    began = time.monotonic()
    return name, suite(), time.monotonic() - began


def report(name: str, result: Result, seconds: float) -> Result:
    for text in result.shown:
        print(text)
    skipped = f", {result.skipped} skipped" if result.skipped else ""
    print(
        f"{name:<12} {result.passed} passed, {result.failed} failed{skipped} in {seconds:.1f} s",
        flush=True,
    )
    for text in result.said:
        print(f"{'':<12} {text}", flush=True)
    return result


def in_turn(suites: dict[str, Callable[[], Result]]) -> Result:
    """Runs suites one after another and tells of each as it ends."""
    total = Result()
    for suite in suites.items():
        told = timed(*suite)
        with PRINTING:
            total.add(report(*told))
    return total


def main(words: list[str]) -> int:
    scratch = tempfile.mkdtemp(prefix="st-")  # short, because it has sockets
    os.chmod(scratch, 0o1777)  # like /tmp, because some tests run as other users
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    try:
        return run_all(words)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compile_front() -> None:
    """Where PYTHONDONTWRITEBYTECODE is set, each Python that a test starts would compile all of it again."""
    for part in ("python", "tests/support", "tests/fakes"):
        compileall.compile_dir(ROOT / part, quiet=2)


def run_all(words: list[str]) -> int:
    total = Result()
    # A shell's background job ignores Ctrl-C, one under nohup a closed terminal, and both hand that
    # on; tests send these signals and expect an answer.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.environ["PATH"] = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    suites = dict(plan(words))
    compile_front()
    beside = by_length(f for f in folders() if f in suites and f != "wheel")
    others = [s for s in suites if s not in beside]
    others.sort(key=lambda s: s in ("tsan", "crash"))  # they want the engines, too
    with ThreadPoolExecutor(AT_ONCE) as pool:
        orders = [others, *([folder] for folder in beside)]
        jobs = [pool.submit(in_turn, {s: suites[s] for s in order}) for order in orders]
        for done in as_completed(jobs):
            total.add(done.result())
    if words in (["fast"], ["all"]):
        second_try(total)
    if total.passed + total.failed + total.skipped == 0:
        total.failed = 1  # nothing ran, which isn't a success
    print(f"{total.passed} passed, {total.failed} failed", flush=True)
    return 1 if total.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
