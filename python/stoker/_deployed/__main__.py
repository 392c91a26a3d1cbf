"""``python -m stoker._deployed run NAME``, as timers and crontab call it."""

import json
import sys
import time

from .._base.errors import StokerError
from . import find, start, units


def main() -> int:
    """Start a run, unless it isn't time; returns the exit status."""
    if len(sys.argv) != 3 or sys.argv[1] != "run":
        print("usage: python -m stoker._deployed run NAME", file=sys.stderr)
        return 2
    record = find(sys.argv[2])
    why = None if record.get("active", True) else "it isn't active"
    why = why or units.why_not(record["schedule"], time.time())
    print(f"'{record['name']}' doesn't start: {why}" if why else json.dumps(start(record).wait()))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except StokerError as bad:
        sys.exit(f"stoker: {bad}")
