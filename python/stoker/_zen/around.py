"""What components of the program's own do around a step.

A stack has those that it was registered with. A step operator launches the command that runs the step
in a process of its own; other components prepare a step and clean up after it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Any, Dict, Iterator, List, Mapping, Optional

from .._base import registry
from .._base.errors import say
from . import context, own, records, stacks

_WITHIN = "STOKER_LAUNCHED"  # the attempt's folder, in the process that a step operator launched


class StepRunInfo:
    """A step's run, for a component."""

    def __init__(self, here: context.StepContext) -> None:
        self._here = here
        self.step_run = here.step_run
        self.step_run_id, self.run_id = here.step_run.id, here.pipeline_run.id
        self.run_name = here.pipeline_run.name
        self.pipeline_step_name = here.step_run.name

    def __getattr__(self, name: str) -> Any:
        step = self.__dict__["_here"].pipeline_run.steps.get(self.pipeline_step_name)
        if name in ("config", "spec"):
            return getattr(step or self.step_run, name)
        if name == "pipeline":
            return self._here.pipeline_run.config
        raise AttributeError(f"Stoker's StepRunInfo has no '{name}'")

    def force_write_logs(self) -> None:
        """Nothing to do: the engine has the logs as they come."""

    def get_image(self, key: str) -> str:
        """Raises RuntimeError: no image is built for steps of this machine."""
        raise RuntimeError(f"there is no image of '{key}': the step runs on this machine")


def parts_of(stack: str) -> Dict[str, List[str]]:
    """Kind → names of a stack's components that are the program's own.

    Raises:
        StackValidationError: one of them refuses the stack.
    """
    record = records.get("stack", stack) if stack != "default" else None
    made_of = record.body["components"] if record is not None else {}
    if not any(kind in own.KINDS for kind in made_of):
        return {}
    whole = next(one for one in stacks.stacks() if one.name == stack)
    whole.validate()
    return {
        kind: [one.name for one in some if own.is_own(kind, one.flavor)]
        for kind, some in whole.parts.items()
        if any(own.is_own(kind, one.flavor) for one in some)
    }


def take(step: Dict[str, Any], parts: Mapping[str, List[str]]) -> None:
    """Write into a step's document which of its stack's components do something for it."""
    extra = step.get("extra") or {}
    kept = dict(extra.get("zenml") or {})
    mine = dict(parts)
    trackers, asked = mine.pop("experiment_tracker", []), kept.get("experiment_tracker")
    chosen = [one for one in trackers if asked in (True, one)]
    operators = mine.pop("step_operator", [])
    named = (
        (step.get("backend") or {}).get("stack") if isinstance(step.get("backend"), dict) else ""
    )
    operator = operators[0] if kept.get("step_operator") is True and operators else named
    if operator in operators:
        step.pop("backend", None)
        kept["operator"] = operator
        mine["step_operator"] = [operator]
    if chosen:
        mine["experiment_tracker"] = chosen
    step["extra"] = {**extra, "zenml": {**kept, "own": mine}}


def _kept(task: Mapping[str, Any]) -> Dict[str, Any]:
    return dict((task.get("extra") or {}).get("zenml") or {})


def _find(kind: str, name: str) -> Any:
    return stacks.component(kind, name).part


@contextlib.contextmanager
def within(task: Mapping[str, Any]) -> Iterator[None]:
    """A task's function between what its stack's components do before and after it."""
    mine = _kept(task).get("own") or {}
    if not mine or int(task.get("rank") or 0):
        yield
        return
    parts = [_find(kind, name) for kind, names in mine.items() for name in names]
    here = context.get_step_context()
    info, failed = StepRunInfo(here), True
    for part in parts:
        part.prepare_step_run(info)
    try:
        yield
        failed = False
    finally:
        for part in parts:
            here._metadata.update(part.get_step_run_metadata(info))
        for part in parts:
            part.cleanup_step_run(info, failed)


def launch(task: Mapping[str, Any], directory: str, main_file: Optional[str]) -> bool:
    """Let a step's operator launch the process that runs it and writes its result; False: it has
    none, or this is that process.

    Raises:
        RuntimeError: the operator came back, but the step didn't run.
    """
    name = _kept(task).get("operator")
    if not name or os.environ.get(_WITHIN) == directory:
        return False
    operator, info = _find("step_operator", name), StepRunInfo(context.get_step_context())
    command = [sys.executable, "-m", f"{__package__}.launched", directory]
    file = main_file or getattr(sys.modules.get("__main__"), "__file__", None)
    command += ["--main", os.path.abspath(file)] if file else []
    ours = {k: v for k, v in os.environ.items() if k.startswith(("STOKER_", "ZENML_", "PYTHON"))}
    environment = {**ours, "ZENML_STEP_OPERATOR": "True", _WITHIN: directory}
    result = os.path.join(directory, "result.json")
    try:
        if callable(getattr(operator, "launch", None)):
            operator.launch(info=info, entrypoint_command=command, environment=environment)
        else:
            operator.submit(info=info, entrypoint_command=command, environment=environment)
            operator.wait(info.step_run)
    except Exception:
        if not os.path.exists(result):  # else the step's own result says more
            raise
        traceback.print_exc()
    operator.cleanup_step_submission(info.step_run)
    if not os.path.exists(result):
        raise RuntimeError(
            f"step operator '{name}' came back, but the step didn't run: it must run the "
            "entrypoint_command to its end, with the environment that it is given"
        )
    return True


# ---------------------------------------------------------------------------- alerts


def _alert(what: str, more: str, otherwise: str) -> None:
    alerter: Any = stacks.active().alerter
    if alerter is None:
        return say(otherwise)
    here = context.get_step_context()
    alerter.post(
        f"*{what}*\n\nPipeline name: `{here.pipeline.name}`\nRun name: `{here.pipeline_run.name}`\n"
        f"Step name: `{here.step_run.name}`\nParameters: `{here.step_run.config.parameters}`\n{more}"
    )
    return None


def alerter_failure_hook(exception: BaseException) -> None:
    """Post with the active stack's alerter that the step failed; without one, log it."""
    step, named = context.get_step_context().step_name, type(exception).__name__
    told = "".join(traceback.format_exception(type(exception), exception, exception.__traceback__))
    _alert(
        "Failure Hook Notification! Step failed!",
        f"Exception: `({type(exception)}) {told}`\n\n",
        f"step '{step}' failed: {named}: {exception}",
    )


def alerter_success_hook() -> None:
    """Post with the active stack's alerter that the step succeeded; without one, log it."""
    done = f"step '{context.get_step_context().step_name}' succeeded"
    _alert("Success Hook Notification! Step completed successfully", "", done)


registry.around.append(within)
registry.launch.append(launch)
