"""Steps that fail, take too long, or have run before: @retry, @timeout, @catch, @cache."""

from __future__ import annotations

import signal
import sys
from typing import Any, Dict, List

from ..exception import (
    FailureHandledByCatch,
    MetaflowException,
    MetaflowExceptionWrapper,
    TimeoutException,
)
from ._base import StepDecorator

_HANDLED = f"{FailureHandledByCatch.__module__}.{FailureHandledByCatch.__name__}"
# If Python can't interrupt a step, the engine ends it this long after its time.
_ENGINE_LATER_S = 5


class Retry(StepDecorator):
    """``@retry(times=3, minutes_between_retries=2)``.

    If minutes are given, the next attempt waits that long, wherever the step runs. Without them it
    follows at once, as in Metaflow on your own machine.
    """

    name = "retry"
    defaults: Dict[str, Any] = {"times": 3, "minutes_between_retries": None}

    def init(self) -> None:
        for key in ("times", "minutes_between_retries"):
            value = self.attributes[key]
            try:
                right = value is None or float(value) >= 0
            except (TypeError, ValueError):
                right = False
            if not right or (key == "times" and value is None):
                raise MetaflowException(
                    f"@retry: {key} is {value!r}; it must be a number from 0 on"
                )

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        minutes = float(self.attributes["minutes_between_retries"] or 0)
        return {"retry": {"max_retries": int(self.attributes["times"]), "delay": minutes * 60}}


class Timeout(StepDecorator):
    """``@timeout(seconds=30, minutes=0, hours=0)``: the sum.

    When the time is over, the step gets a :class:`TimeoutException`. If that has no effect (in a
    call into C that doesn't return), the engine ends the task five seconds later.
    """

    name = "timeout"
    defaults: Dict[str, Any] = {"seconds": 0, "minutes": 0, "hours": 0}

    def init(self) -> None:
        said = self.attributes
        try:
            self.secs = int(
                int(said["hours"]) * 3600 + int(said["minutes"]) * 60 + int(said["seconds"])
            )
        except (TypeError, ValueError):
            raise MetaflowException(
                f"{self!r}: seconds, minutes and hours are whole numbers"
            ) from None
        if self.secs <= 0:
            raise MetaflowException("@timeout: give seconds, minutes or hours, above 0")

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        return {"timeout": self.secs + _ENGINE_LATER_S}

    def task_begin(self, running: Any) -> None:
        if running.declared.get("fallback"):
            return

        def over(number: int, frame: Any) -> None:
            raise TimeoutException(
                f"step '{running.step}' timed out after {_time(self.attributes)} (@timeout)"
            )

        signal.signal(signal.SIGALRM, over)
        signal.alarm(self.secs)

    def task_end(self, running: Any) -> None:
        signal.alarm(0)

    def task_failed(self, running: Any, error: Exception) -> bool:
        signal.alarm(0)
        return False


def _time(said: Dict[str, Any]) -> str:
    parts = [f"{int(said[key])} {key}" for key in ("hours", "minutes", "seconds") if int(said[key])]
    return ", ".join(parts)


class Catch(StepDecorator):
    """``@catch(var="failed")``: after the last attempt fails, the flow continues with the exception
    in ``self.failed``.

    The stored object has ``exception`` (text), ``type``, ``step`` and ``stacktrace``; after success
    it is None.
    """

    name = "catch"
    defaults: Dict[str, Any] = {"var": None, "print_exception": True}

    def check(self, node: Any, graph: Any) -> None:
        if node.type in ("foreach", "split-switch"):
            what = "splits by foreach" if node.type == "foreach" else "switches"
            raise MetaflowException(
                f"step '{node.name}' {what}, so it can't have @catch: after a failure the next "
                "step is unknown; move the work that may fail into a separate step"
            )

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        return {"fallback": True}

    def task_end(self, running: Any) -> None:
        self._keep(running, None)

    def task_failed(self, running: Any, error: Exception) -> bool:
        fallback = running.declared.get("fallback")
        if not fallback and (not running.last_attempt or running.attempt.rank is not None):
            return False  # another attempt follows; the engine handles a gang's failure
        from ..._engine.metadata import log_metadata
        from ..._worker.failures import Stopped, traceback_of

        caught = MetaflowExceptionWrapper(error)
        caught.stacktrace = traceback_of(error)  # without frames of this package
        if isinstance(error, Stopped):  # sys.exit: not an exception of the step's code
            caught.type = _HANDLED
        if fallback:
            _tell_of(caught, fallback)
        caught.step = running.step
        if self.attributes["print_exception"]:
            lines = "".join(f">  {line}\n" for line in str(caught).splitlines())
            sys.stdout.write(f"@catch caught an exception from {running.flow}\n{lines}")
        self._keep(running, caught)
        killed = bool(fallback) and not fallback.get("type")
        log_metadata({"caught": {**_record_of(caught), **({"killed": True} if killed else {})}})
        return True

    def _keep(self, running: Any, value: Any) -> None:
        if self.attributes["var"]:
            running.set(str(self.attributes["var"]), value)


def _record_of(caught: MetaflowExceptionWrapper) -> Dict[str, Any]:
    """The metadata by which the client knows that @catch made the task succeed."""
    facts = {"type": caught.type, "message": caught.exception, "traceback": caught.stacktrace}
    return {**facts, "text": f"{caught.type}: {caught.exception}"}


def _tell_of(caught: MetaflowExceptionWrapper, fallback: Dict[str, Any]) -> None:
    """Fill in the failure that the engine saw: the last attempt's exception, or how its process
    ended."""
    kind = fallback.get("type")
    if kind:
        caught.type = kind if "." in kind else f"builtins.{kind}"
        known = (fallback.get(key) for key in ("raw", "message", "text"))
        caught.exception = str(next(filter(None, known), ""))
    else:
        caught.type = _HANDLED
        caught.exception = str(fallback.get("text") or fallback.get("message"))
    caught.stacktrace = fallback.get("traceback")


class Cache(StepDecorator):
    """``@cache``: takes the step's result from an earlier run if its code and all its inputs are
    the same."""

    name = "cache"
    defaults: Dict[str, Any] = {"enabled": True, "expires": None, "files": None, "salt": None}

    def settings(self, decorators: List[Any]) -> Dict[str, Any]:
        return {"cache": {"enabled": True, **self.given}}
