"""Errors of flows, under the names that programs catch.

Each is a :class:`MetaflowException`: ``headline`` is its kind, ``message`` its sentence.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterable, List, Optional

from .._base.errors import StokerError, did_you_mean


def told(sentence: Exception) -> Exception:
    """Mark a builtin exception as a message for the flow's author, whose traceback has no frames of
    this package."""
    sentence._stoker_told = True  # type: ignore[attr-defined]
    return sentence


class MetaflowException(StokerError):
    """Base of all errors of flows.

    Args:
        msg: the sentence.
        lineno, source_file: the place in the flow's source.
    """

    headline = "Flow failed"

    def __init__(
        self, msg: str = "", lineno: Optional[int] = None, source_file: Optional[str] = None
    ) -> None:
        self.message = msg
        self.line_no = lineno
        self.source_file = source_file
        super().__init__(msg)

    def __str__(self) -> str:
        place = ":".join(str(one) for one in (self.source_file, self.line_no) if one)
        return f"{place}: {self.message}" if place else self.message


class MetaflowExceptionWrapper(Exception):
    """The object that ``@catch`` stores; it can be pickled, whatever was raised.

    Attributes:
        exception: its text. type: its class, with the module. step: the step that raised it.
        stacktrace: its traceback, or None.
    """

    exception: str
    type: str
    step: Optional[str]
    stacktrace: Optional[str]

    def __init__(self, exc: Optional[BaseException] = None) -> None:
        super().__init__()
        if exc is None:
            return
        import traceback

        from .._worker.frameworks import text_of

        kind = exc.__class__
        self.exception = text_of(exc)
        self.type = f"{kind.__module__}.{kind.__name__}"
        self.step = None
        trace = exc.__traceback__
        lines = traceback.format_exception(kind, exc, trace) if trace is not None else None
        self.stacktrace = "".join(lines) if lines else None

    def __reduce__(self) -> Any:
        return MetaflowExceptionWrapper, (None,), self.__dict__

    def __setstate__(self, state: Dict[str, Any]) -> None:  # type: ignore[override]
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        return self.stacktrace or f"[no stacktrace]\n{self.type}: {self.exception}"


class WrongValue(MetaflowException):
    """A parameter or configuration got a wrong value; exit status 2."""


class ParameterFieldFailed(MetaflowException):
    """A function that computes a parameter's field raised."""

    headline = "Parameter field failed"

    def __init__(self, name: str, field: str) -> None:
        import traceback

        raised = sys.exc_info()[1]
        super().__init__(
            f"parameter '{name}': the function of its {field} raised "
            f"{type(raised).__name__}: {raised}\n\n{traceback.format_exc()}"
        )


class ParameterFieldTypeMismatch(MetaflowException):
    """A parameter's field is of another type than the parameter."""

    headline = "Parameter field with a mismatching type"


class ExternalCommandFailed(MetaflowException):
    """A program that was called failed."""

    headline = "External command failed"


class MetaflowNotFound(MetaflowException):
    """No such flow, run, step, task or artifact."""

    headline = "Object not found"


class MetaflowNamespaceMismatch(MetaflowException):
    """It exists, but in another namespace."""

    headline = "Object not in the current namespace"

    def __init__(self, namespace: Optional[str], what: str = "it") -> None:
        super().__init__(
            f"{what} is not in the namespace '{namespace}': call namespace(None) to see all runs"
        )


class MetaflowInvalidPathspec(MetaflowException):
    """A name of the form FLOW/RUN/STEP/TASK was expected."""

    headline = "Invalid pathspec"


class MetaflowInternalError(MetaflowException):
    """A fault in Stoker."""

    headline = "Internal error"


class MetaflowTaggingError(MetaflowException):
    """A tag is invalid."""

    headline = "Tagging error"


class MetaflowUnknownUser(MetaflowException):
    """The user's name is unknown."""

    headline = "Unknown user"

    def __init__(self) -> None:
        super().__init__("your user name is unknown; set USER or METAFLOW_USER")


class InvalidDecoratorAttribute(MetaflowException):
    """A decorator has no such attribute."""

    headline = "Unknown decorator attribute"

    def __init__(self, deconame: str, attr: str, defaults: Iterable[str]) -> None:
        known = list(defaults)
        has = f"it has {', '.join(known)}" if known else "it has none"
        hint = did_you_mean(attr, known)
        super().__init__(f"@{deconame} has no attribute '{attr}': {has}{hint}")


class BadStepDecoratorException(MetaflowException):
    """A step's decorator isn't on a step."""

    headline = "Syntax error"

    def __init__(self, deco: str, func: Any) -> None:
        name = getattr(func, "__name__", str(func))
        super().__init__(
            f"@{deco} is on '{name}', which is not a step: put @step on the line just above "
            f"`def {name}` and @{deco} above @step"
        )


class BadFlowDecoratorException(MetaflowException):
    """A flow's decorator isn't on a flow."""

    headline = "Syntax error"

    def __init__(self, deconame: str) -> None:
        super().__init__(f"@{deconame} decorates a flow: put it above `class …(FlowSpec):`")


class UnknownStepDecoratorException(MetaflowException):
    """There is no decorator of that name, and none of the stacks, where one could stand."""

    headline = "Unknown step decorator"

    def __init__(self, deconame: str, known: Iterable[str], stacks: Iterable[str] = ()) -> None:
        names, places = sorted(known), list(stacks)
        more = f"; the stacks of stoker.yaml are {', '.join(places)}" if places else ""
        super().__init__(
            f"there is no decorator '{deconame}' for steps: there are {', '.join(names)}{more}"
            f"{did_you_mean(deconame, [*places, *names])}"
        )


class DuplicateStepDecoratorException(MetaflowException):
    """A step has the same decorator twice."""

    headline = "Duplicate decorators"

    def __init__(self, deco: str, step: str) -> None:
        super().__init__(f"step '{step}' has @{deco} twice: combine them in one")


class DuplicateFlowDecoratorException(MetaflowException):
    """A flow has the same decorator twice."""

    headline = "Duplicate decorators"

    def __init__(self, deco: str) -> None:
        super().__init__(f"the flow has @{deco} twice: combine them in one")


class CommandException(MetaflowException):
    """A command line is wrong."""

    headline = "Invalid command"


class InvalidEnvironmentException(MetaflowException):
    """The packages of a step can't be had."""

    headline = "Incompatible environment"


class MetaflowDataMissing(MetaflowException):
    """An artifact's data is missing."""

    headline = "Data missing"


class LintWarn(MetaflowException):
    """The flow's graph has a fault."""

    headline = "Validity checker found an issue"


class InvalidNextException(MetaflowException):
    """A ``self.next`` is wrong."""

    headline = "Invalid self.next() transition detected"


class UnhandledInMergeArtifactsException(MetaflowException):
    """Branches have different values of artifacts; ``artifact_names`` lists these."""

    headline = "Unhandled artifacts in merge"

    def __init__(self, msg: str, unhandled: List[str]) -> None:
        super().__init__(msg)
        self.artifact_names = unhandled


class MissingInMergeArtifactsException(MetaflowException):
    """No branch has the artifacts to merge; ``artifact_names`` lists these."""

    headline = "Missing artifacts in merge"

    def __init__(self, msg: str, unhandled: List[str]) -> None:
        super().__init__(msg)
        self.artifact_names = unhandled


class FailureHandledByCatch(MetaflowException):
    """The object that ``@catch`` stores if the task ended without an exception (a signal, out of
    memory …)."""

    headline = "Task execution failed but @catch handled it"


class TimeoutException(MetaflowException):
    """``@timeout``'s time is over."""

    headline = "@timeout"


class NoRunError(MetaflowException, RuntimeError):
    """A program that ``Runner`` started has no run."""

    headline = "No run"


class TorchrunException(MetaflowException):
    """``current.torch.run``: the processes could not be started, or one of them failed; the
    sentence names it."""

    headline = "torchrun"


class DeepspeedException(MetaflowException):
    """``current.deepspeed.run``: as :class:`TorchrunException`."""

    headline = "deepspeed"
