"""``python -m stoker._trackers NAME,…``: reads a run's events from stdin."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Follow one run to its end."""
    here = os.getcwd()
    if sys.path and sys.path[0] in ("", here):  # files there may have the trackers' names
        del sys.path[0]
    from . import secrets
    from .follow import Follower
    from .line import Line

    say = secrets.take_output()
    lines = [Line(name, say) for name in dict.fromkeys(sys.argv[1].split(","))]
    follower = Follower(0, lines)
    follower.run()
    return secrets.finish(lines)


if __name__ == "__main__":
    sys.exit(main())
