"""A rank's line to its launcher (``src/host/launch/launch_line.c``): how far it has come, and who else has.

The launcher knows which ranks live, on every node: it opens a gate once all have come there, and ends whoever
waits once one has ended before. So nothing here looks at a clock. Works on Python 3.7, as all that a worker needs.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, NoReturn

SCRIPT, RETURNED, ALONE = range(3)  # the gates, as launch_private.h has them
_FAILED = 255
VARIABLE = "STOKER_RANK_LINE"  # descriptors: what ranks say, then each gate


class Line:
    """The line of the rank whose number among those of its launcher is ``local``."""

    def __init__(self, local: int) -> None:
        said = os.environ.pop(VARIABLE, "")
        self._fds: List[int] = [int(one) for one in said.split(",") if one]
        self._local = local.to_bytes(2, "little")
        for fd in self._fds:
            os.set_inheritable(fd, False)

    def come(self, gate: int) -> None:
        """Say that this rank is at ``gate``; the others needn't wait for it there."""
        if self._fds:
            os.write(self._fds[0], self._local + bytes([gate, 0]))

    def barrier(self, gate: int) -> None:
        """Wait until every rank has come to ``gate``; SIGTERM is answered as it was before."""
        if self._fds:
            import select

            poll = select.poll()
            poll.register(self._fds[1 + gate], select.POLLIN)
            poll.poll()  # again after a signal

    def over(self, gate: int) -> bool:
        """As :meth:`barrier`, of a rank whose work is done: SIGTERM only ends the waiting.

        Returns:
            Whether all have come; False: this rank is told to end. Because of another rank: doesn't return.
        """
        import signal

        def told(number: int, frame: Any) -> NoReturn:
            raise InterruptedError

        before = signal.signal(signal.SIGTERM, told)
        try:
            self.barrier(gate)
            return True
        except InterruptedError:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if ended_by_another():
                os.kill(os.getpid(), signal.SIGTERM)
            return False
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)

    def fall(self) -> None:
        """Say that this rank's function failed, and see to it that it can say why: SIGTERM waits no longer for it."""
        import signal

        if self._fds:
            os.write(self._fds[0], self._local + bytes([_FAILED, 0]))
            signal.signal(signal.SIGTERM, signal.SIG_IGN)


def ended_by_another() -> bool:
    """Is this process a rank that is told to end because another one has ended? Then it is no preemption."""
    own = os.environ.get("STOKER_RANK_DIR")
    return bool(own) and os.path.exists(f"{own}/ended")
