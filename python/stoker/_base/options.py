"""What ``stoker run FILE --option …`` was asked for, as the program that it starts finds it."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping


def asked() -> Mapping[str, Any]:
    """Name → value, from ``STOKER_RUN_OPTIONS``.

    Raises:
        ValueError: the variable holds no JSON object.
    """
    text = os.environ.get("STOKER_RUN_OPTIONS")
    if not text:
        return {}
    try:
        options = json.loads(text)
    except ValueError as bad:
        raise ValueError(f"STOKER_RUN_OPTIONS is not JSON: {bad}") from None
    if not isinstance(options, dict):
        raise ValueError("STOKER_RUN_OPTIONS must be a JSON object")
    return options
