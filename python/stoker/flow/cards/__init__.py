"""Cards: a step's report as one HTML page.

``@card`` on a step, ``current.card.append(Markdown("# …"))`` in it; ``python flow.py card view``,
``stoker card RUN/STEP/ID`` or :func:`get_cards` afterwards (and while it runs). The step writes
components as JSON into the attempt directory; the engine renders the page
(docs/formats/task-directory.md, "Cards"). Reading a card needs none of these modules.
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
