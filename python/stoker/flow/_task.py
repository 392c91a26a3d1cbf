"""Runs one task of a flow: reads artifacts, calls the step's method, stores artifacts and what
comes next.

The worker calls :func:`run_flow_task` if ``task.json`` has ``flow``
(docs/formats/task-directory.md). A task costs little more than a fork, so this path imports and
loads only what the step uses.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Any, Dict, FrozenSet, List, Optional, Tuple

from .._definition.entry import Entry
from .._worker.context import allow_runs
from .._worker.resolve import resolve_callable
from ..materializers import _artifact
from ._current import current
from ._decorators import decorators_of, flow_decorators_of
from ._decorators._base import decorated
from ._flow import FlowSpec, constants_of
from ._next import Transition
from ._node import become_node
from ._parameters import config_names, parameters_of, set_configs
from ._scope import Given, Inputs, Scope
from ._user import run_wrapped
from .exception import FailureHandledByCatch, InvalidNextException, MetaflowException

# If a node of a gang with @catch fails, the others have this long to end by themselves, so that what
# they set is kept.
_CATCH_WAITS_S = 3.0


@dataclass
class FlowEntry(Entry):
    """A step of a flow: its class and its name."""

    flow: Any = None
    step: str = ""

    def become_node(self, rank: Any, task: Dict[str, Any]) -> None:
        """Make this rank of ``num_parallel`` a node."""
        become_node(rank, task)

    def run(self, attempt: Any) -> None:
        """Run the step, for the worker."""
        run_flow_task(attempt)


def entry_of(cls: Any, step: str) -> FlowEntry:
    """The step's entry for the fork server."""
    func = getattr(cls, step)
    importable = (
        None if "<locals>" in cls.__qualname__ else (cls.__module__, f"{cls.__qualname__}.{step}")
    )
    launches = [one.bound().launch() for one in decorators_of(cls, step) if hasattr(one, "launch")]
    entry = FlowEntry(func, [], [], importable=importable, flow=cls, step=step)
    entry.launch = launches[0] if launches else None
    if any(one.name == "catch" for one in decorators_of(cls, step)):
        entry.patience = _CATCH_WAITS_S
    return entry


def find_entry(module: str, qualname: str, found: Any) -> Optional[FlowEntry]:
    """The entry of ``module:qualname`` if the object ``found`` is a flow's step, else None."""
    if not getattr(found, "is_step", False):
        return None
    owner, _, step = qualname.rpartition(".")
    cls = resolve_callable(module, owner) if owner else None
    return entry_of(cls, step) if isinstance(cls, type) and issubclass(cls, FlowSpec) else None


def prepare(cls: Any) -> None:
    """Do the work that is the same for all tasks, before their fork."""
    from ..materializers import _items  # noqa: F401

    _fixed(cls)
    current._enter(cls, {})
    current._enter(None, {})


def run_flow_task(attempt: Any) -> None:
    """Run the attempt's step and put outputs and ``next`` into its result.

    Args:
        attempt: the worker's ``_Attempt``: ``task``, ``entry``, ``directory``, ``result``,
            ``rank``.

    Raises:
        Exception: raised by the step, or an error with a sentence of this package.
    """
    running = Running(attempt)
    attempt.left = running.left
    running.run()


class Running:
    """A running step, for decorators.

    Attributes:
        flow: the object that is the step's ``self``. cls, step: its class and the step's name.
        task: the content of ``task.json``; declared: its ``flow``, with the possible next steps.
        inputs: the inputs of a join, else None.
        may_choose: ``self.next`` may name another artifact for foreach than the source.
        transition: the argument of ``self.next``, None before its call.
        entries: outputs of the result that are stored so far.
        attempt: the worker's; ``attempt.directory`` is the attempt directory.
        last_attempt: whether no other attempt follows if this one fails.
    """

    def __init__(self, attempt: Any) -> None:
        self.attempt = attempt
        self.task: Dict[str, Any] = attempt.task
        self.declared: Dict[str, Any] = self.task["flow"]
        self.cls: Any = attempt.entry.flow
        self.step: str = attempt.entry.step
        self.is_join = bool(self.declared.get("join"))
        self.last_attempt = bool(self.task.get("last_attempt", True))
        self.transition: Optional[Transition] = None
        self.may_choose = False
        self.entries: Dict[str, Any] = {}
        self.constants = _fixed(self.cls)
        self.scope = self._scope()
        self.flow: Any = object.__new__(self.cls)
        self.flow.__dict__["name"] = self.cls.__name__
        self.flow.__dict__["_stoker"] = self.scope
        self.inputs = (
            Inputs(self.cls, self.scope, self.declared.get("parents") or [])
            if self.is_join
            else None
        )

    def _scope(self) -> Scope:
        said = self.declared
        parents: List[Dict[str, Any]] = said.get("parents") or []
        names: Dict[str, int] = dict(parents[0]["scope"]) if parents else {}
        if self.is_join:  # it inherits only what steps can't change
            names = {name: names[name] for name in self.constants if name in names}
        given = Given(self.task.get("inputs") or {}, self.task.get("store") or "")
        frames = said.get("foreach") or []
        refs = said.get("refs") or []
        return Scope(refs, names, self.step, frames, given, self.constants, self)

    # ------------------------------------------------------------------ the step

    def run(self) -> None:
        """Run the decorators and the method, then store the results."""
        current._enter(self.cls, self.task)
        self._configure()
        said = (self.task.get("extra") or {}).get("flow") or {}
        decorators = [one.bound() for one in decorators_of(self.cls, self.step, said.get("with"))]
        if self.declared.get("skip_decorators"):
            decorators = []
        if self.declared.get("spun"):
            _set_variables(decorators)
        begun: List[Any] = []
        if not self.declared.get("parents") and folder_of(self) is not None:
            self.entries.update(_constants(self))  # before the step, which could change the values
        try:
            fallback = self.declared.get("fallback")
            if fallback:
                self._take_left()
                raise FailureHandledByCatch(str(fallback.get("text") or fallback.get("message")))
            for one in decorators:
                begun.append(one)
                one.task_begin(self)
            self._call(decorators)
            for one in sorted(reversed(begun), key=lambda one: bool(one.ENDS_LATE)):
                one.task_end(self)
        except Exception as bad:
            handled = False
            for one in reversed(decorators):
                handled = bool(one.task_failed(self, bad)) or handled
            if not handled:
                raise
            self._go_on()
        self._leave()

    def _take_left(self) -> None:
        """Keep what the failed attempt had set, for ``@catch`` in its place."""
        left, rank = self.declared.get("left") or [], self.attempt.rank
        number = 0 if rank is None else rank.number
        for name, at in (left[number] if number < len(left) else {}).items():
            if name not in self.constants:
                self.scope.names[name] = at
                self.scope.adopted.append(name)

    def _configure(self) -> None:
        """Compute expressions of configurations in decorators, if the class was imported again."""
        current._add(parameter_names=[one.var for one in parameters_of(self.cls)])
        configs = [one for one in parameters_of(self.cls) if one.IS_CONFIG_PARAMETER]
        if configs:
            values = {one.var: self.scope.parameter(one) for one in configs}
            values.update(self.declared.get("configs") or {})  # of ``spin``
            set_configs(config_names(self.cls, values))
        else:
            values = {}
        said = (self.task.get("extra") or {}).get("flow") or {}
        for one in flow_decorators_of(self.cls):
            if hasattr(one, "begin"):
                one.bound().begin(self.cls, said.get("options") or {})
        if not self.cls.__dict__.get("_stoker_mutated"):
            from ._mutable import attach_all

            attach_all(self.cls, said.get("with") or (), values)

    def _call(self, decorators: List[Any]) -> None:
        allow_runs()
        func = self.attempt.entry.func
        wrappers = getattr(func, "wrappers", None)
        for one in reversed(decorators):
            func = decorated(one, func, self)
        joined = () if self.inputs is None else (self.inputs,)
        try:
            if wrappers and not self.declared.get("skip_decorators"):
                run_wrapped(wrappers, lambda: func(self.flow, *joined), self)
            else:
                func(self.flow, *joined)
        except SystemExit as left:
            from .._worker.failures import Stopped, is_preempted

            if is_preempted(left):
                raise
            raise Stopped(
                f"the step called sys.exit({left.code!r}), so nothing follows it; return from the method instead, or "
                "raise an exception to fail"
            ).with_traceback(left.__traceback__) from None

    def go_on_as(self, options: Dict[str, Any]) -> None:
        """Call ``self.next`` in the step's place, with these options or with those of its source.

        Raises:
            InvalidNextException: the source doesn't say which (``num_parallel``).
        """
        targets = list(self.declared.get("next") or ())
        if not targets:
            return
        self.transition = None
        node = self.cls._graph[self.step]
        steps = [getattr(self.flow, one) for one in targets]
        if options:
            self.may_choose = True
            return self.flow.next(*steps, **options)  # type: ignore[no-any-return]
        if node.parallel_foreach:
            raise InvalidNextException(
                f"step '{self.step}' is skipped, and nobody says how many nodes follow: yield a mapping "
                "such as {'num_parallel': 4}"
            )
        if node.type == "split-switch":
            cases = {case: getattr(self.flow, to) for case, to in node.switch_cases.items()}
            return self.flow.next(cases, condition=node.condition)  # type: ignore[no-any-return]
        more = {"foreach": node.foreach_param} if node.foreach_param else {}
        return self.flow.next(*steps, **more)  # type: ignore[no-any-return]

    def _go_on(self) -> None:
        """After ``@catch``: continue with the next steps of the graph."""
        targets = list(self.declared.get("next") or ())
        self.transition = Transition(targets) if targets else None

    def _leave(self) -> None:
        expected = self.declared.get("next") or []
        rank = self.attempt.rank
        if self.transition is None and rank is not None and rank.number:
            self._go_on()  # node 0 says what follows the gang
        if self.transition is None and expected:
            raise InvalidNextException(
                f"step '{self.step}' ended without self.next(): in the flow's graph {', '.join(expected)} "
                "follows; call self.next() at the end of the step, on every way out of it"
            )
        store(self)

    def left(self) -> Dict[str, Any]:
        """Outputs and ``dropped`` for the result of an attempt that failed: for inspection, and for
        ``@catch`` in its place."""
        folder = folder_of(self)
        if folder is None:
            return {}
        _store_all(self, folder, None, failed=True)
        said: Dict[str, Any] = {"outputs": self.entries}
        if self.scope.dropped:
            said["dropped"] = self.scope.dropped
        return said

    # ------------------------------------------------------------------ for decorators

    def set(self, name: str, value: Any) -> None:
        """Set an artifact."""
        self.flow.__dict__[name] = value


def _set_variables(decorators: List[Any]) -> None:
    """Set the variables that the engine sets for a task's process, in a process without engine
    (``spin``)."""
    for one in decorators:
        settings = one.settings(decorators)
        os.environ.update(settings.get("environment") or {})
        for name in settings.get("secrets") or ():
            if f"STOKER_SECRET_{name}" in os.environ:
                os.environ[name] = os.environ[f"STOKER_SECRET_{name}"]


def _fixed(cls: Any) -> FrozenSet[str]:
    """Names that steps can't set; computed once for the class, because tasks are forks."""
    known = cls.__dict__.get("_stoker_fixed")
    if known is None:
        known = frozenset([*constants_of(cls), *(one.var for one in parameters_of(cls))])
        cls._stoker_fixed = known
    return known  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------- what it leaves


def store(running: Running) -> None:
    """Store outputs; set ``outputs``, ``dropped``, ``inputs`` and ``next`` of the result."""
    result = running.attempt.result
    following = _following(running)
    folder = folder_of(running)
    if folder is None:
        return
    listed = running.transition.foreach if running.transition is not None else None
    _store_all(running, folder, listed)
    result["outputs"] = running.entries
    if running.scope.dropped:
        result["dropped"] = running.scope.dropped
    if running.scope.given.used:
        result["inputs"] = running.scope.given.used
    if following is not None:
        items = following.pop("values", None)
        if items is not None:
            following["items"] = _items_entry(items, folder, str(listed))
        result["next"] = following


def folder_of(running: Running) -> Optional[str]:
    """The folder for its outputs; None: a rank whose task takes only rank 0's outputs."""
    attempt = running.attempt
    other_rank = attempt.rank is not None and attempt.rank.number
    if other_rank and not running.declared.get("ranks"):
        return None
    return str(attempt.rank.own if other_rank else attempt.directory)


def _store_all(running: Running, folder: str, listed: Optional[str], failed: bool = False) -> None:
    """Fill ``running.entries``; if the step has failed, only with values that can be stored."""
    scope, attributes, entries = running.scope, running.flow.__dict__, running.entries
    stored = frozenset(entries) if failed else ()
    if running.is_join:
        entries.update(_constants(running))
    entries.update(scope.adopted_entries(attributes))
    for name, before in scope.changed(attributes):
        if name in stored or (name == "name" and attributes[name] == running.cls.__name__):
            continue
        spends = not failed and name != listed and "numpy" in sys.modules
        try:
            entry = _spent(running, folder, name, attributes) if spends else None
            if entry is None:
                entry = _stored(running, folder, name, attributes[name], name == listed)
        except Exception:
            if not failed:
                raise
            continue
        if not _is_same(entry, before, folder):
            entries[name] = entry


def _following(running: Running) -> Optional[Dict[str, Any]]:
    """``next`` of the result; its ``values`` are items that need a file."""
    said = running.transition
    if said is None:
        return None
    following: Dict[str, Any] = {"steps": said.steps}
    if said.num_parallel is not None:
        following["n"] = said.num_parallel
    if said.foreach is not None:
        following.update(_loop(running, said.foreach))
    return following


def _loop(running: Running, variable: str) -> Dict[str, Any]:
    """Number of items of a foreach, and the items if a task couldn't read its own from the
    artifact."""
    value = getattr(running.flow, variable)
    step = running.step
    try:
        if hasattr(value, "__next__"):
            value = list(value)
            running.set(variable, value)
        if any(p.var == variable for p in parameters_of(running.cls)):
            running.set(variable, value)  # the tasks find their items by an artifact's name
        is_sequence = hasattr(value, "__getitem__") and not hasattr(value, "keys")
        items = None if is_sequence else list(value)
        n = len(value if items is None else items)
    except TypeError as bad:
        raise InvalidNextException(
            f"step '{step}': foreach='{variable}' needs something to iterate over, but self.{variable} is a "
            f"{type(value).__name__} ({bad}); make it a list"
        ) from None
    if n == 0:
        raise InvalidNextException(
            f"step '{step}': foreach='{variable}', but self.{variable} is empty, and a foreach has at least one item; "
            "skip it with a switch, or give it an item"
        )
    limit = running.declared.get("max_splits")
    if limit and n > limit:
        raise MetaflowException(
            f"step '{step}': foreach='{variable}' has {n} items, which is more than the {limit} that are allowed; "
            f"allow more by --max-num-splits {n}"
        )
    if items is None and variable != running.declared.get("on"):
        items = list(value)  # nobody finds them by the name in the source
    return {"n": n} if items is None else {"n": n, "values": items}


def _items_entry(items: List[Any], folder: str, name: str) -> Dict[str, Any]:
    from ..materializers import _items

    entry = _items.store(items, f"{folder}/out/.items", name)
    return {**entry, "path": "out/.items"}


def _spent(
    running: Running, folder: str, name: str, attributes: Dict[str, Any]
) -> Optional[Dict[str, Any]]:
    """The entry of a large unshared array, whose memory is freed while it is written.

    A mapping of the written file replaces the array, for code that uses the flow after the step's
    end.
    """
    from ..materializers import _spend

    holder = [attributes.pop(name)]
    entry = None
    if _spend.is_last(holder):
        entry = _stored(running, folder, name, holder[0], False, spend=True)
        holder[0] = _artifact.load({**entry, "path": f"{folder}/{entry['path']}"})
    attributes[name] = holder[0]
    return entry


def _stored(
    running: Running, folder: str, name: str, value: Any, listed: bool, spend: bool = False
) -> Dict[str, Any]:
    path = f"{folder}/out/{name}"
    try:
        if listed and type(value) in (list, tuple):
            from ..materializers import _items

            if not _items.is_small(value):
                return {**_items.store(value, path, name), "path": f"out/{name}"}
        entry, metadata = _artifact.store(value, path, None, None, name, spend)
    except MetaflowException as bad:  # from a __getstate__ of the flow's author
        raise MetaflowException(f"step '{running.step}': artifact '{name}': {bad}") from None
    except _artifact.SerializeError as bad:
        error = _artifact.SerializeError(
            f"artifact '{name}' can't be kept: {bad}; or keep it in a local variable, or under a name that "
            "the step deletes before it ends"
        )
        error.output = name  # type: ignore[attr-defined]
        raise error from bad
    if "path" in entry:
        entry["path"] = f"out/{name}"
    if metadata and running.attempt.context is not None:
        running.attempt.context.add_output_metadata(metadata, name)
    return entry


def _is_same(entry: Dict[str, Any], before: Dict[str, Any], folder: str) -> bool:
    """Whether a loaded artifact serializes to its earlier content; then its copy is removed."""
    if not before:
        return False
    if "value" in entry:
        return "value" in before and bool(entry["value"] == before["value"])
    path = f"{folder}/{entry['path']}"
    if (entry.get("digest") or _digest_of(path)) != before.get("digest"):
        return False
    if os.path.isdir(path):
        import shutil

        shutil.rmtree(path)
    else:
        os.unlink(path)
    return True


def _digest_of(path: str) -> str:
    """Artifact digest of a file that is too small for a digest by the materializer; "" for other
    files."""
    from .._base.digest import sha256

    if os.path.isdir(path) or os.path.getsize(path) > 16 << 20:
        return ""
    with open(path, "rb") as stream:
        return sha256(sha256(stream.read()).digest()).hexdigest()


def _constants(running: Running) -> Dict[str, Any]:
    """The flow class's values, and parameters that aren't literals, as artifacts.

    The first task stores them. A join inherits nothing, so it takes them from its first input.
    """
    given = running.scope.given.inputs
    stored = ((running.task.get("extra") or {}).get("flow") or {}).get("stored") or ()
    names = [name for name in running.constants if name not in given or name in stored]
    names = [name for name in names if name not in running.entries]
    if running.is_join:
        first = running.declared["parents"][0]["scope"]
        refs = running.scope.refs
        return {name: {"artifact": refs[first[name]]["digest"]} for name in names if name in first}
    entries = {}
    for name in sorted(names):
        value = getattr(running.flow, name)
        try:
            entries[name] = _stored(running, running.attempt.directory, name, _kept(value), False)
        except (_artifact.SerializeError, MetaflowException) as bad:
            running.attempt.warnings.append(
                f"'{name}' of the flow's class can't be an artifact: {bad}"
            )
    return entries


def _kept(value: Any) -> Any:
    to_dict: Tuple[Any, ...] = (getattr(value, "to_dict", None),) if isinstance(value, dict) else ()
    return to_dict[0]() if to_dict and to_dict[0] is not None else value
