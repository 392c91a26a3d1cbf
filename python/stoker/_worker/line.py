"""A rank's line to its launcher (``src/host/launch/launch_line.c``): reports progress and waits for
the other ranks.

The launcher knows which ranks live on all nodes. It opens a gate when all ranks have reached it,
and ends the waiting ranks if one has ended before. So this module needs no timeout. Works on Python
3.7, like all modules of the worker.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, NoReturn

SCRIPT, RETURNED, ALONE = range(3)  # the gates, as in launch_private.h
_FAILED = 255
VARIABLE = "STOKER_RANK_LINE"  # descriptors: one for the ranks' reports, then one for each gate


class Line:
    """The line of the rank with the number ``local`` among its launcher's ranks."""

    def __init__(self, local: int) -> None:
        said = os.environ.pop(VARIABLE, "")
        self._fds: List[int] = [int(one) for one in said.split(",") if one]
        self._local = local.to_bytes(2, "little")
        for fd in self._fds:
            os.set_inheritable(fd, False)

    def come(self, gate: int) -> None:
        """Report that this rank is at ``gate``; the others don't wait for it there any longer."""
        if self._fds:
            os.write(self._fds[0], self._local + bytes([gate, 0]))

    def barrier(self, gate: int) -> None:
        """Wait until every rank has reached ``gate``. SIGTERM keeps its handler."""
        if self._fds:
            import select

            poll = select.poll()
            poll.register(self._fds[1 + gate], select.POLLIN)
            poll.poll()  # Python retries it after a signal

    def over(self, gate: int) -> bool:
        """Like :meth:`barrier`, for a rank whose work is done: SIGTERM only ends the wait.

        Returns:
            True: all ranks have reached the gate; False: this rank was told to end. Doesn't return
                if it was told
            so because of another rank.
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

    def last(self, seconds: float) -> None:
        """Give the other ranks this long to end, too; for a rank whose function failed. SIGTERM
        only ends the wait."""
        import select
        import signal

        def told(number: int, frame: Any) -> NoReturn:
            raise InterruptedError

        if not self._fds:
            return
        try:
            signal.signal(signal.SIGTERM, told)
            self.come(RETURNED)
            poll = select.poll()
            poll.register(self._fds[1 + RETURNED], select.POLLIN)
            poll.poll(int(seconds * 1000))
        except InterruptedError:
            pass
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

    def fall(self) -> None:
        """Report that this rank's function failed. Ignores SIGTERM before that, so that the rank
        can report why."""
        import signal

        if self._fds:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            os.write(self._fds[0], self._local + bytes([_FAILED, 0]))


def ended_by_another() -> bool:
    """Whether this rank is told to end because another rank has ended, which is not a
    preemption."""
    own = os.environ.get("STOKER_RANK_DIR")
    return bool(own) and os.path.exists(f"{own}/ended")
