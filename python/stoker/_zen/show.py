"""``zenml.show()``: where the latest run can be looked at."""

from __future__ import annotations

from typing import Any

from .._base.errors import say
from .artifacts import store_folder


def show(*_: Any, **__: Any) -> None:
    """Say where the latest run's card is: there is no dashboard."""
    import os

    from .runs import runs

    latest = runs()[-1:]
    folder = store_folder()
    if not latest or folder is None:
        say("no run is here yet; after one, `stoker card` names its page")
        return
    say(
        f"the latest run's page is {os.path.join(folder, 'runs', latest[0].native.id, 'card.html')}"
    )
