"""The fork server, with a test that plays the engine over the socket pair."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from front_tools import needed
from play_engine import ROOT, WAIT_S, Engine, has_ended, make_attempt, result_of

from stoker._definition.entry import Entry
from stoker._worker import fitness

PATHS = [str(ROOT / part) for part in ("python", "tests/python", "tests/support")]


def entry_of(func: Any, outputs: list[str] | None = None, **more: Any) -> Entry:
    names = ["output"] if outputs is None else outputs
    return Entry(func, names, [Any] * len(names), **more)


def run_one(tmp_path: Path, func: Any, before: Any = None, **more: Any) -> Any:
    """A single step in a forked server; gives the value it returned."""
    with Engine.forked({"one": entry_of(func)}, before=before) as engine:
        result = engine.run(make_attempt(tmp_path, "one", outputs=["output"]), **more)
    assert result["status"] == "ok", result
    return result["outputs"]["output"]["value"]


def test_hello_started_ended(tmp_path: Path) -> None:
    cell = []

    def closure() -> int:
        print("to the log")
        print("to the other log", file=sys.stderr)
        os.write(1, b"by descriptor\n")
        cell.append(1)
        return len(cell)

    directory = make_attempt(tmp_path, "one", outputs=["output"])
    with Engine.forked({"one": entry_of(closure)}) as engine:
        assert engine.hello["pid"] == engine.pid
        assert engine.hello["version"] == 1 and engine.hello["main"] == "main.py"
        task = engine.spawn(directory)
        started = engine.wait_for("started", task)
        assert has_ended(engine.pidfds[task])
        ended = engine.wait_for("ended", task)
        assert ended["status"] == 0 and ended["maxrss_kb"] > 1000
        assert ended["utime_us"] + ended["stime_us"] > 0
        assert started["pid"] != engine.pid
        again = make_attempt(tmp_path / "again", "one", outputs=["output"])
        assert engine.run(again)["outputs"]["output"]["value"] == 1, (
            "the second fork sees the first"
        )
    assert (directory / "stdout.log").read_text() == "to the log\nby descriptor\n"
    assert (directory / "stderr.log").read_text() == "to the other log\n"
    assert result_of(directory)["outputs"]["output"] == {"value": 1, "type": "builtins.int"}
    assert cell == []


def test_what_is_set_before_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GONE", "1")
    procs = tmp_path / "cgroup.procs"
    procs.write_text("")

    def look() -> dict[str, Any]:
        import resource

        status = Path("/proc/self/status").read_text()
        return {
            "leads": os.getsid(0) == os.getpid(),
            "cpus": sorted(os.sched_getaffinity(0)),
            "cwd": os.getcwd(),
            "env": os.environ.get("NEW"),
            "gone": os.environ.get("GONE"),
            "core": resource.getrlimit(resource.RLIMIT_CORE),
            "files": resource.getrlimit(resource.RLIMIT_NOFILE),
            "privs": "NoNewPrivs:\t1" in status,
            "threads": os.environ.get("OMP_NUM_THREADS"),
            "term": signal.getsignal(signal.SIGTERM) is signal.SIG_DFL,
            "int": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
            "blocked": "SigBlk:\t0000000000000000" in status,
            "stdin": os.readlink("/proc/self/fd/0"),
        }

    cpu = min(os.sched_getaffinity(0))
    value = run_one(
        tmp_path,
        look,
        env={"NEW": "x", "OMP_NUM_THREADS": "7"},
        unset=["GONE"],
        cpus=[cpu],
        threads=1,
        cwd=str(tmp_path),
        rlimits={"core": 0, "nofile": [512, 512]},
        cgroup_procs=[str(procs)],
    )
    assert value["cpus"] == [cpu] and value["cwd"] == str(tmp_path)
    assert (value["env"], value["gone"], value["threads"]) == ("x", None, "7")
    assert value["stdin"] == "/dev/null"
    assert all(value[key] for key in ("leads", "privs", "term", "int", "blocked"))
    assert procs.read_text() == "0"
    limits = [value["core"], value["files"]]
    assert [one["v"] for one in limits] == [[0, 0], [512, 512]]  # tuples, as they travel


def test_task_holds_what_it_is_given_and_nothing_of_the_server(tmp_path: Path) -> None:
    lease = tmp_path / "lease"
    lease.write_text("")
    directory = make_attempt(tmp_path, "one", outputs=["output"])
    with Engine.forked({"one": entry_of(open_files)}) as engine:
        fd = os.open(lease, os.O_RDWR)
        names = set(engine.run(directory, keep=[fd])["outputs"]["output"]["value"])
        os.close(fd)
        own = {name for name in open_files(engine.pid) if name.startswith(("socket:", "pipe:"))}
        assert str(lease) in names
        assert str(lease) not in open_files(engine.pid), "the lease would outlive its task"
    own -= set(open_files(os.getpid()))
    assert len(own) >= 2  # to the engine, and what SIGCHLD wakes it by
    assert not names & own, "a task that holds the server's socket hides its end"


def open_files(pid: int = 0) -> list[str]:
    found = []
    folder = f"/proc/{pid or os.getpid()}/fd"
    for name in os.listdir(folder):
        try:
            found.append(os.readlink(f"{folder}/{name}"))
        except OSError:
            pass
    return found


def test_failed_spawn_says_why(tmp_path: Path) -> None:
    directory = make_attempt(tmp_path, "one", outputs=["output"])
    with Engine.forked({"one": entry_of(lambda: 1)}) as engine:
        task = engine.spawn(directory, cwd="/no/such/folder")
        assert "/no/such/folder" in engine.wait_for("failed", task)["error"]
        assert os.waitstatus_to_exitcode(engine.wait_for("ended", task)["status"]) == 127
        assert not (directory / "result.json").exists()
        engine.send({"op": "spawn", "id": 90, "dir": str(directory)})
        assert "stdout and stderr" in engine.wait_for("failed", 90)["error"]
        engine.send({"op": "dance", "id": 91})
        assert "unknown op" in engine.wait_for("failed", 91)["error"]
        assert engine.run(directory)["status"] == "ok"


def test_signal_and_exit_are_reported(tmp_path: Path) -> None:
    registry = {
        "killed": entry_of(lambda: os.kill(os.getpid(), signal.SIGKILL)),
        "exits": entry_of(lambda: os._exit(7)),
    }
    with Engine.forked(registry) as engine:
        ids = {
            name: engine.spawn(make_attempt(tmp_path, name, outputs=["output"]))
            for name in registry
        }
        status = {name: engine.wait_for("ended", id)["status"] for name, id in ids.items()}
    assert os.WTERMSIG(status["killed"]) == signal.SIGKILL
    assert os.WEXITSTATUS(status["exits"]) == 7


def test_forked_from_another_thread(tmp_path: Path) -> None:
    """A pipeline may be called in a thread, which is the main thread of the fork."""
    import threading

    async def step() -> bool:
        return threading.current_thread() is threading.main_thread()

    results: list[Any] = []

    def call() -> None:
        with Engine.forked({"one": entry_of(step, is_async=True)}) as engine:
            results.append(engine.run(make_attempt(tmp_path, "one", outputs=["output"])))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert results[0]["outputs"]["output"]["value"] is True


def test_many_at_once(tmp_path: Path) -> None:
    n = 40
    registry = {f"s{i}": entry_of(lambda i=i: i) for i in range(n)}
    directories = [make_attempt(tmp_path, name, outputs=["output"]) for name in registry]
    with Engine.forked(registry) as engine:
        ids = [engine.spawn(directory) for directory in directories]
        assert [engine.wait_for("ended", id)["status"] for id in ids] == [0] * n
    assert [result_of(d)["outputs"]["output"]["value"] for d in directories] == list(range(n))


def sleep_with_child(pid_file: Path) -> Any:
    def step() -> None:
        child = subprocess.Popen(
            ["sleep", "600"], process_group=0 if sys.version_info >= (3, 11) else None
        )
        pid_file.with_suffix(".tmp").write_text(f"{os.getpid()} {child.pid}")
        pid_file.with_suffix(".tmp").rename(pid_file)
        time.sleep(600)

    return step


def wait_for_file(path: Path) -> str:
    deadline = time.monotonic() + WAIT_S
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} didn't come"
        time.sleep(0.005)
    return path.read_text()


@pytest.mark.parametrize("how", ["end of file", "quit"])
def test_tasks_end_with_the_engine(tmp_path: Path, how: str) -> None:
    pid_file = tmp_path / "pids"
    engine = Engine.forked({"one": entry_of(sleep_with_child(pid_file))})
    engine.spawn(make_attempt(tmp_path, "one"))
    pidfds = [os.pidfd_open(int(pid)) for pid in wait_for_file(pid_file).split()]
    if how == "quit":
        engine.send({"op": "quit"})
    assert engine.close() == 0
    for pidfd in pidfds:
        assert has_ended(pidfd)
        os.close(pidfd)


def test_what_a_task_leaves_is_killed_while_its_number_is_its_own(tmp_path: Path) -> None:
    """Before it is reaped: afterwards the number may be another group's. And tasks' groups only."""
    pid_file = tmp_path / "pids"
    code = """if True:
        import os, signal, sys, time
        from stoker._worker.server import _Server

        def leader(name):
            pid = os.fork()
            if pid == 0:
                os.setpgid(0, 0)
                left = os.fork()
                if left == 0:
                    time.sleep(600)
                with open(sys.argv[1] + name, "w") as file:
                    file.write(str(left))
                os._exit(0)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
            return pid

        server = _Server.__new__(_Server)
        task = leader(".task")
        server.tasks = {task: 1}
        killed = []
        killpg, os.killpg = os.killpg, lambda pid, number: (killed.append(pid), killpg(pid, number))
        assert server._end_group() == task and killed == [task]
        os.waitid(os.P_PID, task, os.WEXITED | os.WNOHANG | os.WNOWAIT).si_pid  # not reaped yet
        os.waitpid(task, 0)
        other = leader(".other")
        assert server._end_group() == other and killed == [task]
    """
    subprocess.run(
        [sys.executable, "-c", code, str(pid_file)],
        check=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/python"},
    )
    task, other = (int(Path(f"{pid_file}.{name}").read_text()) for name in ("task", "other"))
    try:
        end = time.monotonic() + WAIT_S
        while is_running(task):
            assert time.monotonic() < end
            time.sleep(0.01)
        assert is_running(other)
    finally:
        os.kill(other, signal.SIGKILL)


def is_running(pid: int) -> bool:
    """A zombie doesn't count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_tasks_die_with_the_server(tmp_path: Path) -> None:
    runs = tmp_path / "runs"  # it does: past the child's prctl
    engine = Engine.forked({"one": entry_of(lambda: (runs.touch(), time.sleep(600)))})
    task = engine.spawn(make_attempt(tmp_path, "one"))
    engine.wait_for("started", task)
    wait_for_file(runs)
    os.kill(engine.pid, signal.SIGKILL)
    assert has_ended(engine.pidfds[task])
    assert os.WTERMSIG(engine.close()) == signal.SIGKILL


def test_server_survives_the_terminals_signals(tmp_path: Path) -> None:
    with Engine.forked({"one": entry_of(lambda: 1)}) as engine:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            os.kill(engine.pid, number)
        assert engine.run(make_attempt(tmp_path, "one", outputs=["output"]))["status"] == "ok"


def test_server_dies_with_its_engine(tmp_path: Path) -> None:
    """The engine is killed; a leaked copy of its socket end hides the end of file, the kernel tells."""
    script = f"""
import os, sys, time
sys.path[:0] = {PATHS!r}
from pathlib import Path
from play_engine import Engine, make_attempt
from stoker._definition.entry import Entry
from test_server_protocol import sleep_with_child, wait_for_file
file = Path({str(tmp_path / "pids")!r})
engine = Engine.forked({{"one": Entry(sleep_with_child(file), [], [])}})
leak = os.fork()
if leak == 0:
    time.sleep(600)
engine.spawn(make_attempt(Path({str(tmp_path)!r}), "one"))
print(leak, engine.pid, wait_for_file(file), flush=True)
time.sleep(600)
"""
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    leak, *pids = [int(word) for word in process.stdout.readline().split()]
    pidfds = [os.pidfd_open(pid) for pid in pids]
    process.kill()
    process.wait()
    try:
        assert len(pidfds) == 3
        for pidfd in pidfds:
            assert has_ended(pidfd)
            os.close(pidfd)
    finally:
        os.kill(leak, signal.SIGKILL)
        process.stdout.close()


def test_exit_functions_threads_and_buffers_of_the_step(tmp_path: Path) -> None:
    import atexit

    atexit.register(print, "the user's process's own")

    def step() -> int:
        import ctypes
        import threading

        atexit.register(print, "at the step's exit")
        # sleeps: it ends after the step
        threading.Thread(target=lambda: (time.sleep(0.2), print("the thread's end"))).start()
        ctypes.CDLL(None).printf(b"buffered in C\n")
        sys.stdout.write("no newline")
        return 1

    directory = make_attempt(tmp_path, "one", outputs=["output"])
    with Engine.forked({"one": entry_of(step)}) as engine:
        engine.run(directory)
    atexit.unregister(print)
    log = (directory / "stdout.log").read_text()
    for text in ("at the step's exit", "the thread's end", "buffered in C", "no newline"):
        assert text in log
    assert "own" not in log


def test_random_numbers_differ_unless_seeded(tmp_path: Path) -> None:
    numpy = needed("numpy")

    def draw() -> int:
        return int(numpy.random.randint(1 << 30))

    def two(seed: int | None, base: Path) -> list[int]:
        state = numpy.random.get_state()
        numpy.random.mtrand._rand._bit_generator.__init__()  # as a fresh interpreter has it
        if seed is not None:
            numpy.random.seed(seed)
        with Engine.forked({"a": entry_of(draw), "b": entry_of(draw)}) as engine:
            values = [
                engine.run(make_attempt(base, name, outputs=["output"]))["outputs"]["output"][
                    "value"
                ]
                for name in ("a", "b")
            ]
        numpy.random.set_state(state)
        return values

    first, second = two(None, tmp_path / "1")
    assert first != second
    first, second = two(7, tmp_path / "2")
    assert first == second


# ---------------------------------------------------------------- what makes forking unfit


def test_other_threads(tmp_path: Path) -> None:
    facts = {"os_threads": 2, "python_threads": ["loader"]}
    registry = {
        "module": entry_of(lambda: 1, importable=("m", "f")),
        "closure": entry_of(lambda: 2),
    }
    with Engine.forked(registry, facts, before=lambda: sys.modules.pop("torch", None)) as engine:
        task = engine.spawn(make_attempt(tmp_path, "module", outputs=["output"]))
        unfit = engine.wait_for("unfit", task)
        assert "1 other Python threads" in unfit["why"] and "loader" in unfit["why"]
        for i in range(2):
            directory = make_attempt(tmp_path / str(i), "closure", outputs=["output"])
            assert engine.run(directory)["outputs"]["output"]["value"] == 2
        assert len([m for m in engine.messages if m["op"] == "note"]) == 1


def test_threads_of_a_notebook_are_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    class Kernel:
        running = True

        @classmethod
        def initialized(cls) -> bool:
            return cls.running

    monkeypatch.setitem(
        sys.modules, "ipykernel.kernelapp", types.SimpleNamespace(IPKernelApp=Kernel)
    )
    assert fitness.Fitness({}).note("threads", clean=False) == ""
    Kernel.running = False
    assert "forked anyway" in fitness.Fitness({}).note("threads", clean=False)


def test_prepare_counts_threads() -> None:
    import threading

    before = fitness.prepare()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="counted")
    thread.start()
    after = fitness.prepare()
    stop.set()
    thread.join()
    assert after["os_threads"] == before["os_threads"] + 1
    assert after["python_threads"] == [*before["python_threads"], "counted"]


def test_open_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "nvidia0"
    device.write_text("")
    monkeypatch.setattr(fitness, "DEVICE_PREFIXES", (str(tmp_path / "nvidia"),))
    with open(device), Engine.forked({"one": entry_of(lambda: 1, importable=("m", "f"))}) as engine:
        task = engine.spawn(make_attempt(tmp_path, "one"))
        assert f"{device} open" in engine.wait_for("unfit", task)["why"]


def run_script(
    tmp_path: Path, before: str, step: str, importable: bool, threads: int = 2
) -> dict[str, Any]:
    """A user's process of its own: ``before`` runs in it, then a forked server runs ``step``."""
    script = f"""
import json, os, sys
sys.path[:0] = {PATHS!r}
from pathlib import Path
from play_engine import Engine, make_attempt, result_of
from stoker._worker import server
from stoker._definition.entry import Entry
{before}
def step():
    {step}
entry = Entry(step, ["output"], [object], importable=("m", "step") if {importable} else None)
directory = make_attempt(Path({str(tmp_path)!r}), "one", outputs=["output"])
with Engine.forked({{"one": entry}}, server.prepare()) as engine:
    task = engine.spawn(directory, threads={threads})
    while engine.messages[-1]["op"] not in ("ended", "unfit"):
        engine.receive()
    messages = engine.messages
result = result_of(directory) if (directory / "result.json").exists() else None
print(json.dumps({{"ops": [m["op"] for m in messages], "messages": messages, "result": result}}))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    import json

    return json.loads(done.stdout.splitlines()[-1])


TENSOR_OP = "import torch; a = torch.ones(2000, 2000); (a + a).sum()"


@pytest.mark.torch
@pytest.mark.parametrize("importable", [True, False])
def test_openmp_pool_after_a_tensor_op(tmp_path: Path, importable: bool) -> None:
    needed("torch")
    got = run_script(
        tmp_path,
        TENSOR_OP,
        "b = torch.ones(2000, 2000); return [float((b + b).sum()), torch.get_num_threads()]",
        importable,
    )
    assert "OpenMP pool of libgomp" in str(got["messages"])
    if importable:
        assert got["ops"][-1] == "unfit" and got["result"] is None
    else:
        assert got["ops"] == ["hello", "note", "started", "ended"]
        assert "one thread" in got["messages"][1]["text"]
        assert got["result"]["outputs"]["output"]["value"] == [8e6, 1]


@pytest.mark.torch
def test_torch_without_an_op_is_fit(tmp_path: Path) -> None:
    needed("torch")
    got = run_script(
        tmp_path,
        "import torch",
        "b = torch.ones(2000, 2000); return [float((b + b).sum()), torch.get_num_threads()]",
        importable=True,
        threads=1,
    )
    assert got["ops"] == ["hello", "started", "ended"]
    assert got["result"]["outputs"]["output"]["value"] == [8e6, 1]


@pytest.mark.torch
def test_autograd_used_before(tmp_path: Path) -> None:
    """On the CPU autograd has no threads of its own; on a GPU the open device tells."""
    needed("torch")
    backward = "x = torch.ones(1, requires_grad=True); (x * 3).sum().backward()"
    got = run_script(
        tmp_path, f"import torch; {backward}", f"{backward}; return float(x.grad)", True
    )
    assert got["ops"] == ["hello", "started", "ended"]
    assert got["result"]["outputs"]["output"]["value"] == 3.0


def test_openmp_pool_of_scikit_learn(tmp_path: Path) -> None:
    needed("sklearn")
    before = (
        "import numpy; from sklearn.cluster import KMeans\n"
        "KMeans(8, n_init=1, max_iter=3).fit(numpy.random.rand(20000, 8))"
    )
    got = run_script(tmp_path, before, "return 1", importable=True)
    if len(os.sched_getaffinity(0)) > 1:  # with one CPU there is no pool
        assert got["ops"][-1] == "unfit" and "libgomp" in got["messages"][-1]["why"]


def test_loaded_libraries_get_their_thread_count(tmp_path: Path) -> None:
    needed("numpy")
    needed("threadpoolctl")
    got = run_script(
        tmp_path,
        "import numpy, threadpoolctl",
        "return [pool['num_threads'] for pool in threadpoolctl.threadpool_info()]",
        importable=True,
        threads=1,
    )
    assert got["ops"] == ["hello", "started", "ended"], "an idle BLAS is no reason not to fork"
    counts = got["result"]["outputs"]["output"]["value"]
    assert counts and set(counts) == {1}


# ---------------------------------------------------------------- the clean server

MAIN = """
import os, sys
from stoker import step
COUNT = []
class Thing:
    pass
@step
def one() -> int:
    COUNT.append(1)
    return len(COUNT)
@step
def pid() -> list:
    leases = [n for n in os.listdir("/proc/self/fd") if os.path.realpath(f"/proc/self/fd/{n}").endswith("/lease")]
    session = os.getsid(0) == os.getpid()
    return [os.getpid(), len(leases), os.environ["OMP_NUM_THREADS"], os.getcwd(), session]
@step
def thing() -> Thing:
    return Thing()
if __name__ == "__main__":
    raise SystemExit("the guarded part ran")
"""


def test_clean_server(tmp_path: Path) -> None:
    main = tmp_path / "file.py"
    main.write_text(MAIN)
    (tmp_path / "helper.py").write_text("def plain(n):\n    return n + 1\n")
    with Engine.clean(main) as engine:
        assert engine.hello["main"] == str(main)
        for i in range(2):
            directory = make_attempt(
                tmp_path / str(i), "one", entry="__main__:one", outputs=["output"]
            )
            assert engine.run(directory)["outputs"]["output"]["value"] == 1
        directory = make_attempt(tmp_path, "thing", entry="__main__:thing", outputs=["output"])
        assert engine.run(directory)["outputs"]["output"]["type"] == "__main__.Thing"
        directory = make_attempt(
            tmp_path, "h", entry="helper:plain", inputs={"n": {"value": 1}}, outputs=["output"]
        )
        result = engine.run(directory)
        assert result["outputs"]["output"]["value"] == 2
        assert str(tmp_path / "helper.py") in result["seen"]


@pytest.mark.parametrize("fails", [False, True])
def test_only_a_hook(tmp_path: Path, fails: bool) -> None:
    said = tmp_path / "said"

    def hook(exc: BaseException) -> None:
        said.write_text(str(exc))
        assert not fails

    directory = make_attempt(tmp_path, "one")
    with Engine.forked({"one": entry_of(lambda: 1, hooks={"on_failure": hook})}) as engine:
        task = engine.spawn(directory, hook="on_failure", error="host OOM")
        assert os.waitstatus_to_exitcode(engine.wait_for("ended", task)["status"]) == fails
    assert said.read_text() == "host OOM" and not (directory / "result.json").exists()


def test_clean_server_with_a_broken_main(tmp_path: Path) -> None:
    main = tmp_path / "file.py"
    main.write_text("import no_such_module_at_all\n")
    with Engine.clean(main) as engine:
        result = engine.run(make_attempt(tmp_path, "one", entry="__main__:one"))
    assert result["error"]["class"] == "import"
    assert result["error"]["module"] == "no_such_module_at_all"


def test_clean_server_without_main(tmp_path: Path) -> None:
    with Engine.clean() as engine:
        directory = make_attempt(
            tmp_path,
            "d",
            entry="posixpath:basename",
            inputs={"p": {"value": "a/b"}},
            outputs=["text"],
        )
        assert engine.run(directory)["outputs"]["text"]["value"] == "b"


def test_clean_server_that_is_unfit_itself(tmp_path: Path) -> None:
    main = tmp_path / "file.py"
    main.write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        + MAIN
    )
    with Engine.clean(main) as engine:
        for i in range(2):
            directory = make_attempt(
                tmp_path / str(i), "pid", entry="__main__:pid", outputs=["output"]
            )
            lease = os.open(tmp_path / "lease", os.O_RDWR | os.O_CREAT)
            task = engine.spawn(
                directory, keep=[lease], env={"OMP_NUM_THREADS": "3"}, cwd=str(tmp_path)
            )
            os.close(lease)
            assert engine.wait_for("ended", task)["status"] == 0
            got = result_of(directory)["outputs"]["output"]["value"]
            assert got == [engine.wait_for("started", task)["pid"], 1, "3", str(tmp_path), True]
        notes = [m["text"] for m in engine.messages if m["op"] == "note"]
        assert len(notes) == 1 and "interpreter of its own" in notes[0]
