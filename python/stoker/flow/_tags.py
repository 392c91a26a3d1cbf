"""Tags that every run of a flow has, by which it is found and which nobody can change."""

from __future__ import annotations

import sys
import time
from typing import List

from .. import __version__
from ._current import username

METAFLOW_VERSION = "2.19.39"  # the one whose behaviour is kept


def metaflow_version() -> str:
    """The version of Metaflow whose interface and behaviour flows have here."""
    return METAFLOW_VERSION


def system_tags() -> List[str]:
    """Who, when and with what, as ``name:value``."""
    return [
        f"user:{username()}",
        "runtime:dev",
        f"date:{time.strftime('%Y-%m-%d')}",
        f"python_version:{sys.version.split()[0]}",
        f"metaflow_version:{METAFLOW_VERSION}",
        f"stoker_version:{__version__}",
    ]
