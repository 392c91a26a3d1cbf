"""The context of a flow's commands, and helpers that several commands use."""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Sequence

from ..._base.binary import run_options
from ..exception import CommandException
from ._parse import Command


class Context:
    """The context of a command.

    Attributes:
        flow: the flow's class.
        top: values of the options before the command.
        root: the whole table.
    """

    def __init__(self, flow: Any, root: Command, top: Dict[str, Any]) -> None:
        self.flow = flow
        self.root = root
        self.top = top
        self.quiet = bool(top["quiet"] or run_options().get("quiet"))

    @property
    def name(self) -> str:
        """The flow's name."""
        return str(self.flow.__name__)

    @property
    def graph(self) -> Any:
        """Its graph, read from its source."""
        from .._graph import FlowGraph

        return FlowGraph(self.flow)

    def say(self, text: str = "") -> None:
        """A message on standard error, unless ``--quiet``."""
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)


def program() -> str:
    """The file as the user named it."""
    return os.path.basename(sys.argv[0]) or "flow.py"


def run_id_of(context: Context, text: str, n: Sequence[int] = (2, 3)) -> List[str]:
    """The parts of ``RUN/STEP[/TASK]``, which may begin with the flow's name.

    Raises:
        CommandException: the text isn't of this form.
    """
    parts = text.split("/")
    if len(parts) > max(n) and parts[0] == context.name:
        parts = parts[1:]
    if len(parts) not in n or not all(parts):
        raise CommandException(f"'{text}' is neither RUN/STEP nor RUN/STEP/TASK")
    return parts
