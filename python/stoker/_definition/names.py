"""Names that the spec allows for steps, their arguments and outputs."""

from __future__ import annotations

import re
from typing import Any

from .._base.errors import StepInterfaceError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
STEP_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")


def plain_name(name: str) -> str:
    """The step's name in the spec for a name that the spec doesn't allow (in the compatibility
    shim)."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name).lstrip("-")[:128] or "step"


def check_name(name: Any, what: str) -> None:
    """Check a step's name.

    Raises:
        StepInterfaceError: the spec doesn't allow it.
    """
    if not isinstance(name, str) or not STEP_NAME.fullmatch(name):
        raise StepInterfaceError(
            f"{what} {name!r} may hold letters, digits, '_' and '-' only (128 at most), and can't begin with "
            "'-'; give it another one with @step(name=...) or id="
        )
