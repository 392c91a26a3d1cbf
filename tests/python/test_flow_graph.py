"""Flows: the graph read from the source, and errors for graphs that can't run."""

from __future__ import annotations

import itertools
import linecache
import textwrap
from typing import Any

import pytest

from stoker.flow._compile import graph_info
from stoker.flow._graph import FlowGraph, lint
from stoker.flow.exception import LintWarn

_numbers = itertools.count()


def flow_of(body: str, head: str = "") -> Any:
    """The class F whose body is given, from a source that `linecache` knows."""
    text = f"from stoker.flow import *\n{head}\nclass F(FlowSpec):\n" + textwrap.indent(
        textwrap.dedent(body), "    "
    )
    name = f"<flow {next(_numbers)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    names: dict[str, Any] = {"__name__": "flow_under_test"}
    text = text.replace(
        "from stoker.flow import *", "from stoker.flow import FlowSpec, step, parallel"
    )
    exec(compile(text, name, "exec"), names)
    return names["F"]


def steps(**nexts: str) -> str:
    """Steps by name; `join_` in front of a next makes it a join, `@` a @parallel one."""
    lines = []
    for name, following in nexts.items():
        if following.startswith("@"):
            lines.append("@parallel")
            following = following[1:]
        joins = following.startswith("join ")
        lines += ["@step", f"def {name}(self{', inputs' if joins else ''}):"]
        following = following.removeprefix("join ")
        lines.append(f"    self.next({following})" if following else "    pass")
    return "\n".join(lines)


RUNNABLE = {
    "linear": {"start": "self.a", "a": "self.end", "end": ""},
    "static": {
        "start": "self.a, self.b",
        "a": "self.j",
        "b": "self.j",
        "j": "join self.end",
        "end": "",
    },
    "foreach": {"start": "self.a, foreach='xs'", "a": "self.j", "j": "join self.end", "end": ""},
    "nested": {
        "start": "self.a, foreach='xs'",
        "a": "self.b, self.c",
        "b": "self.k",
        "c": "self.k",
        "k": "join self.j",
        "j": "join self.end",
        "end": "",
    },
    "switch": {
        "start": "{'x': self.a, 2: self.b}, condition='v'",
        "a": "self.end",
        "b": "self.end",
        "end": "",
    },
    "loop": {
        "start": "self.a",
        "a": "{'again': self.a, 'done': self.end}, condition='v'",
        "end": "",
    },
    "long loop": {
        "start": "self.a",
        "a": "self.b",
        "b": "{True: self.a, False: self.end}, condition='v'",
        "end": "",
    },
    "parallel": {
        "start": "self.a, num_parallel=3",
        "a": "@self.j",
        "j": "join self.end",
        "end": "",
    },
    "switch in a branch": {
        "start": "self.a, self.b",
        "a": "{'x': self.c, 'y': self.d}, condition='v'",
        "b": "self.j",
        "c": "self.d",
        "d": "self.j",
        "j": "join self.end",
        "end": "",
    },
}


@pytest.mark.parametrize("name", RUNNABLE)
def test_runnable(name: str) -> None:
    graph = FlowGraph(flow_of(steps(**RUNNABLE[name])))
    lint(graph)
    assert graph.sorted_nodes[0] == "start"
    assert set(graph.sorted_nodes) == set(RUNNABLE[name])


def test_nodes_tell_what_metaflows_tell() -> None:
    graph = FlowGraph(flow_of(steps(**RUNNABLE["nested"])))
    a, b, k = graph["a"], graph["b"], graph["k"]
    assert (a.type, b.type, k.type) == ("split", "linear", "join")
    assert a.split_parents == ["start"] and b.split_parents == ["start", "a"]
    assert a.matching_join == "k" and graph["start"].matching_join == "j"
    assert k.in_funcs == ["b", "c"] and k.is_inside_foreach and not graph["j"].is_inside_foreach
    graph = FlowGraph(flow_of(steps(**RUNNABLE["switch"])))
    assert graph["start"].switch_cases == {"x": "a", 2: "b"} and graph["start"].condition == "v"
    graph = FlowGraph(flow_of(steps(**RUNNABLE["parallel"])))
    assert graph["start"].parallel_foreach and graph["start"].num_parallel == 3
    assert graph["a"].parallel_step


def test_graph_info_has_the_structure() -> None:
    info = graph_info(flow_of(steps(**RUNNABLE["nested"])))
    assert info["graph_structure"] == ["start", [["a", [["b"], ["c"]], "k"]], "j", "end"]
    assert info["steps"]["start"]["foreach_artifact"] == "xs"
    assert info["steps"]["a"]["type"] == "split-static"


def test_a_thousand_steps_are_no_recursion() -> None:
    chain = {"start": "self.s0", **{f"s{i}": f"self.s{i + 1}" for i in range(1500)}}
    graph = FlowGraph(flow_of(steps(**chain, s1500="self.end", end="")))
    lint(graph)
    assert len(graph.sorted_nodes) == 1503
    assert len(graph_info(flow_of(steps(**chain, s1500="self.end", end="")))["steps"]) == 1503


WRONG = {
    "no start": ({"a": "self.end", "end": ""}, "has no start step"),
    "no end": ({"start": "self.a", "a": ""}, "has no end step"),
    "name": (
        {"start": "self.Ab", "Ab": "self.end", "end": ""},
        "'Ab': a step's name has lowercase",
    ),
    "no next": ({"start": "self.a", "a": "", "end": ""}, "'a' doesn't say what follows"),
    "unknown": (
        {"start": "self.ende", "end": ""},
        "'ende', which is not a step of the flow; did you mean 'end'?",
    ),
    "orphan": (
        {"start": "self.end", "a": "self.end", "end": ""},
        "'a' is never reached from 'start'",
    ),
    "loop": (
        {"start": "self.a", "a": "self.b", "b": "self.a", "end": ""},
        "never reached|without an end: a → b → a",
    ),
    "end goes on": ({"start": "self.end", "end": "self.start"}, "'end' ends the flow: remove"),
    "end joins": (
        {"start": "self.a, self.b", "a": "self.end", "b": "self.end", "end": "join "},
        "the last step can't be a join",
    ),
    "open": (
        {"start": "self.a, self.b", "a": "self.end", "b": "self.end", "end": ""},
        "branches of 'start' are still open",
    ),
    "a join without inputs": (
        {"start": "self.a, self.b", "a": "self.j", "b": "self.j", "j": "self.end", "end": ""},
        r"'j' is reached by 'a', 'b' with .* is a join, def j\(self, inputs\)",
    ),
    "a foreach without a join": (
        {"start": "self.a, foreach='xs'", "a": "self.end", "end": ""},
        "'end' ends the flow, but the branches of 'start' are still open",
    ),
    "join without split": (
        {"start": "self.a", "a": "join self.end", "end": ""},
        "no split is open there",
    ),
    "one branch lost": (
        {
            "start": "self.a, self.b",
            "a": "self.j",
            "b": "self.k",
            "j": "join self.end",
            "k": "join self.end",
            "end": "",
        },
        "joins the branches of 'start', but not that of",
    ),
    "cross join": (
        {
            "start": "self.a, self.b",
            "a": "self.c, foreach='xs'",
            "b": "self.j",
            "c": "self.j",
            "j": "join self.k",
            "k": "join self.end",
            "end": "",
        },
        "joins branches of different splits|no split is open",
    ),
    "join that splits": (
        {
            "start": "self.a, foreach='x'",
            "a": "self.j",
            "j": "join self.b, self.c",
            "b": "self.k",
            "c": "self.k",
            "k": "join self.end",
            "end": "",
        },
        "'j' is a join .* and a split",
    ),
    "empty foreach": (
        {"start": "self.j, foreach='xs'", "j": "join self.end", "end": ""},
        "directly to the join 'j'",
    ),
    "one case": (
        {"start": "{'x': self.end}, condition='v'", "end": ""},
        "switches on 'v' with one case",
    ),
    "case is a name": ({"start": "{KEY: self.end}, condition='v'", "end": ""}, "can't be followed"),
    "two forms": (
        {"start": "self.end, foreach='x', num_parallel=2", "end": ""},
        "can't be followed",
    ),
    "not parallel": (
        {"start": "self.a, num_parallel=2", "a": "self.j", "j": "join self.end", "end": ""},
        "'a' has no @parallel",
    ),
    "parallel alone": (
        {"start": "self.a", "a": "@self.j", "j": "join self.end", "end": ""},
        "'a' is @parallel, but 'start'",
    ),
    "case to a join": (
        {
            "start": "self.a, foreach='xs'",
            "a": "{'x': self.b, 'y': self.j}, condition='v'",
            "b": "self.j",
            "j": "join self.end",
            "end": "",
        },
        "leads directly to the join 'j'",
    ),
    "loop opens a split for ever": (
        {
            "start": "self.a",
            "a": "self.b, foreach='xs'",
            "b": "{'x': self.a, 'y': self.c}, condition='v'",
            "c": "self.j",
            "j": "join self.end",
            "end": "",
        },
        "'a' is reached by 'b', 'start' with different branches open",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    body, sentence = WRONG[name]
    with pytest.raises(LintWarn, match=sentence) as caught:
        lint(FlowGraph(flow_of(steps(**body))))
    if name not in ("no start", "no end"):
        assert caught.value.line_no and caught.value.source_file.startswith("<flow")


def test_a_flow_without_a_file() -> None:
    names: dict[str, Any] = {}
    exec("from stoker.flow import FlowSpec, step\n\nclass F(FlowSpec):\n    @step\n    def start(self):\n"
         "        self.next(self.end)\n    @step\n    def end(self): pass\n", names)  # fmt: skip
    with pytest.raises(LintWarn, match=r"source of step 'start' can't be read.*into a file"):
        lint(FlowGraph(names["F"]))


def test_marked_ends_and_one_step() -> None:
    marked = flow_of(
        """
        @step(start=True)
        def first(self):
            self.next(self.last)
        @step(end=True)
        def last(self):
            pass
        """
    )
    graph = FlowGraph(marked)
    lint(graph)
    assert (graph.start_step, graph.end_step) == ("first", "last")
    only = flow_of("@step\ndef only(self):\n    pass")
    lint(FlowGraph(only))
    assert FlowGraph(only).start_step == "only"
