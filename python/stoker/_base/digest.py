"""SHA-256 and SHA-1 (git's) of small data, without hashlib: that loads OpenSSL, which slows each start and fork more
than it saves.

The engine hashes large data (artifacts).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hashlib import sha1, sha256
else:
    try:  # like the standard library's `random`
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256
    try:
        from _sha1 import sha1
    except ImportError:
        from hashlib import sha1

__all__ = ["sha1", "sha256"]
