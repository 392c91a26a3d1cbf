"""Cards: what a step reports, as one HTML page.

``@card`` on a step, ``current.card.append(Markdown("# …"))`` in it; ``python flow.py card view``, ``stoker card
RUN/STEP/ID`` or :func:`get_cards` afterwards (and while it runs). Components are written as JSON into the attempt
directory; the engine makes the page (docs/formats/task-directory.md, "Cards"). Nothing here is needed to read one.
"""

from __future__ import annotations

from ._client import Card, CardContainer, get_cards
from ._components import (
    Artifact,
    Error,
    EventsTimeline,
    Image,
    JSONViewer,
    Markdown,
    MetaflowCardComponent,
    ProgressBar,
    PythonCode,
    Table,
    UserComponent,
    ValueBox,
    VegaChart,
    YAMLViewer,
)
from ._types import BlankCard, DefaultCard, ErrorCard, MetaflowCard

__all__ = [
    "Artifact",
    "BlankCard",
    "Card",
    "CardContainer",
    "DefaultCard",
    "Error",
    "ErrorCard",
    "EventsTimeline",
    "Image",
    "JSONViewer",
    "Markdown",
    "MetaflowCard",
    "MetaflowCardComponent",
    "ProgressBar",
    "PythonCode",
    "Table",
    "UserComponent",
    "ValueBox",
    "VegaChart",
    "YAMLViewer",
    "get_cards",
]
