"""The base of the front: its errors, the ``stoker`` binary, small digests."""

import os

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""The front's own folder: what lies below it is no user's code."""
