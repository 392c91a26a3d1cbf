"""SHA-256 of small things: hashlib loads OpenSSL, which costs each start, and each fork after it, more than it saves.

Large things (artifacts) are the engine's to sum.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha256
else:
    try:  # as the standard library's `random` does
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256

__all__ = ["sha256"]
