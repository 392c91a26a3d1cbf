"""The artifacts that a task sees: loaded at their first use, stored again only if they changed."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Optional, Set, Tuple

from ..materializers import _artifact
from .exception import (
    MetaflowException,
    MissingInMergeArtifactsException,
    UnhandledInMergeArtifactsException,
)

_IMMUTABLE = (int, float, str, bytes, bool, type(None), complex, range, frozenset)
_NOTHING = object()
INTERNAL_ARTIFACTS_SET: Set[str] = set()  # names that a program keeps out of every merge
_MOST_USED = 500  # names of used artifacts in a result


class Given:
    """The run's data for all its tasks: parameters, the store. A task and its inputs share it.

    ``used`` has the digests of the artifacts that they have loaded, by name.
    """

    __slots__ = ("inputs", "store", "used", "values")

    def __init__(self, inputs: Dict[str, Any], store: str) -> None:
        self.inputs = inputs
        self.store = store
        self.values: Dict[str, Any] = {}
        self.used: Dict[str, str] = {}

    def use(self, name: str, ref: Dict[str, Any]) -> None:
        """Note that the task has loaded an artifact."""
        if "digest" in ref and len(self.used) < _MOST_USED:
            self.used[name] = ref["digest"]

    def located(self, ref: Dict[str, Any]) -> Dict[str, Any]:
        """An artifact of ``task.json``, with the path from its digest."""
        if "path" not in ref and "digest" in ref:
            digest = ref["digest"]
            ref["path"] = f"{self.store}/artifacts/{digest[:2]}/{digest[2:]}"
        return ref


class Scope:
    """Artifacts of one task, or of one input of a join.

    Attributes:
        refs: artifacts of this task and all its inputs, each once, from ``task.json``.
        names: name → number in ``refs``.
        values: the loaded values, as loaded.
        adopted: names that :func:`merge` took over; dropped: inherited names that were deleted.
        constants: names of the flow class's values and parameters, which steps can't set.
        running: for the task itself its :class:`Running`; None for an input.
    """

    __slots__ = (
        "adopted",
        "constants",
        "dropped",
        "frames",
        "given",
        "items",
        "names",
        "parent",
        "refs",
        "running",
        "step",
        "values",
    )

    def __init__(
        self,
        refs: List[Dict[str, Any]],
        names: Dict[str, int],
        step: str,
        frames: List[Dict[str, Any]],
        given: Given,
        constants: FrozenSet[str],
        running: Any = None,
        parent: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.refs = refs
        self.names = names
        self.step = step
        self.frames = frames
        self.given = given
        self.constants = constants
        self.running = running
        self.parent = parent
        self.values: Dict[str, Any] = {}
        self.adopted: List[str] = []
        self.dropped: List[str] = []
        self.items: Dict[int, Any] = {}

    # ------------------------------------------------------------------ looking at artifacts

    def load(self, name: str) -> Any:
        """The value of an inherited artifact.

        Raises:
            AttributeError: there is no artifact of this name.
            LoadError: it can't be read.
        """
        number = self.names.get(name)
        if number is None:
            raise AttributeError(self._lacks(name))
        ref = self.refs[number]
        try:
            value = _artifact.load(self.given.located(ref))
        except _artifact.LoadError as bad:
            raise _artifact.LoadError(f"artifact '{name}': {bad}") from bad
        self.values[name] = value
        self.given.use(self._full(name), ref)
        return value

    def _full(self, name: str) -> str:
        """The name of an artifact among those of all inputs of a join: ``work/3.x``."""
        if self.parent is None:
            return name
        rank = self.parent.get("rank")
        node = f"_node_{rank}" if rank else ""
        return f"{self.parent['step']}/{self.parent['task']}{node}.{name}"

    def _lacks(self, name: str) -> str:
        text = f"step '{self.step}' has no artifact '{name}'"
        if self.parent is not None:
            return f"the input from {text}"
        if self.running is not None and self.running.is_join:
            return (
                f"{text}: it is a join, where artifacts come from the inputs: look at inputs.STEP.{name} or "
                "inputs[0], or call self.merge_artifacts(inputs) before"
            )
        return f"{text}: no step before it sets self.{name}"

    def parameter(self, one: Any) -> Any:
        """A parameter's value."""
        values = self.given.values
        if one.var not in values:
            if one.var in self.given.inputs:
                value = _artifact.load(self.given.inputs[one.var])
            elif one.var in self.names:
                ref = self.refs[self.names[one.var]]
                value = _artifact.load(self.given.located(ref))
                self.given.use(one.var, ref)
            else:
                value = None
            values[one.var] = one.load(value)
        return values[one.var]

    def drop(self, name: str) -> bool:
        """Delete an inherited artifact; returns False if the name isn't one."""
        if name not in self.names:
            return False
        self.names = {key: number for key, number in self.names.items() if key != name}
        self.values.pop(name, None)
        if name in self.adopted:
            self.adopted.remove(name)
        else:
            self.dropped.append(name)
        return True

    # ------------------------------------------------------------------ foreach

    def index(self) -> Optional[int]:
        """Index in the innermost frame: of a foreach's item, or a node's number."""
        if not self.frames:
            return None
        frame = self.frames[-1]
        if frame.get("parallel") and "index" not in frame:
            return int(os.environ.get("MF_PARALLEL_NODE_INDEX") or 0)
        return int(frame["index"])

    def item(self, level: int) -> Any:
        """The item of an open frame (level -1: the innermost)."""
        if not self.frames:
            return None
        level %= len(self.frames)
        if level not in self.items:
            frame = self.frames[level]
            self.items[level] = self.index() if frame.get("parallel") else self._item(frame)
        return self.items[level]

    def _item(self, frame: Dict[str, Any]) -> Any:
        ref, index = frame.get("items") or frame.get("list"), frame["index"]
        if ref is None:
            return None
        self.given.use(f"items of {frame['step']}", frame.get("list") or ref)
        ref = self.given.located(ref)
        if ref.get("format") == "items":
            from ..materializers import _items

            return _items.read(ref["path"], index)
        value = _artifact.load(ref)
        try:
            return value[index]
        except (TypeError, KeyError):
            from itertools import islice

            return next(islice(value, index, index + 1))

    def stack(self) -> List[Tuple[int, int, Any]]:
        """(index, number of items, item) for each open foreach; for a gang (node, number of nodes,
        node)."""
        return [
            (self.item(level) if one.get("parallel") else one["index"], one["n"], self.item(level))
            for level, one in enumerate(self.frames)
        ]

    # ------------------------------------------------------------------ what changed

    def changed(self, attributes: Dict[str, Any]) -> List[Tuple[str, Dict[str, Any]]]:
        """(name, its earlier entry or {}) for the attributes that may need storing."""
        values, names = self.values, self.names
        found: List[Tuple[str, Dict[str, Any]]] = []
        for name, value in attributes.items():
            if name == "_stoker" or name.startswith("__"):
                continue
            before = values.get(name, _NOTHING)
            if before is value and name in names:
                if _is_unchanged(value):
                    continue
                found.append((name, self.refs[names[name]]))
            else:
                found.append((name, {}))
        return found

    def adopted_entries(self, attributes: Dict[str, Any]) -> Dict[str, Any]:
        """Entries of artifacts that were merged and not set since."""
        values = self.values
        return {
            name: {"artifact": self.refs[self.names[name]]["digest"]}
            for name in self.adopted
            if name not in attributes or attributes[name] is values.get(name, _NOTHING)
        }


def _is_unchanged(value: Any) -> bool:
    """Whether a loaded value is unchanged: it is immutable, or its pages weren't written to."""
    kind = type(value)
    if kind in _IMMUTABLE:
        return kind is not frozenset or all(type(one) in _IMMUTABLE for one in value)
    if kind is tuple:
        return all(_is_unchanged(one) for one in value)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and kind is numpy.ndarray:
        return _is_clean(value)
    return False


def _is_clean(array: Any) -> bool:
    """Whether the array is a private mapping of a file without written pages."""
    base = array
    while getattr(base, "base", None) is not None:
        base = base.base
    if type(base).__name__ != "mmap":
        return False
    address = array.__array_interface__["data"][0]
    dirty = 0
    inside = False
    with open("/proc/self/smaps", "rb") as stream:
        for line in stream:
            head = line.split(None, 1)[0]
            if not head.endswith(b":"):
                low, _, high = head.partition(b"-")
                if inside:
                    break
                inside = int(low, 16) <= address < int(high, 16)
            elif inside and head in (b"Private_Dirty:", b"Swap:"):
                dirty += int(line.split()[1])
    return inside and dirty == 0


class Inputs:
    """The inputs of a join: ``inputs.step_a.x``, ``inputs[0].x``, ``for one in inputs``."""

    def __init__(self, cls: Any, scope: Scope, parents: List[Dict[str, Any]]) -> None:
        self._cls = cls
        self._scope = scope
        self._parents = parents
        self._made: Dict[int, Any] = {}

    def _input(self, i: int) -> Any:
        if i not in self._made:
            parent, ours = self._parents[i], self._scope
            flow = object.__new__(self._cls)
            flow.__dict__["name"] = self._cls.__name__
            frames = [*ours.frames, *_closed_frame(self._cls, parent, i, len(self._parents), ours)]
            flow.__dict__["_stoker"] = Scope(
                ours.refs,
                parent["scope"],
                parent["step"],
                frames,
                ours.given,
                ours.constants,
                parent=parent,
            )
            self._made[i] = flow
        return self._made[i]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        for i in range(len(self._parents) - 1, -1, -1):
            if self._parents[i]["step"] == name:
                return self._input(i)
        have = ", ".join(sorted({one["step"] for one in self._parents}))
        raise AttributeError(
            f"step '{self._scope.step}' has no input from a step '{name}': its inputs are from {have}"
        )

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self._input(k) for k in range(*i.indices(len(self._parents)))]
        n = len(self._parents)
        if not -n <= i < n:
            raise IndexError(f"step '{self._scope.step}' has {n} inputs, there is no inputs[{i}]")
        return self._input(i % n)

    def __iter__(self) -> Iterator[Any]:
        return (self._input(i) for i in range(len(self._parents)))

    def __len__(self) -> int:
        return len(self._parents)


def _closed_frame(cls: Any, parent: Dict[str, Any], i: int, n: int, scope: Scope) -> List[Any]:
    """The frame of the foreach that the join closes, for its input ``i``."""
    graph = cls._graph
    node = graph.nodes.get(parent["step"])
    open_splits = node.split_parents if node is not None else []
    if node is not None and node.num_args > 1:
        open_splits = open_splits[:-1]
    if not open_splits:
        return []
    split = graph[open_splits[-1]]
    if split.type != "foreach":
        return []
    if split.parallel_foreach:
        return [{"parallel": True, "index": i, "n": n, "step": split.name}]
    number = parent["scope"].get(split.foreach_param)
    listed = scope.refs[number] if number is not None else None
    return [{"step": split.name, "index": i, "n": n, "items": None, "list": listed}]


# ---------------------------------------------------------------------------- merging


def _are_same(one: Dict[str, Any], other: Dict[str, Any]) -> bool:
    return one.get("digest") == other.get("digest") and one.get("type") == other.get("type")


def merge(flow: Any, inputs: Iterable[Any], exclude: List[str], include: List[str]) -> None:
    """See :meth:`FlowSpec.merge_artifacts`."""
    scope: Optional[Scope] = flow.__dict__.get("_stoker")
    if scope is None or scope.running is None or not scope.running.is_join:
        step = scope.step if scope is not None else ""
        raise MetaflowException(
            f"step '{step}' isn't a join, so there is nothing to merge: call "
            "merge_artifacts(inputs) in a step (self, inputs)"
        )
    if exclude and include:
        raise MetaflowException(
            f"step '{scope.step}': merge_artifacts takes exclude or include, not both"
        )
    set_here = {*flow.__dict__, *scope.constants, *scope.adopted}
    first: Dict[str, int] = {}
    differing: List[str] = []
    views = inputs._parents if isinstance(inputs, Inputs) else None
    scopes = (
        [one["scope"] for one in views]
        if views is not None
        else [one.__dict__["_stoker"].names for one in inputs]
    )
    refs = scope.refs
    for names in scopes:
        for name, number in names.items():
            known = first.setdefault(name, number)
            if known != number and not _are_same(refs[known], refs[number]):
                differing.append(name)
    chosen = set(include) if include else first.keys() - {*exclude, *INTERNAL_ARTIFACTS_SET}
    merged = {k: v for k, v in first.items() if k in chosen and k not in set_here}
    differing = sorted({name for name in differing if name in merged})
    if differing:
        raise UnhandledInMergeArtifactsException(
            f"step '{scope.step}' can't merge {', '.join(differing)}: the branches have different values; set "
            f"self.{differing[0]} in this step before merge_artifacts, or leave it out by exclude=",
            differing,
        )
    missing = [name for name in include if name not in merged and not hasattr(flow, name)]
    if missing:
        raise MissingInMergeArtifactsException(
            f"step '{scope.step}' can't merge {', '.join(missing)}, which no branch has: correct include=",
            missing,
        )
    scope.names = {**scope.names, **merged}
    scope.adopted += merged
