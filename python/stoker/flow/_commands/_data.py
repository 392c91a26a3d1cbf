"""``dump``, ``logs`` and ``scrub``: artifacts and logs of tasks."""

from __future__ import annotations

import os
import pickle
import sys
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from .. import _records
from ..exception import CommandException, MetaflowNotFound
from ._context import run_id_of

if TYPE_CHECKING:
    from ..client import Task
    from ._context import Context

_TOO_LARGE = "< artifact too large >"


def tasks_at(context: Context, text: str) -> List[Task]:
    """The task, or the step's tasks in order, that ``RUN/STEP[/TASK]`` names.

    Raises:
        CommandException: there is none.
    """
    from ..client import Step, Task

    parts = [context.name, *run_id_of(context, text)]
    try:
        if len(parts) == 4:
            return [Task("/".join(parts), _namespace_check=False)]
        return list(Step("/".join(parts), _namespace_check=False))[::-1]
    except MetaflowNotFound:
        raise CommandException(
            f"no task at {text}: there is no such run, step or task, or it has not started"
        ) from None


def dump(context: Context, values: Dict[str, Any]) -> None:
    """Print artifacts, or pickle them into a file: ``{"RUN/STEP/TASK": {name: value}}``."""
    include = {n for n in (values["include"] or "").split(",") if n}
    output: Dict[str, Dict[str, Any]] = {}
    known: Dict[str, Any] = {}
    # with the ref, to keep it alive: its id is the key
    shown: Dict[Tuple[str, int], Tuple[str, Any]] = {}
    for task in tasks_at(context, values["input_path"]):
        _, run, step, number = task.path_components
        context.say(f"Dumping output of run_id={run} step={step} task_id={number}")
        refs = {
            name: ref
            for name, ref in sorted(task._now.artifacts.items())
            if (not include or name in include) and (name[0] != "_" or values["private"])
        }
        if values["file"] is None:
            most = values["max_value_size"]
            lines = []
            for name, ref in refs.items():  # thousands of tasks share these
                key = name, id(ref)
                if key not in shown:
                    shown[key] = _shown(name, ref, most), ref
                lines.append(shown[key][0])
            sys.stdout.write("".join(lines))
        else:
            output[f"{run}/{step}/{number}"] = {n: _once(r, known) for n, r in refs.items()}
    if values["file"] is not None:
        with open(values["file"], "wb") as file:
            pickle.dump(output, file, protocol=pickle.HIGHEST_PROTOCOL)
        context.say(f"Artifacts written to {values['file']}")


def _once(ref: Mapping[str, Any], known: Dict[str, Any]) -> Any:
    """An artifact's value, loaded once even if a thousand tasks share it."""
    digest = str(ref["digest"])
    if digest not in known:
        known[digest] = _records.load(ref)
    return known[digest]


def _shown(name: str, ref: Mapping[str, Any], most: int) -> str:
    size = _records.size_of(ref)
    kind = str(ref.get("type") or "object")
    kind = kind[len("builtins.") :] if kind.startswith("builtins.") else kind
    value = _records.load(ref) if 0 < size <= most else _TOO_LARGE
    return f"{name} [size: {size} type: <class '{kind}'>] = {value}\n"


def _streams(values: Dict[str, Any]) -> List[str]:
    chosen = [s for s in ("stdout", "stderr") if values[s]]
    return chosen or (["stdout", "stderr"] if values["both"] else [])


def logs(context: Context, values: Dict[str, Any]) -> None:
    """Print the lines of both streams on stdout, and the tasks' names on stderr."""
    for task in tasks_at(context, values["input_path"]):
        _, run, step, number = task.path_components
        task._attempt = values["attempt"]
        context.say(f"Dumping logs of run_id={run} step={step} task_id={number}")
        for stream in _streams(values):
            context.say(stream)
            text = _timed(task, stream) if values["timestamps"] else task._log_bytes(stream)
            sys.stdout.flush()
            sys.stdout.buffer.write(text if not text or text.endswith(b"\n") else text + b"\n")
            sys.stdout.buffer.flush()


def _timed(task: Task, stream: str) -> bytes:
    lines = task.loglines(stream, as_unicode=False)
    return b"".join(
        f"{written:%Y-%m-%d %H:%M:%S.%f}"[:-3].encode() + b" " + line + b"\n"
        for written, line in lines
    )


def scrub(context: Context, values: Dict[str, Any]) -> None:
    """Replace the logs of tasks by one line that says so."""
    for task in tasks_at(context, values["input_path"]):
        if not task._now.brief.get("ended_ms") and not values["include_not_done"]:
            raise CommandException(
                f"task {task.pathspec} has not ended; --include-not-done scrubs it nevertheless"
            )
        last = task.current_attempt
        attempts = [last] if values["latest"] else list(range(last + 1))
        for attempt in attempts if values["attempt"] is None else [values["attempt"]]:
            task._attempt = attempt
            for stream in _streams(values):
                for path in filter(os.path.getsize, task._log_paths(stream)):
                    with open(path, "w", encoding="utf-8") as file:
                        file.write("[REDACTED]\n")
            context.say(f"Logs have been scrubbed for {task.pathspec} - attempt {attempt}")
