"""System tags of flows' runs: runs can be found by them, and users can't change them."""

from __future__ import annotations

import sys
import time
from typing import List

from .. import __version__
from ._current import username

METAFLOW_VERSION = "2.19.39"  # the version whose behaviour flows follow


def metaflow_version() -> str:
    """The version of Metaflow whose interface and behaviour Stoker's flows follow."""
    return METAFLOW_VERSION


def system_tags() -> List[str]:
    """User, date and versions, as ``name:value``."""
    return [
        f"user:{username()}",
        "runtime:dev",
        f"date:{time.strftime('%Y-%m-%d')}",
        f"python_version:{sys.version.split()[0]}",
        f"metaflow_version:{METAFLOW_VERSION}",
        f"stoker_version:{__version__}",
    ]
