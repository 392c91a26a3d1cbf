"""Names with placeholders."""

from __future__ import annotations

import re
import time
from typing import Mapping, Optional

from .errors import EntityExistsError


def stamped(text: str, substitutions: Mapping[str, str], now: Optional[float] = None) -> str:
    """A name with ``{date}``, ``{time}`` and substitutions filled in."""
    now = time.time() if now is None else now
    known = {
        "date": time.strftime("%Y_%m_%d", time.gmtime(now)),
        "time": time.strftime("%H_%M_%S", time.gmtime(now)) + f"_{int(now * 1e6) % 1000000:06d}",
        **substitutions,
    }
    for key, value in known.items():
        text = text.replace("{" + key + "}", str(value))
    return text


def filled(text: str, substitutions: Mapping[str, str], now: Optional[float] = None) -> str:
    """The same.

    Raises:
        KeyError: a placeholder has no substitution.
    """
    name = stamped(text, substitutions, now)
    left = re.search(r"\{(\w+)\}", name)
    if left is not None:
        raise KeyError(f"Could not format the name template `{text}`. Missing key: {left[1]!r}")
    return name


def run_name(template: Optional[str], pipeline: str, substitutions: Mapping[str, str]) -> str:
    """The name of a run that begins now; without a template ``PIPELINE-DATE-TIME``.

    Raises:
        ValueError: a placeholder has no substitution.
        EntityExistsError: a run has this name.
    """
    if template is None:
        return stamped(f"{pipeline}-{{date}}-{{time}}", {})
    name = stamped(template, substitutions)
    left = re.search(r"\{[^{}]*\}", name)
    if left is not None:
        raise ValueError(
            f"pipeline '{pipeline}': the name of its run, '{template}', has the placeholder "
            f"'{left[0]}', which substitutions don't give"
        )
    if "{time}" not in template and _is_taken(name):
        raise EntityExistsError(
            f"pipeline '{pipeline}': a run '{name}' exists already; give the run another name, "
            "for example with '{date}' and '{time}' in it"
        )
    return name


def _is_taken(name: str) -> bool:
    from .runs import runs

    return any(run.name == name for run in runs())
