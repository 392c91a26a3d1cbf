"""Checkpoints from Python: complete or missing, loaded by the next attempt; and what a preempted
step notices."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from front_tools import WAIT_S, environment, needed, needs_engine, run_python

from stoker import checkpoint


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A task's directory; and no handler of ours in the test program afterwards."""
    for name in ("RANK", "WORLD_SIZE", "STOKER_RANK_DIR", "STOKER_ATTEMPT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STOKER_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path / "checkpoints"
    signal.signal(signal.SIGTERM, before)


def start(home: Path, source: str, **env: str) -> subprocess.Popen[str]:
    """A program beside, as a command step would run it."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)],
        env=environment(home.parent / ".stoker", STOKER_CHECKPOINT_DIR=str(home), **env),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(program: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = program.communicate(timeout=WAIT_S)
    return program.returncode, out, err


# --- save, load, list ---


def test_outside_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STOKER_CHECKPOINT_DIR", raising=False)
    for call in (
        checkpoint.list,
        checkpoint.load,
        checkpoint.preempted,
        lambda: checkpoint.save({}),
        lambda: checkpoint.on_preemption(print),
    ):
        with pytest.raises(RuntimeError, match="no step is running here"):
            call()


def test_values_come_back(home: Path) -> None:
    np = needed("numpy")
    assert checkpoint.load(default="none") == "none" and checkpoint.latest() is None
    saved = checkpoint.save(
        {"w": np.arange(4.0), "epoch": 3}, step=3, metadata={"loss": np.float32(0.5)}
    )
    state = checkpoint.load()
    assert state["epoch"] == 3 and state["w"].tolist() == [0, 1, 2, 3]
    last = checkpoint.latest()
    assert saved is not None and last is not None and last.path == saved.path
    assert (last.step, last.number, last.attempt, last.metadata) == (3, 1, 1, {"loss": 0.5})
    assert last.size > 32 and abs(last.time - time.time()) < 60
    assert not [entry for entry in os.listdir(home) if entry.startswith(".")]


def test_torch_state_comes_back(home: Path) -> None:
    torch = needed("torch")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    checkpoint.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    state = checkpoint.load()
    assert torch.equal(state["model"]["weight"], model.weight)
    other = torch.optim.Adam(model.parameters())
    other.load_state_dict(state["optimizer"])
    assert torch.equal(
        other.state_dict()["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"]
    )


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_files_come_back_as_a_path(home: Path, tmp_path: Path, kind: str) -> None:
    source = tmp_path / "model.bin"
    if kind == "directory":
        source.mkdir()
        (source / "checkpoint.json").write_text("the library's own")
    else:
        source.write_bytes(b"weights")
    checkpoint.save(source)
    found = checkpoint.load()
    assert found.name == "model.bin" and found != source
    assert (found / "checkpoint.json" if kind == "directory" else found).read_text() in (
        "weights",
        "the library's own",
    )


def test_a_text_is_refused(home: Path) -> None:
    with pytest.raises(TypeError, match=r"give Path\(…\)"):
        checkpoint.save("model.pt")
    with pytest.raises(ValueError, match=r"can't be named '\.\./x'"):
        checkpoint.save({}, name="../x")
    with pytest.raises(ValueError, match="keep=0"):
        checkpoint.save({}, keep=0)


def test_the_last_ones_of_each_name_are_kept(home: Path) -> None:
    for epoch in range(5):
        checkpoint.save({"epoch": epoch}, step=epoch)
        checkpoint.save({"epoch": epoch}, name="all", keep=None)
    checkpoint.save({"epoch": 0}, name="best", keep=1)
    assert [one.step for one in checkpoint.list("checkpoint")] == [3, 4]
    assert len(checkpoint.list("all")) == 5 and len(checkpoint.list()) == 8
    assert checkpoint.load() == {"epoch": 4} and checkpoint.load("best") == {"epoch": 0}
    numbers = [one.number for one in checkpoint.list()]
    assert numbers == sorted(numbers)


def test_a_damaged_one_is_passed_over(home: Path) -> None:
    np = needed("numpy")
    for epoch in range(2):
        checkpoint.save(np.full(1 << 16, epoch), step=epoch)
    last = checkpoint.latest()
    assert last is not None
    os.truncate(last.path / "data" if last.path.is_dir() else last.path, 100)
    with pytest.warns(UserWarning, match="is damaged and ignored"):
        assert checkpoint.load()[0] == 0


def test_what_a_library_wrote_is_listed(home: Path) -> None:
    (checkpoint.directory() / "checkpoint-500").mkdir()
    (home / "checkpoint-500" / "model.safetensors").write_bytes(b"12345")
    (home / ".half").write_bytes(b"x")
    (one,) = checkpoint.list()
    assert (one.name, one.size, one.number) == ("checkpoint-500", 5, None)
    assert checkpoint.load("checkpoint-500") == home / "checkpoint-500"


SAVE_FOR_EVER = """
    import numpy as np
    from stoker import checkpoint
    n = checkpoint.load(default={"n": 0})["n"]
    print(n, flush=True)
    while True:
        n += 1
        checkpoint.save({"n": n, "data": np.full(1 << 20, n)})
"""


def test_a_kill_while_saving_leaves_whole_ones(home: Path) -> None:
    needed("numpy")
    reached = 0
    for round_ in range(4):
        program = start(home, SAVE_FOR_EVER)
        assert program.stdout is not None
        assert int(program.stdout.readline()) >= reached
        end = time.monotonic() + WAIT_S
        while not (home.exists() and checkpoint.list()) and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(0.05 + 0.013 * round_)  # sleeps: to kill at different moments
        program.kill()
        finished(program)
        state = checkpoint.load()
        assert (state["data"] == state["n"]).all() and len(state["data"]) == 1 << 20
        assert state["n"] >= reached
        reached = state["n"]
        assert len(checkpoint.list()) in (1, 2, 3)  # the third would have gone next


# --- ranks ---


def test_rank_0_saves_and_all_load(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_RANK_DIR", str(home / "rank-1"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert checkpoint.save({"epoch": 1}) is None and checkpoint.list() == []
    monkeypatch.setenv("RANK", "0")
    assert checkpoint.save({"epoch": 1}) is not None
    monkeypatch.setenv("RANK", "1")
    assert checkpoint.load() == {"epoch": 1}


SHARD = """
    import os, sys, time
    from stoker import checkpoint
    rank = os.environ["RANK"]
    for step in range(2):
        with checkpoint.saving(step=step) as folder:
            time.sleep(0.1 * int(rank))  # sleeps: they come at different times
            (folder / f"shard-{rank}").write_text(f"{rank} of step {step}")
            if step == 1 and rank == "1" and len(sys.argv) > 1:
                os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("dies", [False, True])
def test_shards_of_all_ranks_or_none(home: Path, dies: bool) -> None:
    ranks = []
    for rank in range(3):
        source = SHARD.replace("len(sys.argv) > 1", str(dies)).replace(
            "saving(step=step)", f"saving(step=step, timeout=2 if {dies} and step else 120)"
        )
        env = {"RANK": str(rank), "WORLD_SIZE": "3", "STOKER_RANK_DIR": str(home / "r")}
        ranks.append(start(home, source, **env))
    ended = [finished(rank) for rank in ranks]
    if dies:
        assert "rank 1 of 3 did not finish its part" in ended[0][2]
    else:
        assert [code for code, _, _ in ended] == [0, 0, 0], ended
    found = checkpoint.load()
    step = 0 if dies else 1
    assert {p.name: p.read_text() for p in found.iterdir()} == {
        f"shard-{k}": f"{k} of step {step}" for k in range(3)
    }


# --- preemption, as a program of a command step hears it ---


def told(home: Path, source: str) -> tuple[int, str, str]:
    """Start, wait for "ready", SIGTERM; then there is the file $TOLD."""
    file = home.with_name("told")
    program = start(home, source, TOLD=str(file))
    assert program.stdout is not None
    line = program.stdout.readline()
    assert line == "ready\n", finished(program)
    program.terminate()
    file.touch()
    return finished(program)


LOOP = """
    print("ready", flush=True)
    while True:
        time.sleep(0.005)
"""


def test_a_hook_saves_and_the_program_ends_with_75(home: Path) -> None:
    code, out, err = told(
        home,
        """
        import time
        from stoker import checkpoint
        @checkpoint.on_preemption
        def save():
            checkpoint.save({"by": "hook"})
            print("hook")
        try:
        """
        + textwrap.indent(textwrap.dedent(LOOP), " " * 12)
        + """
        except Exception:
            print("swallowed")
        finally:
            print("finally")
        """,
    )
    assert (code, out.split()) == (75, ["hook", "finally"]), err
    assert checkpoint.load() == {"by": "hook"}


def test_who_asks_is_not_interrupted(home: Path) -> None:
    code, _out, err = told(
        home,
        """
        import time
        from stoker import checkpoint
        checkpoint.preempted()
        print("ready", flush=True)
        while not checkpoint.preempted():
            time.sleep(0.005)
        checkpoint.save({"by": "loop"})
        checkpoint.stop()
        """,
    )
    assert code == 75, err
    assert checkpoint.load() == {"by": "loop"}


def test_who_only_saves_is_interrupted_but_never_while_saving(home: Path) -> None:
    code, _, err = told(
        home,
        """
        import os, time
        from stoker import checkpoint
        class Slow:
            def __reduce__(self):
                print("ready", flush=True)
                while not os.path.exists(os.environ["TOLD"]):
                    time.sleep(0.01)
                return (dict, ())
        checkpoint.save([Slow()])
        print("not reached")
        """,
    )
    assert code == 75, err
    assert len(checkpoint.list()) == 1


def test_other_steps_and_children_die_as_ever(home: Path) -> None:
    code, _, err = told(home, "import time, stoker\n" + textwrap.dedent(LOOP))
    assert code == -signal.SIGTERM, err
    code, out, err = finished(
        start(
            home,
            """
            import multiprocessing, time
            from stoker import checkpoint
            checkpoint.on_preemption(lambda: print("hook", flush=True))
            ours, theirs = multiprocessing.Pipe()
            def waits():
                theirs.send("up")
                time.sleep(600)
            child = multiprocessing.get_context("fork").Process(target=waits)
            child.start(); ours.recv(); child.terminate(); child.join()
            print(child.exitcode)
            """,
        )
    )
    assert (code, out.split()) == (0, ["-15"]), err


# --- in runs ---

TRAIN = """
    import os, signal, time
    from stoker import checkpoint, pipeline, step

    @step({options})
    def train() -> int:
        state = checkpoint.load(default={{"epoch": 0, "sum": 0}})
        print("from", state["epoch"], flush=True)
        for epoch in range(state["epoch"], 6):
            state = {{"epoch": epoch + 1, "sum": state["sum"] + epoch}}
            checkpoint.save(state, step=epoch)
            if epoch == 2 and not os.path.exists("once"):
                open("once", "w").close()
                {trouble}
        return state["sum"]

    @pipeline
    def p():
        train()

    if __name__ == "__main__":
        run = p()
        step = run.steps["train"]
        print("sum", step.output.load())
"""


def attempts(folder: Path) -> list[str]:
    logs = sorted(folder.glob(".stoker/runs/*/train/0/*/stdout.log"))
    return [log.read_text().split("\n")[0] for log in logs]


@needs_engine
@pytest.mark.parametrize(
    ("trouble", "options"),
    [
        ("raise ValueError('a bad day')", "retry={'max_retries': 1, 'delay': 0}"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "retry={'max_retries': 1, 'delay': 0}"),
        ("os.kill(os.getpid(), signal.SIGTERM)", ""),
        ("checkpoint.stop()", ""),
        ("time.sleep(600)", "timeout=5, grace=0.5"),
    ],
)
def test_the_next_attempt_goes_on(tmp_path: Path, trouble: str, options: str) -> None:
    done = run_python(tmp_path, TRAIN.format(trouble=trouble, options=options))
    assert done.stdout.splitlines()[-1] == "sum 15"
    assert attempts(tmp_path) == ["from 0", "from 3"]
    assert not list(tmp_path.glob(".stoker/runs/*/train/0/checkpoints"))


@needs_engine
def test_a_new_run_starts_fresh(tmp_path: Path) -> None:
    broken = TRAIN.format(trouble="raise ValueError('a bad day')", options="")
    run_python(tmp_path, broken, ok=False)
    assert list(tmp_path.glob(".stoker/runs/*/train/0/checkpoints/*"))
    done = run_python(tmp_path, broken)
    assert done.stdout.splitlines()[-1] == "sum 15"
    assert attempts(tmp_path) == ["from 0", "from 0"]


@needs_engine
def test_ranks_that_are_told_go_on_from_rank_0(tmp_path: Path) -> None:
    done = run_python(
        tmp_path,
        """
        import os, signal, time
        from stoker import checkpoint, pipeline, step, torchrun

        @torchrun(nproc_per_node=2, max_restarts=3)
        @step
        def train() -> int:
            rank = int(os.environ["RANK"])
            state = checkpoint.load(default={"epoch": 0})
            print("from", state["epoch"], flush=True)
            now = state["epoch"]
            checkpoint.on_preemption(lambda: checkpoint.save({"epoch": now}))
            for now in range(now, 20):
                time.sleep(0.01)  # sleeps: for a signal to come between
                if now == 7 and rank == 1 and not os.path.exists("once"):
                    open("once", "w").close()
                    while not os.path.exists("reached"):
                        time.sleep(0.01)
                    os.kill(os.getpid(), signal.SIGTERM)
                    time.sleep(60)
                if now == 5 and rank == 0:
                    open("reached", "w").close()
                if now == 9 and state["epoch"] == 0:
                    time.sleep(60)
            return state["epoch"]

        @pipeline
        def p():
            train()

        if __name__ == "__main__":
            print("from", p().steps["train"].output.load())
        """,
    )
    first = int(done.stdout.split()[-1])
    assert 5 <= first <= 9, done.stdout
    tries = sorted(tmp_path.glob(".stoker/runs/*/train/0/*/gang.json"))
    assert [json.loads(t.read_text())["restarts"] for t in tries] == [0, 0]


@needs_engine
def test_a_notice_before_the_limit_calls_the_hook(tmp_path: Path) -> None:
    done = run_python(
        tmp_path,
        """
        import time
        from stoker import checkpoint, pipeline, step

        @step(timeout=60, timeout_notice=59)
        def train() -> int:
            n = checkpoint.load(default={"n": 0})["n"]
            print("from", n, flush=True)
            checkpoint.on_preemption(lambda: checkpoint.save({"n": n + 1}))
            while n == 0:
                time.sleep(0.01)
            return n

        @pipeline
        def p():
            train()

        if __name__ == "__main__":
            print("sum", p().steps["train"].output.load())
        """,
    )
    assert done.stdout.splitlines()[-1] == "sum 1" and attempts(tmp_path) == ["from 0", "from 1"]


@needs_engine
def test_an_error_of_who_was_told_is_a_preemption(tmp_path: Path) -> None:
    """Ranks whose peers have ended fail before they check; their hooks are still called."""
    trouble = """signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
                checkpoint.on_preemption(lambda: checkpoint.save({"epoch": 5, "sum": 10}))
                os.kill(os.getpid(), signal.SIGTERM)
                from stoker._worker import preemption
                preemption._state.told = True  # as the handler does, once it is let
                raise ConnectionError("the other rank is gone")"""
    done = run_python(tmp_path, TRAIN.format(trouble=trouble, options=""))
    assert done.stdout.splitlines()[-1] == "sum 15" and attempts(tmp_path) == ["from 0", "from 5"]


def test_settings() -> None:
    from stoker import pipeline, step
    from stoker._base.errors import SettingsError

    @step(timeout="10m", timeout_notice="30s", keep_checkpoints=True)
    def train() -> None: ...

    @pipeline(keep_checkpoints=False)
    def p() -> None:
        train()

    spec = p.spec()
    told = {key: spec["steps"]["train"][key] for key in ("timeout_notice", "keep_checkpoints")}
    assert told == {"timeout_notice": "30s", "keep_checkpoints": True}
    assert spec["keep_checkpoints"] is False
    with pytest.raises(SettingsError, match="keep_checkpoints is 1; it must be True or False"):
        step(keep_checkpoints=1)(lambda: None)


@needs_engine
def test_all_ranks_hear_it_and_rank_0_s_checkpoint_counts(tmp_path: Path) -> None:
    done = run_python(
        tmp_path,
        """
        import os, time
        from stoker import checkpoint, pipeline, step, torchrun

        @torchrun(nproc_per_node=2, max_restarts=3)
        @step(timeout=60, timeout_notice=57, grace=0.1)
        def train() -> int:
            rank = os.environ["RANK"]
            state = checkpoint.load(default={"by": None})
            def save():
                open("hook-" + rank, "w").close()
                time.sleep(0.5)  # sleeps: longer than grace: the notice is what they have
                checkpoint.save({"by": rank})
            checkpoint.on_preemption(save)
            while state["by"] is None:
                time.sleep(0.01)
            return int(state["by"])

        @pipeline
        def p():
            train()

        if __name__ == "__main__":
            print("by", p().steps["train"].output.load())
        """,
    )
    assert done.stdout.splitlines()[-1] == "by 0", done.stdout
    assert (tmp_path / "hook-0").exists() and (tmp_path / "hook-1").exists()
    tries = sorted(tmp_path.glob(".stoker/runs/*/train/0/*/gang.json"))
    assert [json.loads(t.read_text())["restarts"] for t in tries] == [0, 0]


@needs_engine
def test_the_program_passes_its_sigterm_on(tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text(
        textwrap.dedent(TRAIN.format(trouble="time.sleep(60)", options="grace=30"))
    )
    command = [sys.executable, "prog.py"]
    env = environment(tmp_path / ".stoker")
    program = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL)
    end = time.monotonic() + WAIT_S
    while not (tmp_path / "once").exists():
        assert time.monotonic() < end and program.poll() is None
        time.sleep(0.02)
    program.terminate()
    assert program.wait(WAIT_S) == 143
    binary = env["STOKER_BIN"]
    shown = subprocess.run([binary, "show", "--json"], cwd=tmp_path, env=env, capture_output=True)
    assert json.loads(shown.stdout)["status"] == "interrupted"
    again = subprocess.run(
        [binary, "resume"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=WAIT_S
    )
    assert again.stdout.splitlines()[-1] == "sum 15", again.stdout + again.stderr
    assert attempts(tmp_path) == ["from 0", "from 3"]
