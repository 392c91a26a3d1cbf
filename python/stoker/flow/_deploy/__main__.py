"""``python -m stoker.flow._deploy``."""

import sys

from ..._base.errors import StokerError
from . import main

if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except StokerError as bad:
        sys.exit(f"stoker: {bad}")
