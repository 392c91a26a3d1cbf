"""Decorators of steps without effect on the step; kept with the run's record."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ._base import StepDecorator


class _Packages(StepDecorator):
    def note(self) -> Optional[str]:
        return (
            f"@{self.name} has no effect here: steps run in the interpreter that starts the flow, with what is "
            "installed there"
        )


class Pypi(_Packages):
    """``@pypi(packages={…}, python=…)``."""

    name = "pypi"
    defaults: Dict[str, Any] = {"packages": {}, "python": None, "disabled": None}


class Conda(_Packages):
    """``@conda(packages={…}, python=…)``."""

    name = "conda"
    defaults: Dict[str, Any] = {"packages": {}, "libraries": {}, "python": None, "disabled": None}
