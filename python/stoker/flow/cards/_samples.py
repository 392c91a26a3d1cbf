"""Small types of cards and components that Metaflow's package has beside the default ones, for
programs that try out cards."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, Optional, Sequence

from ._components import MetaflowCardComponent
from ._types import MetaflowCard

_SEPARATOR = "$&#!!@*"


class TestStringComponent(MetaflowCardComponent):
    """A text."""

    REALTIME_UPDATABLE = True

    def __init__(self, text: Any) -> None:
        self._text = text

    def render(self) -> str:
        return str(self._text)

    def update(self, text: Any) -> None:
        """Replace the text."""
        self._text = text


class TaskSpecCard(MetaflowCard):
    """The task's pathspec."""

    type = "taskspec_card"

    def render(self, task: Any) -> str:
        return str(task.pathspec)


class TestPathSpecCard(MetaflowCard):
    """The task's pathspec, and some random digits."""

    type = "test_pathspec_card"

    def render(self, task: Any) -> str:
        return f"{task.pathspec} {os.urandom(3).hex()}"


class _Joined(MetaflowCard):
    def __init__(self, components: Sequence[Any] = (), **_: Any) -> None:
        self._components = components

    def render(self, task: Any) -> str:
        return _SEPARATOR.join(map(str, self._components))


class TestEditableCard(_Joined):
    """The appended components, joined."""

    type = "test_editable_card"
    separator = _SEPARATOR
    ALLOW_USER_COMPONENTS = True


class TestEditableCard2(TestEditableCard):
    """The same, as another type."""

    type = "test_editable_card_2"


class TestNonEditableCard(_Joined):
    """A card that takes no components."""

    type = "test_non_editable_card"
    separator = _SEPARATOR


class TestMockCard(MetaflowCard):
    """One artifact's value."""

    type = "test_mock_card"

    def __init__(self, options: Optional[Dict[str, Any]] = None, **_: Any) -> None:
        self._key = (options or {"key": "dummy_key"})["key"]

    def render(self, task: Any) -> str:
        return str(task[self._key].data)


class TestErrorCard(MetaflowCard):
    """A card whose rendering fails."""

    type = "test_error_card"

    def render(self, task: Any) -> str:
        raise Exception("Unknown Things Happened")


class TestTimeoutCard(MetaflowCard):
    """A card that takes ``options["timeout"]`` seconds."""

    type = "test_timeout_card"

    def __init__(self, options: Optional[Dict[str, Any]] = None, **_: Any) -> None:
        self._timeout = (options or {}).get("timeout", 10)

    def render(self, task: Any) -> str:
        time.sleep(self._timeout)
        return str(task.pathspec)
