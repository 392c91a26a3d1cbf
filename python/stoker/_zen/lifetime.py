"""The life of a run in this process: what its init hook returned is the steps' ``pipeline_state``,
and the cleanup hook ends it.

Steps are forked from the program, so they have the state. A step in a process that isn't (another
machine, a container, an interpreter of its own) calls both hooks itself, as in ZenML.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, Dict, Iterator, List, Mapping, Optional

from .._base import registry
from .._base.errors import warn
from .._worker.resolve import resolve_callable
from . import errors

OPTIONS = ("on_init", "on_init_kwargs", "on_cleanup")

_states: List[Any] = []  # of the run that lives here, innermost last


def state() -> Any:
    """What the init hook returned; None: there is none."""
    return _states[-1] if _states else None


def call(hook: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a hook, a function or ``module.function``; an asynchronous one to its end."""
    if isinstance(hook, str):
        module, _, name = hook.replace(":", ".").rpartition(".")
        hook = resolve_callable(module, name)
    result = hook(*args, **kwargs)
    if hasattr(result, "__await__"):
        import asyncio

        return asyncio.run(result)
    return result


def name_of(hook: Any) -> Optional[str]:
    """``module:function`` of a hook, or None."""
    if callable(hook):
        return f"{hook.__module__}:{getattr(hook, '__qualname__', type(hook).__qualname__)}"
    return None if hook is None else str(hook)


def told(options: Mapping[str, Any]) -> Dict[str, Any]:
    """A pipeline's hooks for its document; empty without any."""
    if not (options.get("on_init") or options.get("on_cleanup")):
        return {}
    names = {k: name_of(options.get(k)) for k in ("on_init", "on_cleanup")}
    return {"lifetime": {**names, "on_init_kwargs": options.get("on_init_kwargs")}}


@contextlib.contextmanager
def temporary_environment(environment: Dict[str, str]) -> Iterator[None]:
    """Variables of the environment within a ``with``; what the body changes stays."""
    before = {key: os.environ.get(key) for key in environment}
    os.environ.update(environment)
    try:
        yield
    finally:
        for key, old in before.items():
            if os.environ.get(key) != environment[key]:
                continue
            if old is None:
                del os.environ[key]
            else:
                os.environ[key] = old


@contextlib.contextmanager
def living(
    pipeline: str, options: Mapping[str, Any], environment: Mapping[str, str]
) -> Iterator[None]:
    """A run between its two hooks, which get the pipeline's environment.

    Raises:
        HookExecutionException: the init hook failed; what the cleanup hook raises is a warning.
    """
    begins, ends = options.get("on_init"), options.get("on_cleanup")
    made = None
    if begins is not None:
        try:
            with temporary_environment(dict(environment)):
                made = call(begins, **(options.get("on_init_kwargs") or {}))
        except Exception as bad:
            failed = errors.__getattr__("HookExecutionException")
            raise failed(f"Failed to execute init hook for pipeline {pipeline}: {bad}") from bad
    _states.append(made)
    try:
        yield
    finally:
        try:
            if ends is not None:
                with temporary_environment(dict(environment)):
                    call(ends)
        except Exception as bad:
            warn(f"pipeline '{pipeline}': the cleanup hook failed: {type(bad).__name__}: {bad}")
        _states.pop()


@contextlib.contextmanager
def within(task: Mapping[str, Any]) -> Iterator[None]:
    """A step's function; where the run doesn't live in this process, between the run's hooks."""
    options = ((task.get("extra") or {}).get("zenml") or {}).get("lifetime")
    if not options or _states:
        yield
        return
    with living(str(task.get("pipeline")), options, {}):
        yield


registry.around.append(within)
