"""Environments of steps: what ``@pypi`` and ``@conda`` ask for, and interpreters that have it.

``--environment=pypi`` (or ``conda``, which means the same) gives each step an interpreter with
exactly the packages that it asks for, none where it asks for none. ``disabled=True`` keeps the
interpreter that starts the flow. ``_build.py`` makes environments by the tools of ``_tools.py``,
``_asked.py`` says how packages are named, ``_want.py`` what a step asks for.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from ..._base.errors import did_you_mean
from ..exception import InvalidEnvironmentException
from ._want import STEP, want_of

KINDS = ("local", "pypi", "conda", "uv")
_ISOLATED = ("pypi", "conda")


def kind_of(options: Mapping[str, Any]) -> Tuple[str, bool]:
    """The value of ``--environment``, and whether the user gave it.

    Raises:
        InvalidEnvironmentException: there is no such environment.
    """
    top = options.get("flow_options") or {}
    given = top.get("environment") or os.environ.get("METAFLOW_DEFAULT_ENVIRONMENT")
    kind = str(given or "local")
    if kind not in KINDS:
        raise InvalidEnvironmentException(
            f"--environment={kind}: there is no such environment{did_you_mean(kind, KINDS)} (there is: "
            f"{', '.join(KINDS)})"
        )
    return kind, bool(given)


class Placed(NamedTuple):
    """The environments of a flow's steps.

    Attributes:
        settings: step → keys for its document; {} where it runs as the flow does.
        notes: for the user.
        locks: step → digest of the installed packages, for the cache key.
    """

    settings: Dict[str, Dict[str, Any]]
    notes: List[str]
    locks: Dict[str, str]


def place(steps: Mapping[str, List[Any]], base: List[Any], options: Mapping[str, Any]) -> Placed:
    """Make the environments of a flow's steps; those that exist are taken as they are.

    Args:
        steps: step → its decorators. base: those of the flow. options: of ``compile_flow``.

    Raises:
        InvalidEnvironmentException: packages can't be had, or are asked for without
            ``--environment``.
    """
    placed = Placed({}, [], {})
    kind, given = kind_of(options)
    if kind not in _ISOLATED:
        asked = _asking(steps, base)
        if asked and not given:
            raise InvalidEnvironmentException(
                f"{asked} needs --environment=pypi (or conda), as in `python {os.path.basename(sys.argv[0])} "
                "--environment=pypi run`; --environment=local runs the steps with what is installed here"
            )
        if asked:
            placed.notes.append(
                f"{asked} has no effect with --environment={kind}: steps run in the interpreter that starts the "
                "flow, with what is installed there"
            )
        return placed
    from ._build import environments

    wants = {step: want_of(step, decorators, base) for step, decorators in steps.items()}
    top = options.get("flow_options") or {}
    made = environments(wants, bool(top.get("force_rebuild_environments")))
    for step, one in made.items():
        placed.settings[step] = {"interpreter": one.python, "environment": one.variables()}
        placed.locks[step] = one.lock
    return placed


def _asking(steps: Mapping[str, List[Any]], base: List[Any]) -> str:
    """The first decorator that asks for packages, as a message names it; "": none does."""
    for one in base:
        if one.name in ("pypi_base", "conda_base"):
            return f"@{one.name}"
    for step, decorators in steps.items():
        for one in decorators:
            if one.name in STEP and str(one.attributes["disabled"]).lower() != "true":
                return f"@{one.name} of step '{step}'"
    return ""
