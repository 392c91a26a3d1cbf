"""``python -m stoker …``: the ``stoker`` command with this interpreter as its Python."""

from __future__ import annotations

import os
import sys

from ._base.binary import find
from ._base.errors import EngineError


def main() -> None:
    """Become the binary. Exit status 3: it is missing."""
    try:
        binary = find()
    except EngineError as error:
        print(f"stoker: {error}", file=sys.stderr)
        sys.exit(3)
    os.environ.setdefault("STOKER_PYTHON", sys.executable)
    os.execv(binary, [binary, *sys.argv[1:]])


if __name__ == "__main__":
    main()
