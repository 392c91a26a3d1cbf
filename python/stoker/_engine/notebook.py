"""What runs, steps and artifacts look like in a notebook: cards and values as HTML in the cell."""

from __future__ import annotations

import html
import os
from typing import Any, Optional

from .._base.binary import output_of

_MOST = 10 << 20  # bytes: a larger artifact isn't loaded to show it
_TEXT = 2000  # characters of a value's repr


def card(target: str, store: Optional[str]) -> str:
    """The card of ``RUN`` or ``RUN/STEP``, inline: a frame without scripts that holds the page.

    Raises:
        EngineError: the run or step is not there.
    """
    path = output_of(["card", target], store).strip()
    with open(path, encoding="utf-8") as stream:
        page = html.escape(stream.read())
    return (
        f'<iframe srcdoc="{page}" sandbox style="width:100%;height:560px;border:0" '
        f'title="{html.escape(target)}"></iframe>'
    )


def artifact(version: Any) -> str:
    """The artifact's name, type and size, and its value as it shows itself."""
    size = f"{version.size:,} bytes"
    head = html.escape(f"{version.name} · {version.data_type} · {size} · {version.id[:12]}")
    return f"<div><code>{head}</code></div>{_value(version)}"


def _value(version: Any) -> str:
    if version.size > _MOST:
        return f"<pre>too large to show; it is in {html.escape(os.fspath(version.uri))}</pre>"
    try:
        value = version.load()
    except Exception as exc:  # whatever its materializer raises
        return f"<pre>{html.escape(f'{type(exc).__name__}: {exc}')}</pre>"
    shown = getattr(value, "_repr_html_", None)
    own = shown() if callable(shown) and not isinstance(value, type) else None
    if isinstance(own, str):
        return own
    text = repr(value)
    if len(text) > _TEXT:
        text = text[:_TEXT] + " …"
    return f"<pre>{html.escape(text)}</pre>"
