"""A flow's graph, read from its class's source, and its checks.

Each step's last statement names what follows: ``self.next(self.a)``, ``self.next(self.a, self.b)``,
``self.next(self.a, foreach="items")``, ``self.next(self.a, num_parallel=N)`` or
``self.next({"yes": self.a, "no": self.b}, condition="verdict")``. The names of nodes' attributes
are Metaflow's, because programs read them (``current.graph``, cards).
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import textwrap
from typing import Any, Dict, Iterator, List, Optional, Tuple

from .._base.errors import did_you_mean
from ._decorators import decorators_of
from ._decorators._base import to_pod
from ._parameters import resolve
from .exception import LintWarn

RESERVED = frozenset(["name", "next", "input", "index", "cmd"])
_Frames = Tuple[Tuple[str, str], ...]  # open splits, outermost first: (split step, branch taken)


class Node:
    """One step.

    Attributes:
        type: ``start``, ``linear``, ``split``, ``foreach`` (also ``num_parallel``),
            ``split-switch``, ``join``, ``end``, or None if its ``self.next`` can't be read.
        out_funcs, in_funcs: names of the steps after and before it.
        split_parents: the splits that are open at it, outermost first (for a join with the one that
            it closes).
        matching_join: for a split, the step that joins it.
        switch_cases: value → step; a key ``config:NAME.KEY`` stands for a configuration's value.
    """

    def __init__(self, name: str, func: Any, decorators: List[Any]) -> None:
        code = getattr(inspect.unwrap(func), "__code__", None)
        self.name = name
        self.decorators = decorators
        self.is_start_step = bool(getattr(func, "is_start_step", False))
        self.is_end_step = bool(getattr(func, "is_end_step", False))
        self.doc = inspect.cleandoc(func.__doc__) if func.__doc__ else ""
        self.source_file: str = getattr(code, "co_filename", "")
        self.func_lineno: int = getattr(code, "co_firstlineno", 0)
        self.num_args: int = getattr(code, "co_argcount", 1)
        self.type: Optional[str] = None
        self.out_funcs: List[str] = []
        self.in_funcs: List[str] = []
        self.has_tail_next = False
        self.invalid_tail_next = False
        self.tail_next_lineno = 0
        self.foreach_param: Optional[str] = None
        self.parallel_foreach = False
        self.num_parallel: Any = 0
        self.condition: Optional[str] = None
        self.switch_cases: Dict[Any, str] = {}
        self.split_parents: List[str] = []
        self.split_branches: List[str] = []
        self.matching_join: Optional[str] = None
        self.is_inside_foreach = False
        self.parallel_step = any(getattr(one, "IS_PARALLEL", False) for one in self.decorators)
        tree = _definition(func, code) if code is not None else None
        self.has_source = tree is not None
        if tree is not None:
            self._read(*tree)

    def _read(self, tree: ast.FunctionDef, line: int) -> None:
        self.func_lineno = line + tree.lineno - 1
        self.num_args = len(tree.args.args)
        tail = tree.body[-1]
        call = tail.value if isinstance(tail, ast.Expr) else None
        if not isinstance(call, ast.Call) or _dotted(call.func) != "self.next":
            return
        self.has_tail_next = True
        self.tail_next_lineno = line + tail.lineno - 1
        self.invalid_tail_next = not self._read_next(call)

    def _read_next(self, call: ast.Call) -> bool:
        """Read a call of ``self.next``; returns whether it has a known form."""
        options = {one.arg: one.value for one in call.keywords}
        if set(options) == {"condition"} and len(call.args) == 1:
            cases = _cases(call.args[0])
            condition = _literal(options["condition"])
            if not cases or not isinstance(condition, str):
                return False
            self.type, self.condition, self.switch_cases = "split-switch", condition, cases
            self.out_funcs = list(dict.fromkeys(cases.values()))
            return True
        steps = [_dotted(one) for one in call.args]
        if not all(one.startswith("self.") for one in steps):
            return False
        self.out_funcs = [one[len("self.") :] for one in steps]
        if not options and steps:
            joins = self.num_args > 1
            self.type = "split" if len(steps) > 1 else "join" if joins else "linear"
            return True
        if len(steps) != 1 or len(options) != 1:
            return False
        if "foreach" in options:
            self.type, self.foreach_param = "foreach", _literal(options["foreach"])
            return isinstance(self.foreach_param, str)
        if "num_parallel" in options:
            self.type, self.parallel_foreach = "foreach", True
            self.num_parallel = _literal(options["num_parallel"])
            return True
        return False

    def at(self, tail: bool = False) -> Tuple[int, str]:
        """Line and file, for a message."""
        line = self.tail_next_lineno if tail and self.tail_next_lineno else self.func_lineno
        return line, self.source_file


def _definition(func: Any, code: Any) -> Optional[Tuple[ast.FunctionDef, int]]:
    """The function's tree and its first line in the file; each file is parsed once."""
    tree = _parsed(code.co_filename)
    if tree is not None:
        found = tree.get((code.co_name, code.co_firstlineno))
        if found is not None:
            return found, 1
    try:
        lines, line = inspect.getsourcelines(inspect.unwrap(func))
        parsed = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    return (parsed, line) if isinstance(parsed, ast.FunctionDef) else None


_trees: Dict[str, Tuple[int, Dict[Tuple[str, int], ast.FunctionDef]]] = {}


def _parsed(filename: str) -> Optional[Dict[Tuple[str, int], ast.FunctionDef]]:
    """(name, first line with decorators) → tree, for the functions in a file's classes."""
    text = "".join(linecache.getlines(filename))
    known = _trees.get(filename)
    if known is not None and known[0] == hash(text):
        return known[1]
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    found = {}
    for one in ast.walk(tree):
        if isinstance(one, ast.FunctionDef):
            first = min([one.lineno, *(mark.lineno for mark in one.decorator_list)])
            found[one.name, first] = one
    _trees[filename] = (hash(text), found)
    return found


def _dotted(node: ast.AST) -> str:
    """``a.b`` for an attribute of a name, else an empty text."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def _literal(node: ast.AST) -> Any:
    return node.value if isinstance(node, ast.Constant) else None


def _cases(node: ast.AST) -> Optional[Dict[Any, str]]:
    """Value → step, for a switch's mapping; None if the source doesn't show it."""
    if not isinstance(node, ast.Dict):
        return None
    cases: Dict[Any, str] = {}
    for key, value in zip(node.keys, node.values):
        step = _dotted(value)
        if key is None or not step.startswith("self."):
            return None
        if isinstance(key, ast.Constant) and key.value is not None:
            case = key.value
        elif isinstance(key, ast.Attribute) and _dotted(key.value).startswith("self."):
            case = f"config:{_dotted(key.value)[len('self.') :]}.{key.attr}"
        else:
            return None
        cases[case] = step[len("self.") :]
    return cases


class FlowGraph:
    """All steps of a flow; iterates over its nodes, ``graph[name]`` is one.

    Attributes:
        start_step, end_step: their names, or None if missing.
        sorted_nodes: names, each after those that lead to it (loops aside).
    """

    def __init__(self, flow: Any) -> None:
        self.name: str = flow.__name__
        self.doc = inspect.cleandoc(flow.__doc__) if flow.__doc__ else ""
        self.nodes: Dict[str, Node] = {}
        for name in dir(flow):
            func = inspect.getattr_static(flow, name)
            if callable(func) and getattr(func, "is_step", False):
                self.nodes[name] = Node(name, func, decorators_of(flow, name))
        self.start_step = self._endpoint("is_start_step", "start")
        self.end_step = self._endpoint("is_end_step", "end")
        self._types()
        self.sorted_nodes: List[str] = []
        self._walk()

    def _endpoint(self, mark: str, name: str) -> Optional[str]:
        if len(self.nodes) == 1:
            return next(iter(self.nodes))
        marked = [one.name for one in self if getattr(one, mark)]
        if marked:
            return marked[0] if len(marked) == 1 else None
        return name if name in self.nodes else None

    def _types(self) -> None:
        if self.start_step and self.nodes[self.start_step].type in (None, "linear"):
            self.nodes[self.start_step].type = "start"
        if self.end_step:
            self.nodes[self.end_step].type = "end"

    def _walk(self) -> None:
        """Find the open splits at each node, by the first way to it; in_funcs; the order."""
        for node in self:
            for name in node.out_funcs:
                if name in self and node.name not in self[name].in_funcs:
                    self[name].in_funcs.append(node.name)
        if self.start_step is None:
            return
        first: Dict[str, _Frames] = {self.start_step: ()}
        left = [self.start_step]
        while left:
            node = self[left.pop()]
            frames = first[node.name]
            node.split_parents = [split for split, _ in frames]
            node.split_branches = [branch for _, branch in frames]
            if node.num_args > 1 and frames:
                self[frames[-1][0]].matching_join = node.name
                node.split_branches.pop()
            for name, then in self.ways(node, frames):
                if name not in first:
                    first[name] = then
                    left.append(name)
        self.sorted_nodes = self._sorted()
        for node in self:
            open_ = node.split_parents[: -1 if node.num_args > 1 else None]
            node.is_inside_foreach = any(self[one].type == "foreach" for one in open_)
            node.in_funcs.sort()

    def ways(self, node: Node, frames: _Frames) -> Iterator[Tuple[str, _Frames]]:
        """Known steps after a node, each with its open splits."""
        if node.num_args > 1:
            frames = frames[:-1]
        for name in node.out_funcs:
            if name in self:
                splits = node.type in ("split", "foreach")
                yield name, (*frames, (node.name, name)) if splits else frames

    def _sorted(self) -> List[str]:
        """Depth first, with a stack instead of recursion: a chain may have a thousand steps."""
        assert self.start_step is not None
        done: List[str] = []
        seen = {self.start_step}
        stack = [(self.start_step, reversed(self[self.start_step].out_funcs))]
        while stack:
            name, rest = stack[-1]
            following = next((one for one in rest if one in self and one not in seen), None)
            if following is None:
                done.append(name)
                stack.pop()
            else:
                seen.add(following)
                stack.append((following, reversed(self[following].out_funcs)))
        return done[::-1]

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    def __contains__(self, name: object) -> bool:
        return name in self.nodes

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes.values())

    def __len__(self) -> int:
        return len(self.nodes)


# ---------------------------------------------------------------------------- what can be wrong


def lint(graph: FlowGraph) -> None:
    """Check that the graph can be run.

    Raises:
        LintWarn: the first fault: step, cause, remedy, file and line.
    """
    for check in (
        _names,
        _endpoints,
        _arguments,
        _transitions,
        _switches,
        _parallel,
        _orphans,
        _loops,
        _balance,
    ):
        check(graph)


def _wrong(text: str, node: Optional[Node] = None, tail: bool = False) -> LintWarn:
    return LintWarn(text, *node.at(tail)) if node is not None else LintWarn(text)


def _names(graph: FlowGraph) -> None:
    if not graph.nodes:
        raise _wrong(f"flow '{graph.name}' has no step: put @step above a method named 'start'")
    for node in graph:
        if node.name in RESERVED:
            raise _wrong(f"'{node.name}' can't be a step's name, it is one of FlowSpec's own", node)
        if re.search("[^a-z0-9_]", node.name) or node.name[0] == "_":
            raise _wrong(
                f"step '{node.name}': a step's name has lowercase ASCII letters, digits and "
                "underscores only, and doesn't begin with an underscore; rename it",
                node,
            )


def _endpoints(graph: FlowGraph) -> None:
    for kind, mark, name in (
        ("start", "is_start_step", graph.start_step),
        ("end", "is_end_step", graph.end_step),
    ):
        marked = sorted(one.name for one in graph if getattr(one, mark))
        if name is None and marked:
            raise _wrong(f"@step({kind}=True) marks {', '.join(marked)}: a flow has exactly one")
        if name is None:
            raise _wrong(
                f"flow '{graph.name}' has no {kind} step: name a step '{kind}', or mark it "
                f"@step({kind}=True)"
            )
        if name != kind and kind in graph:
            raise _wrong(
                f"step '{name}' is marked @step({kind}=True), and there is a step '{kind}' as "
                "well: rename that one, or leave the mark out",
                graph[name],
            )
    assert graph.start_step is not None and graph.end_step is not None
    start, end = graph[graph.start_step], graph[graph.end_step]
    if end.has_tail_next:
        raise _wrong(f"step '{end.name}' ends the flow: remove its self.next()", end, tail=True)
    if end.num_args > 1:
        raise _wrong(
            f"step '{end.name}' ends the flow and takes inputs, but the last step can't be a join: "
            "add a join step before it",
            end,
        )
    if start.in_funcs and start is not end:
        raise _wrong(
            f"step '{start.name}' begins the flow, but {_listed(start.in_funcs)} lead to it: a flow "
            "begins where nothing leads to; move what is repeated into a step of its own",
            start,
        )


def _arguments(graph: FlowGraph) -> None:
    for node in graph:
        if node.num_args == 0:
            raise _wrong(f"step '{node.name}' lacks its argument 'self'", node)
        if node.num_args > 2:
            raise _wrong(
                f"step '{node.name}' has too many arguments: a step takes (self), a join "
                "(self, inputs); hand values on as self.NAME",
                node,
            )
        if node.num_args == 2 and node.type in ("split", "foreach", "split-switch"):
            raise _wrong(
                f"step '{node.name}' is a join (it takes inputs) and a split (several branches follow "
                "it): make these two steps",
                node,
            )


def _transitions(graph: FlowGraph) -> None:
    for node in graph:
        if node.type != "end" and not node.has_source:
            raise _wrong(
                f"the source of step '{node.name}' can't be read, and the graph is read from it: "
                "write the flow into a file, and run that",
                node,
            )
        if node.type != "end" and not node.has_tail_next:
            raise _wrong(
                f"step '{node.name}' doesn't say what follows: its last statement must be "
                "self.next(self.STEP)",
                node,
            )
        if node.type != "end" and node.invalid_tail_next:
            raise _wrong(
                f"step '{node.name}': this self.next() can't be followed. There are\n"
                "  self.next(self.step)\n"
                "  self.next(self.step1, self.step2, …)\n"
                "  self.next(self.step, foreach='artifact')\n"
                "  self.next(self.step, num_parallel=N)\n"
                "  self.next({'value': self.step, …}, condition='artifact'), where values are texts, "
                "numbers or self.CONFIG.KEY",
                node,
                tail=True,
            )
        for name in node.out_funcs:
            if name not in graph:
                raise _wrong(
                    f"step '{node.name}' goes on to '{name}', which is not a step of the flow"
                    f"{did_you_mean(name, graph.nodes)}",
                    node,
                    tail=True,
                )


def _switches(graph: FlowGraph) -> None:
    for node in graph:
        if node.type == "split-switch" and len(node.switch_cases) < 2:
            raise _wrong(
                f"step '{node.name}' switches on '{node.condition}' with one case: give at least two, or "
                "go there without a condition",
                node,
                tail=True,
            )
        joins = [name for name in node.out_funcs if graph[name].num_args > 1]
        if node.type == "split-switch" and joins:
            raise _wrong(
                f"step '{node.name}': a case of its switch leads directly to the join '{joins[0]}'; "
                "put a step between the two",
                node,
                tail=True,
            )
        if node.type == "split-switch" and node.parallel_step:
            raise _wrong(f"step '{node.name}' is @parallel, so it can't be a switch", node)
        if node.type == "foreach" and joins:
            raise _wrong(
                f"step '{node.name}' goes on by foreach directly to the join '{joins[0]}': put the step "
                "that works on an item between the two",
                node,
                tail=True,
            )


def _parallel(graph: FlowGraph) -> None:
    for node in graph:
        for name in node.out_funcs:
            following = graph[name]
            if node.parallel_foreach and not following.parallel_step:
                raise _wrong(
                    f"step '{node.name}' starts '{name}' by num_parallel, but '{name}' has no "
                    "@parallel: put @parallel above its @step",
                    following,
                )
            if following.parallel_step and not node.parallel_foreach:
                raise _wrong(
                    f"step '{name}' is @parallel, but '{node.name}' starts it without num_parallel: "
                    f"write self.next(self.{name}, num_parallel=N)",
                    node,
                    tail=True,
                )
            if node.parallel_step and following.num_args < 2:
                raise _wrong(
                    f"step '{name}' follows the @parallel step '{node.name}', so it must be a join: "
                    f"write def {name}(self, inputs)",
                    following,
                )


def _orphans(graph: FlowGraph) -> None:
    lost = sorted(set(graph.nodes) - set(graph.sorted_nodes))
    if lost:
        raise _wrong(
            f"step '{lost[0]}' is never reached from '{graph.start_step}': lead to it by "
            f"self.next(self.{lost[0]}), or remove it",
            graph[lost[0]],
        )


def _loops(graph: FlowGraph) -> None:
    """Refuse loops without a switch: they would never end."""
    on_way: Dict[str, Optional[bool]] = {}
    for root in graph.sorted_nodes:
        if root in on_way:
            continue
        path = [root]
        stack = [iter(graph[root].out_funcs)]
        on_way[root] = True
        while stack:
            name = next(stack[-1], None)
            if name is None:
                on_way[path.pop()] = False
                stack.pop()
            elif on_way.get(name):
                ring = path[path.index(name) :]
                if not any(graph[one].type == "split-switch" for one in ring):
                    raise _wrong(
                        f"there is a loop without an end: {' → '.join([*ring, name])}; leave it by a "
                        "switch, self.next({…}, condition=…)",
                        graph[path[-1]],
                        tail=True,
                    )
            elif name not in on_way:
                on_way[name] = True
                path.append(name)
                stack.append(iter(graph[name].out_funcs))


def _balance(graph: FlowGraph) -> None:
    """Check that every split has one join, with all of its branches and no other ones."""
    assert graph.start_step is not None
    arrived: Dict[str, List[Tuple[str, _Frames]]] = {}
    left: List[Tuple[str, _Frames]] = [(graph.start_step, ())]
    seen = set(left)
    while left:
        name, frames = left.pop()
        _balanced_at(graph[name], frames)
        for following, then in graph.ways(graph[name], frames):
            ways = arrived.setdefault(following, [])
            ways.append((name, then))
            _ways_agree(
                graph[following], ways[0], ways[-1]
            )  # so that a loop can't open splits without end
            if (following, then) not in seen:
                seen.add((following, then))
                left.append((following, then))
    for name, ways in arrived.items():  # branches that meet without a join are reported already
        for _, frames in ways:
            _ended(graph[name], frames)
    for name, ways in arrived.items():
        if graph[name].num_args > 1:
            _joins_all(graph, graph[name], ways)


def _ended(node: Node, frames: _Frames) -> None:
    if node.type == "end" and frames:
        raise _wrong(
            f"step '{node.name}' ends the flow, but the branches of {_listed(_splits(frames))} are "
            "still open: join them in a step (self, inputs) before it",
            node,
        )


def _balanced_at(node: Node, frames: _Frames) -> None:
    if node.num_args > 1 and not frames:
        raise _wrong(
            f"step '{node.name}' takes inputs, but no split is open there: remove the argument, or "
            "split before it",
            node,
        )


def _ways_agree(node: Node, one: Tuple[str, _Frames], other: Tuple[str, _Frames]) -> None:
    if node.num_args < 2:
        if one[1] != other[1] and node.type != "end":  # the end can't be a join
            raise _wrong(
                f"step '{node.name}' is reached by {_listed(sorted({one[0], other[0]}))} with different "
                f"branches open: where branches meet is a join, def {node.name}(self, inputs)",
                node,
            )
    elif one[1] and (_splits(one[1]), one[1][:-1]) != (_splits(other[1]), other[1][:-1]):
        splits = {frames[-1][0] for _, frames in (one, other) if frames}
        raise _wrong(
            f"step '{node.name}' joins branches of different splits ({_listed(sorted(splits))}): "
            "each split has a join of its own",
            node,
        )


def _joins_all(graph: FlowGraph, node: Node, ways: List[Tuple[str, _Frames]]) -> None:
    split = graph[ways[0][1][-1][0]]
    came = {frames[-1][1] for _, frames in ways}
    lacking = sorted(set(split.out_funcs) - came)
    if lacking:
        raise _wrong(
            f"step '{node.name}' joins the branches of '{split.name}', but not that of "
            f"{_listed(lacking)}: all branches of a split meet in one join",
            node,
        )


def _splits(frames: _Frames) -> Tuple[str, ...]:
    return tuple(split for split, _ in frames)


def _listed(names: Any) -> str:
    return ", ".join(f"'{one}'" for one in names)


# ---------------------------------------------------------------------------- to tell of it


_TYPES = {"split": "split-static", "foreach": "split-foreach"}


def steps_info(graph: FlowGraph) -> Dict[str, Dict[str, Any]]:
    """Name → the step's entry in ``current.graph["steps"]``."""
    return {name: _step_info(graph[name]) for name in graph.sorted_nodes}


def _step_info(node: Node) -> Dict[str, Any]:
    kind = "split-parallel" if node.parallel_foreach else _TYPES.get(str(node.type), node.type)
    info: Dict[str, Any] = {
        "name": node.name,
        "type": kind,
        "line": node.func_lineno,
        "source_file": node.source_file,
        "doc": node.doc,
        "decorators": decorators_info(node.decorators),
        "next": list(node.out_funcs),
        "node_info": {},
    }
    if kind == "split-foreach":
        info["foreach_artifact"] = node.foreach_param
    elif kind == "split-parallel":
        info["num_parallel"] = node.num_parallel
    elif kind == "split-switch":
        info["condition"], info["switch_cases"] = node.condition, dict(node.switch_cases)
    if node.matching_join:
        info["matching_join"] = node.matching_join
    return info


def decorators_info(decorators: Any) -> List[Dict[str, Any]]:
    """Names and attributes of decorators, for displays of the graph."""
    return [
        {
            "name": one.name,
            "attributes": to_pod(resolve(one.attributes)),
            "statically_defined": one.statically_defined,
            "inserted_by": getattr(one, "inserted_by", None),
        }
        for one in decorators
        if not one.name.startswith("_")
    ]


def structure(graph: FlowGraph) -> List[Any]:
    """Steps in order; a split is followed by a list of its branches, each a list."""
    if graph.start_step is None or graph.end_step is None:
        return []

    def block(name: str, stop: Optional[str], seen: Tuple[str, ...]) -> List[Any]:
        found: List[Any] = []
        here: Optional[str] = name
        while here is not None and here != stop and here not in seen:
            node = graph[here]
            seen = (*seen, here)
            found.append(here)
            if node.type in ("split", "foreach"):
                found.append([block(one, node.matching_join, seen) for one in node.out_funcs])
                here = node.matching_join
            elif node.type == "split-switch":
                ways = [one for one in node.out_funcs if one not in seen]
                end = None if stop is not None else graph.end_step
                found.append([block(one, stop or end, seen) for one in ways])
                here = None
            else:
                here = node.out_funcs[0] if node.out_funcs else None
        return found

    if graph.start_step == graph.end_step:
        return [graph.end_step]
    return [*block(graph.start_step, graph.end_step, ()), graph.end_step]
