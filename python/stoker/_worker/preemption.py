"""Hearing that the attempt is about to end: SIGTERM, from whomever (docs/formats/task-directory.md).

The first use of :mod:`stoker.checkpoint` in a step arms it: a handler in the main thread. A process that the step
forks has the handler too, but isn't the step: there SIGTERM does what it always did.
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
STATUS = 75  # EX_TEMPFAIL: saved, to be run again


class Preempted(SystemExit):
    """Ends the attempt: it was told to, another one is to go on from the last checkpoint.

    A ``SystemExit`` with status 75, so that ``except Exception`` lets it pass and a plain program ends by that.
    """

    def __init__(self, text: str = "the step was preempted") -> None:
        super().__init__(STATUS)
        self.text = text

    def __str__(self) -> str:
        return self.text


class _State:
    """Of one process: a fork begins with nothing of it."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.armed = False
        self.told = False
        self.ended = False  # told to end, because of another rank
        self.answered = False
        self.polled = False
        self.over = False  # the step's function has ended: nothing is raised any more
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
    """Install the handler, once a process; only the main thread can."""
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
    """Hooks, then the exception; later, where something is being saved."""
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
    """As a process without a handler, or with another one, ends by the signal."""
    if state.previous is not None:
        state.previous(number, frame)
        return
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def directory() -> Path:
    """The task's directory, for libraries that write checkpoints themselves.

    What has a name with a leading dot isn't complete: it is removed before the next attempt.

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
    """What is done inside is finished before the step hears that it is preempted."""
    state = _mine()
    state.busy += 1
    try:
        yield
    finally:
        state.busy -= 1
    if threading.current_thread() is threading.main_thread():
        _answer()
    elif (state.ended or (state.told and not state.answered)) and not state.busy:
        os.kill(state.pid, signal.SIGTERM)  # again, for the main thread


def on_preemption(hook: Callable[[], Any]) -> Callable[[], Any]:
    """Have ``hook()`` called in the main thread when the step is preempted; then the step ends by
    :class:`Preempted`. Several are called in order; usable as a decorator within the step.

    Raises:
        RuntimeError: no step is running here, or this isn't the main thread.
    """
    directory()
    state = _mine()
    if not state.armed:
        raise RuntimeError(
            "checkpoint.on_preemption: only the main thread can be told of signals; call it there"
        )
    state.hooks.append(hook)
    return hook


def preempted() -> bool:
    """Whether the step was told to end. Who asks isn't interrupted (unless it has hooks): it saves, and calls
    :func:`stop` or returns; after the step's ``grace`` it is killed.

    Raises:
        RuntimeError: no step is running here.
    """
    state = _mine()
    if not state.polled:
        directory()
        state.polled = True
    return state.told


def stop(text: str = "the step was preempted") -> None:
    """End this attempt; another one is to go on from the last checkpoint.

    Raises:
        Preempted: always.
    """
    raise Preempted(text)


def ended(failed: bool) -> bool:
    """The step's function has ended (the worker says so): the signal raises nothing any more.

    Hooks that it owes are run now, where the function failed: what ends a rank's peers can fail it
    before it hears of the signal itself.

    Returns:
        Whether the step was told to end.
    """
    state = _mine()
    state.over = True
    if failed and state.told and not state.answered:
        state.answered = True
        run_hooks(state)
    return state.told
