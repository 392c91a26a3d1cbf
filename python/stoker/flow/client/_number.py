"""Ids of runs as whole numbers, for programs that use them as such."""

from __future__ import annotations

import calendar
import re
import time
from typing import Any, Tuple

_FORM = re.compile(r"(\d{8}-\d{6})-([0-9a-f]{6})")
_TIME = "%Y%m%d-%H%M%S"
_SHIFT = 24  # bits of the id's last part: the millisecond, then 14 random ones


class RunId(str):
    """A run's id; ``int()`` gives a number that grows with the millisecond of the run's
    start (Metaflow's: microsecond), and by which ``Run("Flow/NUMBER")`` and ``Flow(…)[NUMBER]`` find the run."""

    __slots__ = ()

    def __int__(self) -> int:
        found = _FORM.fullmatch(self)
        if found is None:
            return int("".join(self))
        second = calendar.timegm(time.strptime(found[1], _TIME))
        return second << _SHIFT | int(found[2], 16)

    def __reduce__(self) -> Tuple[Any, ...]:
        return str, ("".join(self),)


def run_named(text: str) -> str:
    """The id of a run that is named by its number; any other text as it is."""
    if not text.isdigit() or not 10**16 <= int(text) < 10**18:
        return text
    number = int(text)
    when = time.strftime(_TIME, time.gmtime(number >> _SHIFT))
    return f"{when}-{number & (1 << _SHIFT) - 1:06x}"
