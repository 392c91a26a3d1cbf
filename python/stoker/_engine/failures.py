"""The exceptions for a run that didn't succeed."""

from __future__ import annotations

from typing import Optional

from .._base.errors import StokerError
from .client import PipelineRun


class PipelineFailed(StokerError, RuntimeError):
    """The run failed. ``run`` is its record, ``traceback`` is that of the failed step.

    Example::

        try:
            digits()
        except PipelineFailed as exc:
            print(exc.run.id, exc)
    """

    exit_status = 1
    told = True

    def __init__(
        self, text: str, run: Optional[PipelineRun] = None, traceback: Optional[str] = None
    ) -> None:
        super().__init__(text)
        self.run = run
        self.traceback = traceback


class PipelineCancelled(PipelineFailed):
    """The run was cancelled.

    Example::

        try:
            digits()
        except PipelineCancelled:
            print("cancelled")
    """

    exit_status = 130
