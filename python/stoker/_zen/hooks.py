"""``run_hook``, and what is recorded of hooks that are called: those of steps, and by ``run_hook``."""

from __future__ import annotations

import contextlib
import re
import traceback
import uuid
from typing import Any, Dict, Iterator, Optional

from .._base.errors import say
from .._definition.outputs import interface_of
from .._worker import context as worker
from . import context, lifetime, records, saved
from .dynamic import running_body
from .invocations import KIND
from .utilities import resolve

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_TYPES = {
    "on_start": "step_start",
    "on_end": "step_end",
    "on_success": "step_success",
    "on_failure": "step_failure",
}


def _place() -> Optional[Dict[str, Optional[str]]]:
    """The run, and the step, in which this process is; None: in none."""
    if context.StepContext.is_active():
        here = context.get_step_context()
        ids = (here.pipeline_run.id, here.step_run.id)
        return {"pipeline_run_id": str(ids[0]), "step_run_id": str(ids[1])}
    body = running_body()
    if body is None or body.head is None:
        return None
    return {"pipeline_run_id": str(records.id_of("run", body.head))}


@contextlib.contextmanager
def _of_no_step() -> Iterator[None]:
    """What is saved is none of the running step's."""
    worker._current, before = None, worker._current
    try:
        yield
    finally:
        worker._current = before


@contextlib.contextmanager
def _recorded(kind: str, name: Optional[str], hook: Any) -> Iterator[Dict[str, Any]]:
    """A call of a hook, recorded at its end; what is put into the dict is stored as its outputs."""
    outputs: Dict[str, Any] = {}
    source = str(resolve(hook)) if callable(hook) else str(hook)
    body: Dict[str, Any] = {"hook_type": kind, "name": name, "source": source}
    body.update(start_ms=records.now_ms(), status="completed")
    try:
        yield outputs
    except BaseException as bad:
        told = "".join(traceback.format_exception(type(bad), bad, bad.__traceback__))
        body.update(status="failed", error={"traceback": told, "message": str(bad)})
        raise
    finally:
        try:
            place = _place()
            if place is not None:
                with _of_no_step():
                    stored = {k: str(saved.save_artifact(v, k).id) for k, v in outputs.items()}
                one = str(uuid.uuid4())
                records.create(KIND, one, {"id": one, **body, **place, "outputs": stored})
        except Exception as bad:  # the store isn't here
            say(f"the call of hook '{name or kind}' isn't recorded: {bad}")


def run_hook(
    func: Any,
    *args: Any,
    kwargs: Optional[Dict[str, Any]] = None,
    name: Optional[str] = None,
    hook_type: Any = "custom",
    store_return: bool = False,
    track: bool = True,
) -> Any:
    """Call a hook and return what it returns; raises what it raises.

    Args:
        func: a function, or ``module.function``.
        name: of the call's record; usually the function's.
        store_return: whether what it returns is stored as artifacts.
        track: whether the call is recorded.

    Raises:
        ValueError: a name that isn't one.
    """
    if name is not None and not _NAME.fullmatch(name):
        raise ValueError(
            f"Invalid hook name: {name}: it has letters, digits, '_', '-' and '.', and begins with a "
            "letter or '_'"
        )
    if not track:
        return lifetime.call(func, *args, **(kwargs or {}))
    kind = str(getattr(hook_type, "value", hook_type))
    own = str(getattr(func, "__name__", func)).rpartition(".")[2]
    usual = own if kind == "custom" and _NAME.fullmatch(own) else None
    with _recorded(kind, name or usual, func) as outputs:
        result = lifetime.call(func, *args, **(kwargs or {}))
        if store_return:
            outputs.update(_outputs(func, result))
        return result


def _outputs(func: Any, result: Any) -> Dict[str, Any]:
    names = list(interface_of(func, getattr(func, "__name__", "hook")).outputs)
    if len(names) < 2:
        return dict(zip(names, [result]))
    if not isinstance(result, (list, tuple)) or len(result) != len(names):
        raise ValueError(f"the hook's outputs are {', '.join(names)}, but it returned {result!r}")
    return dict(zip(names, result))


def of_step(option: str, hook: Any) -> Any:
    """A context manager of the call of a step's hook, which records it."""
    return _recorded(_TYPES[option], None, hook)
