"""A materializer's report about the file that it wrote."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Optional


class Saved:
    """A materializer's report.

    Attributes:
        format: the name that picks the loader.
        meta: data for the loader, JSON.
        metadata: for the user, JSON; shown with the output.
    """

    __slots__ = ("format", "meta", "metadata")

    def __init__(
        self,
        format: str,
        meta: Dict[str, Any],
        metadata: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.format = format
        self.meta = meta
        self.metadata = metadata or {}
