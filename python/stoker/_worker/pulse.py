"""A rank's report to the gang's watchdog: whether it waits in a collective, in which one, and its
progress.

A rank that waits for others may look busy, because NCCL and MPI spin. So a thread of the rank reads
PyTorch's flight recorder (its counters, if it is on) and the main thread's position several times
within the gang's ``hang``, and writes changes to ``rank-K/pulse.json``. While a rank waits in the
same collective, its use of CPU and device is no progress (``src/host/launch/launch_pulse.c``). At a
hang the launcher makes the file ``rank-K/ask``: then the rank writes the recorder's whole dump to
``rank-K/flight.json``, and names the collective in the pulse. This module imports only modules that
are loaded already, and doesn't need the main thread, which may block in C unless it holds the GIL.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, Dict, List, Mapping, Optional, Tuple

_RECORDER = "torch._C._distributed_c10d"
_DUMPS = ("_dump_nccl_trace_json", "_dump_fr_trace_json")  # for NCCL; for the other backends
_LIBRARIES = ("/torch/distributed/", "/mpi4py/", "/horovod/", "/jax/experimental/multihost_utils")
_COLLECTIVES = frozenset(
    (
        *("all_reduce", "allreduce", "all_gather", "allgather", "all_gather_into_tensor"),
        *("all_gather_object", "reduce_scatter", "reduce_scatter_tensor", "all_to_all"),
        *("all_to_all_single", "alltoall", "barrier", "monitored_barrier", "broadcast"),
        *("broadcast_object_list", "reduce", "gather", "scatter", "sync_global_devices"),
    )
)
# modules in which libraries wait
_WAITING = ("/threading.py", "/selectors.py", "/socket.py", "/ssl.py")
_LOOKS = 10
_PERIOD_S = (0.1, 0.5)


def start(folder: str, hang_ms: int) -> Pulse:
    """Start the reports, for a gang whose watchdog waits ``hang_ms`` milliseconds."""
    period = min(max(hang_ms / 1000 / _LOOKS, _PERIOD_S[0]), _PERIOD_S[1])
    pulse = Pulse(folder)
    thread = threading.Thread(target=pulse.run, args=(period,), name="stoker-pulse", daemon=True)
    thread.start()
    return pulse


class Pulse:
    """The pulse of one rank; ``ident`` is the thread that runs the step."""

    def __init__(self, folder: str, ident: Optional[int] = None) -> None:
        self.folder = folder
        self.ident = ident or threading.main_thread().ident
        self._written = ""
        self._calls = 0  # number of collectives that the rank was seen to leave
        self._place: Optional[Tuple[Any, ...]] = None
        self._held: Optional[FrameType] = None

    def run(self, period_s: float) -> None:
        """Report until the launcher asks for a dump, which it does before it ends the process."""
        asked = False
        while not asked:
            time.sleep(period_s)
            asked = os.path.exists(f"{self.folder}/ask")
            try:
                self.write(self.state())
                if asked:
                    self.write({**self.state(named=True), "asked": True})
            except (
                Exception
            ):  # without reports the rank's CPU and device count as progress, like any program's
                return

    def state(self, named: bool = False) -> Dict[str, Any]:
        """The current state: ``waits``, ``groups`` (process group → [issued, done]), ``group``,
        ``op``, ``calls``.

        Args:
            named: also read the collective from the recorder, and write its dump to
                ``flight.json``.
        """
        groups, entries = _recorded(self.folder if named else None)
        pending = [name for name, (issued, done) in groups.items() if issued > done]
        found: Dict[str, Any] = {"waits": bool(pending), "groups": groups}
        standing = self._standing()
        if pending:
            found["group"] = pending[0]
            entry = _entry_of(entries, pending[0], groups[pending[0]][0])
            found["op"] = standing if entry is None else _name_of(entry)
            if entry is not None:
                members = _members_of(entry)
                if members:
                    found["members"] = members
                if members and not _is_whole(entry):
                    among = ", ".join(map(str, members))
                    found["op"] += f" in process group {entry['process_group'][0]} (ranks {among})"
        elif standing is not None:
            found.update(waits=True, op=standing)
        found["calls"] = self._calls
        return found

    def write(self, state: Dict[str, Any]) -> None:
        """Write a changed state, with a rename; the watchdog counts written bytes as progress. An
        unchanged state only gets a new time, to show that the rank lives."""
        text = json.dumps(state)
        path = f"{self.folder}/pulse.json"
        if text == self._written:
            os.utime(path)
        else:
            self._written = text
            with open(path + ".tmp", "w", encoding="utf-8") as stream:
                stream.write(text)
            os.rename(path + ".tmp", path)

    def _standing(self) -> Optional[str]:
        """The collective function that the main thread is in, or None.

        A loop may call the same function many times. A frame that was seen at the same place twice
        is kept, so that no other call can reuse its address; it is released when it isn't the
        current one.
        """
        frame = collective_of(sys._current_frames().get(self.ident or 0))
        place = None if frame is None else (frame.f_code, frame.f_lasti, id(frame))
        if place != self._place or (self._held is not None and self._held is not frame):
            self._calls += 1 if self._place is not None else 0
            self._held = None
        elif frame is not None:
            self._held = frame
        self._place = place
        return None if frame is None else frame.f_code.co_name


def collective_of(frame: Optional[FrameType]) -> Optional[FrameType]:
    """The frame that waits for other ranks, for a thread with the innermost frame ``frame``; None:
    it doesn't wait.

    Only the innermost function counts, because functions of distributed libraries also call user
    code.
    """
    while frame is not None and frame.f_code.co_filename.endswith(_WAITING):
        frame = frame.f_back
    if frame is None:
        return None
    ours = any(one in frame.f_code.co_filename for one in _LIBRARIES)
    return frame if ours or frame.f_code.co_name in _COLLECTIVES else None


def _recorded(keep_in: Optional[str]) -> Tuple[Dict[str, List[int]], List[Dict[str, Any]]]:
    """PyTorch's counters (process group's id → [issued, done]), and the active collectives if it
    keeps them."""
    module = sys.modules.get(_RECORDER)
    groups: Dict[str, List[int]] = {}
    entries: List[Dict[str, Any]] = []
    dumps = {}
    for name in _DUMPS:
        dump = getattr(module, name, None)
        if dump is None:
            continue
        text = dump(keep_in is not None, False)
        account = json.loads(text)
        dumps[name] = account
        entries += account.get("entries") or []
        for group, status in (account.get("pg_status") or {}).items():
            issued = int(status.get("last_enqueued_collective", -1))
            if issued > groups.get(group, [0, 0])[0]:
                groups[group] = [issued, max(int(status.get("last_completed_collective", -1)), 0)]
    if keep_in is not None and any(one.get("pg_status") for one in dumps.values()):
        path = f"{keep_in}/flight.json"
        with open(path, "w", encoding="utf-8") as stream:
            json.dump({name: one for name, one in dumps.items() if one.get("pg_status")}, stream)
    return groups, entries


def _entry_of(entries: List[Dict[str, Any]], group: str, number: int) -> Optional[Dict[str, Any]]:
    """The recorder's entry of the collective with that number."""
    found = [one for one in entries if str(one.get("pg_id")) == group]
    return next((one for one in reversed(found) if one.get("collective_seq_id") == number), None)


def _name_of(entry: Mapping[str, Any]) -> str:
    """The collective's name, such as ``gloo:all_reduce of 4 Float``."""
    sizes = ", ".join("x".join(map(str, one)) for one in entry.get("input_sizes") or [])
    types = ", ".join(entry.get("input_dtypes") or [])
    about = f" of {sizes} {types}".rstrip() if sizes or types else ""
    return f"{entry.get('profiling_name')}{about}"


def _is_whole(entry: Mapping[str, Any]) -> bool:
    """Whether its process group has all ranks."""
    said = entry.get("process_group") or ["0"]
    return said[0] == "0" or "default_pg" in said[1:]


def _members_of(entry: Mapping[str, Any]) -> List[int]:
    """The ranks of its process group, from torch.distributed."""
    world: Any = getattr(sys.modules.get("torch.distributed.distributed_c10d"), "_world", None)
    name = (entry.get("process_group") or [""])[0]
    for group, own in dict(getattr(world, "pg_names", {})).items():
        if own == name:
            return sorted(world.pg_group_ranks.get(group) or ())
    return []
