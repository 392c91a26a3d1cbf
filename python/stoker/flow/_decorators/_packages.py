"""Decorators of packages: @pypi and @conda of steps, and their bases of flows.

``_environments/`` reads them together; none of them says anything by itself.
"""

from __future__ import annotations

from typing import Any, Dict

from ._base import FlowDecorator, StepDecorator


class Pypi(StepDecorator):
    """``@pypi(packages={…}, python=…)``: packages of this step, over those of ``@pypi_base``."""

    name = "pypi"
    defaults: Dict[str, Any] = {"packages": {}, "python": None, "disabled": None}


class Conda(StepDecorator):
    """``@conda(packages={…}, python=…)``: packages of this step, over those of ``@conda_base``."""

    name = "conda"
    defaults: Dict[str, Any] = {"packages": {}, "libraries": {}, "python": None, "disabled": None}


class PypiBase(FlowDecorator):
    """``@pypi_base(packages={…})``: packages of all steps."""

    name = "pypi_base"
    defaults: Dict[str, Any] = {"packages": {}, "python": None, "disabled": None}


class CondaBase(FlowDecorator):
    """``@conda_base(packages={…})``: packages of all steps."""

    name = "conda_base"
    defaults: Dict[str, Any] = {"packages": {}, "libraries": {}, "python": None, "disabled": None}
