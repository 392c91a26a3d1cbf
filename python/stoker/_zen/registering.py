"""Stacks that a program registers: entries of ``stoker.yaml``, one line each.

The orchestrator's flavor says the backend, its configuration the entry's options; the artifact store
gives ``store``, the container registry ``registry``. Each step operator is an entry of its own name.
Only lines that were written here are changed or removed. The store remembers which components a
stack was made of.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import re
import shutil
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from .._base.binary import json_of
from .._base.errors import EngineError
from . import own, records, stacks
from .errors import EntityExistsError, IllegalOperationError, StackValidationError

_FILE = "stoker.yaml"
_MARK = "# by zenml stack register"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")
_HEAD = re.compile(r"stacks:\s*(#.*)?\Z")
# Of a component's configuration, the keys that a stack has itself; the others are its options.
_OF_STACK = (
    *("hosts", "default_image", "image_map", "socket", "store_volume", "carry", "runner_image"),
    *("carry_volume", "max_jobs", "pending", "resources", "limits", "pools"),
)
_NEEDED = ("orchestrator", "artifact_store")
_CREDENTIAL = re.compile(r"(password|passphrase|secret|token|key)\Z", re.IGNORECASE)

Components = Mapping[Any, Any]


def create(name: str, components: Components) -> stacks.StackResponse:
    """Register a stack of components, given by type as a name or id, or several.

    Raises:
        KeyError: there is no such component.
        EntityExistsError: there is a stack of this name.
        ValueError: a component is missing.
        StackValidationError: the engine refuses the entry.
    """
    if any(one.name == name for one in stacks.stacks()):
        raise EntityExistsError(f"there is a stack '{name}' already")
    return _write(name, _chosen(components))


def update(
    name_or_id: Any, name: Optional[str] = None, components: Optional[Components] = None
) -> stacks.StackResponse:
    """Change a registered stack's components or name; raises as :func:`create`."""
    old = stacks.get_stack(name_or_id)
    record = _record(old.name)
    if name is not None and name != old.name and any(s.name == name for s in stacks.stacks()):
        raise EntityExistsError(f"there is a stack '{name}' already")
    merged = {**record.body["components"], **{_word(k): v for k, v in (components or {}).items()}}
    chosen = _chosen(merged)
    for part in (*chosen["orchestrator"], *chosen.get("step_operator", ())):
        check(part.type.value, part.name, part.configuration)
    was_active = stacks.active_name() == old.name
    _edit(lambda lines: _without(lines, old.name))
    records.remove("stack", old.name)
    try:
        made = _write(name or old.name, chosen)
    except Exception:
        _write(old.name, _chosen(record.body["components"]))
        raise
    before = [*record.body.get("before", ()), *([old.name] if made.name != old.name else ())]
    if before:
        records.change("stack", made.name, lambda body: body.update(before=before))
    if was_active:
        stacks.activate(made.name)
    return made


def rewrite(kind: str, old: str, new: str) -> None:
    """Write the lines of the stacks that have a component anew, which has another configuration or
    name.

    Raises:
        IllegalOperationError: a line isn't as it was written.
        StackValidationError: the engine refuses the entries; then all is as it was.
    """
    gone: List[str] = []
    entries: Dict[str, Dict[str, Any]] = {}
    made: Dict[str, Dict[str, List[str]]] = {}
    for name in users(kind, old):
        parts = dict(_record(name).body["components"])
        parts[kind] = [new if one == old else one for one in parts[kind]]
        chosen = _chosen(parts)
        gone.append(name)
        made[name], entries[name] = parts, _entry(chosen["orchestrator"][0], chosen)
        for operator in chosen[kind] if kind == "step_operator" else ():
            if operator.name == new:  # an entry of its own name
                entries[new] = _entry(operator, chosen)
                made[new] = {**parts, "orchestrator": [new], "step_operator": []}
    if kind == "step_operator" and gone:
        gone.append(old)
    if not gone:
        return
    _edit(lambda lines: _with(functools.reduce(_without, gone, lines), entries))
    for name in set(gone) - made.keys():
        records.remove("stack", name)
    for name, parts in made.items():
        records.change("stack", name, functools.partial(_made_of, parts))


def delete(name_or_id: Any) -> List[Tuple[str, str]]:
    """Remove a registered stack; returns the names and kinds of what it was made of.

    Raises:
        KeyError: there is none.
        ValueError: it is the active one.
        IllegalOperationError: it wasn't registered, so its lines in ``stoker.yaml`` are a person's.
    """
    found = stacks.get_stack(name_or_id)
    if found.name == stacks.active().name:
        raise ValueError(f"stack '{found.name}' is the active one: activate another one first")
    made_of = _record(found.name).body["components"]
    _edit(lambda lines: _without(lines, found.name))
    records.remove("stack", found.name)
    return [(name, kind) for kind, names in made_of.items() for name in names]


def _made_of(components: Mapping[str, List[str]], body: Dict[str, Any]) -> None:
    body.update(components=components)


def _record(name: str) -> records.Record:
    record = records.get("stack", name)
    if record is None:
        where = "this machine" if name == "default" else f"written in {_FILE}: change it there"
        raise IllegalOperationError(f"stack '{name}' wasn't registered: it is {where}")
    return record


def users(kind: str, name: str) -> List[str]:
    """The names of the registered stacks that have a component."""
    return [r.name for r in records.listed("stack") if name in r.body["components"].get(kind, ())]


# ---------------------------------------------------------------------------- entries


def check(kind: str, name: str, config: Mapping[str, Any]) -> None:
    """Raises ValueError where a component's configuration has what a stack can't keep."""
    shown = f"{kind.replace('_', ' ')} '{name}'"
    for key in config:
        if _CREDENTIAL.search(key):
            raise ValueError(
                f"{shown} takes no '{key}': credentials are those of the machine, since {_FILE} "
                "is text; let the environment, ~/.aws, ~/.kube/config or ~/.docker have them"
            )
        if kind == "artifact_store" and key not in ("path", "shared"):
            raise ValueError(f"{shown} takes no '{key}'; it takes 'path' and 'shared'")


def _word(kind: Any) -> str:
    return str(getattr(kind, "value", kind))


def _chosen(components: Components) -> Dict[str, List[stacks.ComponentResponse]]:
    """Type → components."""
    chosen: Dict[str, List[stacks.ComponentResponse]] = {}
    for kind, given in components.items():
        some = given if isinstance(given, (list, tuple)) else [given]
        found = [stacks.component(kind, one) for one in some if one]
        if found:
            chosen[_word(kind)] = found
    for kind in _NEEDED:
        if kind not in chosen:
            raise ValueError(f"a stack needs an {kind.replace('_', ' ')}")
    return chosen


def _value(given: Any) -> Any:
    """What a text of the command line means: JSON, True and False, or the text."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads({"True": "true", "False": "false"}.get(given, given))
    except ValueError:
        return given


def _entry(
    part: stacks.ComponentResponse, chosen: Mapping[str, List[stacks.ComponentResponse]]
) -> Dict[str, Any]:
    """The entry of ``stoker.yaml`` for an orchestrator or a step operator."""
    check(part.type.value, part.name, part.configuration)
    given = {k: _value(v) for k, v in part.configuration.items() if k != "is_remote"}
    backend = stacks.backend_of(part.flavor_name)
    entry: Dict[str, Any] = {"backend": backend}
    entry.update((key, given.pop(key)) for key in _OF_STACK if key in given)
    if given:
        entry["options"] = given
    images = backend not in ("slurm", "ssh")
    for registry in chosen.get("container_registry", ())[:1] if images else ():
        entry["registry"] = registry.configuration["uri"]
    store = chosen["artifact_store"][0]
    path = store.configuration.get("shared") or (store.is_remote and store.configuration["path"])
    if path and backend not in ("local", "docker"):
        entry["store"] = path
    return entry


def _write(name: str, chosen: Mapping[str, List[stacks.ComponentResponse]]) -> stacks.StackResponse:
    known = [one.name for one in stacks.stacks()]
    entries = {name: _entry(chosen["orchestrator"][0], chosen)}
    for operator in chosen.get("step_operator", ()):
        mine = own.is_own("step_operator", operator.flavor_name)
        if operator.name not in known and not mine:
            entries[operator.name] = _entry(operator, chosen)
    for one in entries:
        if not _NAME.match(one):
            raise ValueError(f"'{one}' can't name a stack of {_FILE}: letters, digits, _, . and -")
    _edit(lambda lines: _with(lines, entries))
    names = {kind: [one.name for one in some] for kind, some in chosen.items()}
    for one in entries:
        part = {} if one == name else {"orchestrator": [one], "step_operator": []}
        records.change("stack", one, functools.partial(_made_of, {**names, **part}))
    return stacks.get_stack(name)


# ---------------------------------------------------------------------------- the file


def _path() -> str:
    """The project's ``stoker.yaml``, where a link leads; where there is none, that of this folder."""
    here = os.getcwd()
    while not os.path.exists(os.path.join(here, _FILE)):
        above = os.path.dirname(here)
        if above == here or any(
            os.path.exists(os.path.join(here, mark)) for mark in (".git", "pyproject.toml")
        ):
            return os.path.realpath(os.path.join(os.getcwd(), _FILE))
        here = above
    return os.path.realpath(os.path.join(here, _FILE))


@contextlib.contextmanager
def _alone(folder: str) -> Iterator[None]:
    """No other program registers a stack in this folder meanwhile."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _edit(how: Callable[[List[str]], Iterable[str]]) -> None:
    """Change the lines of ``stoker.yaml``; as they were if the engine then refuses the file.

    Raises:
        StackValidationError: it does.
    """
    path = _path()
    with _alone(os.path.dirname(path)):
        before: Optional[str] = None
        if os.path.exists(path):
            with open(path, encoding="utf-8", newline="") as stream:
                before = stream.read()
        end = "\r\n" if "\r\n" in (before or "") else "\n"
        lines = how((before or "").splitlines())
        _replace(path, "".join(f"{line}{end}" for line in lines))
        try:
            json_of(["stack", "list"])
        except EngineError as bad:
            if before is None:
                os.remove(path)
            else:
                _replace(path, before)
            raise StackValidationError(f"{path} stays as it was: {bad}") from bad


def _replace(path: str, text: str) -> None:
    with open(f"{path}.new", "w", encoding="utf-8", newline="") as stream:
        stream.write(text)
    if os.path.exists(path):
        shutil.copymode(path, f"{path}.new")
    os.replace(f"{path}.new", path)


def _with(lines: List[str], entries: Mapping[str, Mapping[str, Any]]) -> List[str]:
    heads = [number for number, line in enumerate(lines) if _HEAD.match(line)]
    if not heads:
        if any(line.startswith("stacks") for line in lines):
            shown = "; ".join(f"{name}: {json.dumps(entry)}" for name, entry in entries.items())
            raise StackValidationError(
                f"{_path()} has its stacks on one line; write yourself: {shown}"
            )
        lines = [*lines, "stacks:"]
        heads = [len(lines) - 1]
    below = [line for line in lines[heads[0] + 1 :] if line.strip() and line.lstrip()[0] != "#"]
    indent = re.match(r" *", below[0]).group() if below else ""  # type: ignore[union-attr]
    made = [
        f"{indent or '  '}{json.dumps(name)}: {json.dumps(entry)}  {_MARK}"
        for name, entry in entries.items()
    ]
    return [*lines[: heads[0] + 1], *made, *lines[heads[0] + 1 :]]


def _without(lines: List[str], name: str) -> List[str]:
    begin = f"{json.dumps(name)}: "
    left = [one for one in lines if not (one.lstrip().startswith(begin) and one.endswith(_MARK))]
    if left == lines:
        raise IllegalOperationError(
            f"{_path()} has no line for '{name}' that `zenml stack register` wrote: remove it there"
        )
    return left
