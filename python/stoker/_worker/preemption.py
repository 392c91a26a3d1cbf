"""Notice of preemption: SIGTERM from any sender (docs/formats/task-directory.md).

The first use of :mod:`stoker.checkpoint` in a step installs a handler in the main thread. Processes
that the step forks inherit it, but there SIGTERM has its default effect.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from pathlib import Path

from . import line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator, List, Optional

_VARIABLE = "STOKER_CHECKPOINT_DIR"
STATUS = 75  # EX_TEMPFAIL: saved, run me again


class Preempted(SystemExit):
    """Ends a preempted attempt; another attempt continues from the last checkpoint.

    A ``SystemExit`` with status 75: ``except Exception`` doesn't catch it, and a plain program ends
    with this status.
    """

    def __init__(self, text: str = "the step was preempted") -> None:
        super().__init__(STATUS)
        self.text = text

    def __str__(self) -> str:
        return self.text


class _State:
    """The state of one process; a forked process starts with a new one."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.armed = False
        self.told = False
        self.ended = False  # told to end because of another rank
        self.answered = False
        self.polled = False
        self.over = False  # the step's function has ended: don't raise
        self.busy = 0
        self.hooks: List[Callable[[], Any]] = []
        self.previous: Any = None


_state: Optional[_State] = None


def _mine() -> _State:
    global _state
    if _state is None or _state.pid != os.getpid():
        _state = _State()
    return _state


def arm() -> None:
    """Install the handler once in a process; only the main thread can."""
    state = _mine()
    if state.armed or threading.current_thread() is not threading.main_thread():
        return
    state.armed = True
    previous = signal.getsignal(signal.SIGTERM)
    state.previous = previous if callable(previous) and previous is not _on_signal else None
    signal.signal(signal.SIGTERM, _on_signal)


def _on_signal(number: int, frame: Any) -> None:
    if _state is None or _state.pid != os.getpid():  # a child of the step
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        return
    if line.ended_by_another():
        _state.ended = True
    else:
        _state.told = True
    _answer(number, frame)


def _answer(number: int = signal.SIGTERM, frame: Any = None) -> None:
    """Run the hooks, then raise Preempted; during a save, later."""
    state = _mine()
    if state.ended and not state.busy:
        _end(state, number, frame)
    if not state.told or state.answered or state.busy:
        return
    state.answered = True
    run_hooks(state)
    if state.previous is not None:
        state.previous(number, frame)
    elif not state.over and (state.hooks or not state.polled):
        raise Preempted("the step was preempted (SIGTERM)")


def _end(state: _State, number: int, frame: Any) -> None:
    """End by the signal, like a process without this handler."""
    if state.previous is not None:
        state.previous(number, frame)
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def directory() -> Path:
    """The task's directory, for libraries that write checkpoints themselves.

    Names with a leading dot are incomplete: Stoker removes them before the next attempt.

    Raises:
        RuntimeError: no step of Stoker is running here.
    """
    given = os.environ.get(_VARIABLE)
    if not given:
        raise RuntimeError(
            "stoker.checkpoint: no step is running here, so there is no task to keep checkpoints of; "
            f"call it within a step, or set {_VARIABLE} to try it by hand"
        )
    os.makedirs(given, exist_ok=True)
    arm()
    return Path(given)


def run_hooks(state: _State) -> None:
    state.busy += 1
    try:
        for hook in state.hooks:
            hook()
    finally:
        state.busy -= 1


@contextmanager
def deferred() -> Iterator[None]:
    """Delays the notice of preemption until the end of the block."""
    state = _mine()
    state.busy += 1
    try:
        yield
    finally:
        state.busy -= 1
    if threading.current_thread() is threading.main_thread():
        _answer()
    elif (state.ended or (state.told and not state.answered)) and not state.busy:
        os.kill(state.pid, signal.SIGTERM)  # deliver it to the main thread


def on_preemption(hook: Callable[[], Any]) -> Callable[[], Any]:
    """Call ``hook()`` in the main thread when the step is preempted; then :class:`Preempted` ends
    the step. Several hooks run in order. Also usable as a decorator in the step.

    Raises:
        RuntimeError: no step is running here, or this isn't the main thread.
    """
    directory()
    state = _mine()
    if not state.armed:
        raise RuntimeError(
            "checkpoint.on_preemption: only the main thread gets signals; call it there"
        )
    state.hooks.append(hook)
    return hook


def preempted() -> bool:
    """Whether the step was told to end. Once a step has called this, it isn't interrupted (unless
    it has hooks): it should save, and call :func:`stop` or return. After the step's ``grace`` it is
    killed.

    Raises:
        RuntimeError: no step is running here.
    """
    state = _mine()
    if not state.polled:
        directory()
        state.polled = True
    return state.told


def stop(text: str = "the step was preempted") -> None:
    """End this attempt; another one continues from the last checkpoint.

    Raises:
        Preempted: always.
    """
    raise Preempted(text)


def ended(failed: bool) -> bool:
    """The worker calls this when the step's function has ended; from here on SIGTERM raises
    nothing.

    If the function failed, runs hooks that are still due: the end of other ranks can make a rank
    fail before it handles its own signal.

    Returns:
        Whether the step was told to end.
    """
    state = _mine()
    state.over = True
    if failed and state.told and not state.answered:
        state.answered = True
        run_hooks(state)
    return state.told
