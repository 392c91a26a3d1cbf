"""What a rank reports to the watchdog: PyTorch's counters, and the position of its main thread."""

from __future__ import annotations

import json
import sys
import threading
import types
from pathlib import Path
from typing import Any, Callable

import pytest

from stoker._worker.pulse import Pulse, collective_of


class Standing:
    """A thread that waits in a function until it is released."""

    def __init__(self, what: Callable[[threading.Event], None]) -> None:
        self.go = threading.Event()
        self.there = threading.Event()

        def run() -> None:
            what(self.go)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def __enter__(self) -> int:
        assert self.thread.ident is not None
        while not self.go._cond._waiters:  # type: ignore[attr-defined]
            pass
        return self.thread.ident

    def __exit__(self, *_: Any) -> None:
        self.go.set()
        self.thread.join()


def all_reduce(go: threading.Event) -> None:
    go.wait()


def user_code_in_a_collective(go: threading.Event) -> None:
    def barrier() -> None:
        hook()

    def hook() -> None:
        go.wait()

    barrier()


def test_only_the_innermost_function_tells(tmp_path: Path) -> None:
    with Standing(all_reduce) as ident:
        frame = collective_of(sys._current_frames()[ident])
        assert frame is not None and frame.f_code.co_name == "all_reduce"
        assert Pulse(str(tmp_path), ident).state()["waits"] is True
    with Standing(user_code_in_a_collective) as ident:
        assert collective_of(sys._current_frames()[ident]) is None
        assert Pulse(str(tmp_path), ident).state() == {"waits": False, "groups": {}, "calls": 0}


def test_each_call_is_told_apart(tmp_path: Path) -> None:
    """One call counts once, however often it is read; the next call on the same line is another."""
    turns = [threading.Event() for _ in range(2)]

    def loop(_: threading.Event) -> None:
        for turn in turns:
            all_reduce(turn)

    thread = threading.Thread(target=loop, args=(turns[0],), daemon=True)
    thread.start()
    pulse = Pulse(str(tmp_path), thread.ident)

    def looks() -> list[int]:
        return [pulse.state()["calls"] for _ in range(5)]

    def standing_in(turn: threading.Event) -> None:
        while not turn._cond._waiters:  # type: ignore[attr-defined]
            pass

    standing_in(turns[0])
    assert looks() == [0] * 5
    turns[0].set()
    standing_in(turns[1])
    assert looks() == [1] * 5
    turns[1].set()
    thread.join()


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A stand-in for PyTorch's; tests/launch/test_hang.py has the real one."""
    account: dict[str, Any] = {"pg_status": {}, "entries": []}
    module = types.ModuleType("torch._C._distributed_c10d")
    module._dump_fr_trace_json = lambda entries, active: json.dumps(account)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return account


def status(issued: int, done: int) -> dict[str, str]:
    return {"last_enqueued_collective": str(issued), "last_completed_collective": str(done)}


def test_counters_of_the_recorder(tmp_path: Path, recorder: dict[str, Any]) -> None:
    pulse = Pulse(str(tmp_path), 1)
    recorder["pg_status"] = {"0": status(5, 5), "1": status(-1, -1)}
    assert pulse.state() == {"waits": False, "groups": {"0": [5, 5]}, "calls": 0}
    recorder["pg_status"] = {"0": status(5, 5), "1": status(2, -1)}
    recorder["entries"] = [
        {"pg_id": 1, "collective_seq_id": 1, "profiling_name": "nccl:barrier"},
        {"pg_id": 1, "collective_seq_id": 2, "profiling_name": "nccl:all_gather"}
        | {"input_sizes": [[4, 2], [8]], "input_dtypes": ["Float", "Half"]},
    ]
    assert pulse.state(named=True) == {
        **{"waits": True, "groups": {"0": [5, 5], "1": [2, 0]}, "group": "1", "calls": 0},
        "op": "nccl:all_gather of 4x2, 8 Float, Half",
    }
    kept = json.loads((tmp_path / "flight.json").read_text())
    assert kept["_dump_fr_trace_json"] == recorder


def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    pulse = Pulse(str(tmp_path))
    pulse.write({"waits": False})
    first = (tmp_path / "pulse.json").stat().st_ino
    pulse.write({"waits": False})
    assert (tmp_path / "pulse.json").stat().st_ino == first
    pulse.write({"waits": True})
    assert json.loads((tmp_path / "pulse.json").read_text()) == {"waits": True}
