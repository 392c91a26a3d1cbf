"""``CommandStep``: a step that is a command, run where its step operator says."""

from __future__ import annotations

import inspect
import subprocess
import textwrap
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from .._base.errors import StepInterfaceError
from .._decorators.step import _plain_calls
from .._definition.graph import active_graph
from .._definition.layers import HOOKS, merge
from .._worker.context import in_task
from . import stacks
from .errors import StackValidationError
from .pipelines import ZenPipeline, ZenStep, to_finish

Command = Union[List[str], Callable[[], Any]]


class CommandStep(ZenStep):
    """A step without inputs and outputs that runs a command, or the text of a function.

    A static pipeline runs it on a step operator, in its image and without Python; a dynamic one
    can run it here. It is never cached and takes no hooks.

    Example::

        CommandStep(["torchrun", "train.py"], name="train", step_operator="gpus")()
    """

    def __init__(self, command: Command, **options: Any) -> None:
        words: Any = command_of(command) if callable(command) else command
        if not words:
            raise StepInterfaceError("the command of a command step is empty")
        super().__init__(None, {**options, "enable_cache": False})
        if self.signature.parameters or self.outputs:
            raise StepInterfaceError(
                f"command step '{self.name}' has neither inputs nor outputs: leave `entrypoint` as it is"
            )
        kept: Dict[str, Any] = {"command": words}
        if options.get("step_operator") is True:
            kept["any_operator"] = True
        self.layer = merge(self.layer, {"extra": {"zenml": kept}})

    def _apply(self, options: Mapping[str, Any], merging: bool) -> None:
        if any(options.get(hook) for hook in HOOKS):
            raise StepInterfaceError(
                f"command step '{options.get('name') or self.name}' takes no hooks: a command can't "
                "call them"
            )
        super()._apply(options, merging)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Add it to the pipeline whose body is running; elsewhere run a pipeline of this step."""
        if active_graph() is not None or in_task() or _plain_calls():
            return super().__call__(*args, **kwargs)
        ZenPipeline(
            lambda: super(CommandStep, self).__call__(*args, **kwargs), {"name": self.name}
        )()
        return None

    def entrypoint(self) -> None:
        """Run the command here; raises CalledProcessError."""
        subprocess.run(_command(self.layer) or (), check=True)


def _command(part: Mapping[str, Any]) -> Optional[Sequence[str]]:
    kept = (part.get("extra") or {}).get("zenml") or {}
    found: Optional[Sequence[str]] = kept.get("command")
    return found


def command_of(func: Callable[[], Any]) -> List[str]:
    """The command that runs a function's text in another Python.

    Raises:
        StepInterfaceError: its text alone isn't the function.
    """
    name = getattr(func, "__name__", repr(func))
    if not inspect.isfunction(func) or name == "<lambda>":
        raise StepInterfaceError(f"a command step takes a command or a function, not {name}")
    why = None
    if hasattr(func, "__wrapped__"):
        why = "is decorated"
    elif func.__closure__ is not None:
        why = "uses names of the function around it"
    elif inspect.signature(func).parameters:
        why = "has parameters"
    try:
        text = textwrap.dedent(inspect.getsource(func))
    except (OSError, TypeError):
        why, text = "has no text that can be read", ""
    if text.startswith("@"):
        why = "is decorated"
    code = f"{text}\n{name}()\n"
    try:
        compile(code, "<command step>", "exec")
    except SyntaxError as bad:
        why = f"can't be compiled alone ({bad})"
    if why is not None:
        raise StepInterfaceError(
            f"function '{name}' can't be a command: it {why}; its text is run by another Python"
        )
    return ["python", "-c", code]


def _finish(pipeline: ZenPipeline, name: str, step: Dict[str, Any]) -> None:
    """Make a document's step a command if it is one and has a place to run.

    Raises:
        StackValidationError: a static pipeline's has none, or none that the project has.
    """
    words = _command(step)
    if words is None:
        return
    step.pop("hooks", None)  # the pipeline's
    kept = step["extra"]["zenml"]
    if kept.pop("any_operator", False) and step.get("backend") is None:
        operator = stacks.active().step_operator
        if operator is not None:
            step["backend"] = {"stack": operator.name}
    place = step.get("backend")
    wanted = place.get("stack") if isinstance(place, dict) else None
    known = [one.name for one in stacks.stacks()] if wanted else []
    if wanted and wanted not in known:
        raise StackValidationError(
            f"command step '{name}' asks for step operator '{wanted}', which the stack hasn't; "
            f"there are {', '.join(known)}"
        )
    if place not in (None, "local"):
        for key in ("python", "code", "uses", "isolation"):
            step.pop(key, None)
        step["run"] = [words] if isinstance(words, str) else list(words)
    elif not pipeline.is_dynamic:
        raise StackValidationError(
            f"command step '{name}' in a static pipeline needs a step operator: give it "
            "step_operator=NAME of a stack in stoker.yaml, or make the pipeline dynamic"
        )


to_finish.append(_finish)
