"""``python -m stoker._zen.launched DIR [--main FILE]``: the step that a step operator launches.

Its status is 1 if the step failed.
"""

from __future__ import annotations

import json
import os
import sys

from .._worker.__main__ import main

if __name__ == "__main__":
    folder = sys.argv[1]
    status = main(sys.argv[1:])
    with open(os.path.join(folder, "result.json"), encoding="utf-8") as stream:
        result = json.load(stream)
    sys.exit(status or int(result["status"] != "ok"))
