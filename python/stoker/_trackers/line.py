"""The thread that calls a tracker."""

from __future__ import annotations

import queue
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    from .tracker import Tracker

_PATIENCE = 3  # failures in a row, after which a tracker gets nothing more


def _make(name: str) -> Tracker:
    if name == "mlflow":
        from .to_mlflow import MlflowTracker

        return MlflowTracker()
    if name == "wandb":
        from .to_wandb import WandbTracker

        return WandbTracker()
    from .to_tensorboard import TensorboardTracker

    return TensorboardTracker()


class Line(threading.Thread):
    """Calls one tracker, in order. What fails is said once."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._say = say
        self._calls: queue.SimpleQueue[Optional[Any]] = queue.SimpleQueue()
        self._n_failed = 0
        self._is_told = False
        self._tracker: Optional[Tracker] = None
        self.start()

    def put(self, method: str, *args: Any) -> None:
        """Queue a call of the tracker."""
        self._calls.put((method, args))

    def backlog(self) -> int:
        """Calls that wait."""
        return self._calls.qsize()

    def close(self) -> None:
        """No call follows."""
        self._calls.put(None)

    def run(self) -> None:
        """The thread."""
        try:
            self._tracker = _make(self.name)
        except ImportError as error:
            self._say(f"{error}; the run goes on without it")
        while True:
            call = self._calls.get()
            if call is None:
                return
            if self._tracker is not None and self._n_failed < _PATIENCE:
                self._call(*call)

    def _call(self, method: str, args: Any) -> None:
        try:
            getattr(self._tracker, method)(*args)
            self._n_failed = 0
        except BaseException as error:  # some call sys.exit
            self._n_failed = _PATIENCE if method == "begin" else self._n_failed + 1
            import traceback

            traceback.print_exc(file=sys.stderr)
            if not self._is_told:
                self._is_told = True
                title = self._tracker.title if self._tracker is not None else self.name
                text = str(error).strip().splitlines()
                what = f"{type(error).__name__}: {text[0] if text else ''}"
                self._say(f"{title} lacks parts of this run, which goes on: {what}")
