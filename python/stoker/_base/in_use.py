"""Environments of ``@pypi`` and ``@conda`` that are in use, which ``stoker store gc`` doesn't remove.

``src/run/run_environments.c`` reads what is written here.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

FACTS = "stoker.json"  # written last: an environment without it isn't finished


def use(folder: str) -> Optional[int]:
    """Take an environment into use.

    Returns:
        A descriptor of its facts: as long as it is open, here or in a fork, the environment stays;
        None: there is no such environment.
    """
    try:
        fd = os.open(os.path.join(folder, FACTS), os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    import fcntl

    try:
        fcntl.flock(fd, fcntl.LOCK_SH)
        os.utime(fd)
    except OSError:  # the file system has no locks, or another user made it
        pass
    if os.fstat(fd).st_nlink == 0:  # it was being removed
        os.close(fd)
        return None
    return fd
