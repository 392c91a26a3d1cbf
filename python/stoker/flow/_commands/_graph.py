"""``check show output-dot output-raw version help``: information about the flow."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any, Dict, Iterator

from ... import __version__
from .. import _graph
from ._context import program
from ._parameters import read_configs
from ._parse import help_of

if TYPE_CHECKING:
    from ._context import Context


def _path() -> str:
    return sys.argv[0] or "flow.py"


def validate(context: Context) -> None:
    """Check the graph; reports it on standard error.

    Raises:
        LintWarn: the graph has a fault.
    """
    context.say("Validating your flow...")
    _graph.lint(context.graph)
    context.say("    The graph looks good!")


def check(context: Context, values: Dict[str, Any]) -> None:
    """Report that the graph is valid, and name further commands."""
    validate(context)
    path = _path()
    context.say(
        f"\n'{path} show' shows a description of this flow.\n"
        f"'{path} run' runs the flow locally.\n"
        f"'{path} help' shows all available commands and options.\n"
    )


def show(context: Context, values: Dict[str, Any]) -> None:
    """Print the steps with their docstrings on stdout, the flow's docstring on stderr."""
    graph = context.graph
    print(f"\n{graph.doc}\n", file=sys.stderr, flush=True)
    for name in graph.sorted_nodes:
        node = graph[name]
        for mark in node.decorators:
            print(f"@{mark.name}")
        print(f"Step {name}")
        print(textwrap.indent(node.doc or "?", "    "))
        if node.type != "end":
            print(f"    => {', '.join(node.out_funcs)}")


def output_dot(context: Context, values: Dict[str, Any]) -> None:
    """The graph in Graphviz's language."""
    context.say("Visualizing the flow as a GraphViz graph")
    context.say("    Try piping the output to 'dot -Tpng -o graph.png' to produce an actual image.")
    print(dot(context.graph))


def dot(graph: Any) -> str:
    """The graph in Graphviz's language."""
    lines = [f"digraph {graph.name} {{", *map(_dot_node, graph)]
    for node in graph:
        lines += _dot_edges(node)
    return "\n".join([*lines, "}"])


def _dot_node(node: Any) -> str:
    if node.type == "split-switch":
        return (
            f'"{node.name}" [ label = <<b>{node.name}</b><br/><font point-size="9">switch: {node.condition}'
            '</font>>   fontname = "Helvetica"   shape = "hexagon"   style = "filled" fillcolor = "lightgreen" ];'
        )
    kind = "join" if node.num_args > 1 else node.type
    return (
        f'"{node.name}"[ label = <<b>{node.name}</b> | <font point-size="10">{kind}</font>>   '
        'fontname = "Helvetica"   shape = "record" ];'
    )


def _dot_edges(node: Any) -> Iterator[str]:
    if node.type != "split-switch":
        yield from (f"{node.name} -> {name};" for name in node.out_funcs)
        return
    for case, name in node.switch_cases.items():
        yield f'{node.name} -> {name} [label="{case}" color="blue" fontcolor="blue"];'


def output_raw(context: Context, values: Dict[str, Any]) -> None:
    """Print the graph as data."""
    read_configs(context)  # attributes of decorators may be taken from them
    graph = context.graph
    if values["json"]:
        import json

        context.say("Internal representation of the flow in JSON format:")
        info = {"graph": _graph.steps_info(graph), "graph_structure": _graph.structure(graph)}
        print(json.dumps(info, indent=4))
        return
    context.say("Internal representation of the flow:")
    for name, info in _graph.steps_info(graph).items():
        print(f"{name}:")
        for key, value in info.items():
            print(f"    {key}: {value}")


def version(context: Context, values: Dict[str, Any]) -> None:
    """Print Stoker's version on stderr, like Metaflow."""
    print(__version__, file=sys.stderr)


def show_help(context: Context, values: Dict[str, Any]) -> None:
    """List all commands."""
    print(help_of(context.root, program()))
